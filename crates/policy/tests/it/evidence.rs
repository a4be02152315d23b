//! Evidence: what counts, what does not, and what is missing in words a model can act on.

use serde_json::{Value, json};
use toolgate_policy::history::{Deficit, DeficitKind};
use toolgate_policy::{CallStatus, Venue};

use crate::world::{Past, catalogue, compile_with, earlier, faults, past};

fn missing(rule: &Value, history: &[Past]) -> Vec<Deficit> {
    let mut tools = catalogue();
    for tool in &mut tools {
        if tool.id == "write_file" {
            tool.tags.insert("edited".to_owned());
            tool.venue = Venue::Server;
        }
    }
    let policy = compile_with(&json!({"evidence": {"e": rule}}), &tools).unwrap();
    policy.deficits("all", 1, &earlier(history))
}

fn kinds(rule: &Value, history: &[Past]) -> Vec<DeficitKind> {
    missing(rule, history).into_iter().map(|deficit| deficit.kind).collect()
}

fn test_run() -> Past {
    past("test", json!({}))
}

fn edit(path: &str) -> Past {
    past("write_file", json!({"path": path, "content": ""}))
}

#[test]
fn only_recorded_successes_count() {
    let rule = json!({"min": {"tested": 2}});
    let found = missing(&rule, &[test_run()]);
    assert_eq!((found[0].have, found[0].need, found[0].tools.clone()), (1, 2, vec!["test".to_owned()]));
    assert_eq!(found[0].detail, "`tested`: 1 of 2 successful calls");
    assert_eq!(kinds(&rule, &[test_run(), test_run()]), []);
    for status in [
        CallStatus::Waiting,
        CallStatus::Running,
        CallStatus::Failed,
        CallStatus::TimedOut,
        CallStatus::Indeterminate,
        CallStatus::DeniedByClient,
        CallStatus::NotExecuted,
        CallStatus::DryRun,
        CallStatus::Replayed,
    ] {
        assert_eq!(kinds(&rule, &[test_run(), test_run().status(status)]), [DeficitKind::Min], "{status:?}");
    }
    assert_eq!(kinds(&rule, &[test_run(), test_run().run(2)]), [DeficitKind::Min]);
    assert_eq!(kinds(&json!({"min": {"tested": 2}, "scope": "session"}), &[test_run(), test_run().run(2)]), []);
}

#[test]
fn alternatives_and_order() {
    let any = json!({"any_of": [["tested", "money"]]});
    assert_eq!(kinds(&any, &[]), [DeficitKind::AnyOf]);
    assert_eq!(kinds(&any, &[past("pay", json!({}))]), []);
    let order = json!({"order": [{"before": "tested", "after": "edited"}]});
    assert_eq!(kinds(&order, &[]), []);
    assert_eq!(kinds(&order, &[edit("a")]), [DeficitKind::Order]);
    assert_eq!(kinds(&order, &[edit("a"), test_run()]), [DeficitKind::Order]);
    assert_eq!(kinds(&order, &[edit("a"), test_run(), edit("a")]), []);
}

#[test]
fn evidence_goes_stale() {
    let rule = json!({"fresh": [{"evidence": "tested", "covers": {"tags": ["edited"]}}]});
    let failed = || test_run().status(CallStatus::Failed);
    for (history, stale) in [
        (vec![], false),
        (vec![edit("a")], true),
        (vec![edit("a"), test_run()], false),
        (vec![test_run(), edit("a")], true),
        (vec![edit("a"), test_run(), failed()], true),
        (vec![edit("a"), failed(), test_run()], false),
        (vec![edit("a"), test_run(), edit("b").status(CallStatus::Indeterminate)], true),
        (vec![edit("a"), test_run(), edit("b").status(CallStatus::NotExecuted)], false),
        (vec![edit("a"), test_run(), edit("b").status(CallStatus::Failed)], false),
        (vec![edit("a"), test_run().status(CallStatus::Replayed)], true),
        (vec![edit("a"), test_run().status(CallStatus::Indeterminate)], true),
    ] {
        let expected = if stale { vec![DeficitKind::Stale] } else { vec![] };
        assert_eq!(kinds(&rule, &history), expected, "{history:?}");
    }
}

#[test]
fn evidence_may_cover_value_by_value() {
    let rule = json!({"fresh": [{"evidence": "edited", "covers": {"tools": ["read_file"]}, "same": {"this": "/path", "earlier": "/path"}}]});
    let read = |path: &str| past("read_file", json!({"path": path}));
    assert_eq!(kinds(&rule, &[read("a"), edit("a")]), []);
    assert_eq!(kinds(&rule, &[read("a"), read("b"), edit("a")]), [DeficitKind::Stale]);
    assert_eq!(kinds(&rule, &[read("a"), read("b"), edit("b"), edit("a")]), []);
    assert_eq!(kinds(&rule, &[read("a"), edit("a"), read("a")]), [DeficitKind::Stale]);
}

#[test]
fn evidence_that_nothing_can_bring_is_refused() {
    // `write_file` of the catalogue runs at the client.
    assert_eq!(faults(&json!({"evidence": {"e": {"min": {"nothing": 1}}}})), ["/evidence/e/min tag_exists"]);
    assert_eq!(faults(&json!({"evidence": {"e": {"min": {"tested": 0}}}})), ["/evidence/e/min bound"]);
    assert_eq!(faults(&json!({"evidence": {"e": {}}})), ["/evidence/e evidence"]);
    assert_eq!(
        faults(&json!({"evidence": {"e": {"min": {"tested": 1}, "profiles": ["none"]}}})),
        ["/evidence/e/profiles profile_exists"]
    );
    let tools = catalogue();
    let narrow = std::collections::BTreeMap::from([
        ("all".to_owned(), tools.iter().map(|tool| tool.id.clone()).collect()),
        ("readers".to_owned(), std::collections::BTreeSet::from(["search".to_owned()])),
    ]);
    let form = serde_json::from_value(json!({"evidence": {"e": {"min": {"tested": 1}}}})).unwrap();
    let found = toolgate_policy::Policy::compile(&form, &tools, &narrow).unwrap_err();
    assert_eq!((found[0].rule, found.len()), ("evidence_reachable", 1));
    assert!(found[0].detail.contains("`readers`"), "{}", found[0]);
}
