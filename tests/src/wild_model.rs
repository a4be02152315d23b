//! A model endpoint that misbehaves below HTTP: writes any bytes, closes early, or never answers. What is not here: an
//! endpoint that answers as it should (`fake_model`).

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// What the endpoint does once it has read a request.
#[derive(Debug, Clone)]
pub enum Wild {
    /// Writes these bytes and closes.
    Bytes(Vec<u8>),
    /// Writes these bytes, then keeps the connection open for ever.
    Hang(Vec<u8>),
    /// Writes each of these once the test has allowed it, then closes.
    Steps(Vec<Vec<u8>>, Arc<Semaphore>),
}

impl Wild {
    /// A whole response with this status line, content type and body.
    #[must_use]
    pub fn response(status: &str, content_type: &str, body: &[u8]) -> Self {
        Self::with_headers(status, &[("content-type", content_type)], body)
    }

    /// A whole response with these headers.
    #[must_use]
    pub fn with_headers(status: &str, headers: &[(&str, &str)], body: &[u8]) -> Self {
        let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        Self::Bytes([head.as_bytes(), body].concat())
    }

    /// A chat completion whose text comes in these pieces, each once the test has allowed it: as many permits as pieces, and
    /// one for the end. Without an end the connection breaks off before the answer is complete.
    #[must_use]
    pub fn stream(pieces: &[&str], ends: bool, go: &Arc<Semaphore>) -> Self {
        let chunk = |delta: Value, finish: Value| {
            let chunk = json!({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]});
            format!("data: {chunk}\n\n").into_bytes()
        };
        let mut steps: Vec<Vec<u8>> = pieces.iter().map(|text| chunk(json!({"content": text}), Value::Null)).collect();
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        if let Some(first) = steps.first_mut() {
            first.splice(0..0, head.iter().copied());
        }
        let end = [chunk(json!({}), json!("stop")), b"data: [DONE]\n\n".to_vec()].concat();
        steps.push(if ends { end } else { Vec::new() });
        Self::Steps(steps, Arc::clone(go))
    }

    /// A well-formed completion.
    #[must_use]
    pub fn completion(answer: &Value) -> Self {
        Self::response("200 OK", "application/json", answer.to_string().as_bytes())
    }
}

/// The endpoint.
#[derive(Clone)]
pub struct WildModel {
    base_url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl WildModel {
    /// Behaves like this in order, and like the last one for ever.
    pub async fn start(behaviours: Vec<Wild>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base_url = format!("http://{}/v1", listener.local_addr().expect("an address"));
        let heads = Arc::new(Mutex::new(Vec::new()));
        let model = Self { base_url, heads: Arc::clone(&heads) };
        tokio::spawn(async move {
            let mut turn = 0;
            // Connections that hang are kept here.
            let mut open = Vec::new();
            while let Ok((mut socket, _)) = listener.accept().await {
                let Some(head) = request(&mut socket).await else { continue };
                heads.lock().unwrap_or_else(PoisonError::into_inner).push(head);
                let last = behaviours.len().saturating_sub(1);
                let behaviour = behaviours.get(turn.min(last)).expect("at least one behaviour");
                turn += 1;
                // Whether the other side still reads is what is being tested.
                match behaviour {
                    Wild::Bytes(bytes) => {
                        let _ = socket.write_all(bytes).await;
                        let _ = socket.shutdown().await;
                    }
                    Wild::Hang(bytes) => {
                        let _ = socket.write_all(bytes).await;
                        open.push(socket);
                    }
                    Wild::Steps(steps, go) => {
                        let (steps, go) = (steps.clone(), Arc::clone(go));
                        tokio::spawn(async move {
                            for step in steps {
                                go.acquire().await.expect("never closed").forget();
                                let _ = socket.write_all(&step).await;
                            }
                            let _ = socket.shutdown().await;
                        });
                    }
                }
            }
        });
        model
    }

    /// The bundle entry for this model; no retries, half a second of patience.
    #[must_use]
    pub fn entry(&self) -> Value {
        json!({"provider": "openai", "base_url": self.base_url, "model": "wild", "retries": 0, "timeout_ms": 500})
    }

    /// The heads of the requests so far.
    #[must_use]
    pub fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads one request whole and gives its head.
async fn request(socket: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
        let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(bytes.get(..end)?).to_ascii_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        while bytes.len() < end + 4 + length {
            if socket.read_buf(&mut bytes).await.ok()? == 0 {
                return None;
            }
        }
        return Some(String::from_utf8_lossy(bytes.get(..end)?).into_owned());
    }
}
