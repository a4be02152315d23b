//! Cutting texts into the words that values are compared with. What is not here: comparing (`find`).

use unicode_normalization::UnicodeNormalization;

use crate::exact::Decimal;

/// Compatibility form, lower case, one space for any white space, none at the ends.
pub(super) fn fold(text: &str) -> String {
    if text.is_ascii() {
        // The same for what has no compatibility forms.
        let mut out = String::with_capacity(text.len());
        for word in text.split_whitespace() {
            if !out.is_empty() {
                out.push(' ');
            }
            out.extend(word.chars().map(|c| c.to_ascii_lowercase()));
        }
        return out;
    }
    fold_any(text)
}

fn fold_any(text: &str) -> String {
    let lower: String = text.nfkc().flat_map(char::to_lowercase).collect();
    let mut out = String::with_capacity(lower.len());
    for word in lower.split_whitespace() {
        if !out.is_empty() {
            out.push(' ');
        }
        for c in word.nfkc() {
            match c {
                'ς' => out.push('σ'),
                'ß' => out.push_str("ss"),
                c => out.push(c),
            }
        }
    }
    out
}

const fn is_word(c: char) -> bool {
    // ASCII first: most characters are, and the tables behind `is_alphanumeric` are no constants.
    c.is_ascii_alphanumeric() || c == '_'
}

pub(super) fn is_word_char(c: char) -> bool {
    is_word(c) || (!c.is_ascii() && c.is_alphanumeric())
}

/// Whether a text holds a needle that stands by itself; both folded.
pub(super) fn stands_in(text: &str, needle: &str) -> bool {
    text.match_indices(needle).any(|(at, found)| {
        let before = text.get(..at).unwrap_or_default().chars().rev();
        let after = text.get(at + found.len()..).unwrap_or_default().chars();
        !joined(before) && !joined(after)
    })
}

/// Whether what lies beyond an end of a needle belongs to the same word.
fn joined(mut beyond: impl Iterator<Item = char>) -> bool {
    match beyond.next() {
        None => false,
        Some(c) if is_word_char(c) || is_mark(c) => true,
        Some('-' | '.' | '@' | '/' | '+' | '%' | ':' | '\'' | '&' | '=' | '#' | '\u{2019}') => {
            beyond.next().is_some_and(is_word_char)
        }
        Some(_) => false,
    }
}

/// Combining marks and invisible characters change the word they stand at.
fn is_mark(c: char) -> bool {
    unicode_normalization::char::is_combining_mark(c)
        || (!c.is_ascii() && !c.is_whitespace() && crate::shown::is_hidden(c))
}

/// The e-mail addresses of a folded text.
pub(super) fn emails(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(is_word_char(c) || is_mark(c) || matches!(c, '.' | '%' | '+' | '-' | '@')))
        .map(|word| word.trim_matches(['.', '-', '+', '%']))
        .filter(|word| is_email(word))
}

/// Whether a folded word is one plain address.
pub(super) fn is_email(word: &str) -> bool {
    let fits = |c: char| is_word_char(c) || matches!(c, '.' | '%' | '+' | '-' | '@');
    word.split_once('@').is_some_and(|(local, domain)| {
        !local.is_empty() && !domain.contains('@') && domain.split('.').all(|part| !part.is_empty())
    }) && word.chars().all(fits)
}

/// The words of a text that may be URLs or hosts.
pub(super) fn links(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_whitespace() || matches!(c, '"' | '<' | '>' | '`' | '|'))
        .map(|word| {
            word.trim_start_matches(['(', '[', '{', '\''])
                .trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '}', '\''])
        })
        .filter(|word| word.contains('.') || word.contains("://"))
}

/// The words of a text that may be identifiers.
pub(super) fn ids(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| {
        c.is_whitespace()
            || matches!(c, '"' | '\'' | '`' | '<' | '>' | '(' | ')' | '[' | ']' | '{' | '}' | ',' | ';' | '|' | '=')
    })
    .map(|word| word.trim_matches(['.', ':', '!', '?']))
    .filter(|word| !word.is_empty())
}

/// The numbers of a text in compatibility form.
pub(super) fn numbers(text: &str) -> Vec<Decimal> {
    let chars: Vec<char> = text.chars().collect();
    let at = |idx: usize| chars.get(idx).copied();
    let is_digit = |idx: usize| at(idx).is_some_and(|c| c.is_ascii_digit());
    let mut found = Vec::new();
    let mut idx = 0;
    while idx < chars.len() {
        if !is_digit(idx) {
            idx += 1;
            continue;
        }
        let start = idx;
        // The longest run that could be one number, however it is grouped.
        while is_digit(idx) || (matches!(at(idx), Some('.' | ',')) && is_digit(idx + 1)) {
            idx += 1;
        }
        let before = start.checked_sub(1).and_then(at);
        let two_before = start.checked_sub(2).and_then(at);
        let negative = matches!(before, Some('-' | '\u{2212}'));
        let glued_before = match before {
            Some('-' | '\u{2212}' | '+') => two_before.is_some_and(|c| is_word_char(c) || matches!(c, '.' | '-' | '/')),
            Some(c) => is_word_char(c) || matches!(c, '.' | '/' | ':' | '\'' | '#' | '@'),
            None => false,
        };
        let glued_after = match at(idx) {
            Some('-' | '/' | ':' | '\'' | '\u{2019}' | '@' | '.' | ',') => at(idx + 1).is_some_and(is_word_char),
            Some(c) => is_word_char(c) || is_mark(c),
            None => false,
        };
        if !glued_before && !glued_after {
            let run: String = chars.get(start..idx).unwrap_or_default().iter().collect();
            found.extend(grouped(&run).and_then(|plain| {
                let sign = if negative { "-" } else { "" };
                Decimal::parse(&format!("{sign}{plain}"))
            }));
        }
    }
    found
}

/// `1,234.50` without its commas; `None` if commas and points are placed in another way.
fn grouped(run: &str) -> Option<String> {
    let (whole, fraction) = match run.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (run, None),
    };
    if fraction.is_some_and(|digits| digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit())) {
        return None;
    }
    let mut groups = whole.split(',');
    let first = groups.next()?;
    let rest: Vec<&str> = groups.collect();
    if !rest.is_empty() && (first.len() > 3 || rest.iter().any(|group| group.len() != 3)) {
        return None;
    }
    let plain = format!("{first}{}", rest.concat());
    Some(fraction.map_or(plain.clone(), |digits| format!("{plain}.{digits}")))
}

#[cfg(test)]
mod tests {
    use proptest::proptest;

    use super::*;

    proptest! {
        #[test]
        fn the_short_way_is_the_long_way(text in "[ -~\\t\\n\\x0b\\x0c\\r\\x1f]{0,40}") {
            assert_eq!(fold(&text), fold_any(&text));
        }

        #[test]
        fn folding_twice_changes_nothing(text in proptest::prelude::any::<String>()) {
            let once = fold(&text);
            assert_eq!(fold(&once), once);
        }
    }
}
