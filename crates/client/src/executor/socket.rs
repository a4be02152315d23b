//! Opens the socket, and tells which ends are final. What is not here: what is said over it (`engine`).

use std::time::Duration;

use reqwest::header::HeaderValue;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::http::header::{AUTHORIZATION, SEC_WEBSOCKET_PROTOCOL};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, http};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async_with_config};
use url::Url;

use super::EndReason;
use crate::frame::SUBPROTOCOL;

/// Time for connecting and the upgrade.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest frame that is read; events may be large.
const READ_LIMIT: usize = 32 * 1024 * 1024;

pub(super) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Why there is no socket.
pub(super) enum NoSocket {
    /// Another try may help.
    ForNow(String),
    /// No other try will help.
    Final(EndReason),
}

/// Opens a socket.
pub(super) async fn open(url: &Url, authorization: &HeaderValue) -> Result<Socket, NoSocket> {
    let protocol = |error: Error| NoSocket::Final(EndReason::Protocol(error.to_string()));
    let mut request = url.as_str().into_client_request().map_err(protocol)?;
    let mut key = http::HeaderValue::from_bytes(authorization.as_bytes())
        .map_err(|error| NoSocket::Final(EndReason::Protocol(error.to_string())))?;
    key.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, key);
    request.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, http::HeaderValue::from_static(SUBPROTOCOL));
    let config = WebSocketConfig::default().max_message_size(Some(READ_LIMIT)).max_frame_size(Some(READ_LIMIT));
    match timeout(CONNECT, Box::pin(connect_async_with_config(request, Some(config), true))).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(Error::Http(response))) => Err(refused(response.status())),
        Ok(Err(error)) => Err(NoSocket::ForNow(error.to_string())),
        Err(_) => Err(NoSocket::ForNow("no connection in time".to_owned())),
    }
}

fn refused(status: http::StatusCode) -> NoSocket {
    match status.as_u16() {
        401 | 403 => NoSocket::Final(EndReason::Refused(format!("the server answered {status}"))),
        // A proxy or a server that just stops may answer anything else for a while; only a clear no is final.
        400 | 404 | 426 => NoSocket::Final(EndReason::Protocol(format!("the server answered {status}"))),
        _ => NoSocket::ForNow(format!("the server answered {status}")),
    }
}

/// Whether a close frame ends the executor for good.
pub(super) fn is_final(frame: Option<&CloseFrame>) -> Option<EndReason> {
    let frame = frame?;
    match u16::from(frame.code) {
        4400 => Some(EndReason::Protocol(frame.reason.to_string())),
        4401 | 4403 => Some(EndReason::Refused(frame.reason.to_string())),
        4409 => Some(EndReason::Replaced),
        _ => None,
    }
}
