//! The one list of routes, grouped by who calls them, and the frame around all. What is not here: what they do
//! (`routes`).

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use tower_http::catch_panic::CatchPanicLayer;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::error::{ApiError, ErrorCode};
use crate::http::around::{around, panicked};
use crate::routes::{api_keys, approvals, blobs, bundles, calls, events, health, security, sessions, usage, verify};

/// The routes with their documentation, made from the same lines.
pub(crate) fn api() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        // Back ends and clients.
        .routes(routes!(sessions::create_session, sessions::list_sessions))
        .routes(routes!(sessions::get_session))
        .routes(routes!(sessions::add_message))
        .routes(routes!(sessions::cancel_session))
        .routes(routes!(sessions::close_session))
        .routes(routes!(events::list_events))
        .routes(routes!(calls::list_calls))
        .routes(routes!(calls::explain_call))
        .routes(routes!(blobs::get_blob))
        // Approvers.
        .routes(routes!(approvals::list_approvals))
        .routes(routes!(approvals::get_approval))
        .routes(routes!(approvals::decide_approval))
        // Auditors.
        .routes(routes!(verify::verify_session))
        .routes(routes!(security::list_security_events))
        .routes(routes!(usage::list_usage))
        // Policy owners and administrators.
        .routes(routes!(bundles::get_bundle, bundles::put_bundle))
        .routes(routes!(bundles::get_bundle_version))
        .routes(routes!(api_keys::create_api_key, api_keys::list_api_keys))
        .routes(routes!(api_keys::revoke_api_key))
        // Operators and their machines.
        .routes(routes!(health::get_health))
        .routes(routes!(health::get_readiness))
}

/// The whole server side of HTTP. `more` are routes that stand outside the document, such as the channel's; they get the
/// same frame.
pub fn router(app: App, more: Router<App>) -> Router {
    let (routes, _) = api().split_for_parts();
    routes
        .merge(more)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(app.limits().body_bytes))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(app.clone(), around))
        .with_state(app)
}

async fn not_found() -> ApiError {
    ApiError::not_found()
}

async fn method_not_allowed() -> ApiError {
    ApiError::new(ErrorCode::MethodNotAllowed, "the path is right, the method is not; `Allow` lists the methods")
}
