//! What stands around every request: ids, headers, sizes, strict reading, panics, health, the accept loop.

use std::io::{Read as _, Write as _};
use std::time::Duration;

use axum::body::Body;
use axum::http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use toolgate_server::app::HttpLimits;
use toolgate_server::http::{ServeOptions, serve};

use super::world::{WAIT, World};

#[tokio::test]
async fn every_answer_carries_an_id_and_security_headers() {
    let (_, caller) = World::start().await;
    for (sent, kept) in [("abc-1", true), ("x y", false), (&"a".repeat(129) as &str, false)] {
        let request = caller.request(Method::GET, "/v1/nowhere").header("x-request-id", sent);
        let answer = caller.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(answer.header("x-request-id") == sent, kept);
        assert_eq!(answer.header("x-content-type-options"), "nosniff");
        assert_eq!(answer.header("cache-control"), "no-store");
        let problem = answer.problem(404, "not_found");
        assert_eq!(problem["instance"], "/v1/nowhere");
    }
}

#[tokio::test]
async fn a_wrong_method_is_told_apart_from_a_wrong_path() {
    let (_, caller) = World::start().await;
    let answer = caller.send(caller.request(Method::PATCH, "/v1/sessions").body(Body::empty()).unwrap()).await;
    assert!(answer.header("allow").contains("POST"));
    answer.problem(405, "method_not_allowed");
}

