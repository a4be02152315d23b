//! The order of the pipeline: a call in which every layer finds a fault is judged by the first; with that fault mended, by
//! the second, and so on to the end. What is not here: what follows from each rejection (the scripts).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use toolgate_core::bundle::Bundle;
use toolgate_core::event::Limits;
use toolgate_core::id::{CallId, Capability, ProfileName, SessionId, Sha256Digest, ToolId};
use toolgate_core::json::Json;
use toolgate_core::output::{Outcome, OutcomeStatus};
use toolgate_core::pipeline::{Decision, Layer, Situation, judge, repeat_key};
use toolgate_core::proposal::{MalformedReason, ProposedArgs, ProposedCall};
use toolgate_core::reason::RejectReason;
use toolgate_core::session::KeyedSuccess;

/// The layers that can object, in their order, with the reason each gives here.
const ORDER: [(Layer, RejectReason); 11] = [
    (Layer::Form, RejectReason::Malformed),
    (Layer::Registry, RejectReason::UnknownTool),
    (Layer::Allowlist, RejectReason::ToolNotAllowlisted),
    (Layer::Identity, RejectReason::CrossTenantDenied),
    (Layer::Schema, RejectReason::SchemaInvalid),
    (Layer::Venue, RejectReason::VenueUnavailable),
    (Layer::Policy, RejectReason::ArgumentRule),
    (Layer::Idempotency, RejectReason::IdempotencyConflict),
    (Layer::Repetition, RejectReason::RepeatedCall),
    (Layer::Budget, RejectReason::BudgetExhausted),
    (Layer::Approval, RejectReason::NeedsHumanApproval),
];

fn bundle() -> Bundle {
    let tool = |requires_approval: bool| {
        json!({"description": "Acts.", "venue": "client", "capability": "terminal", "idempotency_key": "key",
            "requires_approval": requires_approval,
            "parameters": {"type": "object", "properties": {"n": {"type": "integer"}, "key": {"type": "string"}}}})
    };
    let text = json!({
        "version": 1,
        "policies": {"arguments": {"small": {"on": {"tools": ["act", "free"]}, "argument": "/n", "max": 10}}},
        "models": {"m": {"provider": "scripted", "script": [{"done": ""}]}},
        "default_model": "m",
        "tools": {"act": tool(true), "free": tool(false), "hidden": tool(true)},
        "profiles": {"p": {"tools": ["act", "free"], "harness": {"max_steps": 1, "max_tool_calls": 3, "deadline_ms": 1}}}
    });
    Bundle::load(&text.to_string()).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

/// Judges a call in which the layers from `from` on find a fault; gives decision, layer, reason and rules.
fn judged(bundle: &Bundle, from: usize) -> (Decision, Layer, Option<RejectReason>, Vec<String>) {
    let faulty = |layer: Layer| ORDER.iter().position(|(known, _)| *known == layer).unwrap() >= from;
    let tool = match () {
        () if faulty(Layer::Registry) => "nothing",
        () if faulty(Layer::Allowlist) => "hidden",
        () if faulty(Layer::Approval) => "act",
        () => "free",
    };
    let n = match () {
        () if faulty(Layer::Schema) => json!("one"),
        () if faulty(Layer::Policy) => json!(99),
        () => json!(1),
    };
    let mut args = json!({"n": n, "key": "k"});
    if faulty(Layer::Identity) {
        args["tenant"] = json!("other");
    }
    let args = Json::from_value(&args);
    let proposed = ProposedArgs::Malformed { reason: MalformedReason::Syntax, detail: "not JSON".to_owned() };
    let call = ProposedCall {
        tool: tool.to_owned(),
        provider_id: None,
        raw_args: args.as_str().to_owned(),
        args: if faulty(Layer::Form) { proposed } else { ProposedArgs::Readable(args.clone()) },
    };
    let session = SessionId::from_uuid(uuid::Uuid::nil());
    let earlier = KeyedSuccess {
        args_hash: Sha256Digest::of(b"other arguments"),
        call: CallId::at(session, 1, 1, 0),
        outcome: Outcome::bare(OutcomeStatus::Ok, ""),
    };
    let keyed =
        faulty(Layer::Idempotency).then(|| (ToolId::new(tool).unwrap(), BTreeMap::from([("k".to_owned(), earlier)])));
    let limits = Limits {
        max_tokens: None,
        max_cost_microusd: None,
        max_steps: 1,
        max_tool_calls: 3,
        max_model_calls: 1,
        deadline_ms: 1,
        max_parallel_calls: 1,
        max_consecutive_rejections: 1,
        max_parse_failures: 1,
        max_output_schema_failures: None,
        repeat_limit: 2,
        ballots: 1,
    };
    let able = (!faulty(Layer::Venue)).then(|| Capability::new("terminal").unwrap());
    let capabilities: BTreeSet<_> = able.into_iter().collect();
    let seen = if faulty(Layer::Repetition) { 2 } else { 1 };
    let repeats = BTreeMap::from([(repeat_key(tool, args.hash()), seen)]);
    let idempotency: BTreeMap<_, _> = keyed.into_iter().collect();
    let verdict = judge(
        &Situation {
            control: toolgate_core::profile::ControlMode::None,
            bundle,
            profile: bundle.profile(&ProfileName::new("p").unwrap()).unwrap(),
            capabilities: &capabilities,
            limits: &limits,
            tool_calls: if faulty(Layer::Budget) { 3 } else { 2 },
            repeats: &repeats,
            idempotency: &idempotency,
            session: None,
            at: toolgate_core::time::Timestamp(0),
            escalate: None,
            approved_by_edit: false,
        },
        &call,
    );
    // The policy layer names its own rules besides.
    let layers = verdict.rules.into_iter().filter(|rule| !rule.starts_with("policy:")).collect();
    (verdict.decision, verdict.layer, verdict.reason, layers)
}

#[test]
fn the_first_fault_in_the_fixed_order_decides_and_is_recorded() {
    let bundle = bundle();
    let names: Vec<String> = ORDER.iter().map(|(layer, _)| layer.code().to_owned()).collect();
    for (place, (layer, reason)) in ORDER.into_iter().enumerate() {
        let decision = if layer == Layer::Approval { Decision::Escalate } else { Decision::Reject };
        // Every layer up to the one that decides was asked, and none after it.
        assert_eq!(judged(&bundle, place), (decision, layer, Some(reason), names[..=place].to_vec()));
    }
    assert_eq!(judged(&bundle, ORDER.len()), (Decision::Allow, Layer::Passed, None, names));
}
