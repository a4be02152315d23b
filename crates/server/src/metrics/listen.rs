//! `GET /metrics`, on a listener of its own: operators reach it, tenants do not, and no credential of theirs opens it. What is
//! not here: what is counted (`metrics`).

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::encoding::prometheus_text::CONTENT_TYPE;
use toolgate_proposers::BreakerStates;
use toolgate_store::Written;

use crate::app::App;
use crate::channel::Channel;

/// What is looked up when somebody asks, since nothing counts it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Now {
    /// Sessions in memory at work.
    pub(crate) running: usize,
    /// Sessions in memory that wait for something outside.
    pub(crate) parked: usize,
    /// Connections of the channel.
    pub(crate) sockets: usize,
    /// Open event streams.
    pub(crate) streams: usize,
    /// Breakers of providers.
    pub(crate) breakers: BreakerStates,
    /// What went to the database.
    pub(crate) written: Written,
}

/// The routes of the operators' listener.
pub(crate) fn routes(app: App, channel: Channel) -> Router {
    Router::new().route("/metrics", get(metrics)).with_state((app, channel))
}

async fn metrics(State((app, channel)): State<(App, Channel)>) -> Response {
    let deps = app.sessions().deps();
    let (running, parked) = app.sessions().census();
    let now = Now {
        running,
        parked,
        sockets: channel.connections(),
        streams: app.limits().streams.saturating_sub(app.streams().available_permits()),
        breakers: deps.models.breakers(),
        written: deps.lanes.written(),
    };
    match deps.metrics.text(&now) {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
