//! Values that stand outside `content` and yet tell something of the arguments: plain digests, which can be guessed for
//! short values (ruling 10 of the design). They go into the sealed part and come back in their places.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The fields that hold a plain digest of arguments, wherever they stand.
pub(super) const FIELDS: [&str; 2] = ["args_hash", "digest"];

/// What is sealed under the session's key for one event, as [`super::fields::Sealing`] writes it.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Private {
    /// The event's content.
    #[serde(default)]
    pub(super) content: Option<Value>,
    /// Values taken out of the header.
    #[serde(default)]
    pub(super) hidden: Vec<Hidden>,
}

/// One value and its place.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Hidden {
    /// The names that lead to it.
    path: Vec<String>,
    value: Value,
}

impl Hidden {
    pub(super) const fn new(path: Vec<String>, value: Value) -> Self {
        Self { path, value }
    }
}

impl Private {
    /// Puts everything back. A place that is no longer there is left out.
    pub(super) fn restore(self, fields: &mut Map<String, Value>) {
        for Hidden { path, value } in self.hidden {
            let Some((name, parents)) = path.split_last() else { continue };
            let mut place = Some(&mut *fields);
            for parent in parents {
                place = place.and_then(|map| map.get_mut(parent)).and_then(Value::as_object_mut);
            }
            if let Some(map) = place {
                map.insert(name.clone(), value);
            }
        }
        if let Some(content) = self.content {
            fields.insert("content".to_owned(), content);
        }
    }
}

/// Takes them out of an object that stands at a place.
pub(super) fn take(fields: &mut Map<String, Value>, path: &mut Vec<String>, hidden: &mut Vec<Hidden>) {
    for name in FIELDS {
        if let Some(value) = fields.remove(name) {
            let path = path.iter().cloned().chain([name.to_owned()]).collect();
            hidden.push(Hidden { path, value });
        }
    }
    for (name, value) in fields {
        if let Value::Object(inner) = value {
            path.push(name.clone());
            take(inner, path, hidden);
            path.pop();
        }
    }
}
