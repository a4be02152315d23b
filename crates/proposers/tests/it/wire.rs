//! A server that misbehaves: each way of it ends in a typed failure, in bounded time, without the API key in it.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures_util::stream;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use toolgate_core::proposal::{Ballot, BallotVerdict, ProviderFailure};
use toolgate_proposers::{Proposers, Seat, SecretSource};

use crate::given::{ask, catalogue, completion, def, done, malformed};

const KEY: &str = "sk-very-secret-0123456789";
const SEAT: Seat = Seat { step: 1, ballot: 0, attempt: 0 };

/// What the server saw.
#[derive(Default)]
struct Seen {
    requests: Mutex<HashMap<String, usize>>,
    in_flight: AtomicUsize,
    most_in_flight: AtomicUsize,
    arrived: Notify,
    go_on: Notify,
}

impl Seen {
    fn count(&self, case: &str) -> usize {
        self.requests.lock().unwrap().get(case).copied().unwrap_or_default()
    }
}

struct Server {
    address: SocketAddr,
    seen: Arc<Seen>,
}

async fn server() -> Server {
    let seen = Arc::new(Seen::default());
    let app = Router::new().route("/{case}/chat/completions", post(answer)).with_state(Arc::clone(&seen));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    Server { address, seen }
}

fn text(status: u16, kind: &str, body: impl Into<Body>) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, [("content-type", kind.to_owned())], body.into()).into_response()
}

fn good() -> Response {
    text(200, "application/json", completion(json!({"role": "assistant", "content": "fine"})).to_string())
}

async fn answer(
    State(seen): State<Arc<Seen>>,
    Path(case): Path<String>,
    headers: HeaderMap,
    _request: Request,
) -> Response {
    let before = {
        let mut requests = seen.requests.lock().unwrap();
        let count = requests.entry(case.clone()).or_default();
        *count += 1;
        *count - 1
    };
    let endless = |size: usize| {
        let chunk = Bytes::from(vec![b' '; size]);
        Body::from_stream(stream::repeat_with(move || Ok::<_, Infallible>(chunk.clone())).take_bytes(50 << 20))
    };
    match case.as_str() {
        "html" => text(200, "text/html; charset=utf-8", "<html>please log in</html>"),
        "html-as-json" => text(200, "application/json", "<html>please log in</html>"),
        "binary" => text(200, "application/json", vec![0x1f, 0x8b, 0xff, 0x00]),
        "wrong-type" => text(200, "text/plain", completion(json!({"content": "fine"})).to_string()),
        "no-choices" => text(200, "application/json", "{\"choices\":[]}"),
        "redirect" => (StatusCode::TEMPORARY_REDIRECT, [("location", "/good/chat/completions")]).into_response(),
        "500" => text(500, "text/html", "<html>oops</html>"),
        "500-once" if before == 0 => text(500, "text/plain", "oops"),
        "error-in-200-once" if before == 0 => {
            text(200, "application/json", r#"{"error":{"code":503,"message":"busy"}}"#)
        }
        "429-once" if before == 0 => {
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")], "slow down").into_response()
        }
        "429-long" => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "121")], "slow down").into_response(),
        "429-past-deadline" => (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "60")], "slow down").into_response(),
        "429-no-quota" => text(429, "application/json", r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#),
        "500-do-not-retry" => (StatusCode::INTERNAL_SERVER_ERROR, [("x-should-retry", "false")], "no").into_response(),
        "400" => text(
            400,
            "application/json",
            r#"{"error":{"message":"content must not be null","type":"invalid_request_error"}}"#,
        ),
        "tool-use-failed" => text(
            400,
            "application/json",
            r#"{"error":{"code":"tool_use_failed","message":"bad call","failed_generation":"<f>"}}"#,
        ),
        "echo-401" => {
            let sent =
                headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
            text(401, "application/json", json!({"error": {"message": format!("invalid key: {sent}")}}).to_string())
        }
        "echo-200" => {
            let sent =
                headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
            text(200, "application/json", completion(json!({"content": format!("you sent {sent}")})).to_string())
        }
        "hang" => std::future::pending().await,
        "drip" => {
            let drops = stream::unfold((), |()| async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                Some((Ok::<_, Infallible>(Bytes::from_static(b" ")), ()))
            });
            text(200, "application/json", Body::from_stream(drops))
        }
        "huge" => text(200, "application/json", endless(64 << 10)),
        "huge-announced" => {
            ([("content-type", "application/json"), ("content-length", "52428800")], endless(64 << 10)).into_response()
        }
        "garbled-once" if before == 0 => text(200, "application/json", completion(json!({"content": ""})).to_string()),
        "gate" => {
            let now = seen.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            seen.most_in_flight.fetch_max(now, Ordering::SeqCst);
            seen.arrived.notify_one();
            seen.go_on.notified().await;
            seen.in_flight.fetch_sub(1, Ordering::SeqCst);
            good()
        }
        _ => good(),
    }
}

