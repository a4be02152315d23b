//! The accept loop: connections with a bound on their number, on the time their headers take, on how long they may
//! take nothing, and on how long a stop waits for them. What is not here: requests (`router`).
//!
//! `axum::serve` installs no timer, so that hyper's header time-out would be off without a word.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt as _;

use super::stall::Impatient;

/// Bounds of the accept loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServeOptions {
    /// Connections at once; further ones wait in the kernel's queue.
    pub max_connections: usize,
    /// Time for the headers of a request to arrive.
    pub header_read: Duration,
    /// Time that a peer may take nothing of what is written to it.
    pub stalled_write: Duration,
    /// Time that a stop waits for open requests.
    pub drain: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            max_connections: 4_096,
            header_read: Duration::from_secs(10),
            stalled_write: Duration::from_secs(60),
            drain: Duration::from_secs(25),
        }
    }
}

/// Serves until `shutdown` is cancelled, then lets open requests finish within the drain time. Upgraded connections
/// (WebSockets) are not waited for: who upgraded them says goodbye.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    options: ServeOptions,
    shutdown: CancellationToken,
) -> io::Result<()> {
    let places = Arc::new(Semaphore::new(options.max_connections));
    let tasks = TaskTracker::new();
    // Cuts off what is still open after the drain time.
    let cut = CancellationToken::new();
    loop {
        let place = tokio::select! {
            place = Arc::clone(&places).acquire_owned() => place.map_err(io::Error::other)?,
            () = shutdown.cancelled() => break,
        };
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    recover(error).await?;
                    continue;
                }
            },
            () = shutdown.cancelled() => break,
        };
        let (shutdown, cut) = (shutdown.clone(), cut.clone());
        tasks.spawn(connection((stream, peer), router.clone(), options, shutdown, cut, place));
    }
    tasks.close();
    if tokio::time::timeout(options.drain, tasks.wait()).await.is_err() {
        tracing::warn!(open = tasks.len(), "connections are cut off after the drain time");
        cut.cancel();
        tasks.wait().await;
    }
    Ok(())
}

/// What is wrong with one connection ends that one; a shortage of handles passes; anything else ends the loop.
async fn recover(error: io::Error) -> io::Result<()> {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    if matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted) {
        return Ok(());
    }
    tracing::error!(%error, "no connection can be accepted; trying again");
    tokio::time::sleep(Duration::from_millis(200)).await;
    Ok(())
}

async fn connection(
    (stream, peer): (TcpStream, SocketAddr),
    router: Router,
    options: ServeOptions,
    shutdown: CancellationToken,
    cut: CancellationToken,
    place: OwnedSemaphorePermit,
) {
    // Small answers must not wait for the next one.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection went away at once");
        return;
    }
    let service =
        TowerToHyperService::new(router.map_request(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(ConnectInfo(peer));
            request.map(axum::body::Body::new)
        }));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(options.header_read)
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(Impatient::new(stream, options.stalled_write)), service)
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = shutdown.cancelled() => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection.as_mut() => ended,
                () = cut.cancelled() => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended with an error");
    }
    drop(place);
}
