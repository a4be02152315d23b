//! Sessions: start, list, look, say more, cancel, close. What is not here: their events (`routes::events`).

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use serde::{Deserialize, Serialize};
use toolgate_core::id::{ProfileName, SessionId};
use toolgate_core::input::{Input, Message, Stop};
use toolgate_core::session::Status;
use toolgate_core::time::Timestamp;
use toolgate_store::{SessionCursor, SessionFilter};
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Authenticated;
use crate::caller::{Caller, Scope};
use crate::error::{ApiError, ErrorCode};
use crate::http::extract::{Body, OptionalBody, Path, Query};
use crate::http::headers::prefer_wait;
use crate::http::idempotency::{Answer, Operation, Ticket, once};
use crate::http::probe::noting;
use crate::http::wait::until_settled;
use crate::openapi::{Conflict, Forbidden, TooLarge, Unprocessable};
use crate::sessions::{Opened, Submission};
use crate::wire::page::{Moment, Page, page_limit};
use crate::wire::session::{
    AddMessage, SessionSummary, SessionView, StartSession, StopReason, checked_text, is_alias, receipt,
};

const START: Operation = Operation { route: "POST /v1/sessions", location: Some("/v1/sessions/") };
const MESSAGE: Operation = Operation { route: "POST /v1/sessions/{id}/messages", location: None };
const CANCEL: Operation = Operation { route: "POST /v1/sessions/{id}/cancel", location: None };
const CLOSE: Operation = Operation { route: "POST /v1/sessions/{id}/close", location: None };

/// Characters of a reason, at most.
const MAX_REASON: usize = 2_000;

/// Start a session
///
/// The session is durable when this answers. With an `id` of the caller the first request answers 201, the same body
/// again 200, and another body 409. `Prefer: wait=N` answers once the session waits for somebody or is idle, after at
/// most N seconds (up to 60).
#[utoipa::path(
    post, path = "/v1/sessions", operation_id = "create_session", tag = "sessions",
    request_body = StartSession,
    params(("Prefer" = Option<String>, Header, description = "`wait=N`: wait up to N seconds (at most 60) for the session to settle")),
    responses(
        (status = 201, description = "Started", body = SessionView,
            headers(("Location" = String, description = "Where the session is found"))),
        (status = 200, description = "Started before, under the same `id` and with the same body", body = SessionView),
        (status = 403, response = Forbidden), (status = 409, response = Conflict),
        (status = 413, response = TooLarge), (status = 422, response = Unprocessable),
    )
)]
pub async fn create_session(
    State(app): State<App>,
    auth: Authenticated,
    headers: HeaderMap,
    body: Body<StartSession>,
) -> Result<Response, ApiError> {
    let caller = auth.with(Scope::SessionsWrite)?;
    let wait = wait_asked(&app, &headers);
    let request = body.value.into_request(&headers, body.fingerprint)?;
    let work = {
        let (app, caller) = (app.clone(), caller.clone());
        move |ticket: Ticket| async move {
            let mut request = request;
            request.idempotency = ticket.with(StatusCode::CREATED);
            let (snapshot, answer) = match app.sessions().open(&caller, request).await? {
                Opened::Created(snapshot) => {
                    (snapshot.clone(), Answer::made(receipt(StatusCode::CREATED.as_u16(), &snapshot), true))
                }
                Opened::Existing(snapshot) => {
                    (snapshot.clone(), Answer::made(receipt(StatusCode::OK.as_u16(), &snapshot), false))
                }
            };
            Ok(settled(&app, &caller, snapshot.state.id, wait, answer).await)
        }
    };
    let response = once(&app, &caller, START, &headers, body.fingerprint, work).await?;
    Ok(applied(response, wait))
}

fn wait_asked(app: &App, headers: &HeaderMap) -> Option<u64> {
    prefer_wait(headers, app.limits().max_wait_s).filter(|seconds| *seconds > 0)
}

/// Waits as asked and shows the session as it is then; the stored answer stays the first one.
async fn settled(app: &App, caller: &Caller, session: SessionId, wait: Option<u64>, answer: Answer) -> Answer {
    let Some(seconds) = wait else { return answer };
    match until_settled(app, &caller.tenant, session, seconds).await {
        Ok(snapshot) => answer.showing(&SessionView::of(&snapshot)),
        // The effect is durable; what could not be waited for can be asked for.
        Err(error) => {
            tracing::debug!(%error, "a wait was given up");
            answer
        }
    }
}

/// Says that a preference was obeyed.
fn applied(mut response: Response, wait: Option<u64>) -> Response {
    let value = wait.and_then(|seconds| HeaderValue::from_str(&format!("wait={seconds}")).ok());
    if let Some(value) = value.filter(|_| response.status().is_success()) {
        response.headers_mut().insert("preference-applied", value);
    }
    response
}

