//! Finding a value in a text or equal to a value, by its kind. What is not here: cutting texts (`token`).

use std::net::IpAddr;

use serde_json::Value;
use url::Url;

use super::OriginKind;
use super::token::{emails, fold, ids, is_email, links, numbers, stands_in};
use crate::derive::{Link, parse_host};
use crate::exact::{Decimal, integer};

/// A value that is looked for, in the form it is compared in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Needle {
    Text(String),
    Email(String),
    Url(Address),
    Host(String),
    Number(Decimal),
    Id(String),
}

/// A URL in the form in which it is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Address {
    scheme: Option<String>,
    rest: String,
}

impl Needle {
    /// Reads a value. `Ok(None)`: it is no value of this kind, so nothing can be its origin. `Err`: another JSON kind.
    pub(super) fn new(kind: OriginKind, value: &Value) -> Result<Option<Self>, &'static str> {
        match (kind, value) {
            (OriginKind::Number, Value::Number(number)) => Ok(Decimal::of(number).map(Self::Number)),
            (OriginKind::Number, Value::String(text)) => Ok(Decimal::parse(text.trim()).map(Self::Number)),
            (OriginKind::Id, Value::Number(number)) => Ok(integer(number).map(|int| Self::Id(int.to_string()))),
            (OriginKind::Number | OriginKind::Id, _) if !value.is_string() => Err("a text or a number"),
            (kind, Value::String(text)) => Ok(Self::of_text(kind, text)),
            _ => Err("a text"),
        }
    }

    fn of_text(kind: OriginKind, text: &str) -> Option<Self> {
        match kind {
            OriginKind::Text => Some(fold(text)).filter(|folded| !folded.is_empty()).map(Self::Text),
            OriginKind::Email => Some(fold(text)).filter(|folded| is_email(folded)).map(Self::Email),
            OriginKind::Url => address(text).map(Self::Url),
            OriginKind::Host => host(text).map(|(name, _)| Self::Host(name)),
            OriginKind::Number => Decimal::parse(text.trim()).map(Self::Number),
            // One whole word, or it could not be found as one.
            OriginKind::Id => (ids(text).next() == Some(text)).then(|| Self::Id(text.to_owned())),
        }
    }

    /// Whether a text has this value, standing by itself.
    pub(super) fn is_in(&self, text: &str) -> bool {
        match self {
            Self::Text(needle) => stands_in(&fold(text), needle),
            Self::Email(needle) => emails(&fold(text)).any(|word| word == needle),
            Self::Url(needle) => links(text).any(|word| address(word).is_some_and(|found| found.fits(needle))),
            Self::Host(needle) => links(text).any(|word| full_host(word).is_some_and(|found| found == *needle)),
            Self::Number(needle) => numbers(text).contains(needle),
            Self::Id(needle) => ids(text).any(|word| word == needle),
        }
    }

    /// Whether a value of a trusted result is this value.
    pub(super) fn equals(&self, value: &Value) -> bool {
        let kind = match self {
            Self::Text(_) => OriginKind::Text,
            Self::Email(_) => OriginKind::Email,
            Self::Url(_) => OriginKind::Url,
            Self::Host(_) => OriginKind::Host,
            Self::Number(_) => OriginKind::Number,
            Self::Id(_) => OriginKind::Id,
        };
        match (self, Self::new(kind, value)) {
            (Self::Url(needle), Ok(Some(Self::Url(found)))) => found.fits(needle),
            (Self::Host(needle), _) => value.as_str().and_then(full_host).is_some_and(|found| found == *needle),
            (needle, Ok(Some(found))) => found == *needle,
            (_, Ok(None) | Err(_)) => false,
        }
    }
}

impl Address {
    /// Equal, where both have a scheme in the scheme too; without one only the schemes of the web are meant.
    fn fits(&self, other: &Self) -> bool {
        let schemes = match (&self.scheme, &other.scheme) {
            (Some(a), Some(b)) => a == b,
            (Some(one), None) | (None, Some(one)) => one == "http" || one == "https",
            (None, None) => true,
        };
        schemes && self.rest == other.rest
    }
}

