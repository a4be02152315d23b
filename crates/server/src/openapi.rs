//! The OpenAPI 3.1 document: what the handlers say, and what is the same for all of them (problems, credentials, common
//! headers). Checked in as `openapi.yaml`; a test compares. What is not here: the routes (`router`).

use std::collections::BTreeMap;

use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::example::ExampleBuilder;
use utoipa::openapi::path::{Operation, ParameterBuilder, ParameterIn, PathItem};
use utoipa::openapi::response::{Response, ResponseBuilder};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{ComponentsBuilder, InfoBuilder, LicenseBuilder, OpenApi, Ref, RefOr, Required};
use utoipa::{PartialSchema as _, ToResponse, ToSchema as _};

use crate::error::{ErrorCode, FieldFault, Problem};
use crate::router::api;

const SCHEME: &str = "api_key";

/// Declares one documented problem response per status.
macro_rules! problems {
    ($($name:ident => $status:literal, $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            #[derive(Debug)]
            pub struct $name;

            impl<'r> ToResponse<'r> for $name {
                fn response() -> (&'r str, RefOr<Response>) {
                    (stringify!($name), RefOr::T(problem($status, $meaning)))
                }
            }
        )*

        /// Every documented problem response by status.
        fn problem_responses() -> Vec<(u16, &'static str, RefOr<Response>)> {
            vec![$({
                let (name, response) = $name::response();
                ($status, name, response)
            },)*]
        }
    };
}

problems! {
    BadRequest => 400, "The request cannot be read";
    Unauthorized => 401, "A valid API key is needed";
    Forbidden => 403, "The API key may not do this";
    NotFound => 404, "It does not exist for this tenant";
    MethodNotAllowed => 405, "The method is not allowed here";
    NotAcceptable => 406, "None of the accepted media types is available";
    Conflict => 409, "It does not fit the present state";
    Gone => 410, "It has expired or was erased";
    PreconditionFailed => 412, "The resource has changed";
    TooLarge => 413, "The body or a part of it is too large";
    UnsupportedMedia => 415, "The media type is not supported";
    Unprocessable => 422, "The body is not valid";
    PreconditionRequired => 428, "The write needs a precondition";
    TooMany => 429, "Too much at once";
    InternalError => 500, "A defect of the server; the operator has been told";
    Unavailable => 503, "Not now; try again after `Retry-After` seconds";
}

/// A problem response with one named example per code of its status.
fn problem(status: u16, meaning: &str) -> Response {
    let mut content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem")));
    for code in ErrorCode::all().filter(|code| code.status() == status) {
        let value = serde_json::json!({
            "type": format!("https://toolgate.dev/errors/{}", code.code()),
            "title": code.title(),
            "status": status,
            "code": code.code(),
            "detail": "what went wrong this time",
            "request_id": "req_01a228f32d97767e9c20a4e838e1021d",
        });
        let example = ExampleBuilder::new().summary(code.title()).value(Some(value)).build();
        content = content.examples_from_iter([(code.code(), example)]);
    }
    ResponseBuilder::new().description(meaning).content("application/problem+json", content.build()).build()
}

/// The document.
#[must_use]
pub fn document() -> OpenApi {
    let mut document = api().into_openapi();
    document.info = InfoBuilder::new()
        .title("Toolgate")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Control plane for AI tool use: language models propose, Toolgate decides what runs, where it runs, and \
             records every decision and outcome. Unknown request fields are refused; unknown response fields must be \
             ignored. Times are RFC 3339 in UTC with three decimals.",
        ))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    document.tags = Some(
        [
            ("sessions", "Conversations under control"),
            ("events", "What happened in a session"),
            ("approvals", "Calls that wait for a human"),
            ("audit", "Checking and oversight"),
            ("registry", "The tenant's configuration"),
            ("api-keys", "Credentials"),
            ("health", "The server itself"),
        ]
        .map(|(name, description)| TagBuilder::new().name(name).description(Some(description)).build())
        .to_vec(),
    );
    complete_components(&mut document);
    for (path, item) in &mut document.paths.paths {
        let open = !path.starts_with("/v1/");
        for (method, operation) in operations(item) {
            complete(operation, method, open);
        }
    }
    document.security = Some(vec![SecurityRequirement::new(SCHEME, Vec::<String>::new())]);
    document
}

