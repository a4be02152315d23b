//! The tenant's security log. What is not here: who writes it (`http::probe`, the session's actor).

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use toolgate_core::time::Timestamp;
use toolgate_store::SecurityCursor;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::Authenticated;
use crate::caller::Scope;
use crate::error::ApiError;
use crate::http::extract::Query;
use crate::wire::page::{Page, page_limit};
use crate::wire::registry::SecurityEventView;

/// Size and place of a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SecurityQuery {
    /// Entries per page: 1 to 200, normally 50.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List security events
///
/// Newest first: forged identities, ids outside the tenant, changes of bundle and keys.
#[utoipa::path(
    get, path = "/v1/security-events", operation_id = "list_security_events", tag = "audit", params(SecurityQuery),
    responses((status = 200, description = "A page", body = Page<SecurityEventView>))
)]
pub async fn list_security_events(
    State(app): State<App>,
    auth: Authenticated,
    Query(query): Query<SecurityQuery>,
) -> Result<Json<Page<SecurityEventView>>, ApiError> {
    let caller = auth.with(Scope::AuditRead)?;
    let open = |cursor: &String| app.cursors().open::<(i64, String)>(&caller.tenant, "security", &(), cursor);
    let after = query.cursor.as_ref().map(open).transpose()?;
    let after = after.map(|(at, id)| SecurityCursor { at: Timestamp(at), id });
    let page = app.store().security_list(&caller.tenant, after.as_ref(), page_limit(query.limit)).await?;
    let seal =
        |next: SecurityCursor| app.cursors().seal(&caller.tenant, "security", &(), &(next.at.as_micros(), next.id));
    let next_cursor = page.next.map(seal);
    Ok(Json(Page { items: page.items.iter().map(SecurityEventView::from).collect(), next_cursor }))
}
