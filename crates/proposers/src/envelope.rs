//! The text envelope: calls and answers as one JSON object in the text, for endpoints without native calls.
//!
//! Strict by default: the whole reply is one envelope, bare or in one code fence. Lenient (`ModelDef::lenient`) reads what
//! toolloop reads: prose around fenced envelopes, the last valid one wins; each such deviation is recorded. Both refuse
//! duplicate keys, `NaN`, lone surrogates and depth over 64, and never look into think blocks. What is not here: the
//! outside of the reply (`wire`), sending (`exchange`).

use serde_json::{Value, json};
use toolgate_core::ask::Ask;
use toolgate_core::proposal::{BallotVerdict, MalformedReason};

use crate::quote::malformed;

mod blocks;
mod frame;
mod parse;
mod protocol;
mod render;
mod repair;

pub use parse::{Parsed, Refused, parse};
pub use protocol::{JsonEnvelope, ToolProtocol};

/// The conversation as messages of (role, content), the instructions first.
pub(crate) fn messages(ask: &Ask, salt: &[u8; 32], protocol: &dyn ToolProtocol) -> Vec<(&'static str, String)> {
    render::messages(ask, salt, protocol)
}

/// The verdict on a call outside the text, where only an envelope was asked for.
pub(crate) fn outside(protocol: &dyn ToolProtocol) -> BallotVerdict {
    malformed(
        MalformedReason::NoEnvelope,
        &format!("the call came outside the text and was not run. {}", protocol.remedy()),
    )
}

/// The verdict on one text, with the deviations that were put right.
pub(crate) fn judge(protocol: &dyn ToolProtocol, text: &str, lenient: bool, notes: &mut Vec<String>) -> BallotVerdict {
    match protocol.parse(text, lenient) {
        Ok(parsed) => {
            notes.extend(parsed.normalised);
            BallotVerdict::Proposal(parsed.proposal)
        }
        Err(refused) => BallotVerdict::Malformed { reason: refused.reason, detail: refused.detail },
    }
}

/// The envelope of some calls, as a model would write it. `args` is JSON text.
fn of_calls<'a>(calls: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    // By hand, so that the keys stand in the order of the instructions.
    let calls: Vec<String> = calls
        .enumerate()
        .map(|(at, (name, args))| {
            let args: Value = serde_json::from_str(args).unwrap_or_else(|_| json!({"unreadable_arguments": args}));
            format!(r#"{{"id":"{}","name":{},"args":{args}}}"#, at + 1, json!(name))
        })
        .collect();
    format!(r#"{{"type":"tool_call","calls":[{}]}}"#, calls.join(","))
}