/// The document as it is checked in.
pub fn yaml() -> Result<String, serde_json::Error> {
    document().to_yaml().map_err(serde::ser::Error::custom)
}

fn complete_components(document: &mut OpenApi) {
    let mut components = ComponentsBuilder::from(document.components.take().unwrap_or_default()).security_scheme(
        SCHEME,
        SecurityScheme::Http(
            Http::builder()
                .scheme(HttpAuthScheme::Bearer)
                .bearer_format("tg_live_<id>_<secret>")
                .description(Some("An API key. Tenant, actor, scopes and profiles come from it alone."))
                .build(),
        ),
    );
    components = components.schema("Problem", problem_schema()).schema(FieldFault::name(), FieldFault::schema());
    for (_, name, response) in problem_responses() {
        components = components.response(name, response);
    }
    document.components = Some(components.build());
}

/// The problem document's schema, with the closed list of codes.
fn problem_schema() -> RefOr<Schema> {
    let mut schema = Problem::schema();
    if let RefOr::T(Schema::Object(object)) = &mut schema {
        let codes = ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("The stable code; programs decide by it."))
            .enum_values(Some(ErrorCode::all().map(ErrorCode::code)));
        object.properties.insert("code".to_owned(), codes.into());
    }
    schema
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = (&'static str, &mut Operation)> {
    let all = [("get", &mut item.get), ("put", &mut item.put), ("post", &mut item.post), ("delete", &mut item.delete)];
    all.into_iter().filter_map(|(method, operation)| operation.as_mut().map(|operation| (method, operation)))
}

/// Adds what every operation of its kind has.
fn complete(operation: &mut Operation, method: &str, open: bool) {
    let mut statuses = vec![500, 503];
    if open {
        statuses.push(405);
    } else {
        statuses.extend([400, 401, 403]);
        let in_path = |parameter: &RefOr<_>| {
            matches!(parameter, RefOr::T(utoipa::openapi::path::Parameter { parameter_in: ParameterIn::Path, .. }))
        };
        if operation.parameters.iter().flatten().any(in_path) || operation.operation_id.as_deref() == Some("get_bundle")
        {
            statuses.push(404);
        }
        if operation.request_body.is_some() {
            statuses.extend([413, 415, 422]);
        }
        if method == "post" {
            statuses.push(409);
            operation.parameters.get_or_insert_default().push(idempotency_key().into());
        }
    }
    let names: BTreeMap<u16, &'static str> =
        problem_responses().into_iter().map(|(status, name, _)| (status, name)).collect();
    for status in statuses {
        if let Some(name) = names.get(&status) {
            let there = operation.responses.responses.entry(status.to_string());
            there.or_insert_with(|| RefOr::Ref(Ref::from_response_name(*name)));
        }
    }
    for parameter in operation.parameters.iter_mut().flatten() {
        if let RefOr::T(parameter) = parameter {
            parameter.schema.iter_mut().for_each(not_null);
        }
    }
}

fn idempotency_key() -> utoipa::openapi::path::Parameter {
    ParameterBuilder::new()
        .name("Idempotency-Key")
        .parameter_in(ParameterIn::Header)
        .required(Required::False)
        .description(Some(
            "Unique per request, 1 to 255 visible ASCII characters, quoted or bare. The same key and body again get the \
             stored answer with `Idempotency-Replayed: true` for 24 hours; the same key with another body is refused.",
        ))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

/// A parameter is there or not there; it is never null.
fn not_null(schema: &mut RefOr<Schema>) {
    let RefOr::T(Schema::Object(object)) = schema else { return };
    if let SchemaType::Array(types) = &object.schema_type
        && let Some(only) = types.iter().find(|kind| **kind != Type::Null)
    {
        object.schema_type = SchemaType::Type(only.clone());
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]
mod tests;
