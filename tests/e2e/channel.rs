//! The channel over real sockets: the upgrade, limits, close codes, restarts. What connections do in detail is tested at
//! the pump, in the server's crate; the Rust client is tested in `client_venue`.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use toolgate_tests::{TestServer, WAIT};

fn bundle() -> Value {
    json!({
        "version": 1,
        "tools": {"terminal": {"description": "Runs.", "venue": "client",
            "parameters": {"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}}},
        "models": {"m": {"provider": "scripted", "script": [
            {"calls": [{"tool": "terminal", "args": {"cmd": "make"}}]}, {"done": "built"}]}},
        "default_model": "m",
        "default_harness": {"max_steps": 5, "max_tool_calls": 5, "deadline_ms": 60000},
        "profiles": {"default": {"tools": ["terminal"]}}
    })
}

/// An upgrade request with these headers; a key of `""` sends none.
fn upgrade(server: &TestServer, key: &str, headers: &[(&'static str, &str)]) -> Request {
    let url = format!("ws://{}/v1/channel", server.node().addr);
    let mut request = url.into_client_request().unwrap();
    if !key.is_empty() {
        request.headers_mut().insert("authorization", format!("Bearer {key}").parse().unwrap());
    }
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().unwrap());
    }
    request
}

/// The status and problem code of a refused upgrade.
async fn refused(request: Request) -> (u16, String) {
    match connect_async(request).await {
        Err(Error::Http(response)) => {
            let body: Value =
                serde_json::from_slice(response.body().as_deref().unwrap_or_default()).unwrap_or_default();
            (response.status().as_u16(), body["code"].as_str().unwrap_or_default().to_owned())
        }
        other => panic!("{other:?}"),
    }
}

pub(super) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    async fn open(server: &TestServer) -> Self {
        let request = upgrade(server, server.key(), &[("sec-websocket-protocol", "toolgate.v1")]);
        let (socket, response) = connect_async(request).await.unwrap();
        assert_eq!(response.headers()["sec-websocket-protocol"], "toolgate.v1");
        assert!(response.headers().get("sec-websocket-extensions").is_none(), "compression was agreed on");
        Self(socket)
    }

    pub(super) async fn hello(server: &TestServer, client: &str, sessions: Value) -> Self {
        Self::greet(server, json!({"type": "Hello", "protocol": 1, "client_id": client, "sessions": sessions})).await
    }

    /// Says hello like this.
    pub(super) async fn greet(server: &TestServer, hello: Value) -> Self {
        let mut socket = Self::open(server).await;
        socket.send(hello).await;
        socket.until("Welcome").await;
        socket
    }

    /// The next frame.
    pub(super) async fn next(&mut self) -> Value {
        loop {
            match self.message().await {
                Some(Ok(Message::Text(text))) => return serde_json::from_str(&text).unwrap(),
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("waited for a frame, but {other:?}"),
            }
        }
    }

    pub(super) async fn send(&mut self, frame: Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    async fn message(&mut self) -> Option<Result<Message, Error>> {
        timeout(WAIT, self.0.next()).await.expect("something comes in time")
    }

    pub(super) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next().await;
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    /// The code that the server closes with.
    async fn closed(&mut self) -> u16 {
        loop {
            match self.message().await {
                Some(Ok(Message::Close(Some(frame)))) => return frame.code.into(),
                Some(Ok(Message::Text(_) | Message::Ping(_) | Message::Pong(_))) => {}
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn the_upgrade_is_refused_with_a_problem() {
    let (server, _) = TestServer::with_bundle(&bundle()).await;
    let protocol = ("sec-websocket-protocol", "toolgate.v1");
    let key = server.key().to_owned();
    assert_eq!(refused(upgrade(&server, &key, &[])).await, (400, "malformed".to_owned()));
    let other = [("sec-websocket-protocol", "toolgate.v2, chat")];
    assert_eq!(refused(upgrade(&server, &key, &other)).await, (400, "malformed".to_owned()));
    assert_eq!(refused(upgrade(&server, "tg_live_nonsense", &[protocol])).await, (401, "unauthenticated".to_owned()));
    for origin in ["https://evil.example", "null"] {
        let headers = [protocol, ("origin", origin)];
        assert_eq!(refused(upgrade(&server, &key, &headers)).await, (403, "origin_refused".to_owned()));
    }
    // No upgrade at all, and a key in the query, which is never looked at.
    let plain = reqwest::get(format!("{}/v1/channel?token={key}", server.url())).await.unwrap();
    assert_eq!(plain.status().as_u16(), 400);
    assert_eq!(plain.headers()["content-type"], "application/problem+json");
    let mut socket = Socket(connect_async(upgrade(&server, "", &[protocol])).await.unwrap().0);
    socket.send(json!({"type": "Hello", "protocol": 1, "client_id": "a"})).await;
    assert_eq!(socket.closed().await, 4401);
    server.stop().await;
}

#[tokio::test]
async fn a_key_may_come_in_the_first_frame() {
    let (server, _) = TestServer::with_bundle(&bundle()).await;
    let request = upgrade(&server, "", &[("sec-websocket-protocol", "chat, toolgate.v1")]);
    let mut socket = Socket(connect_async(request).await.unwrap().0);
    socket.send(json!({"type": "Hello", "protocol": 1, "client_id": "a", "token": server.key()})).await;
    assert_eq!(socket.until("Welcome").await["protocol"], 1);
    server.stop().await;
}

#[tokio::test]
async fn a_call_goes_over_the_socket_and_back_and_survives_a_restart() {
    let (mut server, caller) = TestServer::with_bundle(&bundle()).await;
    let mut socket = Socket::hello(&server, "ide", json!([])).await;
    socket.send(json!({"type": "Request", "frame_id": "f", "profile": "default", "prompt": "build"})).await;
    // Offers may overtake events, so the offer is what is waited for.
    let offer = socket.until("ApprovedToolCall").await;
    let session = offer["session_id"].as_str().unwrap().to_owned();
    assert_eq!(caller.session(&session).await["status"], "waiting_client");

    let (restarted, closing) = tokio::join!(server.restart(), async {
        let closing = socket.until("Closing").await;
        (closing, socket.closed().await)
    });
    let () = restarted;
    assert!(closing.0["reconnect_ms"].is_u64());
    assert_eq!(closing.1, 1012);

    let mut socket = Socket::hello(&server, "ide", json!([{"id": session, "last_seq": 1}])).await;
    let again = socket.until("ApprovedToolCall").await;
    for field in ["call_id", "attempt", "fence", "args", "args_hash"] {
        assert_eq!(again[field], offer[field], "{field}");
    }
    socket
        .send(json!({"type": "ToolOutcome", "session_id": session, "call_id": again["call_id"], "attempt": again["attempt"],
                     "fence": again["fence"], "args_hash": again["args_hash"], "status": "ok", "result": "made"}))
        .await;
    socket.until("CallSettled").await;
    assert_eq!(socket.until("FinalOutput").await["output"], "built");
    let caller = server.caller();
    caller.verified(&session).await;
    assert_eq!(caller.events_of(&session, "call_ended").await.len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn frames_over_the_limit_end_the_connection_with_a_code() {
    let (server, _) = TestServer::with_bundle(&bundle()).await;
    // Just over the limit, far over it in one frame, and far over it in pieces.
    let mut socket = Socket::hello(&server, "a", json!([])).await;
    socket.0.send(Message::text("x".repeat(256 * 1024 + 1))).await.unwrap();
    assert_eq!(socket.closed().await, 4413);

    let mut socket = Socket::hello(&server, "b", json!([])).await;
    let mut sent = Ok(());
    for n in 0..10 {
        let opcode = OpCode::Data(if n == 0 { Data::Text } else { Data::Continue });
        let piece = Message::Frame(Frame::message("x".repeat(64 * 1024), opcode, n == 9));
        sent = socket.0.send(piece).await;
        if sent.is_err() {
            break;
        }
    }
    match socket.message().await {
        Some(Ok(Message::Close(Some(frame)))) => assert_eq!(u16::from(frame.code), 4413),
        // The server does not read what it has refused, so the close frame may be lost on the way.
        Some(Err(_)) | None => {}
        other => panic!("{other:?} after {sent:?}"),
    }

    let mut socket = Socket::hello(&server, "c", json!([])).await;
    socket.0.send(Message::binary(vec![0, 1])).await.unwrap();
    assert_eq!(socket.closed().await, 4400);
    // Others are not touched.
    let mut socket = Socket::hello(&server, "d", json!([])).await;
    socket.0.send(Message::Ping(b"still there".to_vec().into())).await.unwrap();
    match socket.message().await {
        Some(Ok(Message::Pong(bytes))) => assert_eq!(bytes.as_ref(), b"still there"),
        other => panic!("{other:?}"),
    }
    server.stop().await;
}
