//! The frame around every request: its id, its span, its time, panics, security headers, and the request's own facts
//! in problem documents. Bodies, credentials and queries are never traced. What is not here: sizes of bodies (`router`).

use std::any::Any;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument as _;

use crate::app::App;
use crate::error::{ApiError, ErrorCode, Problem};
use crate::http::headers::prefer_wait;

/// The header that carries the id of a request.
pub const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request: the caller's, if it has 1 to 128 visible ASCII characters, else a fresh one.
fn request_id(headers: &HeaderMap) -> HeaderValue {
    let sent = headers
        .get(REQUEST_ID)
        .filter(|value| (1..=128).contains(&value.len()) && value.as_bytes().iter().all(u8::is_ascii_graphic));
    sent.cloned().unwrap_or_else(|| {
        let made = format!("req_{}", uuid::Uuid::now_v7().simple());
        HeaderValue::from_str(&made).unwrap_or(HeaderValue::from_static("req_unknown"))
    })
}

/// Time that this request may take: the bound, and the wait that it asks for itself.
fn time_allowed(app: &App, request: &Request) -> Duration {
    let max = app.limits().max_wait_s;
    let asked = prefer_wait(request.headers(), max).or_else(|| {
        let pairs = request.uri().query().unwrap_or_default().split('&');
        let wait = pairs.filter_map(|pair| pair.strip_prefix("wait=")).find_map(|text| text.parse::<u64>().ok());
        wait.map(|seconds| seconds.min(max))
    });
    app.limits().request.saturating_add(Duration::from_secs(asked.unwrap_or(0)))
}

/// Runs a request inside the frame.
pub async fn around(State(app): State<App>, request: Request, next: Next) -> Response {
    let id = request_id(request.headers());
    let instance = request.uri().path().to_owned();
    let route = request.extensions().get::<MatchedPath>().map_or("none", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!(
        "request",
        request_id = id.to_str().unwrap_or_default(),
        method = %request.method(),
        route,
        tenant = tracing::field::Empty,
        status = tracing::field::Empty,
    );
    let allowed = time_allowed(&app, &request);
    let answered = tokio::time::timeout(allowed, next.run(request)).instrument(span.clone()).await;
    let response = span.in_scope(|| {
        answered.unwrap_or_else(|_| {
            let detail = "the server stopped waiting; the request may have had its effect";
            ApiError::new(ErrorCode::RequestTimedOut, detail).into_response()
        })
    });
    span.record("status", response.status().as_u16());
    finish(response, &id, &instance)
}

/// Adds what only the request knows, and the headers that stand on every answer.
fn finish(mut response: Response, id: &HeaderValue, instance: &str) -> Response {
    if let Some(problem) = response.extensions_mut().remove::<Problem>() {
        let whole =
            Problem { instance: Some(instance.to_owned()), request_id: id.to_str().ok().map(str::to_owned), ..problem };
        let (parts, _) = response.into_parts();
        let mut written = whole.respond();
        for (name, value) in &parts.headers {
            if !matches!(*name, header::CONTENT_LENGTH | header::CONTENT_TYPE) {
                written.headers_mut().insert(name, value.clone());
            }
        }
        response = written;
    }
    let headers = response.headers_mut();
    headers.insert(REQUEST_ID, id.clone());
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// The answer to a request whose handler panicked. What it said stays in the process.
pub fn panicked(payload: Box<dyn Any + Send + 'static>) -> Response {
    let said = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without words".to_owned());
    ApiError::new(ErrorCode::Internal, "the operator has been told").because(said).into_response()
}
