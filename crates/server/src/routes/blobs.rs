//! Outputs that are stored apart from the log. What is not here: small ones, which stand in their event.

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use toolgate_core::id::{SessionId, Sha256Digest};

use crate::app::App;
use crate::auth::Authenticated;
use crate::caller::Scope;
use crate::error::ApiError;
use crate::http::extract::Path;
use crate::http::probe::noting;
use crate::openapi::Gone;

/// Get a large output
///
/// The bytes as the tool sent them, always as an attachment: nothing here is meant to be shown by a browser.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/blobs/{digest}", operation_id = "get_blob", tag = "events",
    params(("id" = String, Path, description = "The session"),
        ("digest" = String, Path, description = "`content.output.blob.digest` of the event that names it")),
    responses((status = 200, description = "The bytes", content_type = "application/octet-stream", body = Vec<u8>),
        (status = 410, response = Gone))
)]
pub async fn get_blob(
    State(app): State<App>,
    auth: Authenticated,
    Path((id, digest)): Path<(SessionId, Sha256Digest)>,
) -> Result<Response, ApiError> {
    let caller = auth.with_any(&[Scope::SessionsRead, Scope::AuditRead])?;
    // A blob that is missing in a session of the tenant is nobody's probe.
    let session = app.sessions().watch(&caller.tenant, id).await;
    noting(&app, &caller, id, session).await?;
    let bytes = app.sessions().blob(&caller.tenant, id, &digest).await?;
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_DISPOSITION, HeaderValue::from_static("attachment")),
    ];
    Ok((headers, bytes).into_response())
}
