//! Verification of a session's log. What is not here: how it is done (`sessions`).

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use toolgate_core::id::SessionId;
use utoipa::ToSchema;

use super::sessions::bound;
use crate::app::App;
use crate::auth::Authenticated;
use crate::caller::Scope;
use crate::error::ApiError;
use crate::http::extract::{OptionalBody, Path};
use crate::http::idempotency::{Answer, Operation, Ticket, once};
use crate::http::probe::noting;
use crate::wire::verify::VerifyView;

const VERIFY: Operation = Operation { route: "POST /v1/sessions/{id}/verify", location: None };

/// Nothing is asked for yet; the body may be left out.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct VerifySession {}

/// Verify a session
///
/// Checks the hash chain, decides every recorded input again, and checks the invariants of the log. A log that does not
/// verify is an answer, not an error: 200 with `verified: false`, the code, and the first sequence number that does not fit.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/verify", operation_id = "verify_session", tag = "audit",
    request_body(content = Option<VerifySession>, description = "May be left out"),
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "What was found", body = VerifyView))
)]
pub async fn verify_session(
    State(app): State<App>,
    auth: Authenticated,
    Path(id): Path<SessionId>,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody<VerifySession>,
) -> Result<Response, ApiError> {
    let caller = auth.with_any(&[Scope::AuditRead, Scope::SessionsRead])?;
    let work = {
        let (app, caller) = (app.clone(), caller.clone());
        move |_: Ticket| async move {
            let report = app.sessions().verify(&caller.tenant, id).await;
            let report = noting(&app, &caller, id, report).await?;
            Ok(Answer::new(StatusCode::OK, &VerifyView::from(report)))
        }
    };
    once(&app, &caller, VERIFY, &headers, bound(id, body.fingerprint), work).await
}
