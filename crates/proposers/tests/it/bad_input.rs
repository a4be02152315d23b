//! Endpoints that answer with what no completion is: HTML, 50 MB, a drip without end, a bomb of gzip, other types, half a
//! character, the key in the text. Each ends with a typed reason, in bounded time and memory, and the key is nowhere: not in
//! the ballot, not in a piece of it, not in the log. What is not here: odd completions (`field_cases`, `streams`).

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::time::Instant;
use toolgate_core::proposal::{Ballot, BallotVerdict, ProviderFailure};
use toolgate_proposers::testing::replay::{Sent, replay};
use toolgate_proposers::testing::{FakeAnswer, FakeProvider, completion_of_text, stream_of};
use toolgate_proposers::{Delta, DeltaSink, Proposers, Seat, SecretSource};

use crate::given::{ask, catalogue, def};

const SEAT: Seat = Seat { step: 1, ballot: 0, attempt: 0 };
const KEY: &str = "sk-live/very-secret-0123456789";
/// What an answer may cost at most besides what is read of it: buffers of sockets and of HTTP.
const BUFFERS: usize = 16 << 20;

#[derive(Debug)]
struct Key;

impl SecretSource for Key {
    fn secret(&self, _name: &str) -> Option<SecretString> {
        Some(KEY.into())
    }
}

/// Keeps what it is given, for pieces and for the log.
#[derive(Debug, Clone, Default)]
struct Kept(Arc<Mutex<String>>);

