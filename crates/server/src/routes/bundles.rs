//! Bundles: put a new version, read versions. What is not here: what a bundle must be like (the core).

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use toolgate_core::bundle::Bundle;
use toolgate_core::id::Sha256Digest;
use toolgate_store::BundleRow;

use crate::app::App;
use crate::auth::Authenticated;
use crate::caller::{Caller, Scope};
use crate::error::{ApiError, ErrorCode};
use crate::http::extract::{JsonText, Path};
use crate::http::headers::{Expected, expected, has_version};
use crate::http::probe::security_row;
use crate::openapi::{PreconditionFailed, PreconditionRequired, TooLarge, Unprocessable};
use crate::wire::registry::BundleView;

/// Who may read bundles.
const READERS: [Scope; 3] = [Scope::RegistryWrite, Scope::SessionsRead, Scope::AuditRead];

/// Put the bundle
///
/// Checks the whole bundle, stores it under the digest of its canonical form, and makes it the one that new sessions
/// pin; sessions that run keep theirs. A write over an existing bundle needs `If-Match` with the tag that was read (or
/// `*`); the first one needs none, or `If-None-Match: *`. All faults are listed at once, each with place and rule.
#[utoipa::path(
    put, path = "/v1/bundle", operation_id = "put_bundle", tag = "registry",
    request_body(content = Object, description = "The bundle"),
    params(("If-Match" = Option<String>, Header, description = "`\"sha256:…\"` of the bundle that is replaced, or `*`"),
        ("If-None-Match" = Option<String>, Header, description = "`*`: only if there is none yet")),
    responses(
        (status = 200, description = "It is the current bundle; it was there before", body = BundleView,
            headers(("ETag" = String, description = "Its digest"))),
        (status = 201, description = "It is the current bundle, and new", body = BundleView,
            headers(("ETag" = String, description = "Its digest"), ("Location" = String, description = "Where this version is found"))),
        (status = 412, response = PreconditionFailed), (status = 413, response = TooLarge),
        (status = 422, response = Unprocessable), (status = 428, response = PreconditionRequired),
    )
)]
pub async fn put_bundle(
    State(app): State<App>,
    auth: Authenticated,
    headers: HeaderMap,
    JsonText(text): JsonText,
) -> Result<Response, ApiError> {
    let caller = auth.with(Scope::RegistryWrite)?;
    let expected = expected(&headers)?;
    let bundle = load(&app, text).await?;
    let now = app.clock().now();
    let row = BundleRow {
        digest: bundle.digest(),
        body: bundle.source().as_str().as_bytes().to_vec(),
        created_by: caller.actor.clone(),
        created_at: now,
    };
    let current = app.store().bundle_current(&caller.tenant).await?.map(|row| row.digest);
    let replaced = check(expected, current)?;
    let new = app.store().bundle_put(&caller.tenant, &row).await?;
    if replaced != Some(row.digest) {
        if !app.store().bundle_set_current(&caller.tenant, replaced.as_ref(), &row.digest).await? {
            return Err(changed());
        }
        let detail =
            format!("bundle {} replaces {}", row.digest, replaced.map_or("none".to_owned(), |d| d.to_string()));
        let entry = security_row("bundle_changed", &caller, now, None, &detail);
        app.store().security_append(&caller.tenant, &entry).await?;
    }
    let stored = stored(&app, &caller, &row.digest).await?;
    let status = if new { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = (status, Json(BundleView::of(&stored, &bundle))).into_response();
    tag(&mut response, &row.digest);
    if let Ok(location) = HeaderValue::from_str(&format!("/v1/bundles/{}", row.digest)) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

async fn load(app: &App, text: String) -> Result<Bundle, ApiError> {
    app.sessions().deps().bundles.compile(text).await?.map_err(ApiError::from)
}

/// The version that the write replaces, if the condition holds.
fn check(expected: Expected, current: Option<Sha256Digest>) -> Result<Option<Sha256Digest>, ApiError> {
    match (expected, current) {
        (Expected::Unsaid | Expected::Nothing, None) => Ok(None),
        (Expected::Unsaid, Some(_)) => {
            let detail = "there is a bundle already; send `If-Match` with the tag that you read";
            Err(ApiError::new(ErrorCode::PreconditionRequired, detail))
        }
        (Expected::Anything, Some(_)) => Ok(current),
        (Expected::Version(wanted), Some(found)) if wanted == found => Ok(current),
        (Expected::Nothing, Some(_)) | (Expected::Anything | Expected::Version(_), _) => Err(changed()),
    }
}

fn changed() -> ApiError {
    ApiError::new(ErrorCode::PreconditionFailed, "the current bundle is another one; read it and try again")
}

async fn stored(app: &App, caller: &Caller, digest: &Sha256Digest) -> Result<BundleRow, ApiError> {
    app.store().bundle(&caller.tenant, digest).await?.ok_or_else(ApiError::not_found)
}

/// Get the current bundle
#[utoipa::path(
    get, path = "/v1/bundle", operation_id = "get_bundle", tag = "registry",
    params(("If-None-Match" = Option<String>, Header, description = "A tag that is there already: then 304")),
    responses((status = 200, description = "The bundle in canonical form", body = Object,
            headers(("ETag" = String, description = "Its digest"))),
        (status = 304, description = "It has not changed"))
)]
pub async fn get_bundle(State(app): State<App>, auth: Authenticated, headers: HeaderMap) -> Result<Response, ApiError> {
    let caller = auth.with_any(&READERS)?;
    let row = app.store().bundle_current(&caller.tenant).await?.ok_or_else(ApiError::not_found)?;
    Ok(show(&headers, row))
}

/// Get a version of the bundle
///
/// Versions never change; the current one and those that sessions pinned are kept.
#[utoipa::path(
    get, path = "/v1/bundles/{digest}", operation_id = "get_bundle_version", tag = "registry",
    params(("digest" = String, Path, description = "`sha256:…`"),
        ("If-None-Match" = Option<String>, Header, description = "A tag that is there already: then 304")),
    responses((status = 200, description = "The bundle in canonical form", body = Object,
            headers(("ETag" = String, description = "Its digest"))),
        (status = 304, description = "It has not changed"))
)]
pub async fn get_bundle_version(
    State(app): State<App>,
    auth: Authenticated,
    Path(digest): Path<Sha256Digest>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let caller = auth.with_any(&READERS)?;
    let row = stored(&app, &caller, &digest).await?;
    Ok(show(&headers, row))
}

fn show(headers: &HeaderMap, row: BundleRow) -> Response {
    let mut response = if has_version(headers, &row.digest) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        ([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))], row.body).into_response()
    };
    tag(&mut response, &row.digest);
    response
}

fn tag(response: &mut Response, digest: &Sha256Digest) {
    if let Ok(value) = HeaderValue::from_str(&format!("\"{digest}\"")) {
        response.headers_mut().insert(header::ETAG, value);
    }
}
