//! Approvals: what waits for a human, and the human's answer. Who answers comes from the credential. What is not here:
//! what an answer leads to (the core).

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Deserialize;
use toolgate_core::event::ApprovalVerb;
use toolgate_core::id::{ApprovalId, SessionId};
use toolgate_core::input::{ApprovalAnswer, Input};
use toolgate_core::reason::RefusalCode;
use toolgate_core::session::{Awaited, CallState};
use toolgate_core::time::Timestamp;
use toolgate_store::{ApprovalCursor, ApprovalRow, ApprovalStatus};
use utoipa::IntoParams;

use super::sessions::{bound, parameter};
use crate::app::App;
use crate::auth::Authenticated;
use crate::caller::{Caller, Scope};
use crate::error::{ApiError, ErrorCode};
use crate::failure::Failure;
use crate::http::extract::{Body, Path, Query};
use crate::http::idempotency::{Answer, Operation, Ticket, once};
use crate::openapi::{Conflict, Gone, Unprocessable};
use crate::sessions::Submission;
use crate::wire::approval::{ApprovalSummary, ApprovalView, DecideApproval, DecisionView};
use crate::wire::page::{Page, page_limit};

const DECIDE: Operation = Operation { route: "POST /v1/approvals/{id}/decision", location: None };

/// Who may see approvals.
const READERS: [Scope; 3] = [Scope::ApprovalsWrite, Scope::SessionsRead, Scope::AuditRead];

/// Filters of the list of approvals.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ApprovalQuery {
    /// Only this status: `pending`, `approved`, `denied`, `edited`, `expired`, `cancelled` or `revoked`.
    status: Option<String>,
    /// Approvals per page: 1 to 200, normally 50.
    limit: Option<u32>,
    /// `next_cursor` of the page before, under the same filters.
    cursor: Option<String>,
}

/// List approvals
///
/// Newest first. The arguments are shown one by one: ask for the approval.
#[utoipa::path(
    get, path = "/v1/approvals", operation_id = "list_approvals", tag = "approvals", params(ApprovalQuery),
    responses((status = 200, description = "A page", body = Page<ApprovalSummary>))
)]
pub async fn list_approvals(
    State(app): State<App>,
    auth: Authenticated,
    Query(query): Query<ApprovalQuery>,
) -> Result<Json<Page<ApprovalSummary>>, ApiError> {
    let caller = auth.with_any(&READERS)?;
    let status = match query.status.as_deref() {
        None => None,
        Some(word) => Some(ApprovalStatus::parse(word).ok_or_else(|| {
            parameter("status", "must be pending, approved, denied, edited, expired, cancelled or revoked")
        })?),
    };
    let filters = query.status.as_deref();
    let open = |cursor: &String| {
        app.cursors().open::<(i64, SessionId, ApprovalId)>(&caller.tenant, "approvals", &filters, cursor)
    };
    let after = query.cursor.as_ref().map(open).transpose()?;
    let after = after.map(|(at, session, id)| ApprovalCursor { requested_at: Timestamp(at), session, id });
    let page = app.store().list_approvals(&caller.tenant, status, after.as_ref(), page_limit(query.limit)).await?;
    let next_cursor = page.next.map(|next| {
        let position = (next.requested_at.as_micros(), next.session, &next.id);
        app.cursors().seal(&caller.tenant, "approvals", &filters, &position)
    });
    Ok(Json(Page { items: page.items.iter().map(ApprovalSummary::from).collect(), next_cursor }))
}

/// Get an approval
///
/// With exactly what would run: whoever may decide it sees the arguments in full while it is pending, everybody else sees
/// them redacted where the tool says so. The `digest` binds tool, arguments, venue, session and bundle; the decision
/// repeats it.
#[utoipa::path(
    get, path = "/v1/approvals/{id}", operation_id = "get_approval", tag = "approvals",
    params(("id" = String, Path, description = "The approval")),
    responses((status = 200, description = "The approval", body = ApprovalView), (status = 410, response = Gone))
)]
pub async fn get_approval(
    State(app): State<App>,
    auth: Authenticated,
    Path(id): Path<ApprovalId>,
) -> Result<Json<ApprovalView>, ApiError> {
    let caller = auth.with_any(&READERS)?;
    let row = app.store().approval(&caller.tenant, &id).await?.ok_or_else(ApiError::not_found)?;
    let body = app.sessions().approval_body(&caller.tenant, &row).await?;
    let snapshot = app.sessions().snapshot(&caller.tenant, row.session).await?;
    let waiting =
        snapshot.state.call(&row.call).filter(|call| matches!(call.state, CallState::Waiting(Awaited::Approval(_))));
    // Whoever decides must see every byte; everybody else sees what the log shows.
    let full = waiting.filter(|_| caller.scopes.contains(&Scope::ApprovalsWrite)).and_then(|call| call.args.as_ref());
    Ok(Json(ApprovalView::of(&row, &body, &snapshot, full)))
}

