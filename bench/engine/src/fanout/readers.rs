//! Many readers of one session, over streams or WebSockets, who note when they have which event. What is not here: what is
//! sent to them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::socket;

/// Time between two looks whether all have an event; the readers note the times themselves.
const LOOK: Duration = Duration::from_millis(10);
/// Longest wait until all have an event.
const PATIENCE: Duration = Duration::from_secs(60);

/// How they read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Stream,
    Socket,
}

/// The readers; they end with it.
pub(super) struct Readers {
    count: usize,
    seen: Arc<Seen>,
    _tasks: JoinSet<()>,
}

#[derive(Default)]
struct Seen {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    ready: usize,
    receipts: BTreeMap<u64, Vec<Instant>>,
    /// Frames of the first reader, one after the other.
    frames: BTreeMap<u64, String>,
}

impl Readers {
    /// Readers of event streams.
    pub(super) async fn streams(url: &str, key: &str, count: usize) -> Self {
        let seen = Arc::<Seen>::default();
        let client = reqwest::Client::builder().tcp_nodelay(true).http1_only().build().expect("a client");
        let mut tasks = JoinSet::new();
        for no in 0..count {
            let request = client.get(url).bearer_auth(key).header("accept", "text/event-stream");
            tasks.spawn(stream(request, Arc::clone(&seen), no == 0));
        }
        Self { count, seen, _tasks: tasks }.ready().await
    }

    /// Followers over the channel.
    pub(super) async fn sockets(url: &str, key: &str, session: &str, count: usize) -> Self {
        let seen = Arc::<Seen>::default();
        let mut tasks = JoinSet::new();
        for no in 0..count {
            let mut socket = socket::open(url, key, &format!("reader-{no}"), Some(session)).await;
            let seen = Arc::clone(&seen);
            tasks.spawn(async move {
                seen.ready();
                while let Some(text) = socket.next().await {
                    if text.contains("\"type\":\"StreamEvent\"")
                        && let Some(seq) = number_after(&text, "\"seq\":")
                    {
                        // As a stream would have had it, so that it can be sent bare.
                        seen.note(seq, (no == 0).then(|| format!("id: {seq}\ndata: {}\n\n", text.as_str())));
                    }
                }
            });
        }
        Self { count, seen, _tasks: tasks }.ready().await
    }

    async fn ready(self) -> Self {
        self.wait("all are connected", |state| (state.ready == self.count).then_some(())).await;
        self
    }

    /// Waits until all have the event; answers when each had it, and the frames since the last time.
    pub(super) async fn all_have(&self, seq: u64) -> (Vec<Instant>, String) {
        let have = |state: &mut State| {
            if state.receipts.get(&seq).is_none_or(|receipts| receipts.len() < self.count) {
                return None;
            }
            let frames = std::mem::take(&mut state.frames).into_values().collect();
            Some((state.receipts.remove(&seq).unwrap_or_default(), frames))
        };
        self.wait("all have the event", have).await
    }

    async fn wait<T>(&self, what: &str, so: impl Fn(&mut State) -> Option<T>) -> T {
        let waiting = async {
            loop {
                if let Some(found) = so(&mut self.seen.state.lock().expect("nobody panics with the lock")) {
                    return found;
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.expect(what)
    }
}

impl Seen {
    fn ready(&self) {
        self.state.lock().expect("nobody panics with the lock").ready += 1;
    }

    fn note(&self, seq: u64, frame: Option<String>) {
        let now = Instant::now();
        let mut state = self.state.lock().expect("nobody panics with the lock");
        state.receipts.entry(seq).or_default().push(now);
        if let Some(frame) = frame {
            state.frames.insert(seq, frame);
        }
    }
}

async fn stream(request: reqwest::RequestBuilder, seen: Arc<Seen>, keeps: bool) {
    let mut response = request.send().await.expect("the stream begins");
    assert!(response.status().is_success(), "{}", response.status());
    let mut buffer = String::new();
    let mut counted = false;
    while let Ok(Some(chunk)) = response.chunk().await {
        if !std::mem::replace(&mut counted, true) {
            seen.ready();
        }
        buffer.push_str(&String::from_utf8_lossy(&chunk));
        while let Some(end) = buffer.find("\n\n") {
            let rest = buffer.split_off(end + 2);
            let frame = std::mem::replace(&mut buffer, rest);
            if let Some(seq) = number_after(&frame, "id: ") {
                seen.note(seq, keeps.then_some(frame));
            }
        }
    }
}

/// The number of the last event in frames.
pub(super) fn last_seq(frames: &str) -> Option<u64> {
    frames.rfind("id: ").and_then(|at| frames.get(at..)).and_then(|rest| number_after(rest, "id: "))
}

fn number_after(text: &str, what: &str) -> Option<u64> {
    let at = text.find(what)? + what.len();
    let digits: String = text.get(at..)?.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
