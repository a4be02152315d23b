//! Whether the process lives and whether it takes requests. What is not here: anything of a tenant; no credential is
//! needed.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::app::App;
use crate::error::{ApiError, ErrorCode};

/// Time that the database has to answer.
const PING: Duration = Duration::from_secs(2);

/// A short word about the server.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct HealthView {
    /// `ok`.
    pub status: &'static str,
}

/// Is the process alive
#[utoipa::path(
    get, path = "/healthz", operation_id = "get_health", tag = "health", security(()),
    responses((status = 200, description = "It is", body = HealthView))
)]
pub async fn get_health() -> Json<HealthView> {
    Json(HealthView { status: "ok" })
}

/// Are requests taken
///
/// Red while starting, while stopping, while the database does not answer, and while the node's lease cannot be renewed, for
/// nothing is started then.
#[utoipa::path(
    get, path = "/readyz", operation_id = "get_readiness", tag = "health", security(()),
    responses((status = 200, description = "They are", body = HealthView))
)]
pub async fn get_readiness(State(app): State<App>) -> Result<Json<HealthView>, ApiError> {
    if !app.is_ready() {
        return Err(ApiError::new(ErrorCode::NotReady, "the server is starting or stopping"));
    }
    if !app.sessions().may_act() {
        return Err(ApiError::new(ErrorCode::NotReady, "the node's lease cannot be renewed: nothing is started here"));
    }
    match tokio::time::timeout(PING, app.store().ping()).await {
        Ok(Ok(())) => Ok(Json(HealthView { status: "ok" })),
        Ok(Err(error)) => Err(ApiError::new(ErrorCode::NotReady, "the database does not answer").because(error)),
        Err(late) => Err(ApiError::new(ErrorCode::NotReady, "the database does not answer in time").because(late)),
    }
}
