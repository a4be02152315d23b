//! The HTTP runner against a raw socket that answers what a test wants.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use toolgate_core::Order;
use toolgate_core::id::{ActorId, CallId, SessionId, TenantId, ToolId};
use toolgate_core::json::Json;
use toolgate_core::time::Timestamp;
use toolgate_core::tool::ToolDef;

use super::*;
use crate::clock::{Clock, SystemClock};

#[derive(Debug)]
struct Secrets;

impl SecretSource for Secrets {
    fn secret(&self, name: &str) -> Option<SecretString> {
        (name == "TOOLGATE_SECRET_DEMO").then(|| SecretString::from("s3cr3t-value"))
    }
}

fn runner(policy: AddressPolicy) -> HttpRunner {
    HttpRunner::new(policy, Arc::new(Secrets), Arc::new(SystemClock)).unwrap()
}

/// An order for a `once` tool with these bounds.
fn order(timeout_ms: u64, cap: u64) -> ToolOrder {
    let tool: ToolDef = serde_json::from_value(serde_json::json!({
        "description": "a tool", "parameters": {}, "venue": "server", "timeout_ms": timeout_ms, "max_output_bytes": cap,
    }))
    .unwrap();
    let args = Json::parse(r#"{"b":1.0,"a":18446744073709551615}"#).unwrap();
    let session = SessionId::from_uuid(uuid::Uuid::nil());
    ToolOrder {
        tenant: TenantId::new("acme").unwrap(),
        actor: ActorId::new("ann@example.org").unwrap(),
        session,
        order: Order {
            call: CallId::at(session, 1, 1, 0),
            attempt: 2,
            fence: 7,
            tool: ToolId::new("t").unwrap(),
            args_hash: args.hash(),
            args,
            deadline_at: SystemClock.now().plus_ms(60_000),
        },
        tool: Arc::new(tool),
    }
}

/// A tool server for one request: answers these bytes, then closes. Gives its URL and the request it got.
async fn stub(answer: Vec<u8>) -> (String, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/run", listener.local_addr().unwrap());
    let got = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let request = request(&mut socket).await;
        // The other side may close while it has not read all of this.
        let _ = socket.write_all(&answer).await;
        let _ = socket.shutdown().await;
        request
    });
    (url, got)
}

/// Reads one request with its body.
async fn request(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let mut buffer = [0_u8; 4096];
        let read = socket.read(&mut buffer).await.unwrap();
        bytes.extend_from_slice(buffer.get(..read).unwrap());
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if read == 0 || text.split_once("\r\n\r\n").is_some_and(|(_, body)| body.ends_with('}')) {
            return text;
        }
    }
}

fn http(status: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n{headers}\r\n{body}").into_bytes()
}

fn executor(url: &str, bearer: Option<&str>) -> HttpExecutor {
    HttpExecutor { url: url.to_owned(), bearer_env: bearer.map(str::to_owned) }
}