/// Decide an approval
///
/// Bound to the exact call by `digest`, used once. Whoever comes second is answered with the recorded decision. An edit
/// makes a new call that is judged again.
#[utoipa::path(
    post, path = "/v1/approvals/{id}/decision", operation_id = "decide_approval", tag = "approvals",
    request_body = DecideApproval,
    params(("id" = String, Path, description = "The approval")),
    responses((status = 200, description = "The recorded decision", body = DecisionView),
        (status = 409, response = Conflict), (status = 410, response = Gone), (status = 422, response = Unprocessable))
)]
pub async fn decide_approval(
    State(app): State<App>,
    auth: Authenticated,
    Path(id): Path<ApprovalId>,
    headers: HeaderMap,
    body: Body<DecideApproval>,
) -> Result<Response, ApiError> {
    let caller = auth.with(Scope::ApprovalsWrite)?;
    let fingerprint = bound(&id, body.fingerprint);
    let (digest, bundle) = (body.value.digest, body.value.bundle);
    let decision = body.value.into_decision()?;
    let work = {
        let (app, caller) = (app.clone(), caller.clone());
        move |ticket: Ticket| async move {
            let answer = ApprovalAnswer { approval: id, by: caller.actor.clone(), digest, bundle, decision };
            let row = decide(&app, &caller, answer, &ticket).await?;
            let snapshot = app.sessions().snapshot(&caller.tenant, row.session).await?;
            Ok(Answer::new(StatusCode::OK, &DecisionView::of(&row, &snapshot.state)))
        }
    };
    once(&app, &caller, DECIDE, &headers, fingerprint, work).await
}

/// Hands the answer over, unless there is one; gives the approval as it stands then.
async fn decide(app: &App, caller: &Caller, answer: ApprovalAnswer, ticket: &Ticket) -> Result<ApprovalRow, ApiError> {
    let id = answer.approval.clone();
    let row = find(app, caller, &id).await?;
    let verb = answer.decision.verb();
    if row.status != ApprovalStatus::Pending && verb != ApprovalVerb::Revoke {
        return recorded(row);
    }
    let submission = Submission { id: ticket.input_id(row.session), input: Input::Approval(answer), idempotency: None };
    match app.sessions().submit(&caller.tenant, row.session, submission).await {
        Ok(_) => find(app, caller, &id).await,
        Err(Failure::Refused(refusal))
            if matches!(
                refusal.code,
                RefusalCode::ApprovalClosed
                    | RefusalCode::ApprovalExpired
                    | RefusalCode::ApprovalUsed
                    | RefusalCode::UnknownApproval
            ) && verb != ApprovalVerb::Revoke =>
        {
            // Somebody was faster, or time was: the row tells.
            let row = find(app, caller, &id).await?;
            match row.status {
                ApprovalStatus::Pending if refusal.code == RefusalCode::ApprovalExpired => Err(expired()),
                ApprovalStatus::Pending => Err(Failure::Refused(refusal).into()),
                _ => recorded(row),
            }
        }
        Err(failure) => Err(failure.into()),
    }
}

async fn find(app: &App, caller: &Caller, id: &ApprovalId) -> Result<ApprovalRow, ApiError> {
    app.store().approval(&caller.tenant, id).await?.ok_or_else(ApiError::not_found)
}

/// The answer that a settled approval got, whatever the second one says: its sender sees who decided, and what.
fn recorded(row: ApprovalRow) -> Result<ApprovalRow, ApiError> {
    let refused = |code: RefusalCode, detail: &str| Err(ApiError::new(ErrorCode::Refused(code), detail));
    match row.status {
        ApprovalStatus::Approved | ApprovalStatus::Denied | ApprovalStatus::Edited | ApprovalStatus::Pending => Ok(row),
        ApprovalStatus::Revoked => refused(RefusalCode::ApprovalRevoked, "the approval was taken back"),
        ApprovalStatus::Expired => Err(expired()),
        ApprovalStatus::Cancelled => {
            let detail = "the run ended, or the call was cancelled, before anybody decided";
            refused(RefusalCode::ApprovalClosed, detail)
        }
    }
}

fn expired() -> ApiError {
    ApiError::new(ErrorCode::Refused(RefusalCode::ApprovalExpired), "nobody decided in time; the call was not executed")
}