#[tokio::test]
async fn bodies_are_read_strictly_and_point_at_the_place() {
    let (_, caller) = World::start().await;
    let start = |body: &'static str| caller.text(Method::POST, "/v1/sessions", &[], body);
    start(r#"{"profile":"server","prompt":"a","prompt":"b"}"#).await.problem(400, "malformed");
    start(r#"{"profile":"server","prompt":"a",}"#).await.problem(400, "malformed");
    start(r#"{"profile":"server","prompt":"\ud800"}"#).await.problem(400, "malformed");
    start("").await.problem(400, "malformed");
    let unknown = start(r#"{"profile":"server","prompt":"a","tenant":"other"}"#).await.problem(422, "invalid_request");
    assert!(unknown["detail"].as_str().unwrap().contains("tenant"), "{unknown:#}");
    let wrong = start(r#"{"profile":"server","prompt":"a","limits":{"max_steps":"two"}}"#).await;
    assert_eq!(wrong.problem(422, "invalid_request")["errors"][0]["pointer"], "/limits/max_steps");
    let name = start(r#"{"profile":"Server!","prompt":"a"}"#).await.problem(422, "invalid_request");
    assert_eq!(name["errors"][0]["pointer"], "/profile");
    let empty = start(r#"{"profile":"server","prompt":" "}"#).await.problem(422, "invalid_request");
    assert_eq!(empty["errors"][0]["pointer"], "/prompt");
    let long = json!({"profile": "server", "prompt": "x".repeat(256 * 1024 + 1)});
    assert_eq!(
        caller.post("/v1/sessions", &long).await.problem(413, "payload_too_large")["errors"][0]["pointer"],
        "/prompt"
    );
    let huge = json!({"profile": "server", "prompt": "x".repeat(1024 * 1024)});
    caller.post("/v1/sessions", &huge).await.problem(413, "payload_too_large");
    let request = caller.request(Method::POST, "/v1/sessions").header("content-type", "text/plain");
    caller.send(request.body(Body::from("{}")).unwrap()).await.problem(415, "unsupported_media_type");
}

#[tokio::test]
async fn queries_are_read_strictly() {
    let (_, caller) = World::start().await;
    for (query, name) in [
        ("limit=x", "limit"),
        ("created_from=yesterday", "created_from"),
        ("status=done", "status"),
        ("tenant=other", ""),
        ("limit=1&limit=2", ""),
    ] {
        let problem = caller.get(&format!("/v1/sessions?{query}")).await.problem(400, "invalid_parameter");
        assert!(name.is_empty() || problem["errors"][0]["pointer"] == name, "{query}: {problem:#}");
    }
}

#[tokio::test]
async fn health_and_readiness_need_no_key_and_tell_the_stop() {
    let world = World::bare(HttpLimits::default()).await;
    let nobody = world.caller("acme").await.with_key("");
    nobody.get("/healthz").await.expect(200);
    nobody.get("/readyz").await.expect(200);
    world.app.stopping().cancel();
    let answer = nobody.get("/readyz").await;
    assert!(answer.header("retry-after").parse::<u32>().is_ok());
    answer.problem(503, "not_ready");
    nobody.get("/healthz").await.expect(200);
}

#[tokio::test]
async fn a_panic_is_an_internal_error_and_says_nothing() {
    let world = World::bare(HttpLimits::default()).await;
    let more = axum::Router::new().route("/boom", axum::routing::get(|| async { panic!("secret words") as String }));
    let caller = world.with_routes(more).await;
    let answer = caller.get("/boom").await;
    assert!(!answer.text.contains("secret"));
    answer.problem(500, "internal");
}

#[tokio::test]
async fn a_request_that_takes_too_long_is_answered() {
    let world = World::bare(HttpLimits { request: Duration::from_millis(50), ..HttpLimits::default() }).await;
    let more = axum::Router::new().route("/never", axum::routing::get(std::future::pending::<String>));
    let answer = world.with_routes(more).await.get("/never").await;
    assert_eq!(answer.header("retry-after"), "1");
    answer.problem(503, "request_timed_out");
}

/// Serves on a free port until the token is cancelled.
async fn served(
    world: &World,
    options: ServeOptions,
) -> (std::net::SocketAddr, CancellationToken, tokio::task::JoinHandle<std::io::Result<()>>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    (addr, shutdown.clone(), tokio::spawn(serve(listener, world.router(), options, shutdown)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn headers_that_never_end_cost_the_connection() {
    let world = World::bare(HttpLimits::default()).await;
    let options = ServeOptions { header_read: Duration::from_millis(200), ..ServeOptions::default() };
    let (addr, shutdown, task) = served(&world, options).await;
    let closed = tokio::task::spawn_blocking(move || {
        let mut socket = std::net::TcpStream::connect(addr).unwrap();
        socket.set_read_timeout(Some(WAIT)).unwrap();
        socket.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-slow: ").unwrap();
        let mut rest = Vec::new();
        // The server ends the connection by itself; a time-out of the test's own would be an error.
        socket.read_to_end(&mut rest).unwrap();
    });
    tokio::time::timeout(WAIT, closed).await.unwrap().unwrap();
    shutdown.cancel();
    tokio::time::timeout(WAIT, task).await.unwrap().unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_takes_nothing_costs_the_connection() {
    let world = World::bare(HttpLimits::default()).await;
    let sent = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let dropped = std::sync::Arc::clone(&sent);
    // More than any socket buffer holds; tells when the connection has let go of it.
    let more = axum::Router::new().route(
        "/flood",
        axum::routing::get(move || {
            let guard = Flag(dropped);
            let pieces = futures_util::stream::unfold(guard, |guard| async {
                Some((Ok::<_, std::io::Error>(axum::body::Bytes::from(vec![0_u8; 1 << 20])), guard))
            });
            async { Body::from_stream(pieces) }
        }),
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let options = ServeOptions { stalled_write: Duration::from_millis(200), ..ServeOptions::default() };
    let router = toolgate_server::router::router(world.app.clone(), more);
    let task = tokio::spawn(serve(listener, router, options, shutdown.clone()));
    let mut socket = tokio::net::TcpStream::connect(addr).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, b"GET /flood HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let freed = async {
        while !sent.load(std::sync::atomic::Ordering::Acquire) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT, freed).await.expect("the server lets go of a peer that takes nothing");
    shutdown.cancel();
    tokio::time::timeout(WAIT, task).await.unwrap().unwrap().unwrap();
}

/// Raised when dropped.
struct Flag(std::sync::Arc<std::sync::atomic::AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Release);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_waits_for_open_requests_and_cuts_off_what_lasts_too_long() {
    let (world, caller) = World::start().await;
    let options = ServeOptions { drain: Duration::from_millis(300), ..ServeOptions::default() };
    let (addr, shutdown, task) = served(&world, options).await;
    let path = format!("/v1/sessions/{}/events", super::world::id(&caller.settled("client").await));
    let key = caller.key.clone();
    let (began, begun) = tokio::sync::oneshot::channel();
    let reader = tokio::task::spawn_blocking(move || {
        let mut socket = std::net::TcpStream::connect(addr).unwrap();
        socket.set_read_timeout(Some(WAIT)).unwrap();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\naccept: text/event-stream\r\n\r\n"
        );
        socket.write_all(request.as_bytes()).unwrap();
        let mut first = [0; 12];
        socket.read_exact(&mut first).unwrap();
        began.send(()).unwrap();
        let mut rest = Vec::new();
        // Cut off without the end of the chunked body: an error or an end, both at once.
        let _ = socket.read_to_end(&mut rest);
        first
    });
    tokio::time::timeout(WAIT, begun).await.unwrap().unwrap();
    shutdown.cancel();
    tokio::time::timeout(WAIT, task).await.unwrap().unwrap().unwrap();
    assert_eq!(&tokio::time::timeout(WAIT, reader).await.unwrap().unwrap(), b"HTTP/1.1 200");
    assert!(tokio::net::TcpStream::connect(addr).await.is_err(), "nobody listens after the stop");
}