/// A stream that ends after so many bytes.
trait TakeBytes: Sized {
    fn take_bytes(self, limit: usize) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> + Send + 'static;
}

impl<S> TakeBytes for S
where
    S: futures_util::Stream<Item = Result<Bytes, Infallible>> + Send + 'static,
{
    fn take_bytes(self, limit: usize) -> impl futures_util::Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
        use futures_util::StreamExt;
        let mut left = limit;
        self.take_while(move |chunk| {
            let size = chunk.as_ref().map(Bytes::len).unwrap_or_default();
            let goes_on = left >= size;
            left = left.saturating_sub(size);
            std::future::ready(goes_on)
        })
    }
}

#[derive(Debug)]
struct OneSecret;

impl SecretSource for OneSecret {
    fn secret(&self, name: &str) -> Option<SecretString> {
        (name == "THE_KEY").then(|| SecretString::from(KEY))
    }
}

fn proposers() -> Proposers {
    Proposers::with_secrets(Arc::new(OneSecret)).unwrap()
}

/// Asks the case with these settings, and checks what holds for every answer: bounded time, no key.
async fn ask_case(server: &Server, case: &str, settings: Value) -> Ballot {
    let mut fields = json!({
        "base_url": format!("http://{}/{case}", server.address),
        "api_key_env": "THE_KEY",
        "timeout_ms": 5_000,
        "retries": 0,
    });
    fields.as_object_mut().unwrap().extend(settings.as_object().unwrap().clone());
    let proposer = proposers().proposer(&def(fields));
    let began = Instant::now();
    let ballot = proposer.propose(&ask(catalogue()), SEAT).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{case} took {:?}", began.elapsed());
    let shown = format!("{ballot:?} {}", serde_json::to_string(&ballot).unwrap());
    assert!(!shown.contains(KEY), "{case} shows the key: {shown}");
    ballot
}

fn failure(ballot: &Ballot) -> (ProviderFailure, &str) {
    match &ballot.verdict {
        BallotVerdict::Failed { reason, detail } => {
            assert!(detail.chars().count() <= 400, "{detail}");
            (*reason, detail)
        }
        other => panic!("no failure: {other:?}"),
    }
}

#[tokio::test]
async fn each_kind_of_bad_answer_has_its_reason() {
    use ProviderFailure as F;
    let server = server().await;
    for (case, reason, words) in [
        ("html", F::NotACompletion, "text/html"),
        ("html-as-json", F::NotACompletion, "no JSON"),
        ("binary", F::NotACompletion, "not UTF-8"),
        ("wrong-type", F::NotACompletion, "text/plain"),
        ("no-choices", F::NotACompletion, "`choices` is empty"),
        ("redirect", F::NotACompletion, "HTTP 307"),
        ("500", F::ServerError, "HTTP 500"),
        ("400", F::RequestRefused, "content must not be null"),
        ("echo-401", F::Unauthorized, "[secret]"),
        ("429-no-quota", F::RateLimited, "insufficient_quota"),
        ("huge", F::TooLarge, "2097152"),
        ("huge-announced", F::TooLarge, "2097152"),
    ] {
        let ballot = ask_case(&server, case, json!({})).await;
        let (got, detail) = failure(&ballot);
        assert_eq!(got, reason, "{case}: {detail}");
        assert!(detail.contains(words), "{case}: {detail}");
    }
    assert_eq!(server.seen.count("good"), 0, "a redirect was followed");
    assert_eq!(done(&ask_case(&server, "good", json!({})).await), json!("fine"));
    assert_eq!(done(&ask_case(&server, "echo-200", json!({})).await), json!("you sent Bearer [secret]"));
    malformed(&ask_case(&server, "tool-use-failed", json!({"retries": 3})).await);
    assert_eq!(server.seen.count("tool-use-failed"), 1);
}

#[tokio::test]
async fn silence_and_dripping_end_with_the_time() {
    let server = server().await;
    for case in ["hang", "drip"] {
        let ballot = ask_case(&server, case, json!({"timeout_ms": 300, "retries": 5})).await;
        assert_eq!(failure(&ballot).0, ProviderFailure::TimedOut, "{case}");
        assert_eq!(server.seen.count(case), 1);
    }
}

