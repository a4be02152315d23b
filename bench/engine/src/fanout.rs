//! One session and many who watch it: the time from an append until each of them has its events, beside the same frames
//! sent bare to as many by a program that does nothing else (`bare`). What is not here: the readers (`readers`).
//!
//! An append is known to be visible when its sender has the answer or the first reader has the event, whichever comes
//! first; both programs are measured from that, by the same code.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::bound::{Bound, Figures, share};
use crate::bundle;
use crate::open;
use crate::server::{Server, Setup};
use crate::stub::{Plan, Stub};

pub(crate) mod bare;
mod readers;

use bare::Bare;
use readers::{Form, Readers};

/// Readers of streams; a server holds 1,024 at once.
const STREAMS: usize = 1_000;
/// Followers over WebSockets; a tenant has 200 at once.
const SOCKETS: usize = 200;
/// Appends that are measured; those before them warm up.
const APPENDS: usize = 60;
/// Appends before anything counts.
const WARM: usize = 6;
/// Quiet time between two appends.
const PAUSE: Duration = Duration::from_millis(50);

pub(crate) async fn run(program: &Path, cluster: &str) -> ExitCode {
    let mut figures = Figures::default();
    let model = Stub::start(|_| Plan { thinks: Duration::from_secs(600), ..Plan::default() }).await;
    let server = Server::start(Setup::postgres(program, cluster, bundle::long_runs(&model.base_url, 64))).await;
    for (form, count, word) in [(Form::Stream, STREAMS, "streams"), (Form::Socket, SOCKETS, "WebSockets")] {
        let session = open::one(&reqwest::Client::new(), &server.url, &server.key).await;
        let real = real(&server, &session, form, count).await;
        // The same frames, bare; over streams also for those that had them in frames of the channel.
        let bare = bare(&real.frames, count).await;
        println!("{count} {word}: {}", real.times);
        println!("{count} bare streams: {}", bare.times);
        let ratio = real.times.p99 / bare.times.p99;
        let what = format!("{count} {word}: p99 from append to receipt over that of bare frames");
        match form {
            Form::Stream => figures.bounded(what, ratio, Bound::AtMost(3.0)),
            Form::Socket => figures.shown(what, ratio),
        }
    }
    server.stop().await;
    figures.finish()
}

/// What one side showed.
struct Side {
    times: Times,
    /// The frames of each append.
    frames: Vec<String>,
}

/// Times in milliseconds.
#[derive(Debug)]
struct Times {
    p50: f64,
    p99: f64,
    /// From the moment in which the append was sent.
    sent_p99: f64,
}

impl std::fmt::Display for Times {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "append to receipt p50 {:.1} ms, p99 {:.1} ms; from sending it p99 {:.1} ms",
            self.p50, self.p99, self.sent_p99
        )
    }
}

/// Receipts of all appends of one side.
#[derive(Default)]
struct Taken {
    receipts: Vec<f64>,
    since_sent: Vec<f64>,
    frames: Vec<String>,
}

impl Taken {
    /// Waits until all readers have the event, and takes their times.
    async fn take(&mut self, readers: &Readers, no: usize, last: u64, sent: Instant, answered: Instant) {
        let (receipts, frames) = readers.all_have(last).await;
        let visible = receipts.iter().min().copied().unwrap_or(answered).min(answered);
        if no >= WARM {
            let ms = |from: Instant| move |at: &Instant| (*at - from).as_secs_f64() * 1_000.0;
            self.receipts.extend(receipts.iter().map(ms(visible)));
            self.since_sent.extend(receipts.iter().map(ms(sent)));
        }
        self.frames.push(frames);
        tokio::time::sleep(PAUSE).await;
    }

    fn side(self) -> Side {
        let of = |times: &[f64], percent| share(times.iter().copied(), percent);
        let times =
            Times { p50: of(&self.receipts, 50), p99: of(&self.receipts, 99), sent_p99: of(&self.since_sent, 99) };
        Side { times, frames: self.frames }
    }
}

/// Messages and cancellations in turn, each of which is one append.
async fn real(server: &Server, session: &str, form: Form, count: usize) -> Side {
    let at = format!("{}/v1/sessions/{session}", server.url);
    let client = reqwest::Client::builder().tcp_nodelay(true).build().expect("a client");
    let readers = match form {
        Form::Stream => Readers::streams(&format!("{at}/events"), &server.key, count).await,
        Form::Socket => Readers::sockets(&server.url, &server.key, session, count).await,
    };
    let mut taken = Taken::default();
    for no in 0..WARM + APPENDS {
        let (path, body) =
            if no % 2 == 0 { ("cancel", json!({})) } else { ("messages", json!({"text": "a".repeat(200)})) };
        let request = client.post(format!("{at}/{path}")).bearer_auth(&server.key).json(&body);
        let sent = Instant::now();
        let answer = request.send().await.expect("the server answers");
        let answered = Instant::now();
        let text = answer.text().await.expect("a body");
        let view: Value = serde_json::from_str(&text).expect("JSON");
        let last = view.get("head_seq").and_then(Value::as_u64);
        taken.take(&readers, no, last.expect("a head"), sent, answered).await;
    }
    taken.side()
}

async fn bare(frames: &[String], count: usize) -> Side {
    let bare = Bare::start().await;
    let client = reqwest::Client::builder().tcp_nodelay(true).build().expect("a client");
    let readers = Readers::streams(&format!("{}/events", bare.url), "", count).await;
    let mut taken = Taken::default();
    for (no, frames) in frames.iter().enumerate() {
        let last = readers::last_seq(frames).expect("a number");
        let request = client.post(format!("{}/publish", bare.url)).body(frames.clone());
        let sent = Instant::now();
        request.send().await.expect("it answers");
        let answered = Instant::now();
        taken.take(&readers, no, last, sent, answered).await;
    }
    taken.side()
}
