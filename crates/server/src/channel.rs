//! The WebSocket channel: upgrade, settings, and the state that connections share. What is not here: the frames
//! (`wire::frame`), what one connection does (`channel::connection`), what may happen at all (the core).
//!
//! A connection owns no state of a session: it reads the log by cursor and submits inputs like any other caller. Each is
//! one task for reading, writing and watching over it, and up to two small ones per session it follows.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::{State, WebSocketUpgrade};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::StreamExt;
use tokio_util::task::TaskTracker;

use crate::app::App;
use crate::caller::Caller;
use crate::error::{ApiError, ErrorCode};
use crate::wire::frame::{MAX_FRAME_BYTES, SUBPROTOCOL};

mod close;
mod connection;
mod execute;
mod follow;
mod handle;
mod hub;
mod outbox;
mod outcome;
mod rate;

pub use close::CloseReason;
pub use connection::pump;

use hub::Hub;

/// Buffer for reading; small, since most connections are silent.
const READ_BUFFER: usize = 2_048;
/// Longest message that is read at all: longer than the limit, so that a frame slightly over it is told apart from noise.
const READ_LIMIT: usize = 2 * MAX_FRAME_BYTES;
/// Most bytes that wait to be written; the store's largest event fits.
const WRITE_LIMIT: usize = 32 * 1024 * 1024;

/// Bounds of the channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelSettings {
    /// Time from the upgrade to `Hello`.
    pub hello: Duration,
    /// Time between pings; nothing heard for twice as long ends the connection.
    pub heartbeat: Duration,
    /// Time that a client may take nothing while something waits for it.
    pub stall: Duration,
    /// Time between checks of the credential.
    pub recheck: Duration,
    /// Time after which the log is looked at even without a hint, since another node may write it.
    pub poll: Duration,
    /// Frames a second that a connection may send on average.
    pub frames_per_s: u32,
    /// Frames that a connection may send at once.
    pub burst: u32,
    /// Events that wait to be written.
    pub bulk_queue: usize,
    /// Offers and answers that wait to be written.
    pub control_queue: usize,
    /// Sessions that one connection follows.
    pub sessions: usize,
    /// Connections of one tenant.
    pub per_tenant: usize,
    /// Origins of web pages that may connect; others, and pages without one, are refused.
    pub origins: Vec<String>,
}

impl Default for ChannelSettings {
    fn default() -> Self {
        Self {
            hello: Duration::from_secs(10),
            heartbeat: Duration::from_secs(20),
            stall: Duration::from_secs(30),
            recheck: Duration::from_secs(1),
            poll: Duration::from_secs(5),
            frames_per_s: 20,
            burst: 100,
            bulk_queue: 32,
            control_queue: 64,
            sessions: 256,
            per_tenant: 200,
            origins: Vec::new(),
        }
    }
}

/// The connections of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Channel {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    settings: ChannelSettings,
    hub: Hub,
    tracker: TaskTracker,
}

impl Channel {
    /// A channel without connections.
    #[must_use]
    pub fn new(settings: ChannelSettings) -> Self {
        Self { inner: Arc::new(Inner { settings, hub: Hub::default(), tracker: TaskTracker::new() }) }
    }

    /// Its bounds.
    #[must_use]
    pub fn settings(&self) -> &ChannelSettings {
        &self.inner.settings
    }

    /// How many connections have said hello.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.inner.hub.connections()
    }

    /// Waits until all connections are closed, at most so long. They close themselves once the app stops.
    pub async fn drained(&self, at_most: Duration) {
        self.inner.tracker.close();
        // Whoever is not gone by then loses its connection with the process; the log has everything.
        let _ = tokio::time::timeout(at_most, self.inner.tracker.wait()).await;
    }

    fn hub(&self) -> &Hub {
        &self.inner.hub
    }
}

/// The route `GET /v1/channel`.
pub fn routes(channel: Channel) -> Router<App> {
    let upgrade =
        move |State(app): State<App>, headers: HeaderMap, ws: Result<WebSocketUpgrade, WebSocketUpgradeRejection>| {
            upgrade(app, channel.clone(), headers, ws)
        };
    Router::new().route("/v1/channel", get(upgrade))
}

async fn upgrade(
    app: App,
    channel: Channel,
    headers: HeaderMap,
    ws: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    match admitted(&app, &channel, &headers, ws).await {
        Ok((caller, ws)) => {
            let tracker = channel.inner.tracker.clone();
            ws.on_upgrade(move |socket| {
                let (sink, stream) = socket.split();
                tracker.track_future(Box::pin(pump(app, channel, caller, stream, sink)))
            })
        }
        Err(error) => error.into_response(),
    }
}

/// Checks everything that can be checked before the upgrade.
async fn admitted(
    app: &App,
    channel: &Channel,
    headers: &HeaderMap,
    ws: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<(Option<Caller>, WebSocketUpgrade), ApiError> {
    if headers.get_all(header::ORIGIN).iter().any(|origin| !is_listed(&channel.settings().origins, origin.as_bytes())) {
        return Err(ApiError::new(ErrorCode::OriginRefused, "web pages of this origin may not connect"));
    }
    let ws = ws.map_err(|rejection| ApiError::new(ErrorCode::Malformed, rejection.body_text()))?;
    let ws = ws.protocols([SUBPROTOCOL]);
    // Without this check the upgrade would succeed, only without a subprotocol.
    if ws.selected_protocol().is_none() {
        let detail = format!("offer the subprotocol `{SUBPROTOCOL}` in `Sec-WebSocket-Protocol`");
        return Err(ApiError::new(ErrorCode::Malformed, detail));
    }
    if app.stopping().is_cancelled() {
        return Err(ApiError::new(ErrorCode::NotReady, "the server is stopping; connect again"));
    }
    let caller = match headers.get(header::AUTHORIZATION) {
        None => None,
        Some(value) => Some(app.auth().authenticate(bearer(value.to_str().unwrap_or_default())).await?),
    };
    let ws = ws
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(WRITE_LIMIT)
        .max_message_size(READ_LIMIT)
        .max_frame_size(READ_LIMIT);
    Ok((caller, ws))
}

fn is_listed(origins: &[String], origin: &[u8]) -> bool {
    origins.iter().any(|listed| listed.as_bytes().eq_ignore_ascii_case(origin))
}

/// The key in the value of an `Authorization` header; another scheme gives a text that is no key.
fn bearer(value: &str) -> &str {
    match value.split_once(' ') {
        Some((scheme, key)) if scheme.eq_ignore_ascii_case("bearer") => key.trim(),
        Some(_) | None => "",
    }
}

#[cfg(test)]
mod tests;
