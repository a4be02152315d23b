//! API keys of a tenant: make, list, revoke. What is not here: their form and check (`auth`).

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use secrecy::ExposeSecret as _;
use serde::Deserialize;
use toolgate_store::ApiKeyRow;
use utoipa::IntoParams;

use crate::app::App;
use crate::auth::{Authenticated, KeyRequest, is_key_id, mint};
use crate::caller::{Caller, Scope};
use crate::error::{ApiError, ErrorCode};
use crate::http::extract::{Body, Path, Query};
use crate::http::idempotency::{Answer, Operation, Ticket, once};
use crate::http::probe::security_row;
use crate::openapi::{Forbidden, Unprocessable};
use crate::wire::page::{Page, page_limit};
use crate::wire::registry::{ApiKeyView, CreateApiKey};

const CREATE: Operation = Operation { route: "POST /v1/api-keys", location: Some("/v1/api-keys/") };

/// Characters of a label, at most.
const MAX_LABEL: usize = 200;

/// Make an API key
///
/// The key itself stands in this answer and nowhere else, not even in the repetition of the answer: who loses it revokes
/// the key and makes another. A key can be made for any principal of the tenant, but not for more profiles than the
/// maker's own key may use.
#[utoipa::path(
    post, path = "/v1/api-keys", operation_id = "create_api_key", tag = "api-keys",
    request_body = CreateApiKey,
    responses((status = 201, description = "Made", body = ApiKeyView,
            headers(("Location" = String, description = "Where the key is revoked"))),
        (status = 403, response = Forbidden), (status = 422, response = Unprocessable))
)]
pub async fn create_api_key(
    State(app): State<App>,
    auth: Authenticated,
    headers: HeaderMap,
    body: Body<CreateApiKey>,
) -> Result<Response, ApiError> {
    let caller = auth.with(Scope::KeysAdmin)?;
    let request = checked(&app, &caller, body.value)?;
    let work = {
        let (app, caller) = (app.clone(), caller.clone());
        move |_: Ticket| async move {
            let now = app.clock().now();
            let (row, printed) = mint(app.auth().pepper(), request, now)
                .map_err(|error| ApiError::new(ErrorCode::Internal, "the operator has been told").because(error))?;
            if !app.store().api_key_put(&row).await? {
                return Err(
                    ApiError::new(ErrorCode::Internal, "the operator has been told").because("a key id was taken")
                );
            }
            noted(&app, &caller, "api_key_created", &row).await?;
            let kept = ApiKeyView::from(&row);
            let shown = ApiKeyView { key: Some(printed.expose_secret().to_owned()), ..kept.clone() };
            Ok(Answer::new(StatusCode::CREATED, &kept).showing(&shown))
        }
    };
    once(&app, &caller, CREATE, &headers, body.fingerprint, work).await
}

fn checked(app: &App, caller: &Caller, body: CreateApiKey) -> Result<KeyRequest, ApiError> {
    let scopes = body.checked_scopes()?;
    if body.label.chars().count() > MAX_LABEL {
        return Err(ApiError::invalid("/label", format!("must have at most {MAX_LABEL} characters")));
    }
    if body.label.chars().any(char::is_control) {
        return Err(ApiError::invalid("/label", "must have no control characters"));
    }
    if body.profiles.as_ref().is_some_and(std::collections::BTreeSet::is_empty) {
        return Err(ApiError::invalid("/profiles", "must name at least one profile, or be left out"));
    }
    if body.expires_at.is_some_and(|end| end.0 <= app.clock().now()) {
        return Err(ApiError::invalid("/expires_at", "must lie in the future"));
    }
    let ceiling = match (&caller.ceiling, body.profiles) {
        (None, asked) => asked,
        (Some(own), None) => Some(own.clone()),
        (Some(own), Some(asked)) if asked.is_subset(own) => Some(asked),
        (Some(_), Some(_)) => {
            let detail = "a key cannot be made for profiles that the maker's own key may not use";
            return Err(ApiError::new(ErrorCode::InsufficientScope, detail).at("/profiles", "value", detail));
        }
    };
    Ok(KeyRequest {
        tenant: caller.tenant.clone(),
        actor: body.actor,
        scopes,
        ceiling,
        label: body.label,
        expires_at: body.expires_at.map(|end| end.0),
    })
}

async fn noted(app: &App, caller: &Caller, code: &str, row: &ApiKeyRow) -> Result<(), ApiError> {
    let detail = format!("key {} of {}", row.key_id, row.actor);
    let entry = security_row(code, caller, app.clock().now(), None, &detail);
    Ok(app.store().security_append(&caller.tenant, &entry).await?)
}

/// Size and place of a page.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct KeyQuery {
    /// Keys per page: 1 to 200, normally 50.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

/// List API keys
///
/// By id, revoked ones included; without their secrets.
#[utoipa::path(
    get, path = "/v1/api-keys", operation_id = "list_api_keys", tag = "api-keys", params(KeyQuery),
    responses((status = 200, description = "A page", body = Page<ApiKeyView>))
)]
pub async fn list_api_keys(
    State(app): State<App>,
    auth: Authenticated,
    Query(query): Query<KeyQuery>,
) -> Result<Json<Page<ApiKeyView>>, ApiError> {
    let caller = auth.with(Scope::KeysAdmin)?;
    let open = |cursor: &String| app.cursors().open::<String>(&caller.tenant, "api-keys", &(), cursor);
    let after = query.cursor.as_ref().map(open).transpose()?;
    let page = app.store().api_key_list(&caller.tenant, after.as_deref(), page_limit(query.limit)).await?;
    let next_cursor = page.next.map(|next| app.cursors().seal(&caller.tenant, "api-keys", &(), &next));
    Ok(Json(Page { items: page.items.iter().map(ApiKeyView::from).collect(), next_cursor }))
}

/// Revoke an API key
///
/// Works everywhere within 5 seconds, open streams and sockets included. Revoking again changes nothing.
#[utoipa::path(
    delete, path = "/v1/api-keys/{id}", operation_id = "revoke_api_key", tag = "api-keys",
    params(("id" = String, Path, description = "The key's id")),
    responses((status = 204, description = "Revoked"))
)]
pub async fn revoke_api_key(
    State(app): State<App>,
    auth: Authenticated,
    Path(id): Path<String>,
) -> Result<StatusCode, ApiError> {
    let caller = auth.with(Scope::KeysAdmin)?;
    if !is_key_id(&id) {
        return Err(ApiError::not_found());
    }
    let row = app.store().api_key_find(&id).await?.filter(|row| row.tenant == caller.tenant);
    let row = row.ok_or_else(ApiError::not_found)?;
    if row.revoked_at.is_none() {
        app.store().api_key_revoke(&caller.tenant, &id, app.clock().now()).await?;
        noted(&app, &caller, "api_key_revoked", &row).await?;
    }
    app.auth().forget(&id);
    Ok(StatusCode::NO_CONTENT)
}
