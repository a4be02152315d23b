//! Calls of a session, as its log tells: the list, and the explanation of one. What is not here: executing them (the channel and the session's actor).

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use toolgate_core::explain::Explainer;
use toolgate_core::id::{CallId, SessionId};
use toolgate_core::reason::RefusalCode;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Authenticated;
use crate::caller::Scope;
use crate::error::{ApiError, ErrorCode};
use crate::http::extract::{Path, Query};
use crate::http::headers::{ExplanationForm, explanation_form};
use crate::http::probe::noting;
use crate::openapi::{Gone, NotAcceptable};
use crate::wire::call::{CallFold, CallPage};
use crate::wire::explain::ExplanationView;
use crate::wire::page::page_limit;
use crate::wire::time_text;

/// Events read at once.
const BATCH: u32 = 1_000;

/// Where to begin, and how much.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CallQuery {
    /// Only calls decided after this sequence number.
    after_seq: Option<u64>,
    /// Calls of a page: 1 to 200, normally 50.
    limit: Option<u32>,
}

/// List the calls of a session
///
/// Open and ended ones, in the order of their decisions, each with its arguments, state and outcome.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/calls", operation_id = "list_calls", tag = "events",
    params(("id" = String, Path, description = "The session"), CallQuery),
    responses((status = 200, description = "A page", body = CallPage))
)]
pub async fn list_calls(
    State(app): State<App>,
    auth: Authenticated,
    Path(id): Path<SessionId>,
    Query(query): Query<CallQuery>,
) -> Result<Json<CallPage>, ApiError> {
    let caller = auth.with_any(&[Scope::SessionsRead, Scope::AuditRead])?;
    let limit = usize::try_from(page_limit(query.limit)).unwrap_or(usize::MAX);
    let mut fold = CallFold::new(limit);
    let mut after = query.after_seq.unwrap_or(0);
    loop {
        let events = app.sessions().events(&caller.tenant, id, after, BATCH).await;
        let events = noting(&app, &caller, id, events).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        events.iter().for_each(|recorded| fold.take(recorded));
    }
    Ok(Json(fold.page()))
}

/// Explain a call
///
/// What was asked, by what it was judged, every layer and rule looked at with its inputs by name, what made the decision
/// and what would change it, who approved or edited what, and what became of it: from the log alone. By `Accept`:
/// `application/json`, or `text/plain` for people, which is the same text as `toolgate explain` gives.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/calls/{call_id}/explain", operation_id = "explain_call", tag = "audit",
    params(("id" = String, Path, description = "The session"), ("call_id" = String, Path, description = "The call")),
    responses(
        (status = 200, description = "The explanation", content(
            (ExplanationView = "application/json"),
            (String = "text/plain"),
        )),
        (status = 406, response = NotAcceptable), (status = 410, response = Gone),
    )
)]
pub async fn explain_call(
    State(app): State<App>,
    auth: Authenticated,
    Path((id, call)): Path<(SessionId, CallId)>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let caller = auth.with_any(&[Scope::SessionsRead, Scope::AuditRead])?;
    let form = explanation_form(&headers)?;
    let mut explainer = Explainer::new(call);
    let mut after = 0;
    loop {
        let events = app.sessions().events(&caller.tenant, id, after, BATCH).await;
        let events = noting(&app, &caller, id, events).await?;
        let Some(last) = events.last() else { break };
        after = last.seq;
        events.iter().for_each(|recorded| explainer.take(recorded));
    }
    let Some(explanation) = explainer.finish() else {
        return Err(ApiError::new(
            ErrorCode::Refused(RefusalCode::UnknownCall),
            "the session has decided no such call",
        ));
    };
    Ok(match form {
        ExplanationForm::Json => Json(ExplanationView::from(&explanation)).into_response(),
        ExplanationForm::Text => explanation.text(time_text).into_response(),
    })
}
