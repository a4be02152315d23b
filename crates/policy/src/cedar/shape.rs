//! The shape of values as Cedar types: from JSON Schema, and written as a Cedar schema. What is not here: values
//! (`convert`).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// A Cedar type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Flag,
    Long,
    Decimal,
    Set(Box<Self>),
    Record(Fields),
}

/// The fields of a record.
pub(super) type Fields = BTreeMap<String, Field>;

/// One field of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Field {
    pub(super) kind: Kind,
    pub(super) required: bool,
}

impl Field {
    pub(super) const fn required(kind: Kind) -> Self {
        Self { kind, required: true }
    }

    pub(super) const fn optional(kind: Kind) -> Self {
        Self { kind, required: false }
    }
}

/// Levels of a schema that are followed; deeper values are not shown to policies.
const MAX_DEPTH: usize = 12;

/// Schemas that are followed for one tool, references included; what comes after them is not shown to policies.
const MAX_NODES: usize = 4_096;

/// A walk over a tool's schema.
struct Walk<'a> {
    root: &'a Value,
    nodes: usize,
}

/// The arguments of a tool as far as Cedar can type them.
pub(super) fn of_arguments(schema: &Value) -> Fields {
    let mut walk = Walk { root: schema, nodes: 0 };
    match walk.of_schema(schema, 0) {
        Some((Kind::Record(fields), _)) => fields,
        _ => Fields::new(),
    }
}

impl<'a> Walk<'a> {
    /// The type of a schema, and whether it allows null; `None` where Cedar cannot say it.
    fn of_schema(&mut self, schema: &'a Value, depth: usize) -> Option<(Kind, bool)> {
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return None;
        }
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            return self.of_schema(self.root.pointer(target.strip_prefix('#')?)?, depth + 1);
        }
        let branches = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
        if let Some(branches) = branches.filter(|_| schema.get("type").is_none()) {
            return self.one_or_null(branches, depth);
        }
        let (name, nullable) = type_name(schema)?;
        let kind = match name {
            "string" => Kind::Text,
            "boolean" => Kind::Flag,
            "integer" => Kind::Long,
            "number" => Kind::Decimal,
            "array" => {
                let items = schema.get("items").filter(|_| schema.get("prefixItems").is_none())?;
                let (kind, null_inside) = self.of_schema(items, depth + 1)?;
                // A null inside a list would vanish from the set.
                if null_inside {
                    return None;
                }
                Kind::Set(Box::new(kind))
            }
            "object" => Kind::Record(self.record(schema, depth)),
            _ => return None,
        };
        Some((kind, nullable))
    }

    fn record(&mut self, schema: &'a Value, depth: usize) -> Fields {
        let declared = schema.get("properties").and_then(Value::as_object);
        let needed = schema.get("required").and_then(Value::as_array);
        let needs = |name: &str| needed.is_some_and(|names| names.iter().any(|one| one == name));
        // In the order of names, whatever order the JSON library keeps: the walk may end inside.
        let ordered: BTreeMap<&String, &Value> = declared.into_iter().flatten().collect();
        ordered
            .into_iter()
            // Names that begin like Cedar's own are kept out of its schema.
            .filter(|(name, _)| !name.starts_with("__"))
            .filter_map(|(name, schema)| {
                let (kind, nullable) = self.of_schema(schema, depth + 1)?;
                Some((name.clone(), Field { kind, required: needs(name) && !nullable }))
            })
            .collect()
    }

    /// `anyOf [T, null]`, as some generators write an optional value.
    fn one_or_null(&mut self, branches: &'a [Value], depth: usize) -> Option<(Kind, bool)> {
        let is_null = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "null");
        let mut nullable = branches.iter().any(is_null);
        let mut found: Option<Kind> = None;
        for branch in branches.iter().filter(|branch| !is_null(branch)) {
            let (kind, null) = self.of_schema(branch, depth + 1)?;
            nullable |= null;
            if found.get_or_insert_with(|| kind.clone()) != &kind {
                return None;
            }
        }
        found.map(|kind| (kind, nullable))
    }
}

/// The one JSON type of a schema, and whether null is allowed beside it.
fn type_name(schema: &Value) -> Option<(&str, bool)> {
    match schema.get("type") {
        Some(Value::String(name)) => Some((name, false)),
        Some(Value::Array(names)) => {
            let mut others = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            let one = others.next()?;
            others.next().is_none().then(|| (one, names.iter().any(|name| name == "null")))
        }
        Some(_) => None,
        None => {
            if schema.get("properties").is_some_and(Value::is_object) {
                return Some(("object", false));
            }
            let one = schema.get("const").map(std::slice::from_ref);
            let listed = one.or_else(|| schema.get("enum").and_then(Value::as_array).map(Vec::as_slice))?;
            let mut names = listed.iter().filter(|value| !value.is_null()).map(|value| match value {
                Value::String(_) => "string",
                Value::Bool(_) => "boolean",
                Value::Number(number) if number.is_i64() => "integer",
                Value::Number(_) => "number",
                Value::Null | Value::Array(_) | Value::Object(_) => "",
            });
            let first = names.next()?;
            names.all(|name| name == first).then(|| (first, listed.iter().any(Value::is_null)))
        }
    }
}

