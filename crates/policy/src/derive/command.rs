//! Commands as words: a list of words as it is, or one simple command read from a text by a reader so small that it
//! cannot disagree with a shell: whatever a shell might expand, join, redirect or run is refused, never guessed.
//! What is not here: which commands are good (`args`).

use serde_json::Value;

use super::Refused;
use crate::shown::is_hidden;

const MAX_BYTES: usize = 16 * 1024;
const MAX_WORDS: usize = 512;

/// A command as words; at least one, and the first not empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Command {
    words: Vec<String>,
}

impl Command {
    /// Reads a list of texts, or one text.
    pub(crate) fn of(value: &Value) -> Result<Self, Refused> {
        let words = match value {
            Value::String(text) => split(text)?,
            Value::Array(items) => list(items)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => {
                return Err(Refused::Kind("a list of texts or one text"));
            }
        };
        let first = words.first().ok_or(Refused::Empty)?;
        if first.is_empty() {
            return Err(Refused::Empty);
        }
        if first.contains('=') {
            return Err(Refused::Shell("the first word sets a variable"));
        }
        if first.chars().any(is_hidden) || first.contains(' ') {
            return Err(Refused::Hidden);
        }
        Ok(Self { words })
    }

    pub(crate) fn words(&self) -> &[String] {
        &self.words
    }

    /// The first word as it is written.
    pub(crate) fn argv0(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    /// The words after the first.
    pub(crate) fn rest(&self) -> &[String] {
        self.words.get(1..).unwrap_or_default()
    }

    /// What the first word names, whatever its folder, case and Windows ending: for rules that deny.
    pub(crate) fn program(&self) -> String {
        program(self.argv0())
    }
}

/// The bare name of a program.
pub(crate) fn program(text: &str) -> String {
    let name = text.rsplit(['/', '\\']).next().unwrap_or_default().to_lowercase();
    let ending = [".exe", ".cmd", ".bat", ".com", ".ps1"].iter().find_map(|ending| name.strip_suffix(ending));
    ending.map_or_else(|| name.clone(), ToOwned::to_owned)
}

fn list(items: &[Value]) -> Result<Vec<String>, Refused> {
    if items.len() > MAX_WORDS {
        return Err(Refused::Parts(MAX_WORDS));
    }
    let mut bytes = 0;
    let mut words = Vec::with_capacity(items.len());
    for item in items {
        let word = item.as_str().ok_or(Refused::Kind("a list of texts"))?;
        bytes += word.len();
        if bytes > MAX_BYTES {
            return Err(Refused::Long(MAX_BYTES));
        }
        if word.contains('\0') {
            return Err(Refused::Hidden);
        }
        words.push(word.to_owned());
    }
    Ok(words)
}

/// Splits one simple command into words. Quotes group; nothing else has a meaning, and what has one to any common shell
/// is refused.
fn split(text: &str) -> Result<Vec<String>, Refused> {
    if text.len() > MAX_BYTES {
        return Err(Refused::Long(MAX_BYTES));
    }
    if text.chars().any(|c| is_hidden(c) && c != '\t' && c != '\n') {
        return Err(Refused::Hidden);
    }
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            ' ' | '\t' => words.extend(word.take()),
            '\'' => quoted(&mut chars, '\'', word.get_or_insert_default(), |_| None)?,
            '"' => quoted(&mut chars, '"', word.get_or_insert_default(), in_double_quotes)?,
            '=' if word.is_none() => {
                return Err(Refused::Shell("a word that starts with `=` is expanded by some shells"));
            }
            c => match special(c) {
                Some(what) => return Err(Refused::Shell(what)),
                None => word.get_or_insert_default().push(c),
            },
        }
        if words.len() > MAX_WORDS {
            return Err(Refused::Parts(MAX_WORDS));
        }
    }
    words.extend(word);
    Ok(words)
}

fn quoted(
    chars: &mut std::str::Chars<'_>,
    end: char,
    word: &mut String,
    refuse: fn(char) -> Option<&'static str>,
) -> Result<(), Refused> {
    for c in chars.by_ref() {
        if c == end {
            return Ok(());
        }
        if c == '\n' {
            return Err(Refused::Shell("a line break"));
        }
        if let Some(what) = refuse(c) {
            return Err(Refused::Shell(what));
        }
        word.push(c);
    }
    Err(Refused::Shell("a quote is not closed"))
}

const fn in_double_quotes(c: char) -> Option<&'static str> {
    match c {
        '$' | '`' => Some("a substitution"),
        '\\' => Some("a backslash"),
        '!' => Some("history expansion"),
        _ => None,
    }
}

/// What a bare character means to a shell, if anything.
const fn special(c: char) -> Option<&'static str> {
    match c {
        ';' | '&' | '|' | '^' => Some("an operator between commands"),
        '<' | '>' => Some("a redirection"),
        '(' | ')' | '{' | '}' => Some("a group or brace"),
        '$' | '`' => Some("a substitution"),
        '*' | '?' | '[' | ']' => Some("a pattern for file names"),
        '~' => Some("a home directory"),
        '\\' => Some("a backslash"),
        '!' => Some("history expansion or negation"),
        '#' => Some("a comment"),
        '\n' => Some("a line break"),
        _ => None,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn quotes_group_and_nothing_else_happens() {
        for (text, words) in [
            ("git status", vec!["git", "status"]),
            ("  git \t status  ", vec!["git", "status"]),
            ("r'm' -rf \"a b\"c ''", vec!["rm", "-rf", "a bc", ""]),
            ("python -c 'import os; os.remove(\"x\")'", vec!["python", "-c", "import os; os.remove(\"x\")"]),
            ("curl https://a.example/%20x", vec!["curl", "https://a.example/%20x"]),
        ] {
            assert_eq!(Command::of(&json!(text)).unwrap().words(), words, "{text}");
        }
    }

    #[test]
    fn lists_are_taken_as_they_are() {
        assert_eq!(Command::of(&json!(["ls", "a;b", "x\ny"])).unwrap().words(), ["ls", "a;b", "x\ny"]);
        for bad in [
            json!([]),
            json!([""]),
            json!(["ls", 1]),
            json!(["ls", "a\0"]),
            json!(["A=1", "ls"]),
            json!(["l s"]),
            json!(null),
            json!({}),
        ] {
            assert!(Command::of(&bad).is_err(), "{bad}");
        }
        assert!(Command::of(&json!(vec!["a"; 600])).is_err());
    }

    #[test]
    fn programs_are_known_by_any_spelling() {
        for text in ["/usr/bin/RM", "rm.exe", "C:\\bin\\Rm.CMD", "./rm"] {
            assert_eq!(program(text), "rm", "{text}");
        }
    }
}
