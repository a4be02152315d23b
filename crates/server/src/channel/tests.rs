//! Connections over plain channels against real sessions in memory.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod calls;
mod deltas;
mod ends;
mod follows;
mod world;

use serde_json::{Value, json};

use crate::caller::Scope;
use world::Socket;

/// What an IDE's key may do.
const IDE: [Scope; 3] = [Scope::SessionsRead, Scope::SessionsWrite, Scope::ClientExecute];

/// Starts a session of a profile and gives its id; its first event is read.
async fn request(socket: &mut Socket, profile: &str) -> String {
    socket.send(json!({"type": "Request", "frame_id": "start", "profile": profile, "prompt": "go"})).await;
    let first = socket.next().await;
    assert_eq!(
        (&first["type"], &first["seq"], &first["re"]),
        (&json!("StreamEvent"), &json!(1), &json!("start")),
        "{first}"
    );
    first["session_id"].as_str().unwrap().to_owned()
}

fn cursor(session: &str, last_seq: u64) -> Value {
    json!([{"id": session, "last_seq": last_seq}])
}

/// The report of an offer as successful.
fn report(offer: &Value, result: Value) -> Value {
    json!({
        "type": "ToolOutcome", "session_id": offer["session_id"], "call_id": offer["call_id"], "attempt": offer["attempt"],
        "fence": offer["fence"], "args_hash": offer["args_hash"], "status": "ok", "result": result,
    })
}