/// The fields on these paths, with all that lies below the end of a path.
pub(super) fn pruned(fields: &Fields, paths: &[&[String]]) -> Fields {
    if paths.iter().any(|path| path.is_empty()) {
        return fields.clone();
    }
    let on_path = |(name, field): (&String, &Field)| {
        let below: Vec<&[String]> = paths
            .iter()
            .filter_map(|path| path.split_first())
            .filter(|(first, _)| *first == name)
            .map(|(_, rest)| rest)
            .collect();
        if below.is_empty() {
            return None;
        }
        let kind = match &field.kind {
            Kind::Record(inner) => Kind::Record(pruned(inner, &below)),
            other => other.clone(),
        };
        Some((name.clone(), Field { kind, required: field.required }))
    };
    fields.iter().filter_map(on_path).collect()
}

impl Kind {
    /// As a type of Cedar's schema in JSON.
    pub(super) fn to_schema(&self) -> Value {
        match self {
            Self::Text => json!({"type": "String"}),
            Self::Flag => json!({"type": "Boolean"}),
            Self::Long => json!({"type": "Long"}),
            Self::Decimal => json!({"type": "Extension", "name": "decimal"}),
            Self::Set(element) => json!({"type": "Set", "element": element.to_schema()}),
            Self::Record(fields) => record_schema(fields),
        }
    }

    /// The type at a path of field names, as far as records lead; `None` if a record on the way has no such field.
    pub(super) fn at(&self, path: &[String]) -> Option<&Self> {
        let Some((first, rest)) = path.split_first() else { return Some(self) };
        match self {
            Self::Record(fields) => fields.get(first).and_then(|field| field.kind.at(rest)),
            Self::Text | Self::Flag | Self::Long | Self::Decimal | Self::Set(_) => None,
        }
    }
}

/// A record as a type of Cedar's schema in JSON.
pub(super) fn record_schema(fields: &Fields) -> Value {
    let attributes: Map<String, Value> = fields
        .iter()
        .map(|(name, field)| {
            let mut kind = field.kind.to_schema();
            if let Value::Object(map) = &mut kind {
                map.insert("required".to_owned(), Value::Bool(field.required));
            }
            (name.clone(), kind)
        })
        .collect();
    json!({"type": "Record", "attributes": attributes})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_become_types_as_far_as_they_can() {
        let schema = json!({"type": "object", "required": ["to", "maybe"], "properties": {
            "to": {"type": "string"}, "n": {"type": "integer"}, "f": {"type": "number"}, "b": {"type": "boolean"},
            "maybe": {"type": ["string", "null"]}, "opt": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
            "tags": {"type": "array", "items": {"type": "string"}}, "any": {}, "mixed": {"type": ["string", "integer"]},
            "holes": {"type": "array", "items": {"type": ["string", "null"]}}, "tuple": {"type": "array"},
            "pick": {"enum": ["a", "b"]}, "odd": {"enum": ["a", 1]}, "one": {"const": 3},
            "ref": {"$ref": "#/$defs/x"}, "loop": {"$ref": "#/properties/loop"}, "__entity": {"type": "string"},
            "deep": {"type": "object", "properties": {"x": {"type": "string"}}}},
            "$defs": {"x": {"type": "boolean"}}});
        let fields = of_arguments(&schema);
        let kind = |name: &str| fields.get(name).map(|field| (field.kind.clone(), field.required));
        assert_eq!(kind("to"), Some((Kind::Text, true)));
        assert_eq!(kind("n"), Some((Kind::Long, false)));
        assert_eq!(kind("f"), Some((Kind::Decimal, false)));
        assert_eq!(kind("maybe"), Some((Kind::Text, false)));
        assert_eq!(kind("opt"), Some((Kind::Long, false)));
        assert_eq!(kind("tags"), Some((Kind::Set(Box::new(Kind::Text)), false)));
        assert_eq!(kind("pick"), Some((Kind::Text, false)));
        assert_eq!(kind("one"), Some((Kind::Long, false)));
        assert_eq!(kind("ref"), Some((Kind::Flag, false)));
        for name in ["any", "mixed", "holes", "tuple", "odd", "loop", "__entity"] {
            assert_eq!(kind(name), None, "{name}");
        }
        let path = ["deep".to_owned(), "x".to_owned()];
        assert_eq!(pruned(&fields, &[&path]).keys().collect::<Vec<_>>(), ["deep"]);
        assert_eq!(pruned(&fields, &[]), Fields::new());
        assert_eq!(pruned(&fields, &[&path, &[]]), fields);
        let record = Kind::Record(fields);
        assert_eq!(record.at(&["deep".to_owned(), "x".to_owned()]), Some(&Kind::Text));
        assert_eq!(record.at(&["deep".to_owned(), "y".to_owned()]), None);
        assert_eq!(record.at(&["to".to_owned(), "y".to_owned()]), None);
    }
}
