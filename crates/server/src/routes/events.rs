//! Events of a session in three forms, chosen by `Accept`: a page of JSON (with long poll), NDJSON, SSE. What is not
//! here: the going-on of streams (`routes::stream`).

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use toolgate_core::id::SessionId;
use utoipa::{IntoParams, ToSchema};

use super::stream;
use crate::app::App;
use crate::auth::Authenticated;
use crate::caller::{Caller, Scope};
use crate::error::ApiError;
use crate::http::extract::{Path, Query};
use crate::http::headers::{EventForm, event_form, last_event_id};
use crate::http::probe::noting;
use crate::http::wait::moved;
use crate::openapi::{NotAcceptable, TooMany, Unprocessable};
use crate::wire::delta::DeltaLine;
use crate::wire::event::EventView;

/// Events of a page when the caller names no number.
const DEFAULT_LIMIT: u32 = 200;
/// Events of a page, at most.
const MAX_LIMIT: u32 = 1_000;

/// Where to begin, and how much.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// Only events after this sequence number; `Last-Event-ID` wins over it.
    after_seq: Option<u64>,
    /// Events of a page: 1 to 1,000, normally 200. Streams ignore it.
    limit: Option<u32>,
    /// With a page: wait up to so many seconds (at most 60) for the first event.
    wait: Option<u64>,
    /// With a stream: `false` ends it at the last event instead of going on.
    follow: Option<bool>,
    /// With a stream: `true` also shows pieces of models' answers while they come, as `model_delta`.
    deltas: Option<bool>,
}

/// A page of events, oldest first.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct EventPage {
    /// The events.
    pub items: Vec<EventView>,
    /// Give it as `after_seq` to get the next page; the same as before when nothing came.
    pub last_seq: u64,
    /// The last sequence number of the log: equal to `last_seq` when everything was read.
    pub head_seq: u64,
}

/// A line of a stream.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
pub enum StreamLine {
    /// An event.
    Event(EventView),
    /// A piece of an answer, where `deltas=true`.
    Delta(DeltaLine),
}

/// Read or follow events
///
/// `seq` grows by one from 1, never changes, and is the cursor of every form. By `Accept`: `application/json` gives a
/// page; `application/x-ndjson` and `text/event-stream` replay what is there and go on without a gap, until
/// `session_closed` has been sent. A stream that starts where nothing can follow answers 204, which stops an
/// EventSource. Comments and empty lines keep a stream alive and must be ignored; `event: closing` announces that the
/// server stops and after how many milliseconds to come back.
///
/// `deltas=true` puts pieces of answers between the events of a stream: `model_delta`, without `seq` and without SSE `id`.
/// They are not recorded, may get lost, and come from the node that asks the model alone; `ballot_received` has the answer
/// that counts.
#[utoipa::path(
    get, path = "/v1/sessions/{id}/events", operation_id = "list_events", tag = "events",
    params(("id" = String, Path, description = "The session"), EventQuery,
        ("Last-Event-ID" = Option<u64>, Header, description = "The last sequence number that a stream brought")),
    responses(
        (status = 200, description = "Events", content(
            (EventPage = "application/json"),
            (StreamLine = "application/x-ndjson"),
            (StreamLine = "text/event-stream"),
        )),
        (status = 204, description = "The session is closed, and nothing is left"),
        (status = 406, response = NotAcceptable), (status = 422, response = Unprocessable),
        (status = 429, response = TooMany),
    )
)]
pub async fn list_events(
    State(app): State<App>,
    auth: Authenticated,
    Path(id): Path<SessionId>,
    Query(query): Query<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let caller = auth.with_any(&[Scope::SessionsRead, Scope::AuditRead])?;
    let form = event_form(&headers)?;
    let after = last_event_id(&headers)?.or(query.after_seq).unwrap_or(0);
    let deltas = query.deltas.unwrap_or(false);
    if form == EventForm::Page {
        if deltas {
            return Err(ApiError::invalid("/deltas", "a page has no pieces of answers; accept a stream"));
        }
        return page(&app, &caller, id, after, &query).await.map(IntoResponse::into_response);
    }
    let snapshot = app.sessions().snapshot(&caller.tenant, id).await;
    let snapshot = noting(&app, &caller, id, snapshot).await?;
    if snapshot.state.closed && after >= snapshot.state.head {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let follow = query.follow.unwrap_or(true);
    stream::open(app, caller, stream::Wanted { session: id, after, form, follow, deltas }).await
}

async fn page(
    app: &App,
    caller: &Caller,
    session: SessionId,
    after: u64,
    query: &EventQuery,
) -> Result<Json<EventPage>, ApiError> {
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let seconds = query.wait.unwrap_or(0).min(app.limits().max_wait_s);
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        // Watched before it is read, so that nothing falls between.
        let watched = app.sessions().watch(&caller.tenant, session).await;
        let mut head = noting(app, caller, session, watched).await?;
        let head_seq = head.borrow_and_update().seq;
        let events = app.sessions().events(&caller.tenant, session, after, limit).await?;
        let last_seq = events.last().map_or(after, |recorded| recorded.seq);
        if !events.is_empty() || !moved(app, &mut head, end).await {
            let items = events.iter().map(|recorded| EventView::of(session, recorded)).collect();
            return Ok(Json(EventPage { items, last_seq, head_seq: head_seq.max(last_seq) }));
        }
    }
}
