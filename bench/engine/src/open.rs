//! Opens many sessions through the API, and waits until they have come to rest. What is not here: sessions whose end
//! somebody waits for (`load`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::database;
use crate::server::Server;

/// Who opens at once.
const WORKERS: usize = 48;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(540);

/// Opens so many sessions; answers their ids.
pub(crate) async fn sessions(server: &Server, count: usize) -> Vec<String> {
    let client = Arc::new(reqwest::Client::builder().tcp_nodelay(true).build().expect("a client"));
    let next = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..WORKERS)
        .map(|_| {
            let (client, next) = (Arc::clone(&client), Arc::clone(&next));
            let (url, key) = (server.url.clone(), server.key.clone());
            tokio::spawn(async move {
                let mut ids = Vec::new();
                while next.fetch_add(1, Ordering::Relaxed) < count {
                    ids.push(one(&client, &url, &key).await);
                }
                ids
            })
        })
        .collect();
    let mut ids = Vec::with_capacity(count);
    for worker in workers {
        ids.append(&mut worker.await.expect("a worker ends"));
    }
    ids
}

/// Opens one session; answers its id.
pub(crate) async fn one(client: &reqwest::Client, url: &str, key: &str) -> String {
    let body = json!({"profile": "default", "prompt": "Go on as long as you can, and tell me when you are done."});
    let request = client.post(format!("{url}/v1/sessions")).bearer_auth(key).json(&body);
    let answer = request.send().await.expect("the server answers");
    let status = answer.status();
    let text = answer.text().await.expect("a body");
    assert!(status.is_success(), "{text}");
    let session: Value = serde_json::from_str(&text).expect("JSON");
    session.get("id").and_then(Value::as_str).expect("an id").to_owned()
}

/// Waits until no run is under way.
pub(crate) async fn at_rest(server: &Server) {
    let mut connection = database::connect(&server.database_url).await;
    let since = Instant::now();
    while database::number(&mut connection, "SELECT count(*) FROM toolgate.session WHERE active").await > 0 {
        assert!(since.elapsed() < PATIENCE, "the runs end");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until something is so.
pub(crate) async fn until(what: &str, so: impl Fn() -> bool) {
    let since = Instant::now();
    while !so() {
        assert!(since.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
