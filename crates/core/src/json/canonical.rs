//! Writes the canonical text of a JSON value: RFC 8785 with one extension. What is not here: reading.
//!
//! The extension: a whole number that fits 64 bits is written digit for digit. Plain RFC 8785 knows only doubles, so it
//! would write 9007199254740992 and 9007199254740993 with the same bytes, and one approval would cover both.

use serde_json::{Number, Value};

/// 2^64, the first whole number beyond `u64`.
const BEYOND_U64: f64 = 18_446_744_073_709_551_616.0;
/// -2^63, the smallest `i64`.
const MIN_I64: f64 = -9_223_372_036_854_775_808.0;

pub(super) fn write(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_value(out, item);
            }
            out.push(']');
        }
        Value::Object(map) => {
            let mut entries: Vec<(&String, &Value)> = map.iter().collect();
            // RFC 8785 3.2.3 orders by UTF-16 code units: it differs from byte order beyond U+FFFF.
            entries.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
            out.push('{');
            for (position, (key, item)) in entries.into_iter().enumerate() {
                if position > 0 {
                    out.push(',');
                }
                write_string(out, key);
                out.push(':');
                write_value(out, item);
            }
            out.push('}');
        }
    }
}

fn write_number(out: &mut String, number: &Number) {
    if number.is_i64() || number.is_u64() {
        out.push_str(&number.to_string());
    } else {
        // A `Number` that is no integer is a finite double.
        out.push_str(&double(number.as_f64().unwrap_or_default()));
    }
}

/// The canonical text of a finite double.
pub(super) fn double(value: f64) -> String {
    if value == 0.0 {
        // Minus zero equals zero.
        return "0".to_owned();
    }
    if is_whole_64(value) {
        // Digit for digit, so that 1e18 and 1000000000000000000 have one text whatever their size.
        return format!("{value:.0}");
    }
    ryu_js::Buffer::new().format_finite(value).to_owned()
}

/// Whether a double is a whole number that an `i64` or `u64` holds.
pub(super) fn is_whole_64(value: f64) -> bool {
    value.fract() == 0.0 && (MIN_I64..BEYOND_U64).contains(&value)
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\u{8}' => out.push_str("\\b"),
            '\t' => out.push_str("\\t"),
            '\n' => out.push_str("\\n"),
            '\u{c}' => out.push_str("\\f"),
            '\r' => out.push_str("\\r"),
            c if u32::from(c) < 0x20 => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_are_ordered_by_utf16_units() {
        // The example of RFC 8785, 3.2.3.
        let value = json!({"\u{20ac}": "Euro Sign", "\r": "Carriage Return", "\u{fb33}": "Hebrew Letter Dalet With Dagesh",
            "1": "One", "\u{1f600}": "Emoji: Grinning Face", "\u{80}": "Control", "\u{f6}": "Latin Small Letter O With Diaeresis"});
        let text = write(&value);
        let order: Vec<usize> = ["Carriage", "One", "Control", "Latin", "Euro", "Emoji", "Hebrew"]
            .iter()
            .map(|word| text.find(word).unwrap_or(usize::MAX))
            .collect();
        assert!(order.is_sorted(), "{text}");
    }

    #[test]
    fn doubles_follow_the_vectors_of_the_rfc() {
        // RFC 8785, appendix B.
        let vectors: [(u64, &str); 22] = [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x8000_0000_0000_0001, "-5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0xffef_ffff_ffff_ffff, "-1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x44b5_2d02_c7e1_4af7, "1.0000000000000001e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef4f, "999999999999999900000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0x41b3_de43_5555_5554, "333333333.33333325"),
            (0x41b3_de43_5555_5555, "333333333.3333333"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ];
        for (bits, text) in vectors {
            assert_eq!(double(f64::from_bits(bits)), text, "{bits:016x}");
        }
    }

    #[test]
    fn whole_numbers_of_64_bits_keep_every_digit() {
        assert_eq!(write(&json!(9_007_199_254_740_993_i64)), "9007199254740993");
        assert_eq!(write(&json!(u64::MAX)), "18446744073709551615");
        assert_eq!(write(&json!(i64::MIN)), "-9223372036854775808");
        assert_eq!(write(&json!(1e18)), "1000000000000000000");
        assert_eq!(write(&json!(9_223_372_036_854_775_808.0)), "9223372036854775808");
    }

    #[test]
    fn strings_are_escaped_as_the_rfc_says() {
        assert_eq!(
            write(&json!("\u{20ac}$\u{f}\nA'B\"\\\\\"/\u{7f}")),
            "\"\u{20ac}$\\u000f\\nA'B\\\"\\\\\\\\\\\"/\u{7f}\""
        );
    }
}