#[tokio::test]
async fn only_transient_failures_are_repeated() {
    let server = server().await;
    for case in ["500-once", "429-once", "error-in-200-once"] {
        assert_eq!(done(&ask_case(&server, case, json!({"retries": 2})).await), json!("fine"), "{case}");
        assert_eq!(server.seen.count(case), 2, "{case}");
    }
    assert_eq!(failure(&ask_case(&server, "500", json!({"retries": 2})).await).0, ProviderFailure::ServerError);
    assert_eq!(server.seen.count("500"), 3);
    for (case, reason) in [
        ("429-long", ProviderFailure::RateLimited),
        ("429-past-deadline", ProviderFailure::RateLimited),
        ("429-no-quota", ProviderFailure::RateLimited),
        ("500-do-not-retry", ProviderFailure::ServerError),
        ("400", ProviderFailure::RequestRefused),
        ("html", ProviderFailure::NotACompletion),
        ("huge", ProviderFailure::TooLarge),
    ] {
        assert_eq!(failure(&ask_case(&server, case, json!({"retries": 3})).await).0, reason, "{case}");
        assert_eq!(server.seen.count(case), 1, "{case}");
    }
    // A whole answer is never asked for again, however bad.
    malformed(&ask_case(&server, "garbled-once", json!({"retries": 3})).await);
    assert_eq!(server.seen.count("garbled-once"), 1);
}

/// A server that answers each connection with these bytes and closes it.
async fn raw_server(bytes: &'static [u8]) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let mut request = [0_u8; 16 << 10];
            let _ = socket.read(&mut request).await;
            let _ = socket.write_all(bytes).await;
            let _ = socket.shutdown().await;
        }
    });
    (address, connections)
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_transport_failure() {
    let half =
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"choices\":[{\"message\":";
    for bytes in [half.as_slice(), b"", b"nonsense\r\n\r\n"] {
        let (address, connections) = raw_server(bytes).await;
        let server = Server { address, seen: Arc::default() };
        let ballot = ask_case(&server, "x", json!({"retries": 1})).await;
        let (reason, detail) = failure(&ballot);
        assert_eq!(reason, ProviderFailure::Transport, "{detail}");
        assert!(!detail.contains(&address.to_string()), "{detail}");
        assert_eq!(connections.load(Ordering::SeqCst), 2);
    }
}

#[tokio::test]
async fn nobody_listening_is_a_transport_failure() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let ballot = ask_case(&Server { address, seen: Arc::default() }, "x", json!({"retries": 1})).await;
    assert_eq!(failure(&ballot).0, ProviderFailure::Transport);
}

#[tokio::test]
async fn a_configuration_that_cannot_work_says_so() {
    let server = server().await;
    let missing = ask_case(&server, "good", json!({"api_key_env": "ANOTHER_KEY"})).await;
    let (reason, detail) = failure(&missing);
    assert_eq!(reason, ProviderFailure::Misconfigured);
    assert!(detail.contains("ANOTHER_KEY"), "{detail}");
    for base in [json!(null), json!("not a url"), json!("ftp://a.example"), json!("http://user:pw@a.example/v1")] {
        let ballot = ask_case(&server, "good", json!({"base_url": base})).await;
        let (reason, detail) = failure(&ballot);
        assert_eq!(reason, ProviderFailure::Misconfigured, "{detail}");
        assert!(!detail.contains("pw"), "{detail}");
    }
    assert_eq!(server.seen.count("good"), 0);
}

#[tokio::test]
async fn one_model_has_so_many_requests_under_way_and_no_more() {
    let server = server().await;
    let factory = proposers();
    let def = def(json!({
        "base_url": format!("http://{}/gate", server.address), "max_concurrency": 2, "timeout_ms": 20_000,
    }));
    // Equal definitions share one limit.
    let (one, two) = (factory.proposer(&def), factory.proposer(&def.clone()));
    let asks: Vec<_> = (0..6)
        .map(|n| {
            let proposer = Arc::clone(if n % 2 == 0 { &one } else { &two });
            tokio::spawn(async move { proposer.propose(&ask(catalogue()), SEAT).await })
        })
        .collect();
    for _ in 0..6 {
        server.seen.arrived.notified().await;
        server.seen.go_on.notify_one();
    }
    for ask in asks {
        assert_eq!(done(&ask.await.unwrap()), json!("fine"));
    }
    assert_eq!(server.seen.most_in_flight.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_dropped_request_gives_its_place_back() {
    let server = server().await;
    let def = def(json!({
        "base_url": format!("http://{}/gate", server.address), "max_concurrency": 1, "timeout_ms": 20_000,
    }));
    let proposer = proposers().proposer(&def);
    let waiting = |proposer: &Arc<dyn toolgate_proposers::Proposer>| {
        let proposer = Arc::clone(proposer);
        tokio::spawn(async move { proposer.propose(&ask(catalogue()), SEAT).await })
    };
    let holder = waiting(&proposer);
    server.seen.arrived.notified().await;
    let queued = waiting(&proposer);
    tokio::task::yield_now().await;
    queued.abort();
    holder.abort();
    let next = waiting(&proposer);
    server.seen.arrived.notified().await;
    // The dropped request may still wait on the server's side, so wake until the answer is here.
    let released = async {
        while !next.is_finished() {
            server.seen.go_on.notify_one();
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), released).await.unwrap();
    assert_eq!(done(&next.await.unwrap()), json!("fine"));
}
