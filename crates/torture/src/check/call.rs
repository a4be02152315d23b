//! One call as the log tells it: decisions and dispatches from the rows of the database, arguments and outcome from the
//! events of the API. What is not here: what must hold of it (`check`).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::evidence::SessionLog;
use crate::journal::Asked;

/// A call.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) tool: String,
    pub(super) class: String,
    args: Value,
    /// Where it was allowed.
    allowed: Option<u64>,
    /// Attempt and place of each dispatch.
    pub(super) dispatches: BTreeMap<u64, u64>,
    /// How it ended.
    pub(super) status: Option<String>,
    /// What its outcome carries.
    pub(super) receipt: Option<u64>,
}

impl Call {
    /// Why the tool should not have been asked this, if so.
    pub(super) fn forbids(&self, asked: &Asked) -> Option<&'static str> {
        let dispatched = self.dispatches.get(&asked.attempt);
        if dispatched != Some(&asked.fence) {
            return Some("no such dispatch");
        }
        if self.allowed.is_none_or(|allowed| allowed > asked.fence) {
            return Some("not allowed before its dispatch");
        }
        if self.tool != asked.tool {
            return Some("another tool");
        }
        let args: Option<Value> = serde_json::from_str(&asked.args).ok();
        (args.as_ref() != Some(&self.args)).then_some("other arguments")
    }
}

/// Every call of a log.
pub(super) fn of(log: &SessionLog) -> Vec<Call> {
    let mut calls: BTreeMap<&str, Call> = BTreeMap::new();
    for row in &log.rows {
        let Some(id) = &row.call else { continue };
        let call = calls.entry(id).or_insert_with(|| Call { id: id.clone(), ..Call::default() });
        if row.allow && call.allowed.is_none() {
            call.allowed = Some(row.seq);
        }
        if let Some(attempt) = row.dispatch {
            call.dispatches.insert(attempt, row.seq);
        }
    }
    for event in &log.events {
        let word = |field: &str| event.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
        let Some(call) = event.get("call_id").and_then(Value::as_str).and_then(|id| calls.get_mut(id)) else {
            continue;
        };
        match word("type").as_str() {
            "call_decided" => {
                (call.tool, call.class) = (word("tool"), word("class"));
                call.args = event.pointer("/content/args").cloned().unwrap_or_default();
                if word("decision") == "reject" {
                    call.status = Some("rejected".to_owned());
                }
            }
            "call_ended" => {
                call.status = Some(word("status"));
                call.receipt = event.pointer("/content/output").and_then(receipt);
            }
            _ => {}
        }
    }
    calls.into_values().collect()
}

/// The number in an output such as `{"receipt": 7}`.
fn receipt(output: &Value) -> Option<u64> {
    let value: Value = serde_json::from_str(output.get("text")?.as_str()?).ok()?;
    value.get("receipt")?.as_u64()
}