fn address(text: &str) -> Option<Address> {
    let (full, has_scheme) = spelled_out(text)?;
    // The same refusals as everywhere: what readers split differently is no URL here.
    let link = Link::parse(&full).ok()?;
    if !has_scheme && !in_full(&full, &link) {
        return None;
    }
    let url = Url::parse(&full).ok()?;
    let scheme = has_scheme.then(|| url.scheme().to_owned());
    let rest = url.as_str().split_once("://").map(|(_, rest)| rest)?;
    let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let rest = if bare { rest.trim_end_matches('/') } else { rest };
    Some(Address { scheme, rest: rest.to_owned() })
}

/// The host of a URL or a bare host, and whether it is spelled in full. A bare one always is.
fn host(text: &str) -> Option<(String, bool)> {
    let (full, has_scheme) = spelled_out(text)?;
    let link = Link::parse(&full).ok()?;
    if link.userinfo() || (!has_scheme && parse_host(link.host()).is_none()) {
        return None;
    }
    let in_full = in_full(&full, &link);
    (has_scheme || in_full).then(|| (link.host().to_owned(), in_full))
}

/// The host where it may be the origin of another: people who write `2.5` do not mean the address 2.0.0.5.
fn full_host(text: &str) -> Option<String> {
    host(text).filter(|(_, in_full)| *in_full).map(|(name, _)| name)
}

/// Whether the host of a URL is no address, or one of four decimal parts or in brackets.
fn in_full(full: &str, link: &Link) -> bool {
    let Some(IpAddr::V4(ip)) = link.ip() else { return true };
    let authority = full.split_once("://").map_or("", |(_, rest)| rest).split(['/', '?', '#']).next();
    let host = authority.and_then(|text| text.rsplit('@').next()).and_then(|text| text.split(':').next());
    host.and_then(|text| text.parse().ok()) == Some(ip)
}

