//! Sessions at once, each started when one before it has ended. What is not here: the model's side (`model`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::model::{Model, STEPS, TAG};
use crate::server::Server;

/// What one measurement found.
#[derive(Debug)]
pub(crate) struct Run {
    sessions: u64,
    took: Duration,
    overheads: Vec<Duration>,
}

/// Numbers of sessions, over all measurements.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// A little before anything counts, so that connections and statements are made.
pub(crate) async fn warm(server: &Server, model: &Model, concurrency: usize, time: Duration) {
    sessions(server, concurrency, time / 6).await;
    model.take();
}

/// Runs sessions for so long; those under way at the end are waited for and count.
pub(crate) async fn run(server: &Server, model: &Model, concurrency: usize, time: Duration) -> Run {
    let started = Instant::now();
    let sessions = sessions(server, concurrency, time).await;
    let took = started.elapsed();
    let mut overheads = model.take();
    overheads.sort_unstable();
    Run { sessions, took, overheads }
}

async fn sessions(server: &Server, concurrency: usize, time: Duration) -> u64 {
    let until = Instant::now() + time;
    let client = Arc::new(reqwest::Client::builder().tcp_nodelay(true).build().expect("a client"));
    let workers: Vec<_> = (0..concurrency)
        .map(|_| {
            let (client, url, key) = (Arc::clone(&client), format!("{}/v1/sessions", server.url), server.key.clone());
            tokio::spawn(async move {
                let mut done = 0;
                while Instant::now() < until {
                    one(&client, &url, &key).await;
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut done = 0;
    for worker in workers {
        done += worker.await.expect("a worker ends");
    }
    done
}

async fn one(client: &reqwest::Client, url: &str, key: &str) {
    let no = NEXT.fetch_add(1, Ordering::Relaxed);
    let body = json!({"profile": "default", "prompt": format!("{TAG}{no} go on")});
    let request = client.post(url).bearer_auth(key).header("prefer", "wait=60").json(&body);
    let answer = request.send().await.expect("the server answers");
    let status = answer.status();
    let text = answer.text().await.expect("a body");
    let session: Value = serde_json::from_str(&text).expect("JSON");
    assert!(status.is_success(), "{text}");
    assert_eq!(session.pointer("/run/ending").and_then(Value::as_str), Some("done"), "{text}");
    assert_eq!(session.pointer("/run/tool_calls").and_then(Value::as_u64), Some(STEPS as u64), "{text}");
}

impl Run {
    pub(crate) fn steps(&self) -> f64 {
        (self.sessions * STEPS as u64) as f64
    }

    pub(crate) fn steps_per_s(&self) -> f64 {
        self.steps() / self.took.as_secs_f64()
    }

    /// From an answer of the model to the next question of the session: what the server adds to a step.
    pub(crate) fn overhead(&self, share: usize) -> Duration {
        let at = self.overheads.len().saturating_sub(1) * share / 100;
        self.overheads.get(at).copied().unwrap_or_default()
    }
}
