//! The fields of an event on their way into a row: those that are safe to show, and those that are sealed. They stay text;
//! nothing is built but what must be looked into. What is not here: reading rows (`codec`).

use std::fmt;

use serde::de::{MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::hidden::{FIELDS, Hidden, take};
use crate::header::Shown;

/// What goes into the header, in the order of the event.
#[derive(Debug, Default)]
pub(super) struct Fields<'a>(Vec<(&'a str, Piece<'a>)>);

#[derive(Debug)]
enum Piece<'a> {
    /// As the event writes it.
    Text(&'a RawValue),
    /// What is left of it once something is hidden.
    Rest(Map<String, Value>),
}

/// What is sealed under the session's key for one event, as [`super::hidden::Private`] reads it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Sealing<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) content: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    hidden: Vec<Hidden>,
}

impl Sealing<'_> {
    /// Whether there is nothing to seal.
    pub(super) fn is_empty(&self) -> bool {
        self.content.is_none() && self.hidden.is_empty()
    }

    /// The hash of a call's arguments, where the content tells it.
    pub(super) fn args_hash(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct OfCall {
            args_hash: Option<String>,
        }
        let content = self.content.map(RawValue::get).filter(|text| text.contains("\"args_hash\""))?;
        serde_json::from_str::<OfCall>(content).ok()?.args_hash
    }
}

/// An event's parts.
pub(super) struct Parts<'a> {
    pub(super) shown: Fields<'a>,
    pub(super) private: Sealing<'a>,
    /// Contents under keys of calls, by call.
    pub(super) of_calls: Vec<(&'a str, &'a RawValue)>,
}

/// Takes the JSON text of an event apart.
pub(super) fn parts(event: &str) -> serde_json::Result<Parts<'_>> {
    let Texts(texts) = serde_json::from_str(event)?;
    let mut parts = Parts { shown: Fields::default(), private: Sealing::default(), of_calls: Vec::new() };
    for (name, text) in texts {
        match name {
            "kind" => {}
            "content" => parts.private.content = Some(text),
            "sealed" => parts.of_calls = serde_json::from_str::<Texts<'_>>(text.get())?.0,
            _ if FIELDS.contains(&name) => {
                let value = serde_json::from_str(text.get())?;
                parts.private.hidden.push(Hidden::new(vec![name.to_owned()], value));
            }
            _ if may_hide(text.get()) => {
                let mut rest: Map<String, Value> = serde_json::from_str(text.get())?;
                take(&mut rest, &mut vec![name.to_owned()], &mut parts.private.hidden);
                parts.shown.0.push((name, Piece::Rest(rest)));
            }
            _ => parts.shown.0.push((name, Piece::Text(text))),
        }
    }
    Ok(parts)
}

/// Whether an object may have a field that must not be shown.
fn may_hide(text: &str) -> bool {
    text.starts_with('{') && FIELDS.iter().any(|name| text.contains(name))
}

/// An object whose values are left as they are written.
struct Texts<'a>(Vec<(&'a str, &'a RawValue)>);

impl<'de> Deserialize<'de> for Texts<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Texts<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Texts<'de>, A::Error> {
                let mut texts = Vec::with_capacity(32);
                while let Some(entry) = map.next_entry()? {
                    texts.push(entry);
                }
                Ok(Texts(texts))
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

impl Shown for Fields<'_> {
    fn is_none(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Fields<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, piece) in &self.0 {
            match piece {
                Piece::Text(text) => map.serialize_entry(name, text)?,
                Piece::Rest(rest) => map.serialize_entry(name, rest)?,
            }
        }
        map.end()
    }
}
