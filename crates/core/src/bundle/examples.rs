//! Profile examples: each carries a call and the decision it must get, so that a wrong policy fails at load.

use std::collections::{BTreeMap, BTreeSet};

use super::{Bundle, BundleFault};
use crate::event::Limits;
use crate::json::Json;
use crate::pipeline::{Decision, Situation, Verdict, judge};
use crate::profile::{Example, Profile};
use crate::proposal::{ProposedArgs, ProposedCall};
use crate::reason::RejectReason;

pub(super) fn check(bundle: &Bundle) -> Vec<BundleFault> {
    let mut faults = Vec::new();
    for (name, profile) in &bundle.profiles {
        for (idx, example) in profile.examples.iter().enumerate() {
            let path = format!("/profiles/{name}/examples/{idx}");
            if !known(&example.expect) {
                let detail = format!(
                    "`{}` is no decision; write `allow`, `escalate` or `reject:` and a reason code",
                    example.expect
                );
                faults.push(BundleFault::new(format!("{path}/expect"), "example", detail));
                continue;
            }
            let found = decide_example(bundle, profile, example);
            if found != example.expect {
                faults.push(BundleFault::new(
                    path,
                    "example",
                    format!("expected `{}`, but the decision is `{found}`", example.expect),
                ));
            }
        }
    }
    faults
}

fn known(expect: &str) -> bool {
    matches!(expect, "allow" | "escalate")
        || expect
            .strip_prefix("reject:")
            .is_some_and(|code| RejectReason::ALL.iter().any(|reason| reason.code() == code))
}

fn found(verdict: &Verdict<'_>) -> String {
    match (verdict.decision, verdict.reason) {
        (Decision::Reject, Some(reason)) => format!("reject:{}", reason.code()),
        (decision, _) => decision.code().to_owned(),
    }
}

/// Judges the call as the first of a fresh run whose client can do everything.
fn decide_example(bundle: &Bundle, profile: &Profile, example: &Example) -> String {
    let limits = Limits {
        max_steps: 1,
        max_tool_calls: profile.harness.as_ref().map_or(0, |harness| harness.max_tool_calls),
        max_model_calls: 1,
        deadline_ms: 1,
        max_parallel_calls: 1,
        max_consecutive_rejections: 1,
        max_parse_failures: 1,
        max_output_schema_failures: None,
        repeat_limit: 1,
        ballots: 1,
        max_tokens: None,
        max_cost_microusd: None,
    };
    let capabilities: BTreeSet<_> = bundle.tools().filter_map(|tool| tool.def.capability.clone()).collect();
    let args = Json::from_value(&example.propose.args);
    let args = if example.propose.args.is_null() { Json::empty_object() } else { args };
    let call = ProposedCall {
        tool: example.propose.tool.clone(),
        provider_id: None,
        raw_args: args.as_str().to_owned(),
        args: ProposedArgs::Readable(args),
    };
    let (repeats, idempotency) = (BTreeMap::new(), BTreeMap::new());
    let verdict = judge(
        &Situation {
            bundle,
            profile,
            capabilities: &capabilities,
            limits: &limits,
            tool_calls: 0,
            repeats: &repeats,
            idempotency: &idempotency,
            session: None,
            at: crate::time::Timestamp(0),
            control: profile.control,
            escalate: None,
            approved_by_edit: false,
        },
        &call,
    );
    found(&verdict)
}