/// The text with a scheme, and whether it had one. A bare one must look like a host: a dot before any slash, no `@`.
fn spelled_out(text: &str) -> Option<(String, bool)> {
    if text.contains("://") {
        return Some((text.to_owned(), true));
    }
    let first = text.split(['/', '?', '#']).next().unwrap_or_default();
    let looks = first.contains('.') && !first.contains(['@', ':']) && !first.starts_with('.');
    looks.then(|| (format!("https://{text}"), false))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use serde_json::json;

    fn found(kind: OriginKind, value: &Value, text: &str) -> bool {
        Needle::new(kind, value).unwrap().is_some_and(|needle| needle.is_in(text))
    }

    #[test]
    fn texts_stand_by_themselves() {
        for (value, text, yes) in [
            ("Alice", "send it to alice.", true),
            ("Alice Smith", "to ALICE\n  Smith, please", true),
            ("ＡＬＩＣＥ", "to Alice", true),
            ("Straße", "in the STRASSE 5", true),
            ("Alice", "to Alicea", false),
            ("Alice", "to malice", false),
            ("example.com", "at sub.example.com", false),
            ("example.com", "at evil-example.com", false),
            ("example.com", "at example.com.evil.org", false),
            ("example.com", "at example.com. Then", true),
            ("", "anything", false),
            ("  ", "any  thing", false),
            ("caf\u{e9}", "the cafe\u{301}", true),
            ("cafe", "the cafe\u{301}", false),
            ("\u{430}lice", "to alice", false),
            ("al\u{200b}ice", "to alice", false),
            ("alice", "to alice\u{200d}x", false),
            ("Al ice", "to Alice", false),
        ] {
            assert_eq!(found(OriginKind::Text, &json!(value), text), yes, "{value:?} in {text:?}");
        }
    }

    #[test]
    fn addresses_are_whole() {
        for (value, text, yes) in [
            ("bob@x.com", "mail BOB@X.com.", true),
            ("bob@x.com", "<mailto:bob@x.com>", true),
            ("bob@x.com", "bob@x.com's file", true),
            ("bob@x.com", "to notbob@x.com", false),
            ("bob@x.com", "to not.bob@x.com", false),
            ("bob@x.com", "to bob@x.com.evil.org", false),
            ("bob@x.com", "to bob@x.co and m", false),
            ("bob%40x.com", "to bob@x.com", false),
            ("bob+evil@x.com", "to bob@x.com", false),
            ("bob@x.com,eve@y.com", "to bob@x.com", false),
            ("bob@x.com eve@y.com", "bob@x.com eve@y.com", false),
            ("bob", "to bob@x.com", false),
            ("b\u{43e}b@x.com", "to bob@x.com", false),
        ] {
            assert_eq!(found(OriginKind::Email, &json!(value), text), yes, "{value:?} in {text:?}");
        }
    }

    #[test]
    fn urls_are_compared_by_their_form() {
        for (value, text, yes) in [
            ("https://A.example/x", "see https://a.example/x.", true),
            ("https://a.example", "see (https://a.example/)", true),
            ("www.a.example", "see https://www.a.example", true),
            ("https://www.a.example", "see www.a.example, please", true),
            ("ftp://www.a.example", "see www.a.example", false),
            ("http://a.example", "see https://a.example", false),
            ("https://a.example/y", "see https://a.example", false),
            ("https://a.example", "see https://a.example/y", false),
            ("https://a.example?q=secret", "see https://a.example", false),
            ("https://a.example.evil.org", "see https://a.example", false),
            ("https://a.example@evil.org/", "see https://a.example", false),
            ("https://a.example/%78", "see https://a.example/x", false),
            ("https://\u{430}.example/", "see https://a.example/", false),
        ] {
            assert_eq!(found(OriginKind::Url, &json!(value), text), yes, "{value:?} in {text:?}");
        }
        for (value, text, yes) in [
            ("https://a.example/any?x=1", "on a.example", true),
            ("https://b.a.example/", "on a.example", false),
            ("a.example", "on https://a.example/x", true),
            ("https://user@a.example/", "on a.example", false),
        ] {
            assert_eq!(found(OriginKind::Host, &json!(value), text), yes, "{value:?} in {text:?}");
        }
    }

    #[test]
    fn numbers_are_compared_by_value() {
        for (value, text, yes) in [
            (json!(98.7), "pay $98.70 today", true),
            (json!("98.70"), "pay 98.7.", true),
            (json!(1000), "pay 1,000 or so", true),
            (json!(1000), "pay 1,0000", false),
            (json!(1000), "pay 1.000,00", false),
            (json!(12), "until 2024-12-01", false),
            (json!(2024), "until 2024-12-01", false),
            (json!(5), "5% of it", true),
            (json!(10), "about 10k", false),
            (json!(-3), "it is -3 outside", true),
            (json!(3), "it is -3 outside", false),
            (json!(3), "version 1.3", false),
            (json!(13), "file13", false),
            (json!(9_007_199_254_740_993_i64), "id 9007199254740992", false),
            (json!(9_007_199_254_740_993_i64), "id 9007199254740993", true),
            (json!(7), "\u{ff17} days", true),
            (json!("seven"), "seven", false),
        ] {
            assert_eq!(found(OriginKind::Number, &value, text), yes, "{value} in {text:?}");
        }
    }

    #[test]
    fn numbers_that_nobody_wrote_are_not_found() {
        for (text, never) in [
            ("pay 3\u{bd} hours", vec!["31", "3", "31.2", "2"]),
            ("pay 100\u{b9} (see note)", vec!["1001"]),
            ("$500\u{b2} today", vec!["5002"]),
            ("x\u{2082}5", vec!["25", "5"]),
            ("1\u{2044}2 cup", vec!["1", "2"]),
            ("\u{2460}5", vec!["15", "5"]),
            ("pay CHF 1\u{2019}500", vec!["1", "500"]),
            ("pay CHF 1'500", vec!["1", "500"]),
            ("1\u{2018}500", vec!["1", "500"]),
            ("1\u{a0}500", vec!["1", "500"]),
            ("1\u{202f}500", vec!["1", "500"]),
            ("1\u{2009}500", vec!["1", "500"]),
            ("1 \u{a0}500", vec!["1", "500"]),
            ("10 000 SEK", vec!["10", "0"]),
            ("10 000.50 SEK", vec!["10", "0.5"]),
            ("1 500 000", vec!["1", "500", "0"]),
            ("1\u{200b}500", vec!["1", "500"]),
            ("1\u{ad}500", vec!["1", "500"]),
            ("1\u{0}500", vec!["1", "500"]),
            ("1,\u{200b}500", vec!["1", "500"]),
            ("1,,500", vec!["1", "500"]),
            ("1..500", vec!["1", "500"]),
            ("1\u{ff0c}\u{ff0c}500", vec!["1", "500"]),
            ("1\u{66c}500", vec!["1", "500"]),
            ("1\u{b7}5", vec!["1", "5"]),
            ("2024\u{2010}12\u{2010}01", vec!["2024", "12", "-12", "1", "-1"]),
            ("2024\u{2011}12\u{2011}01", vec!["2024", "12", "-12", "1", "-1"]),
            ("2024\u{2013}12\u{2013}01", vec!["2024", "12", "-12", "1", "-1"]),
            ("2024\u{2212}12\u{2212}01", vec!["2024", "12", "-12", "1", "-1"]),
            ("it is \u{2010}3", vec!["3"]),
            ("10^6", vec!["10", "6"]),
            ("a%205", vec!["205", "5"]),
            ("5\u{33a1}", vec!["5"]),
            ("\u{661}5", vec!["5"]),
        ] {
            for value in never {
                assert!(!found(OriginKind::Number, &json!(value), text), "{value} in {text:?}");
            }
        }
        for (text, value) in [
            ("pay 98.70", "98.7"),
            ("pay 1,000 or so", "1000"),
            ("pay \u{ff11}\u{ff0c}\u{ff10}\u{ff10}\u{ff10}", "1000"),
            ("pay 500\u{a0}EUR", "500"),
            ("pay EUR\u{a0}500", "500"),
            ("pay \u{20ac}500\u{2026}", "500"),
            ("\u{2018}500\u{2019}, he said", "500"),
            ("500... then", "500"),
            ("pay 500\u{2014}now", "500"),
            ("room 10 20 times", "10"),
            ("12 1234", "12"),
            ("in 1, 500 of", "500"),
            ("it is \u{2212}3", "-3"),
            ("**500**", "500"),
            ("1\n500", "500"),
        ] {
            assert!(found(OriginKind::Number, &json!(value), text), "{value} in {text:?}");
        }
    }

    #[test]
    fn addresses_in_words_are_spelled_in_full() {
        for (value, text, yes) in [
            ("https://2.5/", "use 2.5", false),
            ("https://2.0.0.5/", "use 2.5", false),
            ("2.5", "use 2.5", false),
            ("https://10.5/", "10.5 hours", false),
            ("https://10.5", "0x0a.5", false),
            ("https://10.1.2.3/", "on 10.1.515", false),
            ("https://10.1.2.3/", "on 012.1.2.3", false),
            ("https://2.5/", "see https://2.5/", false),
            ("https://2.5/", "on 2.0.0.5", true),
            ("https://33554437/", "on 2.0.0.5", true),
            ("https://0x2000005/", "see https://2.0.0.5:80/x", true),
            ("https://33554437/", "on 33554437 and 2.5", false),
            ("https://0x2000005/", "see https://0x2000005/", false),
            ("2.0.0.5", "on 2.0.0.5.", true),
            ("http://[::1]/", "see http://[::1]:8080/x", true),
            ("https://notes.zip/x", "open notes.zip", true),
        ] {
            assert_eq!(found(OriginKind::Host, &json!(value), text), yes, "{value:?} in {text:?}");
        }
        for (value, text, yes) in [
            ("https://2.5/", "use 2.5", false),
            ("https://10.5/x", "10.5/x", false),
            ("https://2.0.0.5", "2.0.0.5", true),
        ] {
            assert_eq!(found(OriginKind::Url, &json!(value), text), yes, "{value:?} in {text:?}");
        }
        let needle = |text: &str| Needle::new(OriginKind::Host, &json!(text)).unwrap().unwrap();
        assert!(needle("https://2.5/").equals(&json!("2.0.0.5")));
        assert!(!needle("https://2.5/").equals(&json!("https://2.5/")));
        assert!(!needle("https://2.5/").equals(&json!("2.5")));
        assert!(!needle("https://2.5/").equals(&json!(2.5)));
    }

    #[test]
    fn identifiers_are_letter_for_letter() {
        for (value, text, yes) in [
            (json!("13"), "delete file 13.", true),
            (json!(13), "delete file_id=13", true),
            (json!("13"), "on 2013-01-13", false),
            (json!("ab-C1"), "see [ab-C1]", true),
            (json!("ab-c1"), "see ab-C1", false),
            (json!("GB29NWBK60161331926819"), "to GB29NWBK60161331926819", true),
            (json!("a b"), "a b", false),
            (json!(1.5), "1.5", false),
        ] {
            assert_eq!(found(OriginKind::Id, &value, text), yes, "{value} in {text:?}");
        }
        assert!(Needle::new(OriginKind::Id, &json!(null)).is_err());
        assert!(Needle::new(OriginKind::Email, &json!(5)).is_err());
        assert!(Needle::new(OriginKind::Text, &json!(["a"])).is_err());
    }
}
