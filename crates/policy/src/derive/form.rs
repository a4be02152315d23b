//! Compiling declared fields: names, places, kinds that fit the schema. What is not here: deriving (`derive`).

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Derived, DerivedForm, DerivedKind, OnRefused, Refused, Root, is_secret};
use crate::facts::ToolFacts;
use crate::fault::{Faults, escape};
use crate::place::{Declared, Place};

/// A declared field, ready to be derived.
#[derive(Debug, Clone)]
pub(crate) struct Compiled {
    pub(crate) name: String,
    pub(crate) from: Place,
    pub(crate) kind: DerivedKind,
    root: Option<Root>,
    pub(crate) on_refused: OnRefused,
    /// The values may not leave the engine.
    pub(crate) secret: bool,
}

impl Compiled {
    /// Derives the field from the arguments; `None` if the argument is not there.
    pub(crate) fn derive(&self, args: &Value) -> Option<Result<Derived, Refused>> {
        let spots = self.from.find(args);
        if spots.wrong {
            return Some(Err(Refused::Kind("reachable through objects")));
        }
        let value = spots.values.first()?;
        Some(super::derive(self.kind, self.root.as_ref(), value))
    }
}

/// The most derived fields of one tool.
const MAX_FIELDS: usize = 32;

/// Compiles the declared fields of a tool. Faults point at `/tools/<id>/derived/<n>`, as the contract has them.
pub(crate) fn compile(tool: &ToolFacts, faults: &mut Faults) -> Vec<Compiled> {
    let mut names = BTreeSet::new();
    let base = format!("/tools/{}/derived", escape(&tool.id));
    if tool.derived.len() > MAX_FIELDS {
        faults.add(&base, "bound", format!("a tool has at most {MAX_FIELDS} derived fields"));
    }
    let mut found = Vec::new();
    for (idx, form) in tool.derived.iter().enumerate().take(MAX_FIELDS) {
        let at = format!("{base}/{idx}");
        if !is_name(&form.name) {
            faults.add(
                format!("{at}/name"),
                "name",
                "a field's name starts with a-z and has up to 64 of a-z, 0-9, `_`",
            );
        }
        if !names.insert(form.name.as_str()) {
            faults.add(format!("{at}/name"), "name_unique", format!("`{}` is declared twice", form.name));
        }
        let place = place(form, tool, &at, faults);
        let root = root(form, &at, faults);
        if let Some(from) = place {
            let secret = is_secret(&from, &tool.secret);
            let (name, kind, on_refused) = (form.name.clone(), form.kind, form.on_refused);
            found.push(Compiled { name, from, kind, root, on_refused, secret });
        }
    }
    found
}

fn is_name(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

fn place(form: &DerivedForm, tool: &ToolFacts, at: &str, faults: &mut Faults) -> Option<Place> {
    let place = match Place::parse(&form.from) {
        Ok(place) => place,
        Err(detail) => {
            faults.add(format!("{at}/from"), "pointer", detail);
            return None;
        }
    };
    if place.has_each() {
        faults.add(
            format!("{at}/from"),
            "pointer",
            "a field is derived from one value; use an argument rule for a list",
        );
        return None;
    }
    let wanted: &[&str] = match form.kind {
        DerivedKind::Argv => &["array", "string"],
        DerivedKind::Path | DerivedKind::Url | DerivedKind::Bytes => &["string"],
        DerivedKind::Count => &["array", "object"],
    };
    match place.declared(&tool.parameters) {
        Declared::No => {
            faults.add(format!("{at}/from"), "argument_exists", format!("the tool has no argument `{}`", form.from));
        }
        Declared::Yes(schema) => {
            let kind = schema.get("type").and_then(Value::as_str);
            if kind.is_some_and(|kind| !wanted.contains(&kind)) {
                let detail = format!("`{}` is declared as another kind than {}", form.from, wanted.join(" or "));
                faults.add(format!("{at}/from"), "kind_fits", detail);
            }
        }
        Declared::Open => {}
    }
    Some(place)
}

fn root(form: &DerivedForm, at: &str, faults: &mut Faults) -> Option<Root> {
    let is_path = form.kind == DerivedKind::Path;
    match (&form.root, is_path) {
        (None, true) => {
            faults.add(format!("{at}/root"), "root", "a path needs a `root`: where relative paths start");
            None
        }
        (Some(_), false) => {
            faults.add(format!("{at}/root"), "root", "only a path has a root");
            None
        }
        (None, false) => {
            if form.fold_case {
                faults.add(format!("{at}/fold_case"), "fold_case", "only a path has a case to fold");
            }
            None
        }
        (Some(text), true) => match Root::new(text, form.fold_case) {
            Ok(root) => Some(root),
            Err(fault) => {
                faults.add(format!("{at}/root"), "root", format!("the root {fault}"));
                None
            }
        },
    }
}
