//! A program that sends whatever is published to all that listen, and nothing else: no log, no keys, no cursors. What is not
//! here: who measures it (`fanout`).

use std::convert::Infallible;
use std::process::{ExitCode, Stdio};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::broadcast;

/// Appends that may wait for one reader.
const QUEUE: usize = 64;

/// The program, running.
#[derive(Debug)]
pub(super) struct Bare {
    pub(super) url: String,
    _child: Child,
}

impl Bare {
    /// Starts this very program once more.
    pub(super) async fn start() -> Self {
        let own = std::env::current_exe().expect("this program");
        let mut command = Command::new(own);
        command.args(["--measure", "bare"]).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let url = lines.next_line().await.expect("its output").expect("it says where it listens");
        Self { url, _child: child }
    }
}

/// Serves until it is killed.
pub(crate) async fn serve() -> ExitCode {
    let (sender, _) = broadcast::channel::<Bytes>(QUEUE);
    let router = Router::new().route("/events", get(listen)).route("/publish", post(publish)).with_state(sender);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
    println!("http://{}", listener.local_addr().expect("an address"));
    let listener = axum::serve::ListenerExt::tap_io(listener, |socket| {
        let _ = socket.set_nodelay(true);
    });
    axum::serve(listener, router).await.expect("it serves");
    ExitCode::SUCCESS
}

async fn publish(State(sender): State<broadcast::Sender<Bytes>>, frames: Bytes) {
    let _ = sender.send(frames);
}

async fn listen(State(sender): State<broadcast::Sender<Bytes>>) -> Response {
    let frames = futures_util::stream::unfold(sender.subscribe(), |mut receiver| async move {
        let frame = receiver.recv().await.ok()?;
        Some((Ok::<_, Infallible>(frame), receiver))
    });
    let first = futures_util::stream::iter([Ok(Bytes::from_static(b"retry: 2000\n\n"))]);
    let body = Body::from_stream(futures_util::StreamExt::chain(first, frames));
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}