impl DeltaSink for Kept {
    fn delta(&self, delta: Delta) {
        let text = match delta {
            Delta::Text(text) | Delta::Reasoning(text) | Delta::Arguments { text, .. } => text,
            Delta::Call { name, .. } => name,
            Delta::Discarded => String::new(),
        };
        self.0.lock().unwrap().push_str(&text);
    }
}

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().push_str(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Kept {
    fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

/// What came of an answer, and how many bytes of it were taken.
async fn asked(answer: FakeAnswer, stream: bool) -> (Ballot, usize) {
    let log = Kept::default();
    let writer = log.clone();
    let subscriber =
        tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let provider = FakeProvider::build().answer(answer).start().await.unwrap();
    let fields = json!({"base_url": provider.base_url(), "stream": stream, "retries": 0, "timeout_ms": 20_000,
                        "api_key_env": "TOOLGATE_SECRET_K"});
    let proposer = Proposers::with_secrets(Arc::new(Key)).unwrap().proposer(&def(fields));
    let pieces = Kept::default();
    let began = Instant::now();
    let ballot = proposer.propose_watched(&ask(catalogue()), SEAT, Some(&pieces)).await;
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert!(log.text().contains("asking a model"), "the log is watched");
    for text in [format!("{ballot:?}"), pieces.text(), log.text(), format!("{proposer:?}")] {
        assert!(!text.contains(KEY) && !text.contains(&KEY.replace('/', "\\/")), "{text}");
    }
    (ballot, provider.sent())
}

#[track_caller]
fn fails(what: &str, ballot: &Ballot, reason: ProviderFailure) {
    match &ballot.verdict {
        BallotVerdict::Failed { reason: found, detail } => {
            assert_eq!(*found, reason, "{what}: {detail}");
            assert!(!detail.is_empty() && detail.chars().count() <= 400, "{what}: {detail}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

/// Gzip of so many equal bytes: nearly nothing on the wire. Each match of 258 bytes is 13 bits of the fixed code.
fn bomb(bytes: usize) -> Vec<u8> {
    let mut bits: Vec<bool> = Vec::new();
    // Last block, fixed code.
    bits.extend([true, true, false]);
    let mut code = |value: u32, length: u32| bits.extend((0..length).rev().map(|bit| value >> bit & 1 == 1));
    // A space, then copies of it, then the end.
    code(0x30 + u32::from(b' '), 8);
    for _ in 0..bytes / 258 {
        code(0b1100_0101, 8);
        code(0, 5);
    }
    code(0, 7);
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    out.extend(bits.chunks(8).map(|byte| byte.iter().rev().fold(0_u8, |all, bit| all << 1 | u8::from(*bit))));
    // A wrong sum and length, which whoever unpacks sees only when it is too late.
    out.extend([0; 8]);
    out
}

fn html() -> String {
    format!("<html><body><h1>200 OK</h1><p>Signed in with Bearer {KEY}</p></body></html>")
}

#[tokio::test]
async fn html_in_the_place_of_a_completion() {
    for kind in ["text/html", "application/json", "text/event-stream", "text/html; charset=utf-8"] {
        for stream in [false, true] {
            let (ballot, _) = asked(FakeAnswer::raw(200, kind, html()), stream).await;
            let reason = if kind == "text/event-stream" {
                // No line of it is an event, so the stream ends before it has begun.
                ProviderFailure::Transport
            } else {
                ProviderFailure::NotACompletion
            };
            fails(kind, &ballot, reason);
        }
    }
}

#[tokio::test]
async fn fifty_megabytes_are_not_taken() {
    let large = 50 << 20;
    let chunk = format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": "a".repeat(32 << 10)}}]}));
    for (what, kind, body, limit) in [
        ("white space", "application/json", " ".repeat(large), 2 << 20),
        ("one text", "application/json", format!("\"{}", "a".repeat(large)), 2 << 20),
        ("one line", "text/event-stream", "x".repeat(large), 2 << 20),
        ("one event", "text/event-stream", "data: 0123456789abcdef\n".repeat(large / 23), 2 << 20),
        ("many events", "text/event-stream", chunk.repeat(large / chunk.len()), 16 << 20),
        ("comments", "text/event-stream", ": alive\n\n".repeat(large / 9), 16 << 20),
    ] {
        let (ballot, sent) = asked(FakeAnswer::raw(200, kind, body).pieces_of(64 << 10), true).await;
        fails(what, &ballot, ProviderFailure::TooLarge);
        assert!(sent < limit + BUFFERS, "{what}: {sent} bytes were taken");
    }
    // Announced: nothing of it is read.
    let announced = FakeAnswer::raw(200, "application/json", " ".repeat(large)).pieces_of(64 << 10);
    let announced = announced.header("content-length", &large.to_string());
    let (ballot, sent) = asked(announced, false).await;
    fails("announced", &ballot, ProviderFailure::TooLarge);
    assert!(sent < BUFFERS, "{sent} bytes were taken");
}

#[tokio::test(start_paused = true)]
async fn an_endless_drip_ends_with_its_time() {
    let words = stream_of(&completion_of_text(&"slow ".repeat(2_000)));
    for (what, kind, body) in [
        ("comments", "text/event-stream", ":\n".repeat(100_000)),
        ("half an event", "text/event-stream", words),
        ("white space", "application/json", " ".repeat(100_000)),
    ] {
        let sent = Sent {
            status: 200,
            content_type: kind,
            body: body.as_bytes(),
            piece: 1,
            every: Duration::from_millis(900),
            hangs: true,
        };
        // A drip is no silence: the time for the whole ends it.
        let def = def(json!({"timeout_ms": 60_000, "first_byte_timeout_ms": 1_000, "idle_timeout_ms": 1_000}));
        let began = Instant::now();
        let ballot = replay(sent.clone(), &ask(catalogue()), &def).await;
        fails(what, &ballot, ProviderFailure::TimedOut);
        assert_eq!(began.elapsed(), Duration::from_secs(60), "{what}");
        // Slower than that, and it is one.
        let began = Instant::now();
        let slower = Sent { every: Duration::from_millis(1_100), ..sent };
        fails(what, &replay(slower, &ask(catalogue()), &def).await, ProviderFailure::TimedOut);
        assert_eq!(began.elapsed(), Duration::from_secs(1), "{what}");
    }
}

#[tokio::test]
async fn a_bomb_of_gzip_is_not_unpacked() {
    let bomb = bomb(50 << 20);
    assert!(bomb.len() < 1 << 20);
    for kind in ["application/json", "text/event-stream"] {
        for encoding in ["gzip", "deflate", "br", "identity"] {
            let answer = FakeAnswer::raw(200, kind, bomb.clone()).header("content-encoding", encoding);
            let (ballot, _) = asked(answer, true).await;
            fails(&format!("{kind}, {encoding}"), &ballot, ProviderFailure::NotACompletion);
        }
    }
}

#[tokio::test]
async fn other_content_types() {
    let good = completion_of_text("fine");
    for (kind, body) in [
        ("text/plain", good.to_string().into_bytes()),
        ("image/png", vec![0x89, b'P', b'N', b'G', 0, 0xff]),
        ("application/octet-stream", good.to_string().into_bytes()),
        (KEY, html().into_bytes()),
        ("", good.to_string().into_bytes()),
        ("application/json", b"%PDF-1.7".to_vec()),
        ("application/json", b"".to_vec()),
    ] {
        let (ballot, _) = asked(FakeAnswer::raw(200, kind, body), false).await;
        fails(kind, &ballot, ProviderFailure::NotACompletion);
    }
    // A stream that is called JSON is read as what it is; JSON that is called a stream is none.
    let called_json = FakeAnswer::raw(200, "application/json", stream_of(&good));
    assert!(matches!(asked(called_json, true).await.0.verdict, BallotVerdict::Proposal(_)));
    let called_stream = FakeAnswer::raw(200, "text/event-stream", good.to_string());
    fails("JSON as a stream", &asked(called_stream, true).await.0, ProviderFailure::Transport);
}

#[tokio::test]
async fn half_a_character() {
    let face = "\u{1f600}";
    let body = json!({"choices": [{"index": 0, "message": {"content": face}, "finish_reason": "stop"}]}).to_string();
    let events = stream_of(&completion_of_text(face));
    for (what, kind, text) in [("a body", "application/json", &body), ("a stream", "text/event-stream", &events)] {
        let inside = text.find(face).unwrap() + 2;
        // The answer ends within the character, in peace and with the connection.
        let ends = FakeAnswer::raw(200, kind, text.as_bytes()[..inside].to_vec());
        let broken = FakeAnswer::raw(200, kind, text.clone()).cut_at(inside);
        let reason =
            if kind == "application/json" { ProviderFailure::NotACompletion } else { ProviderFailure::Transport };
        fails(what, &asked(ends, true).await.0, reason);
        fails(what, &asked(broken, true).await.0, ProviderFailure::Transport);
        // Half of it is left out, and the rest goes on.
        let mut holed = text.as_bytes().to_vec();
        holed.drain(inside..inside + 2);
        fails(what, &asked(FakeAnswer::raw(200, kind, holed), true).await.0, ProviderFailure::NotACompletion);
    }
}

#[tokio::test]
async fn the_key_in_the_text() {
    let says = |key: &str| json!({"error": {"message": format!("Incorrect API key provided: {key}"), "code": key}});
    let plain = says(KEY).to_string();
    let error = format!("data: {plain}\n\n");
    let words = stream_of(&completion_of_text(&format!("your key is {KEY}, keep it")));
    let letters: String = KEY
        .chars()
        .map(|c| format!("data: {}\n\n", json!({"choices": [{"index": 0, "delta": {"content": c.to_string()}}]})))
        .collect();
    let end: Value = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]});
    let letters = format!("{letters}data: {end}\n\ndata: [DONE]\n\n");
    let unauthorized = Some(ProviderFailure::Unauthorized);
    for (what, status, kind, body, reason) in [
        ("401", 401, "application/json", plain.clone(), unauthorized),
        ("401, slashes escaped", 401, "application/json", plain.replace('/', "\\/"), unauthorized),
        ("401 in words", 401, "text/plain", format!("no such key: {KEY}"), unauthorized),
        ("401 of HTML", 401, "text/html", html(), unauthorized),
        ("403", 403, "application/json", plain.clone(), unauthorized),
        ("500", 500, KEY, html(), Some(ProviderFailure::ServerError)),
        ("an error in a stream", 200, "text/event-stream", error, Some(ProviderFailure::ServerError)),
        ("an error in a 200", 200, "application/json", plain, Some(ProviderFailure::ServerError)),
        ("a stream of words", 200, "text/event-stream", words, None),
        ("a stream of letters", 200, "text/event-stream", letters, None),
    ] {
        let (ballot, _) = asked(FakeAnswer::raw(status, kind, body), true).await;
        match reason {
            Some(reason) => fails(what, &ballot, reason),
            None => assert!(ballot.text.contains("[secret]"), "{what}: {ballot:?}"),
        }
    }
}
