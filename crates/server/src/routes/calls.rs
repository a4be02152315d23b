//! Calls of a session, as its log tells. What is not here: executing them (the channel and the session's actor).

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use toolgate_core::id::SessionId;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Authenticated;
use crate::caller::Scope;
use crate::error::ApiError;
use crate::http::extract::{Path, Query};
use crate::http::probe::noting;
use crate::wire::call::{CallFold, CallPage};
use crate::wire::page::page_limit;

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
