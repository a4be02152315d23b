//! The problem document (RFC 9457). What is not here: the codes (`error`).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use utoipa::ToSchema;

use super::{ApiError, ErrorCode};

/// Where the meaning of each code is published.
const TYPE_BASE: &str = "https://toolgate.dev/errors/";

/// What every failed request is answered with, as `application/problem+json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Problem {
    /// A URI that names the code.
    #[serde(rename = "type")]
    #[schema(example = "https://toolgate.dev/errors/not_found")]
    pub kind: String,
    /// One line for people, the same for every occurrence.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The stable code; programs decide by it.
    pub code: String,
    /// What went wrong this time.
    pub detail: String,
    /// The path that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// The id to quote when asking for help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Every place that is wrong, where places can be named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldFault>,
}

/// One place that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct FieldFault {
    /// JSON pointer into the body, or the name of a parameter.
    pub pointer: String,
    /// Which rule is broken.
    pub code: String,
    /// What is wrong and how to mend it.
    pub detail: String,
}

impl Problem {
    pub(super) fn new(code: ErrorCode, detail: String, errors: Vec<FieldFault>) -> Self {
        Self {
            kind: format!("{TYPE_BASE}{}", code.code()),
            title: code.title().to_owned(),
            status: code.status(),
            code: code.code().to_owned(),
            detail,
            instance: None,
            request_id: None,
            errors,
        }
    }

    /// Writes the document as a response.
    #[must_use]
    pub fn respond(&self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let media = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, media);
        response
    }
}

impl IntoResponse for ApiError {
    /// Logs the cause once and writes the document. The request's own middleware adds path and request id.
    fn into_response(self) -> Response {
        let code = self.code();
        if code.status() >= 500 {
            tracing::error!(code = code.code(), error = chain(&self), "request failed");
        } else {
            tracing::debug!(code = code.code(), "request refused");
        }
        let problem = self.problem();
        let mut response = problem.respond();
        let headers = response.headers_mut();
        if let Some(seconds) = code.retry_after_s() {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        match code.status() {
            401 => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"toolgate\""));
            }
            403 if code == ErrorCode::InsufficientScope => {
                let value = "Bearer realm=\"toolgate\", error=\"insufficient_scope\"";
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(value));
            }
            _ => {}
        }
        response.extensions_mut().insert(problem);
        response
    }
}

/// The whole chain of causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}
