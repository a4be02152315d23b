//! The checked-in `openapi.yaml` as a judge: every answer that a test's caller gets must be documented for its route and
//! status, with the documented media type, headers and body. What is not here: asking (`caller`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{LazyLock, Mutex, PoisonError};

use jsonschema::{Draft, Validator};
use reqwest::header::{CONTENT_TYPE, HeaderMap};
use serde_json::{Map, Value, json};

/// The methods a path of the document can have.
pub const METHODS: [&str; 5] = ["get", "put", "post", "delete", "patch"];

/// The document.
pub static CONTRACT: LazyLock<Contract> = LazyLock::new(Contract::read);

/// The document, ready to judge.
pub struct Contract {
    document: Value,
    /// Compiled body schemas by their place in the document.
    validators: Mutex<HashMap<String, std::sync::Arc<Validator>>>,
}

/// An answer to be judged.
#[derive(Debug, Clone, Copy)]
pub struct Judged<'a> {
    /// The method.
    pub method: &'a str,
    /// The path without its query.
    pub path: &'a str,
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: &'a HeaderMap,
    /// The body.
    pub body: &'a [u8],
}

impl Contract {
    fn read() -> Self {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../openapi.yaml");
        let text = std::fs::read_to_string(path).expect("openapi.yaml");
        // YAML 1.2, as OpenAPI says: the field name `no` is no boolean.
        let options = serde_saphyr::options! { strict_booleans: true };
        let document: Value = serde_saphyr::from_str_with_options(&text, options).expect("openapi.yaml is YAML");
        Self { document, validators: Mutex::default() }
    }

    /// Every documented operation: method (lower case) and path template.
    #[must_use]
    pub fn operations(&self) -> BTreeSet<(String, String)> {
        let paths = self.document["paths"].as_object().expect("paths");
        paths
            .iter()
            .flat_map(|(path, item)| {
                let methods = item.as_object().expect("a path item").keys();
                methods.filter(|key| METHODS.contains(&key.as_str())).map(|method| (method.clone(), path.clone()))
            })
            .collect()
    }

    /// The statuses that an operation documents.
    #[must_use]
    pub fn statuses(&self, method: &str, template: &str) -> BTreeSet<u16> {
        let responses = self.document["paths"][template][method]["responses"].as_object().expect("responses");
        responses.keys().map(|status| status.parse().expect("a status")).collect()
    }

    /// The template that a path matches; literal segments win over parameters.
    #[must_use]
    pub fn template(&self, path: &str) -> Option<&str> {
        let paths = self.document["paths"].as_object()?;
        let matching = paths.keys().filter(|template| matches(template, path));
        matching.min_by_key(|template| template.matches('{').count()).map(String::as_str)
    }

    /// Fails the test unless the answer is one that the document promises.
    pub fn judge(&self, judged: &Judged<'_>) {
        let Judged { method, path, status, headers, .. } = *judged;
        let place = format!("{method} {path} answered {status}");
        assert!(headers.contains_key("x-request-id"), "{place} without a request id");
        if path == "/v1/channel" {
            return; // Not plain HTTP: docs/CHANNEL.md.
        }
        let method = method.to_ascii_lowercase();
        let Some(template) = self.template(path) else {
            assert_eq!(status, 404, "{place}, but the document has no such path");
            return self.judge_body(&place, "/components/responses/NotFound", judged);
        };
        if self.document["paths"][template].get(&method).is_none() && method != "head" {
            assert_eq!(status, 405, "{place}, but the document has no such operation");
            return self.judge_body(&place, "/components/responses/MethodNotAllowed", judged);
        }
        let method = if method == "head" { "get" } else { method.as_str() };
        let response = format!("/paths/{}/{method}/responses/{status}", escape(template));
        let Some(found) = self.document.pointer(&response) else {
            panic!("{place}, which is not documented: {}", String::from_utf8_lossy(judged.body));
        };
        let response = match found["$ref"].as_str() {
            Some(reference) => reference.trim_start_matches('#').to_owned(),
            None => response,
        };
        self.judge_body(&place, &response, judged);
    }