#[tokio::test]
async fn the_tool_gets_the_exact_bytes_and_the_call_it_belongs_to() {
    let (url, got) = stub(http("200 OK", "content-type: text/plain\r\n", "done with s3cr3t-value")).await;
    let order = order(5_000, 1_000);
    let outcome = runner(AddressPolicy::Private).run(&order, &executor(&url, Some("TOOLGATE_SECRET_DEMO"))).await;
    let request = got.await.unwrap();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    assert_eq!(body, r#"{"a":18446744073709551615,"b":1}"#);
    let call = order.order.call.as_str();
    for line in [
        "POST /run HTTP/1.1",
        &format!("idempotency-key: {call}"),
        &format!("toolgate-call-id: {call}"),
        "toolgate-attempt: 2",
        "toolgate-fence: 7",
        &format!("toolgate-not-after: {}", time_text(order.order.deadline_at)),
        "authorization: Bearer s3cr3t-value",
        "content-type: application/json",
        "accept-encoding: identity",
    ] {
        assert!(head.lines().any(|have| have == line), "{line} is missing in {head}");
    }
    let expected =
        RawOutput { media_type: "text/plain".to_owned(), bytes: b"done with [secret]".to_vec(), truncated_from: None };
    assert_eq!(outcome, RawOutcome::ok(expected));
}

#[tokio::test]
async fn any_other_status_is_a_failure_that_names_it() {
    for status in ["500 Oops", "404 Not Found", "302 Found", "304 Not Modified"] {
        let (url, got) = stub(http(status, "location: http://127.0.0.1:1/\r\n", "")).await;
        let outcome = runner(AddressPolicy::Private).run(&order(5_000, 1_000), &executor(&url, None)).await;
        got.await.unwrap();
        assert_eq!(outcome.status, OutcomeStatus::Failed);
        assert_eq!(outcome.detail, Some(format!("the tool answered {}", status.get(..3).unwrap())));
    }
}

#[tokio::test]
async fn output_is_cut_at_the_cap_with_its_true_size() {
    let (url, _got) = stub(http("200 OK", "", &"x".repeat(300_000))).await;
    let output = runner(AddressPolicy::Private).run(&order(5_000, 100), &executor(&url, None)).await.output.unwrap();
    assert_eq!((output.bytes.len(), output.truncated_from), (100, Some(300_000)));

    // Without a length, the bytes are counted.
    let mut endless = b"HTTP/1.1 200 OK\r\n\r\n".to_vec();
    endless.extend(std::iter::repeat_n(b'y', 50_000));
    let (url, _got) = stub(endless).await;
    let output = runner(AddressPolicy::Private).run(&order(5_000, 100), &executor(&url, None)).await.output.unwrap();
    assert_eq!((output.bytes.len(), output.truncated_from), (100, Some(50_000)));
}

#[tokio::test]
async fn what_was_perhaps_sent_is_never_called_failed() {
    // Closed without an answer.
    let (url, got) = stub(Vec::new()).await;
    let outcome = runner(AddressPolicy::Private).run(&order(5_000, 100), &executor(&url, None)).await;
    got.await.unwrap();
    assert_eq!(outcome.status, OutcomeStatus::Indeterminate, "{outcome:?}");

    // Broke off in the middle.
    let (url, _got) = stub(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhalf".to_vec()).await;
    let outcome = runner(AddressPolicy::Private).run(&order(5_000, 100), &executor(&url, None)).await;
    assert_eq!(outcome.status, OutcomeStatus::Indeterminate, "{outcome:?}");
    assert_eq!(outcome.output.unwrap().bytes, b"half");

    // Silent for longer than the time-out.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let silent = tokio::spawn(async move { listener.accept().await.map(|(socket, _)| socket) });
    let outcome = runner(AddressPolicy::Private).run(&order(100, 100), &executor(&url, None)).await;
    assert_eq!(outcome.status, OutcomeStatus::TimedOut, "{outcome:?}");
    drop(silent.await.unwrap());
}

#[tokio::test]
async fn what_was_not_sent_is_called_failed() {
    let failed = |outcome: RawOutcome, part: &str| {
        assert_eq!((outcome.status, &outcome.output), (OutcomeStatus::Failed, &None));
        let detail = outcome.detail.unwrap();
        assert!(detail.contains(part), "{detail}");
    };
    // Nobody listens there any more.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    failed(runner(AddressPolicy::Private).run(&order(5_000, 100), &executor(&url, None)).await, "nothing was sent");

    let public = runner(AddressPolicy::Public);
    for url in ["http://127.0.0.1:9/", "http://localhost:9/", "http://[::ffff:127.0.0.1]:9/", "ftp://8.8.8.8/", "x"] {
        let outcome = public.run(&order(5_000, 100), &executor(url, None)).await;
        assert_eq!(outcome.status, OutcomeStatus::Failed, "{url}");
    }
    failed(public.run(&order(5_000, 100), &executor("http://localhost:9/", None)).await, "not allowed here");

    let url = "http://127.0.0.1:9/";
    let private = runner(AddressPolicy::Private);
    failed(private.run(&order(5_000, 100), &executor(url, Some("DATABASE_URL"))).await, SECRET_PREFIX);
    failed(private.run(&order(5_000, 100), &executor(url, Some("TOOLGATE_SECRET_NONE"))).await, "is not set");

    let mut late = order(5_000, 100);
    late.order.deadline_at = Timestamp(0);
    failed(private.run(&late, &executor(url, None)).await, "nothing was sent");
}

#[tokio::test]
async fn calls_that_run_once_never_share_a_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let mut open = Vec::new();
        for _ in 0..2 {
            let (mut socket, _) = listener.accept().await.unwrap();
            request(&mut socket).await;
            socket.write_all(&http("200 OK", "", "{}")).await.unwrap();
            open.push(socket);
        }
        open.len()
    });
    let runner = runner(AddressPolicy::Private);
    for _ in 0..2 {
        let outcome = runner.run(&order(5_000, 100), &executor(&url, None)).await;
        assert_eq!(outcome.status, OutcomeStatus::Ok, "{outcome:?}");
    }
    match tokio::time::timeout(Duration::from_secs(10), server).await {
        Ok(connections) => assert_eq!(connections.unwrap(), 2),
        Err(_) => panic!("the second call did not open a connection"),
    }
}
