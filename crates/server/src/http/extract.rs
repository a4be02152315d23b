//! Reads bodies, paths and queries; every refusal is a problem document that points at the place. What is not here:
//! headers (`http::headers`), credentials (`auth`).
//!
//! The originals of axum answer in plain text and let duplicate keys pass; handlers use these instead.

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::{StatusCode, header, request::Parts};
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolgate_core::id::Sha256Digest;
use toolgate_core::json::{Json as Canonical, Misfit, read_strict, read_typed};

use crate::error::{ApiError, ErrorCode};

/// A JSON body and its fingerprint: the hash of its canonical form, the same for every spelling of one value.
#[derive(Debug, Clone)]
pub struct Body<T> {
    /// What was sent.
    pub value: T,
    /// SHA-256 of the canonical JSON.
    pub fingerprint: Sha256Digest,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (typed, text) = text(request, state).await?;
        if text.trim().is_empty() {
            return Err(ApiError::new(ErrorCode::Malformed, "the body is empty; a JSON object is expected"));
        }
        require_json(typed.as_deref())?;
        read(&text)
    }
}

/// A JSON body that may be left out; then it is `T::default()`.
#[derive(Debug, Clone)]
pub struct OptionalBody<T>(pub Body<T>);

impl<T: DeserializeOwned + Default, S: Send + Sync> FromRequest<S> for OptionalBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (typed, text) = text(request, state).await?;
        if text.is_empty() {
            return Ok(Self(Body { value: T::default(), fingerprint: Canonical::empty_object().hash() }));
        }
        require_json(typed.as_deref())?;
        read(&text).map(Self)
    }
}

/// The text of a JSON body, not read yet: for bodies whose own reader reports every fault.
#[derive(Debug, Clone)]
pub struct JsonText(pub String);

impl<S: Send + Sync> FromRequest<S> for JsonText {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let (typed, text) = text(request, state).await?;
        require_json(typed.as_deref())?;
        Ok(Self(text))
    }
}

async fn text<S: Send + Sync>(request: Request, state: &S) -> Result<(Option<String>, String), ApiError> {
    let typed = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let bytes = Bytes::from_request(request, state).await.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => ApiError::new(ErrorCode::PayloadTooLarge, "the body is over the limit"),
        _ => ApiError::new(ErrorCode::Malformed, "the body did not arrive whole"),
    })?;
    let text = String::from_utf8(bytes.into())
        .map_err(|_| ApiError::new(ErrorCode::Malformed, "the body is not valid UTF-8"))?;
    Ok((typed, text))
}

fn require_json(typed: Option<&str>) -> Result<(), ApiError> {
    let essence = typed.and_then(|typed| typed.split(';').next()).unwrap_or_default().trim().to_ascii_lowercase();
    let json = essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    if json {
        Ok(())
    } else {
        Err(ApiError::new(ErrorCode::UnsupportedMediaType, "send `Content-Type: application/json`"))
    }
}

/// Reads a text strictly: duplicate keys, lone surrogates, numbers that lose digits and depth over 64 are malformed;
/// unknown fields and wrong types are invalid, with their place.
fn read<T: DeserializeOwned>(text: &str) -> Result<Body<T>, ApiError> {
    let value = read_strict(text).map_err(|fault| ApiError::new(ErrorCode::Malformed, fault.to_string()))?;
    let fingerprint = Canonical::from_value(&value).hash();
    Ok(Body { value: typed(&value)?, fingerprint })
}

fn typed<T: DeserializeOwned>(value: &Value) -> Result<T, ApiError> {
    read_typed(value).map_err(|Misfit { pointer, detail }| {
        let shown = if pointer.is_empty() { format!("the body: {detail}") } else { format!("`{pointer}`: {detail}") };
        ApiError::new(ErrorCode::InvalidRequest, shown).at(pointer, "shape", detail)
    })
}

/// The ids in a path. One that has no valid form names nothing: the same 404 as one that does not exist.
#[derive(Debug, Clone, Copy)]
pub struct Path<T>(pub T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        path.map(|path| Self(path.0)).map_err(|_| ApiError::not_found())
    }
}

/// The query of a request; unknown and repeated parameters are refused.
#[derive(Debug, Clone, Copy)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        axum::extract::Query::<T>::try_from_uri(&parts.uri).map(|query| Self(query.0)).map_err(|rejection| {
            let whole = rejection.body_text();
            let detail = whole.split_once(": ").map_or(whole.as_str(), |(_, detail)| detail).to_owned();
            let name = detail.split_once(':').map(|(name, _)| name).filter(|name| !name.contains(' '));
            let name = name.unwrap_or_default().to_owned();
            ApiError::new(ErrorCode::InvalidParameter, detail.clone()).at(name, "parameter", detail)
        })
    }
}
