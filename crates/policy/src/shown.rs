//! Text as a person must see it before answering for it: control, format and separator characters escaped, and what
//! looks like something else named. What is not here: judging; the bytes that run are never changed.

use serde::Serialize;

/// A text made safe to show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// The whole text, with every character that a person cannot see or that moves others as `\u{…}`; a backslash that
    /// stands before `u{` is escaped too, so that an escape in the text itself cannot be taken for one of ours.
    pub text: String,
    /// What a person should be warned of; empty means nothing.
    pub warnings: Vec<Warning>,
}

/// What may mislead a person who reads a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Warning {
    /// Characters without a width of their own, or that steer a terminal or the direction of text.
    HiddenCharacters,
    /// A line break, which may make one field look like several.
    LineBreak,
    /// A word that mixes Latin letters with letters of another alphabet.
    MixedAlphabets,
    /// So long that its end may be overlooked.
    Long,
}

/// Characters beyond which a text is `Long`.
pub const LONG: usize = 1_000;

/// Makes a text safe to show; nothing is cut.
#[must_use]
pub fn shown(text: &str) -> Shown {
    let mut out = String::with_capacity(text.len());
    let mut warnings = Vec::new();
    let mut warn = |warning: Warning| {
        if !warnings.contains(&warning) {
            warnings.push(warning);
        }
    };
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if is_hidden(c) {
            warn(if matches!(c, '\n' | '\r') { Warning::LineBreak } else { Warning::HiddenCharacters });
            out.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
        } else if c == '\\' && rest.peek() == Some(&'u') {
            out.push_str("\\\\");
        } else {
            out.push(c);
        }
    }
    if mixes_alphabets(text) {
        warn(Warning::MixedAlphabets);
    }
    if text.chars().count() > LONG {
        warn(Warning::Long);
    }
    warnings.sort_unstable();
    Shown { text: out, warnings }
}

/// Whether a character is a control, format, separator (other than the space) or otherwise invisible character.
#[must_use]
pub fn is_hidden(c: char) -> bool {
    c.is_control() || (!c.is_ascii() && HIDDEN.iter().any(|(from, to)| (*from..=*to).contains(&c)))
}

/// Unicode Cf, Zl, Zp, Zs without the space, and the other characters that are ignored where they cannot be drawn.
const HIDDEN: [(char, char); 34] = [
    ('\u{a0}', '\u{a0}'),
    ('\u{ad}', '\u{ad}'),
    ('\u{34f}', '\u{34f}'),
    ('\u{600}', '\u{605}'),
    ('\u{61c}', '\u{61c}'),
    ('\u{6dd}', '\u{6dd}'),
    ('\u{70f}', '\u{70f}'),
    ('\u{890}', '\u{891}'),
    ('\u{8e2}', '\u{8e2}'),
    ('\u{115f}', '\u{1160}'),
    ('\u{1680}', '\u{1680}'),
    ('\u{17b4}', '\u{17b5}'),
    ('\u{180b}', '\u{180f}'),
    ('\u{2000}', '\u{200f}'),
    ('\u{2028}', '\u{202f}'),
    ('\u{205f}', '\u{206f}'),
    ('\u{2800}', '\u{2800}'),
    ('\u{3000}', '\u{3000}'),
    ('\u{3164}', '\u{3164}'),
    ('\u{fe00}', '\u{fe0f}'),
    ('\u{feff}', '\u{feff}'),
    ('\u{ffa0}', '\u{ffa0}'),
    ('\u{fff0}', '\u{fffb}'),
    ('\u{110bd}', '\u{110bd}'),
    ('\u{110cd}', '\u{110cd}'),
    ('\u{13430}', '\u{1343f}'),
    ('\u{1bca0}', '\u{1bca3}'),
    ('\u{1d159}', '\u{1d159}'),
    ('\u{1d173}', '\u{1d17a}'),
    ('\u{e0000}', '\u{e007f}'),
    ('\u{e0080}', '\u{e00ff}'),
    ('\u{e0100}', '\u{e01ef}'),
    ('\u{e01f0}', '\u{e0fff}'),
    ('\u{f0000}', '\u{10ffff}'),
];

/// Whether a word has both Latin letters and letters of another alphabet.
fn mixes_alphabets(text: &str) -> bool {
    let (mut latin, mut other) = (false, false);
    for c in text.chars() {
        if !c.is_alphanumeric() {
            (latin, other) = (false, false);
        } else if c.is_alphabetic() {
            let is_latin = c.is_ascii() || matches!(c, '\u{aa}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}');
            latin |= is_latin;
            other |= !is_latin;
            if latin && other {
                return true;
            }
        }
    }
    false
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn every_format_and_separator_character_is_hidden() {
        let classes = regex::Regex::new(r"\A[\p{Cf}\p{Zl}\p{Zp}\p{Zs}\p{Cc}\p{Co}]\z").unwrap();
        for c in '\0'..=char::MAX {
            if c != ' ' && classes.is_match(c.encode_utf8(&mut [0; 4])) && !('\u{e000}'..='\u{f8ff}').contains(&c) {
                assert!(is_hidden(c), "{:x}", u32::from(c));
            }
        }
        for c in "aZ09 ~é漢Я😀".chars() {
            assert!(!is_hidden(c), "{c}");
        }
    }

    #[test]
    fn escapes_cannot_be_forged_and_nothing_is_cut() {
        assert_eq!(shown("a\u{202e}b").text, r"a\u{202e}b");
        assert_eq!(shown(r"a\u{202e}b").text, r"a\\u{202e}b");
        assert_eq!(shown("plain text").warnings, vec![]);
        assert_eq!(shown("acct\n\nApproved").warnings, vec![Warning::LineBreak]);
        assert_eq!(shown("https://\u{430}pple.com").warnings, vec![Warning::MixedAlphabets]);
        let long = "a ".repeat(2_000) + "; rm -rf /";
        let seen = shown(&long);
        assert_eq!((seen.text.as_str(), seen.warnings), (long.as_str(), vec![Warning::Long]));
        assert_eq!(shown("\u{1b}[2K").text, r"\u{1b}[2K");
    }
}
