//! Finding a value in a text or equal to a value, by its kind. What is not here: cutting texts (`token`).

use serde_json::Value;
use unicode_normalization::UnicodeNormalization;
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
            OriginKind::Host => host(text).map(Self::Host),
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
            Self::Host(needle) => links(text).any(|word| host(word).is_some_and(|found| found == *needle)),
            Self::Number(needle) if text.is_ascii() => numbers(text).contains(needle),
            Self::Number(needle) => numbers(&text.nfkc().collect::<String>()).contains(needle),
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
    Link::parse(&full).ok()?;
    let url = Url::parse(&full).ok()?;
    let scheme = has_scheme.then(|| url.scheme().to_owned());
    let rest = url.as_str().split_once("://").map(|(_, rest)| rest)?;
    let bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
    let rest = if bare { rest.trim_end_matches('/') } else { rest };
    Some(Address { scheme, rest: rest.to_owned() })
}

fn host(text: &str) -> Option<String> {
    let (full, has_scheme) = spelled_out(text)?;
    let link = Link::parse(&full).ok()?;
    if link.userinfo() || (!has_scheme && parse_host(link.host()).is_none()) {
        return None;
    }
    Some(link.host().to_owned())
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
