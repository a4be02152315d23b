//! Faults of single tokens that serde_json reads over or cannot name: numbers whose digits would change, surrogates
//! without their pair. What is not here: structure (`strict`); a text that is no JSON may give any answer here.

use super::canonical;
use super::strict::{JsonFault, JsonFaultKind};

/// The first such fault of a text, if there is one.
pub(super) fn first_fault(text: &str) -> Option<JsonFault> {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => match string_end(text, at + 1) {
                Ok(end) => at = end,
                Err(fault) => return Some(fault),
            },
            b'-' | b'0'..=b'9' => {
                let rest = text.get(at..).unwrap_or_default();
                let length =
                    rest.bytes().take_while(|b| matches!(b, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).count();
                let token = rest.get(..length).unwrap_or_default();
                if let Some(detail) = number_fault(token) {
                    return Some(fault_at(text, at, JsonFaultKind::NumberOutOfRange, detail));
                }
                at += length.max(1);
            }
            _ => at += 1,
        }
    }
    None
}

fn number_fault(token: &str) -> Option<String> {
    if token.parse::<i64>().is_ok() || token.parse::<u64>().is_ok() {
        return None;
    }
    let quoted: String = token.chars().take(40).collect();
    let double: f64 = token.parse().ok()?;
    if !double.is_finite() {
        return Some(format!("number out of range: `{quoted}` is not finite as a double"));
    }
    let is_digits = token.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    // RFC 8785 writes doubles below 1e21 without exponent; outside 64 bits that text would read as such an integer.
    let is_written_as_digits = double.fract() == 0.0 && double.abs() < 1e21 && !canonical::is_whole_64(double);
    (is_digits || is_written_as_digits)
        .then(|| format!("number out of range: the whole number `{quoted}` does not fit 64 bits; send it as a string"))
}

/// The offset after the closing quote of a string that starts at `from`.
fn string_end(text: &str, from: usize) -> Result<usize, JsonFault> {
    let bytes = text.as_bytes();
    let mut at = from;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' => return Ok(at + 1),
            b'\\' => {
                let Some(unit) = escaped_unit(bytes, at) else {
                    at += 2;
                    continue;
                };
                let next = escaped_unit(bytes, at + 6);
                match (unit, next) {
                    (0xd800..=0xdbff, Some(0xdc00..=0xdfff)) => at += 12,
                    (0xd800..=0xdfff, _) => {
                        let detail = format!("lone surrogate `\\u{unit:04x}` in a string");
                        return Err(fault_at(text, at, JsonFaultKind::LoneSurrogate, detail));
                    }
                    _ => at += 6,
                }
            }
            _ => at += 1,
        }
    }
    Ok(at)
}

/// The UTF-16 unit of a `\uXXXX` escape at this offset.
fn escaped_unit(bytes: &[u8], at: usize) -> Option<u16> {
    let escape = bytes.get(at..at + 6)?;
    let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
    if digits.starts_with('+') {
        return None;
    }
    u16::from_str_radix(digits, 16).ok()
}

fn fault_at(text: &str, offset: usize, kind: JsonFaultKind, detail: String) -> JsonFault {
    let before = text.get(..offset).unwrap_or_default();
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    JsonFault { kind, detail, line: before.matches('\n').count() + 1, column: offset - line_start + 1 }
}

/// The byte offset of a place, moved back to a character boundary.
pub(super) fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let line_start = match line {
        0 | 1 => 0,
        _ => text.match_indices('\n').nth(line - 2).map_or(text.len(), |(at, _)| at + 1),
    };
    let mut offset = (line_start + column.saturating_sub(1)).min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}
