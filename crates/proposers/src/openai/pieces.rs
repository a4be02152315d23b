//! Sorts pieces of calls to the calls they belong to. The rules, in this order, with empty strings as absent:
//! 1. a known id: that call, unless a whole new call comes with it (another index and a name, or a name after complete
//!    arguments): then two calls share an id;
//! 2. a new id: a new call, even on a used index; but where it has no name and the call of its index has no id or is still
//!    open, it is that call;
//! 3. no id, but a name, and the call it would go to has complete arguments: a new call;
//! 4. no id, a new index and a name: a new call; a known index: that call; else the call that came last.
//!
//! What is not here: what the calls mean (`judge`).

use serde_json::{Map, Value};
use toolgate_core::json::read_strict;

use crate::answer::{RawCall, add_note};
use crate::delta::Delta;

/// Bytes of arguments that are looked at to tell whether they are complete, over a whole answer.
const MAX_LOOKED_AT: usize = 16 << 20;

/// A call so far.
#[derive(Debug, Default)]
struct Piece {
    index: Option<Value>,
    id: Option<String>,
    name: String,
    /// `None` while nothing of the arguments came.
    text: Option<String>,
    /// Arguments that came as a value instead of text.
    value: Option<Value>,
    extra: Option<Value>,
}

/// The calls so far, in the order they began.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    calls: Vec<Piece>,
    has_stray: bool,
    looked_at: usize,
}

impl Pieces {
    pub(super) fn len(&self) -> usize {
        self.calls.len()
    }

    /// A piece that belongs to no call: the answer cannot be read.
    pub(super) fn stray(&mut self) {
        self.has_stray = true;
    }

    pub(super) fn take(&mut self, piece: &Map<String, Value>, deltas: &mut Vec<Delta>, notes: &mut Vec<String>) {
        let function = piece.get("function").and_then(Value::as_object).unwrap_or(piece);
        let (id, name) = (text_in(piece, "id"), text_in(function, "name"));
        let index = piece.get("index").filter(|index| !index.is_null());
        let args = function.get("arguments").filter(|args| !args.is_null());
        let place = self.place(id, index, name, notes);
        let at = match place {
            Some(at) => at,
            // A piece of arguments that nobody began.
            None if name.is_none() && id.is_none() => return self.stray(),
            None => {
                self.calls.push(Piece { index: index.cloned(), ..Piece::default() });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(at) else { return };
        if let (None, Some(id)) = (&call.id, id) {
            call.id = Some(id.to_owned());
        }
        if let Some(name) = name {
            call.take_name(name, notes);
            if place.is_none() {
                deltas.push(Delta::Call { at, name: call.name.clone() });
            }
        }
        if let Some(extra) = piece.get("extra_content").filter(|extra| !extra.is_null()) {
            call.extra = Some(extra.clone());
        }
        match args {
            Some(Value::String(more)) => {
                call.text.get_or_insert_default().push_str(more);
                if !more.is_empty() {
                    deltas.push(Delta::Arguments { at, text: more.clone() });
                }
            }
            Some(value) if call.value.is_none() && call.text.as_ref().is_none_or(String::is_empty) => {
                call.value = Some(value.clone());
            }
            Some(_) | None => {}
        }
    }

    /// The call that a piece belongs to; `None` where it begins one.
    fn place(
        &mut self,
        id: Option<&str>,
        index: Option<&Value>,
        name: Option<&str>,
        notes: &mut Vec<String>,
    ) -> Option<usize> {
        let at_index = index.and_then(|index| self.calls.iter().rposition(|call| call.index.as_ref() == Some(index)));
        let last = self.calls.len().checked_sub(1);
        if let Some(id) = id {
            let known = self.calls.iter().rposition(|call| call.id.as_deref() == Some(id));
            if let Some(at) = known {
                let other_index =
                    index.is_some() && self.calls.get(at).is_some_and(|call| call.index.as_ref() != index);
                let is_new = name.is_some() && (other_index || self.is_complete(at));
                return (!is_new).then_some(at);
            }
            let at = at_index.filter(|_| name.is_none())?;
            if self.calls.get(at).is_some_and(|call| call.id.is_some()) {
                // Some servers draw a new id for each piece.
                add_note(notes, "id_changes");
            }
            return Some(at);
        }
        match (name, index, at_index) {
            (Some(_), Some(_), None) => None,
            (Some(_), _, found) => found.or(last).filter(|at| !self.is_complete(*at)),
            (None, _, found) => found.or(last),
        }
    }

    /// Whether a call's arguments are a whole object.
    fn is_complete(&mut self, at: usize) -> bool {
        let Some(call) = self.calls.get(at) else { return false };
        if call.value.is_some() {
            return true;
        }
        let text = call.text.as_deref().unwrap_or_default().trim();
        if !text.ends_with('}') || self.looked_at > MAX_LOOKED_AT {
            return false;
        }
        self.looked_at += text.len();
        read_strict(text).is_ok_and(|value| value.is_object())
    }

    /// The calls as sent; one that is none at the end where a piece belonged nowhere.
    pub(super) fn finish(self, notes: &mut Vec<String>) -> Vec<Option<RawCall>> {
        let mut calls: Vec<Option<RawCall>> = Vec::new();
        for call in self.calls {
            if call.id.is_none() {
                notes.push("id_missing".to_owned());
            }
            calls.push(Some(RawCall {
                id: call.id,
                name: Some(call.name).filter(|name| !name.is_empty()),
                args: call.value.or(call.text.map(Value::String)),
                extra: call.extra,
            }));
        }
        if self.has_stray {
            calls.push(None);
        }
        calls
    }
}

/// A text that is not empty.
fn text_in<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

impl Piece {
    /// A name comes once, or again and again, or in pieces before the arguments begin.
    fn take_name(&mut self, name: &str, notes: &mut Vec<String>) {
        let has_args = self.value.is_some() || self.text.as_ref().is_some_and(|text| !text.is_empty());
        if self.name == name {
            return;
        }
        if self.name.is_empty() || (!has_args && name.starts_with(&self.name)) {
            name.clone_into(&mut self.name);
        } else if has_args {
            add_note(notes, "name_changes");
        } else {
            self.name.push_str(name);
        }
    }
}