/// Filters of the list of sessions.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SessionQuery {
    /// Only the session with this id of the caller; goes with no other filter.
    alias: Option<String>,
    /// Only this status: `running`, `waiting_approval`, `waiting_client`, `idle` or `closed`.
    status: Option<String>,
    /// Only this profile.
    #[param(value_type = Option<String>)]
    profile: Option<ProfileName>,
    /// Only sessions created at this time (RFC 3339) or later.
    #[param(value_type = Option<String>, format = DateTime)]
    created_from: Option<Moment>,
    /// Only sessions created before this time (RFC 3339).
    #[param(value_type = Option<String>, format = DateTime)]
    created_before: Option<Moment>,
    /// Sessions per page: 1 to 200, normally 50.
    limit: Option<u32>,
    /// `next_cursor` of the page before, under the same filters.
    cursor: Option<String>,
}

/// What a cursor of this list is bound to.
#[derive(Serialize)]
struct Filters<'a> {
    status: Option<&'a str>,
    profile: Option<&'a ProfileName>,
    created_from: Option<Moment>,
    created_before: Option<Moment>,
}

/// List sessions
///
/// Newest first.
#[utoipa::path(
    get, path = "/v1/sessions", operation_id = "list_sessions", tag = "sessions", params(SessionQuery),
    responses((status = 200, description = "A page", body = Page<SessionSummary>))
)]
pub async fn list_sessions(
    State(app): State<App>,
    auth: Authenticated,
    Query(query): Query<SessionQuery>,
) -> Result<Json<Page<SessionSummary>>, ApiError> {
    let caller = auth.with_any(&[Scope::SessionsRead, Scope::AuditRead])?;
    let status = query.status.as_deref();
    if status.is_some_and(|word| !STATUSES.iter().any(|status| status.code() == word)) {
        return Err(parameter("status", "must be running, waiting_approval, waiting_client, idle or closed"));
    }
    let filters = Filters {
        status,
        profile: query.profile.as_ref(),
        created_from: query.created_from,
        created_before: query.created_before,
    };
    if let Some(alias) = &query.alias {
        let other = status.is_some() || query.profile.is_some() || query.created_from.is_some();
        if other || query.created_before.is_some() || query.cursor.is_some() {
            return Err(parameter("alias", "goes with no other filter"));
        }
        // What cannot be an id names nothing, and databases need not be asked about it.
        let row = match is_alias(alias) {
            true => app.store().session_by_alias(&caller.tenant, alias).await?,
            false => None,
        };
        return Ok(Json(Page { items: row.into_iter().map(SessionSummary::from).collect(), next_cursor: None }));
    }
    let open = |cursor: &String| app.cursors().open::<(i64, SessionId)>(&caller.tenant, "sessions", &filters, cursor);
    let after = query.cursor.as_ref().map(open).transpose()?;
    let filter = SessionFilter {
        status: query.status.clone(),
        profile: query.profile.clone(),
        created_from: query.created_from.map(|moment| moment.0),
        created_before: query.created_before.map(|moment| moment.0),
    };
    let after = after.map(|(at, session)| SessionCursor { created_at: Timestamp(at), session });
    let page = app.store().list_sessions(&caller.tenant, &filter, after, page_limit(query.limit)).await?;
    let seal = |next: SessionCursor| {
        app.cursors().seal(&caller.tenant, "sessions", &filters, &(next.created_at.as_micros(), next.session))
    };
    let next_cursor = page.next.map(seal);
    Ok(Json(Page { items: page.items.into_iter().map(SessionSummary::from).collect(), next_cursor }))
}

const STATUSES: [Status; 5] =
    [Status::Running, Status::WaitingApproval, Status::WaitingClient, Status::Idle, Status::Closed];

/// A query parameter without a valid value.
pub(super) fn parameter(name: &str, detail: &str) -> ApiError {
    ApiError::new(ErrorCode::InvalidParameter, format!("`{name}`: {detail}")).at(name, "parameter", detail)
}

/// Get a session
#[utoipa::path(
    get, path = "/v1/sessions/{id}", operation_id = "get_session", tag = "sessions",
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "The session", body = SessionView))
)]
pub async fn get_session(
    State(app): State<App>,
    auth: Authenticated,
    Path(id): Path<SessionId>,
) -> Result<Json<SessionView>, ApiError> {
    let caller = auth.with_any(&[Scope::SessionsRead, Scope::AuditRead])?;
    let found = app.sessions().snapshot(&caller.tenant, id).await;
    noting(&app, &caller, id, found).await.map(|snapshot| Json(SessionView::of(&snapshot)))
}

