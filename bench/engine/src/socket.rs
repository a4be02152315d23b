//! A client of the channel that says hello and reads. What is not here: what is read for (`memory`, `fanout`).

use futures_util::{SinkExt, StreamExt};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

/// An open connection.
#[derive(Debug)]
pub(crate) struct Socket(WebSocketStream<TcpStream>);

/// Connects and is welcomed; follows a session from its beginning if one is named.
pub(crate) async fn open(url: &str, key: &str, client: &str, session: Option<&str>) -> Socket {
    let address = url.trim_start_matches("http://");
    let mut request = format!("ws://{address}/v1/channel").into_client_request().expect("a request");
    let headers = request.headers_mut();
    headers.insert("authorization", format!("Bearer {key}").parse().expect("a header"));
    headers.insert("sec-websocket-protocol", "toolgate.v1".parse().expect("a header"));
    let stream = TcpStream::connect(address).await.expect("the server accepts");
    stream.set_nodelay(true).expect("a socket");
    let config = WebSocketConfig::default().read_buffer_size(4_096).write_buffer_size(0);
    let upgraded = tokio_tungstenite::client_async_with_config(request, stream, Some(config)).await;
    let (mut socket, _) = upgraded.expect("the upgrade succeeds");
    let sessions: Vec<_> = session.into_iter().map(|id| serde_json::json!({"id": id})).collect();
    let hello = serde_json::json!({"type": "Hello", "protocol": 1, "client_id": client, "observe": true,
        "sessions": sessions});
    socket.send(Message::text(hello.to_string())).await.expect("hello is sent");
    let mut socket = Socket(socket);
    let welcome = socket.next().await.expect("an answer");
    assert!(welcome.contains("\"type\":\"Welcome\""), "{welcome}");
    socket
}

impl Socket {
    /// The next text frame; nothing once the connection is over.
    pub(crate) async fn next(&mut self) -> Option<Utf8Bytes> {
        loop {
            match self.0.next().await? {
                Ok(Message::Text(text)) => return Some(text),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(_) => {}
            }
        }
    }
}
