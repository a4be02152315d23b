//! Evidence of one session in which everything is as it should be. What is not here: breaking it (`broken`).

use serde_json::{Value, json};
use toolgate_torture::evidence::{Ack, Digest, Fact, Row, SessionLog, Told, digest};
use toolgate_torture::journal::Asked;

pub(crate) const SESSION: &str = "ses_1";
/// A `read` call that was sent twice.
pub(crate) const READ: &str = "call_read";
/// A `once` call that a human approved.
pub(crate) const ONCE: &str = "call_once";

/// What outsiders hold, and the log of the session.
pub(crate) struct Evidence {
    pub(crate) told: Told,
    pub(crate) log: SessionLog,
}

fn hash(seq: u64) -> Digest {
    [u8::try_from(seq).unwrap(); 32]
}

fn event(seq: u64, kind: &str, call: Option<&str>, more: &Value) -> Value {
    let mut event = json!({"seq": seq, "session_id": SESSION, "at": "2026-03-02T10:15:30.123Z", "type": kind});
    if let Some(call) = call {
        event["call_id"] = call.into();
    }
    for (name, value) in more.as_object().unwrap() {
        event[name] = value.clone();
    }
    event
}

fn ended(attempt: u64, status: &str, receipt: Option<u64>) -> Value {
    let output = receipt
        .map(|receipt| json!({"media_type": "application/json", "text": json!({"receipt": receipt}).to_string()}));
    json!({"attempt": attempt, "status": status, "content": {"output": output}})
}

fn events() -> Vec<Value> {
    let call = |tool: &str, class: &str, decision: &str| json!({"tool": tool, "class": class, "venue": "server", "decision": decision, "content": {"args": {"n": 1}}});
    let all = [
        ("session_opened", None, json!({"content": {"prompt": "torture 1 server 1"}})),
        ("run_started", None, json!({"run": 1})),
        ("call_decided", Some(READ), call("look", "read", "allow")),
        ("owner_changed", None, json!({"node": "n2"})),
        ("recovered", None, json!({})),
        ("call_dispatched", Some(READ), json!({"attempt": 2})),
        ("call_ended", Some(READ), ended(2, "ok", Some(2))),
        ("call_decided", Some(ONCE), call("sign", "once", "escalate")),
        ("approval_decided", Some(ONCE), json!({"approval_id": "apr_1", "decision": "approve"})),
        ("call_dispatched", Some(ONCE), json!({"attempt": 1})),
        ("call_ended", Some(ONCE), ended(1, "ok", Some(3))),
        ("run_ended", None, json!({"run": 1, "ending": "done"})),
        ("message_received", None, json!({"content": {"text": "torture 1 server 2"}})),
        ("run_started", None, json!({"run": 2})),
        ("cancel_requested", None, json!({})),
        ("run_ended", None, json!({"run": 2, "ending": "cancelled"})),
        ("close_requested", None, json!({})),
        ("session_closed", None, json!({})),
    ];
    (1_u64..).zip(all).map(|(seq, (kind, call, more))| event(seq, kind, call, &more)).collect()
}

fn row(event: &Value) -> Row {
    let seq = event["seq"].as_u64().unwrap();
    let kind = event["type"].as_str().unwrap();
    let dispatch = match (kind, event["decision"].as_str()) {
        ("call_decided", Some("allow")) => Some(1),
        ("call_dispatched", _) => event["attempt"].as_u64(),
        _ => None,
    };
    Row {
        seq,
        epoch: if seq < 4 { 1 } else { 2 },
        kind: kind.to_owned(),
        call: event["call_id"].as_str().map(str::to_owned),
        allow: matches!(event["decision"].as_str(), Some("allow" | "approve")),
        dispatch,
        prev_hash: hash(seq - 1),
        hash: hash(seq),
    }
}

fn asked(call: &str, tool: &str, attempt: u64, fence: u64, receipt: u64) -> Asked {
    Asked { call: call.to_owned(), attempt, fence, tool: tool.to_owned(), args: r#"{"n":1}"#.to_owned(), receipt }
}

impl Evidence {
    pub(crate) fn good() -> Self {
        let events = events();
        let last = events.len() as u64;
        let ack = |fact: Fact| Ack { session: SESSION.to_owned(), fact };
        let seen = events.iter().map(|event| (event["seq"].as_u64().unwrap(), digest(event))).collect();
        let told = Told {
            acks: vec![
                ack(Fact::Started("torture 1 server 1".to_owned())),
                ack(Fact::Said("torture 1 server 2".to_owned())),
                ack(Fact::Decided { approval: "apr_1".to_owned(), decision: "approve".to_owned() }),
                ack(Fact::Cancelled),
                ack(Fact::Closed),
            ],
            seen: [(SESSION.to_owned(), seen)].into(),
            heads: [(SESSION.to_owned(), [(4, hash(4)), (last, hash(last))].into())].into(),
            journal: vec![asked(READ, "look", 1, 3, 1), asked(READ, "look", 2, 6, 2), asked(ONCE, "sign", 1, 10, 3)],
            repeated: 3,
            ..Told::default()
        };
        let log = SessionLog {
            id: SESSION.to_owned(),
            head: (last, hash(last)),
            active: false,
            rows: events.iter().map(row).collect(),
            events,
            verified: Ok(9),
        };
        Self { told, log }
    }
}
