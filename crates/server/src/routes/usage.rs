//! What the tenant has spent of its budgets and limits. What is not here: what one session has spent (its events).

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use toolgate_core::time::Timestamp;
use toolgate_store::UsageCursor;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Authenticated;
use crate::caller::Scope;
use crate::error::ApiError;
use crate::http::extract::Query;
use crate::wire::page::{Page, page_limit};
use crate::wire::usage::CounterUsage;

/// Who may see what was spent.
const READERS: [Scope; 2] = [Scope::AuditRead, Scope::SessionsRead];

/// Size and place of a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct UsageQuery {
    /// Counters per page: 1 to 200, normally 50.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List what was spent
///
/// The tenant's counters by name, each with the windows that are kept (35 days). A counter exists once something was
/// charged to it.
#[utoipa::path(
    get, path = "/v1/usage", operation_id = "list_usage", tag = "audit", params(UsageQuery),
    responses((status = 200, description = "A page", body = Page<CounterUsage>))
)]
pub async fn list_usage(
    State(app): State<App>,
    auth: Authenticated,
    Query(query): Query<UsageQuery>,
) -> Result<Json<Page<CounterUsage>>, ApiError> {
    let caller = auth.with_any(&READERS)?;
    let open = |cursor: &String| app.cursors().open::<(String, i64)>(&caller.tenant, "usage", &(), cursor);
    let after = query.cursor.as_ref().map(open).transpose()?;
    let after = after.map(|(counter, start)| UsageCursor { counter, window_start: Timestamp(start) });
    let page = app.store().usage(&caller.tenant, after.as_ref(), page_limit(query.limit)).await?;
    let seal = |next: UsageCursor| {
        app.cursors().seal(&caller.tenant, "usage", &(), &(next.counter, next.window_start.as_micros()))
    };
    let next_cursor = page.next.map(seal);
    Ok(Json(Page { items: page.items.iter().map(CounterUsage::from).collect(), next_cursor }))
}
