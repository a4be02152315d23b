//! Examples: calls with the decision each must get, judged when the policy is compiled. What is not here: examples of the
//! layers around this engine.

use std::collections::{BTreeMap, BTreeSet};

use super::Policy;
use crate::facts::{EarlierCall, Facts, Principal, SessionFacts};
use crate::fault::Faults;
use crate::finding::{Decision, Judgement};
use crate::form::PolicyExample;

/// Examples of one section.
const MAX_EXAMPLES: usize = 1_000;
/// A time for examples: rates count from here.
const BASE_MICROS: u64 = 1_700_000_000_000_000;

pub(super) fn check(
    policy: &Policy,
    examples: &[PolicyExample],
    profiles: &BTreeMap<String, BTreeSet<String>>,
    faults: &mut Faults,
) {
    if examples.len() > MAX_EXAMPLES {
        faults.add("/examples", "bound", format!("has more than {MAX_EXAMPLES} examples"));
        return;
    }
    for (idx, example) in examples.iter().enumerate() {
        let at = format!("/examples/{idx}");
        let (word, who) = match example.expect.split_once(':') {
            Some((word, who)) => (word, Some(who)),
            None => (example.expect.as_str(), None),
        };
        let wanted = match word {
            "allow" => Decision::Allow,
            "ask" => Decision::Ask,
            "deny" => Decision::Deny,
            _ => {
                let detail = "is `allow`, `ask` or `deny`, the last two with `:` and a rule id or code if wanted";
                faults.add(format!("{at}/expect"), "example", detail);
                continue;
            }
        };
        let Some(profile) = profile(example, profiles, &at, faults) else { continue };
        let judgement = judge(policy, example, profile);
        let by = judgement.first.as_ref();
        let decided = who.is_none_or(|who| by.is_some_and(|by| *by.rule_id == *who || by.code.code() == who));
        if judgement.decision != wanted || !decided {
            faults.add(at, "example_fails", format!("must get `{}` and gets {}", example.expect, got(&judgement)));
        }
    }
}

fn profile<'a>(
    example: &'a PolicyExample,
    profiles: &'a BTreeMap<String, BTreeSet<String>>,
    at: &str,
    faults: &mut Faults,
) -> Option<&'a str> {
    match &example.profile {
        Some(name) if profiles.contains_key(name) => Some(name),
        Some(name) => {
            faults.add(format!("{at}/profile"), "profile_exists", format!("there is no profile `{name}`"));
            None
        }
        None => match profiles.keys().collect::<Vec<_>>().as_slice() {
            [one] => Some(one),
            _ => {
                faults.add(at, "example", "name the `profile`: there is not exactly one");
                None
            }
        },
    }
}

fn judge(policy: &Policy, example: &PolicyExample, profile: &str) -> Judgement {
    let earlier: Vec<EarlierCall<'_>> = example
        .earlier
        .iter()
        .zip(0_u64..)
        .map(|(call, idx)| EarlierCall {
            run: 1,
            tool: &call.tool,
            status: call.status,
            args: Some(&call.args),
            result: call.result.as_deref(),
            at_micros: BASE_MICROS + idx * 1_000_000,
        })
        .collect();
    let count = u64::try_from(earlier.len()).unwrap_or(u64::MAX);
    let user_words: Vec<&str> = example.user.iter().map(String::as_str).collect();
    let roles: Vec<&str> = example.roles.iter().map(String::as_str).collect();
    policy.judge(&Facts {
        tool: &example.tool,
        args: &example.args,
        profile,
        principal: Principal { tenant: "example", id: "example", roles: &roles },
        session: SessionFacts {
            id: "example",
            run: 1,
            step: 1,
            tool_calls: count,
            ballots: 1,
            agreed: 1,
            ..SessionFacts::default()
        },
        at_micros: BASE_MICROS.saturating_add(count.saturating_mul(1_000_000)),
        earlier: &earlier,
        user_words: &user_words,
        resolved_paths: None,
    })
}

fn got(judgement: &Judgement) -> String {
    let word = match judgement.decision {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    };
    judgement.first.as_ref().map_or_else(
        || format!("`{word}`"),
        |first| format!("`{word}` from `{}` ({}): {}", first.rule_id, first.code.code(), first.detail),
    )
}