/// Say something more
///
/// Opens the next run of an idle session. While a run is under way this answers 409 `run_active`.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/messages", operation_id = "add_message", tag = "sessions",
    request_body = AddMessage,
    params(("id" = String, Path, description = "The session"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`: wait up to N seconds (at most 60) for the session to settle")),
    responses(
        (status = 202, description = "Recorded; the run goes on", body = SessionView),
        (status = 409, response = Conflict), (status = 413, response = TooLarge), (status = 422, response = Unprocessable),
    )
)]
pub async fn add_message(
    State(app): State<App>,
    auth: Authenticated,
    Path(id): Path<SessionId>,
    headers: HeaderMap,
    body: Body<AddMessage>,
) -> Result<Response, ApiError> {
    let caller = auth.with(Scope::SessionsWrite)?;
    checked_text("/text", &body.value.text)?;
    let input = Input::Message(Message { by: caller.actor.clone(), text: body.value.text });
    let write = Write { operation: MESSAGE, input, fingerprint: body.fingerprint, status: StatusCode::ACCEPTED };
    submit(app, caller, id, headers, write).await
}

/// Cancel the run
///
/// Stops the run under way: open calls end as cancelled or indeterminate, and the session is idle. Without a run this
/// answers 409 `no_active_run`.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/cancel", operation_id = "cancel_session", tag = "sessions",
    request_body(content = Option<StopReason>, description = "May be left out"),
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "Cancelled", body = SessionView),
        (status = 409, response = Conflict), (status = 422, response = Unprocessable))
)]
pub async fn cancel_session(
    State(app): State<App>,
    auth: Authenticated,
    Path(id): Path<SessionId>,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody<StopReason>,
) -> Result<Response, ApiError> {
    let caller = auth.with(Scope::SessionsWrite)?;
    let input = Input::Cancel(stop(&caller, body.value)?);
    let write = Write { operation: CANCEL, input, fingerprint: body.fingerprint, status: StatusCode::OK };
    submit(app, caller, id, headers, write).await
}

/// Close the session
///
/// Cancels a run that is under way and ends the session for good; its log stays.
#[utoipa::path(
    post, path = "/v1/sessions/{id}/close", operation_id = "close_session", tag = "sessions",
    request_body(content = Option<StopReason>, description = "May be left out"),
    params(("id" = String, Path, description = "The session")),
    responses((status = 200, description = "Closed", body = SessionView),
        (status = 409, response = Conflict), (status = 422, response = Unprocessable))
)]
pub async fn close_session(
    State(app): State<App>,
    auth: Authenticated,
    Path(id): Path<SessionId>,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody<StopReason>,
) -> Result<Response, ApiError> {
    let caller = auth.with(Scope::SessionsWrite)?;
    let input = Input::Close(stop(&caller, body.value)?);
    let write = Write { operation: CLOSE, input, fingerprint: body.fingerprint, status: StatusCode::OK };
    submit(app, caller, id, headers, write).await
}

fn stop(caller: &Caller, body: StopReason) -> Result<Stop, ApiError> {
    if body.reason.as_ref().is_some_and(|reason| reason.chars().count() > MAX_REASON) {
        return Err(ApiError::invalid("/reason", format!("must have at most {MAX_REASON} characters")));
    }
    Ok(Stop { by: caller.actor.clone(), reason: body.reason })
}

/// A write to one session.
struct Write {
    operation: Operation,
    input: Input,
    fingerprint: toolgate_core::id::Sha256Digest,
    status: StatusCode,
}

async fn submit(
    app: App,
    caller: Caller,
    session: SessionId,
    headers: HeaderMap,
    write: Write,
) -> Result<Response, ApiError> {
    let wait = wait_asked(&app, &headers);
    let Write { operation, input, fingerprint, status } = write;
    // One body may go to many sessions; the key then stands for one of them.
    let fingerprint = bound(session, fingerprint);
    let work = {
        let (app, caller) = (app.clone(), caller.clone());
        move |ticket: Ticket| async move {
            let submission = Submission { id: ticket.input_id(session), input, idempotency: ticket.with(status) };
            let taken = app.sessions().submit(&caller.tenant, session, submission).await;
            let taken = noting(&app, &caller, session, taken).await?;
            let made = Answer::made(receipt(status.as_u16(), &taken.snapshot), !taken.events.is_empty());
            Ok(settled(&app, &caller, session, wait, made).await)
        }
    };
    let response = once(&app, &caller, operation, &headers, fingerprint, work).await?;
    Ok(applied(response, wait))
}

/// A fingerprint of body and path: the same key for another session is another request.
pub(super) fn bound(
    session: impl std::fmt::Display,
    fingerprint: toolgate_core::id::Sha256Digest,
) -> toolgate_core::id::Sha256Digest {
    toolgate_core::id::Sha256Digest::of(format!("{session}\n{fingerprint}").as_bytes())
}
