//! Which inputs each layer looks at, by name, and what made a decision in one sentence. What is not here: the layers
//! themselves (`pipeline`).

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, StrDeserializer};

use super::{LayerAnswer, LookedAt};
use crate::event::CallDecided;
use crate::pipeline::{Decision, Layer};

/// What a layer looks at, by name.
const fn inputs(layer: Layer) -> &'static [&'static str] {
    match layer {
        Layer::Form => &["call.args"],
        Layer::Registry => &["call.tool", "bundle.tools"],
        Layer::Allowlist => &["call.tool", "profile.tools"],
        Layer::Identity => &["call.args", "bundle.identity_keys"],
        Layer::Schema => &["call.args", "tool.parameters"],
        Layer::Venue => &["tool.venue", "tool.capability", "client.capabilities"],
        Layer::Policy => &["bundle.policies"],
        Layer::Idempotency => &["call.args", "tool.idempotency_key", "session.successes"],
        Layer::Repetition => &["call.args_hash", "run.proposals", "limits.repeat_limit", "bundle.policies.repeats"],
        Layer::Budget => &["run.tool_calls", "limits.max_tool_calls"],
        Layer::Approval => &["tool.requires_approval", "policy.decision", "consensus.result", "call.edited_from"],
        Layer::Passed => &[],
    }
}

/// The layer of a code, as the log's own form of layers reads it.
fn layer_of(code: &str) -> Option<Layer> {
    let text: StrDeserializer<'_, Error> = code.into_deserializer();
    Layer::deserialize(text).ok()
}

/// The layers that were asked, in order; rules of the policies stand in their own record.
pub(super) fn layers(decided: &CallDecided) -> Vec<LookedAt> {
    let mut found: Vec<LookedAt> = Vec::new();
    let last = decided.layer.code();
    let names = decided.rules.iter().map(String::as_str).filter(|rule| !rule.starts_with("policy:"));
    for name in names {
        let decides = name == last && decided.layer != Layer::Passed;
        found.push(looked_at(name, if decides { LayerAnswer::Decided } else { LayerAnswer::Passed }));
    }
    // A loop is found after all other layers, also where one of them has refused the call already.
    if decided.layer != Layer::Passed && !found.iter().any(|layer| layer.layer == last) {
        found.push(looked_at(last, LayerAnswer::Decided));
    }
    found
}

fn looked_at(name: &str, answer: LayerAnswer) -> LookedAt {
    let inputs = layer_of(name).map_or(&[][..], inputs).to_vec();
    LookedAt { layer: name.to_owned(), answer, inputs }
}

/// What made the decision, in one sentence without content.
pub(super) fn cause(decided: &CallDecided) -> String {
    let reason = decided.reason.map_or("", crate::reason::RejectReason::code);
    let layer = decided.layer.code();
    let policy = decided.policy.as_ref();
    let rule = policy.and_then(|policy| Some((policy.rule.as_ref()?, policy.code.as_deref().unwrap_or_default())));
    let by_rule = match (decided.layer, rule) {
        (Layer::Policy | Layer::Approval, Some((rule, code))) => format!(", by the policy rule `{rule}` ({code})"),
        (
            Layer::Form
            | Layer::Registry
            | Layer::Allowlist
            | Layer::Identity
            | Layer::Schema
            | Layer::Venue
            | Layer::Policy
            | Layer::Idempotency
            | Layer::Repetition
            | Layer::Budget
            | Layer::Approval
            | Layer::Passed,
            _,
        ) => String::new(),
    };
    match decided.decision {
        Decision::Allow if decided.edited_by.is_some() => {
            "every layer let it pass; an approver wrote these arguments".to_owned()
        }
        Decision::Allow if decided.granted_by.is_some() => {
            "every layer let it pass; an earlier approval covers it".to_owned()
        }
        Decision::Allow => "every layer let it pass".to_owned(),
        Decision::Escalate => format!("the layer `{layer}` asks a human: {reason}{by_rule}"),
        Decision::Reject if decided.replay_of.is_some() => {
            format!("the layer `{layer}` returns an earlier outcome instead of running it: {reason}")
        }
        Decision::Reject => format!("the layer `{layer}` refuses it: {reason}{by_rule}"),
    }
}
