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

/// The numbers that a text writes out. Only the wide and small forms of ASCII count as ASCII: under a whole compatibility
/// form a footnote mark or a fraction would become further digits of the number before it.
pub(super) fn numbers(text: &str) -> Vec<Decimal> {
    let chars: Vec<char> = text.chars().map(narrow).collect();
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
        let run = chars.get(start..idx).unwrap_or_default();
        let before = chars.get(..start).unwrap_or_default();
        let after = chars.get(idx..).unwrap_or_default().iter().copied();
        let mut negative = false;
        let glued_before = match before.split_last() {
            Some(('-' | '\u{2212}' | '+', rest)) => {
                negative = before.last() != Some(&'+');
                let dashed = |c: &char| matches!(c, '.' | ',' | '-' | '/') || is_odd_dash(*c);
                rest.last().is_some_and(dashed) || glued(rest.iter().rev().copied(), |_| false)
            }
            Some((c, _)) if matches!(c, '.' | '/' | ':' | '\'' | '#' | '@' | '%') || is_odd_dash(*c) => true,
            Some(_) => {
                let leading = run.iter().take_while(|c| c.is_ascii_digit()).count();
                glued(before.iter().rev().copied(), |_| leading == 3)
            }
            None => false,
        };
        if !glued_before && !glued(after, |digits| digits == 3) {
            let run: String = run.iter().collect();
            found.extend(grouped(&run).and_then(|plain| {
                let sign = if negative { "-" } else { "" };
                Decimal::parse(&format!("{sign}{plain}"))
            }));
        }
    }
    found
}

/// The ASCII character of which a character is the wide, small or upright form.
fn narrow(c: char) -> char {
    if !matches!(c, '\u{ff01}'..='\u{ff5e}' | '\u{fe10}'..='\u{fe19}' | '\u{fe50}'..='\u{fe6b}' | '\u{2024}') {
        return c;
    }
    let mut form = std::iter::once(c).nfkc();
    match (form.next(), form.next()) {
        (Some(one), None) if one.is_ascii() => one,
        _ => c,
    }
}

/// A dash that may be a minus or may not.
const fn is_odd_dash(c: char) -> bool {
    matches!(c, '\u{2010}'..='\u{2013}' | '\u{207b}' | '\u{208b}')
}

/// Whether what lies beyond an end of a number makes it a part of something else: a word, a date, a version, a number
/// that is grouped in another way. `grouping` says whether so many digits after plain spaces may be a group of it.
fn glued(beyond: impl Iterator<Item = char>, grouping: impl Fn(usize) -> bool) -> bool {
    let mut beyond = beyond.peekable();
    let (mut spaced, mut wide) = (false, false);
    while let Some(c) = beyond.next_if(|c| *c == ' ' || is_wide_space(*c)) {
        spaced = true;
        wide |= c != ' ';
    }
    if spaced {
        // Four are as good as any larger number.
        let digits = beyond.take(4).take_while(char::is_ascii_digit).count();
        return digits > 0 && (wide || grouping(digits));
    }
    let mut tight = true;
    for c in beyond {
        if is_tight(c) {
            continue;
        }
        if is_loose(c) {
            tight = false;
            continue;
        }
        return c.is_ascii_digit() || is_mark(c) || is_control(c) || (tight && is_wordlike(c));
    }
    false
}

/// Spaces that may hold the groups of one number together.
const fn is_wide_space(c: char) -> bool {
    matches!(c, '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}')
}

/// Characters that join a number to a letter or digit beyond.
const fn is_tight(c: char) -> bool {
    matches!(c, '-' | '/' | '\\' | ':' | '\'' | '@' | '.' | ',' | '#' | '\u{2018}' | '\u{2019}' | '\u{201b}')
        || matches!(c, '\u{2010}' | '\u{2011}' | '\u{2044}' | '\u{2215}')
}

/// Characters that join a number to a digit beyond, while a letter beyond is another word.
const fn is_loose(c: char) -> bool {
    matches!(c, '%' | '^' | '*' | '+' | '~' | '`' | '\u{b4}' | '\u{b7}' | '\u{d7}' | '\u{66b}' | '\u{66c}')
        || matches!(c, '\u{2012}'..='\u{2015}' | '\u{2026}' | '\u{2027}' | '\u{2032}' | '\u{2212}' | '\u{22c5}')
        || matches!(c, '\u{2d9}' | '\u{201a}' | '\u{2396}')
}

const fn is_control(c: char) -> bool {
    c.is_ascii_control() && !c.is_ascii_whitespace()
}

/// Letters, digits, and signs made of them, such as units in one character.
fn is_wordlike(c: char) -> bool {
    is_word_char(c) || (!c.is_ascii() && std::iter::once(c).nfkc().any(is_word_char))
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