    fn judge_body(&self, place: &str, response: &str, judged: &Judged<'_>) {
        let documented = self.document.pointer(response).unwrap_or_else(|| panic!("no {response}"));
        for name in documented["headers"].as_object().into_iter().flat_map(Map::keys) {
            assert!(judged.headers.contains_key(name.as_str()), "{place} without the header `{name}`");
        }
        if [429, 503].contains(&judged.status) {
            assert!(judged.headers.contains_key("retry-after"), "{place} without `Retry-After`");
        }
        if judged.method.eq_ignore_ascii_case("head") {
            return assert!(judged.body.is_empty(), "{place} with a body");
        }
        let Some(content) = documented["content"].as_object() else {
            return assert!(judged.body.is_empty(), "{place} with a body that is not documented");
        };
        let stated = judged.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media = stated.split(';').next().unwrap_or_default().trim();
        assert!(content.contains_key(media), "{place} as `{media}`, but documented are {:?}", content.keys());
        let schema = format!("{response}/content/{}/schema", escape(media));
        let text = || std::str::from_utf8(judged.body).unwrap_or_else(|_| panic!("{place}: not UTF-8"));
        let parts: Vec<&str> = match media {
            "application/octet-stream" | "text/plain" => return,
            "application/x-ndjson" => text().lines().filter(|line| !line.is_empty()).collect(),
            "text/event-stream" => sse_events(text()),
            _ => vec![text()],
        };
        let validator = self.validator(&schema);
        for part in parts {
            let value: Value = serde_json::from_str(part).unwrap_or_else(|error| panic!("{place}: {error} in {part}"));
            let faults: Vec<String> =
                validator.iter_errors(&value).map(|fault| format!("{}: {fault}", fault.instance_path())).collect();
            assert!(faults.is_empty(), "{place}, but the body differs from the document: {faults:#?}\n{value:#}");
            if media == "application/problem+json" {
                assert_eq!(value["status"], judged.status, "{place}: {value:#}");
            }
        }
    }

    fn validator(&self, schema: &str) -> std::sync::Arc<Validator> {
        let mut validators = self.validators.lock().unwrap_or_else(PoisonError::into_inner);
        let made = validators.entry(schema.to_owned()).or_insert_with(|| {
            let body = self.document.pointer(schema).unwrap_or_else(|| panic!("no {schema}"));
            let strict = Strict { document: &self.document };
            let schemas: BTreeMap<&String, Value> = self.document["components"]["schemas"]
                .as_object()
                .expect("schemas")
                .iter()
                .map(|(name, schema)| (name, strict.inside(schema)))
                .collect();
            let whole = json!({"allOf": [strict.used(body)], "components": {"schemas": schemas}});
            let built = jsonschema::options().with_draft(Draft::Draft202012).build(&whole);
            std::sync::Arc::new(built.unwrap_or_else(|error| panic!("{schema}: {error}")))
        });
        std::sync::Arc::clone(made)
    }
}

/// The JSON of the events of a stream that carry a `type` of the log; `closing` and comments are no events of it.
fn sse_events(text: &str) -> Vec<&str> {
    let blocks = text.split("\n\n").filter(|block| block.lines().any(|line| line.starts_with("id: ")));
    blocks.filter_map(|block| block.lines().find_map(|line| line.strip_prefix("data: "))).collect()
}

/// Readers must ignore unknown fields, so the document leaves objects open; a server must not send fields that the
/// document does not know, so the judge closes them.
struct Strict<'a> {
    document: &'a Value,
}

impl Strict<'_> {
    /// A schema where a value stands: an object with known fields has no others.
    fn used(&self, schema: &Value) -> Value {
        let mut made = self.inside(schema);
        if let Some(map) = made.as_object_mut().filter(|_| self.has_fields(schema)) {
            map.entry("unevaluatedProperties").or_insert(Value::Bool(false));
        }
        made
    }

    /// The schemas below this one, each where it stands.
    fn inside(&self, schema: &Value) -> Value {
        let Some(map) = schema.as_object() else { return schema.clone() };
        let below = |(key, value): (&String, &Value)| {
            let value = match (key.as_str(), value) {
                ("properties", Value::Object(fields)) => {
                    fields.iter().map(|(name, field)| (name.clone(), self.used(field))).collect()
                }
                ("items" | "additionalProperties", Value::Object(_)) => self.used(value),
                // Alternatives and parts of one object: closed where the whole stands.
                ("allOf" | "oneOf" | "anyOf", Value::Array(parts)) => {
                    parts.iter().map(|part| self.inside(part)).collect()
                }
                _ => value.clone(),
            };
            (key.clone(), value)
        };
        Value::Object(map.iter().map(below).collect())
    }

    fn has_fields(&self, schema: &Value) -> bool {
        if let Some(reference) = schema["$ref"].as_str() {
            let found = self.document.pointer(reference.trim_start_matches('#'));
            return found.is_some_and(|schema| self.has_fields(schema));
        }
        let parts = ["allOf", "oneOf", "anyOf"].iter().filter_map(|key| schema[*key].as_array()).flatten();
        schema.get("properties").is_some() || parts.into_iter().any(|part| self.has_fields(part))
    }
}

fn matches(template: &str, path: &str) -> bool {
    let (template, path): (Vec<_>, Vec<_>) = (template.split('/').collect(), path.split('/').collect());
    let fits = |(part, segment): (&&str, &&str)| part == segment || (part.starts_with('{') && !segment.is_empty());
    template.len() == path.len() && template.iter().zip(&path).all(fits)
}

fn escape(token: &str) -> String {
    token.replace('~', "~0").replace('/', "~1")
}
