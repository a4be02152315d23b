//! The text envelope: calls and answers as one JSON object in the text, for endpoints without native calls.
//!
//! Strict by default: the whole reply is one envelope, bare or in one code fence. Lenient (`ModelDef::lenient`) reads what
//! toolloop reads: prose around fenced envelopes, the last valid one wins; each such deviation is recorded. Both refuse
//! duplicate keys, `NaN`, lone surrogates and depth over 64, and never look into think blocks. What is not here: the
//! outside of the reply (`openai::completion`), sending (`exchange`).

use serde_json::{Value, json};
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::ModelDef;
use toolgate_core::proposal::{Ballot, BallotVerdict, MalformedReason};

use crate::openai::completion::{self, Reply};
use crate::openai::request::parameters;
use crate::quote::{bare, malformed};

mod blocks;
mod frame;
mod parse;
mod render;
mod repair;

pub use parse::{Parsed, Refused, parse};

/// The request body. `salt` makes the frames around tool results unpredictable; the same ask and salt give the same
/// bytes.
#[must_use]
pub fn encode(ask: &Ask, def: &ModelDef, salt: &[u8; 32]) -> Value {
    let mut body = parameters(def);
    body.insert("messages".to_owned(), render::messages(ask, salt));
    Value::Object(body)
}

/// What a reply amounts to. `def` is the one the request was made from.
#[must_use]
pub fn decode(reply: Reply<'_>, def: &ModelDef) -> Ballot {
    let mut answer = match completion::read(reply) {
        Ok(answer) => answer,
        Err(verdict) => return bare(verdict),
    };
    let verdict = answer.not_whole().unwrap_or_else(|| {
        if answer.text.trim().is_empty() && !answer.calls.is_empty() {
            return malformed(
                MalformedReason::NoEnvelope,
                &format!("the call came outside the text and was not run. {}", repair::REMEDY),
            );
        }
        judge(&answer.text, def.lenient, &mut answer.notes)
    });
    answer.ballot(verdict, None)
}

/// The verdict on one text, with the deviations that were put right.
pub(crate) fn judge(text: &str, lenient: bool, notes: &mut Vec<String>) -> BallotVerdict {
    match parse(text, lenient) {
        Ok(parsed) => {
            notes.extend(parsed.normalised);
            BallotVerdict::Proposal(parsed.proposal)
        }
        Err(refused) => BallotVerdict::Malformed { reason: refused.reason, detail: refused.detail },
    }
}

/// The envelope of some calls, as a model would write it. `args` is JSON text.
pub(crate) fn of_calls<'a>(calls: impl Iterator<Item = (&'a str, &'a str)>) -> String {
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
