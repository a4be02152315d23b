//! Rules over earlier calls: order, rates, totals, loops. Each with what counts and what does not.

use serde_json::{Value, json};
use toolgate_policy::CallStatus;
use toolgate_policy::history::RepeatLevel;

use crate::world::{judge_after, past, policy, said};

const ALL: [CallStatus; 10] = [
    CallStatus::Waiting,
    CallStatus::Running,
    CallStatus::Ok,
    CallStatus::Failed,
    CallStatus::TimedOut,
    CallStatus::Indeterminate,
    CallStatus::DeniedByClient,
    CallStatus::NotExecuted,
    CallStatus::DryRun,
    CallStatus::Replayed,
];

#[test]
fn after_one_call_another_is_denied() {
    let policy =
        policy(&json!({"sequences": {"r": {"on": {"tools": ["send_mail"]}, "after": {"tools": ["read_file"]}}}}));
    let mail = json!({"to": ["a"], "body": "b"});
    assert_eq!(said(&judge_after(&policy, &[], "send_mail", &mail)), "allow");
    for status in ALL {
        let history = [past("read_file", json!({"path": "x"})).status(status)];
        let expected = if status.may_have_effect() { "deny sequence_rule" } else { "allow" };
        assert_eq!(said(&judge_after(&policy, &history, "send_mail", &mail)), expected, "{status:?}");
        assert_eq!(said(&judge_after(&policy, &history, "search", &json!({"query": "x"}))), "allow");
    }
    let earlier_run = [past("read_file", json!({"path": "x"})).run(0)];
    assert_eq!(said(&judge_after(&policy, &earlier_run, "send_mail", &mail)), "deny sequence_rule");
}

#[test]
fn a_call_may_need_the_success_of_another_on_the_same_value() {
    let policy =
        policy(&json!({"sequences": {"r": {"on": {"tools": ["write_file"]}, "only_after": {"tools": ["read_file"]},
        "same": {"this": "/path", "earlier": "/path"}, "scope": "run", "effect": "ask"}}}));
    let write = json!({"path": "a", "content": ""});
    for status in ALL {
        let history = [past("read_file", json!({"path": "a"})).status(status)];
        let expected = if status == CallStatus::Ok { "allow" } else { "ask sequence_rule" };
        assert_eq!(said(&judge_after(&policy, &history, "write_file", &write)), expected, "{status:?}");
    }
    for history in [
        vec![],
        vec![past("read_file", json!({"path": "b"}))],
        vec![past("read_file", json!({}))],
        vec![past("read_file", json!({"path": "a"})).run(2)],
    ] {
        assert_eq!(said(&judge_after(&policy, &history, "write_file", &write)), "ask sequence_rule", "{history:?}");
    }
    let missing =
        judge_after(&policy, &[past("read_file", json!({"path": "a"}))], "write_file", &json!({"content": ""}));
    assert_eq!(said(&missing), "deny argument_missing");
}

#[test]
fn after_with_a_value_that_cannot_be_compared_counts() {
    let policy =
        policy(&json!({"sequences": {"r": {"on": {"tools": ["write_file"]}, "after": {"tools": ["read_file"]},
        "same": {"this": "/path", "earlier": "/path"}}}}));
    let write = json!({"path": "a", "content": ""});
    for (args, expected) in [
        (json!({"path": "a"}), "deny sequence_rule"),
        (json!({"path": "b"}), "allow"),
        (json!({}), "deny sequence_rule"),
    ] {
        assert_eq!(
            said(&judge_after(&policy, &[past("read_file", args.clone())], "write_file", &write)),
            expected,
            "{args}"
        );
    }
}

#[test]
fn small_amounts_add_up_exactly() {
    let policy = policy(&json!({"totals": {"r": {"on": {"tags": ["money"], "tools": ["transfer"]}, "scope": "session",
        "sum": {"argument": "/amount_cents", "max": 9_007_199_254_740_993_i64}}}}));
    let send = |cents: Value| json!({"to": "x", "amount_cents": cents});
    let history = [past("transfer", send(json!(9_007_199_254_740_991_i64))), past("transfer", send(json!(1))).run(0)];
    for (cents, expected) in [
        (json!(1), "allow"),
        (json!(2), "deny cumulative_limit"),
        (json!(0), "allow"),
        (json!(-1), "deny argument_wrong_kind"),
        (json!("1"), "deny argument_wrong_kind"),
        (json!(null), "deny argument_wrong_kind"),
    ] {
        assert_eq!(said(&judge_after(&policy, &history, "transfer", &send(cents.clone()))), expected, "{cents}");
    }
    assert_eq!(said(&judge_after(&policy, &[], "transfer", &json!({"to": "x"}))), "deny argument_wrong_kind");
    let unreadable = [past("transfer", json!({"to": "x"}))];
    assert_eq!(said(&judge_after(&policy, &unreadable, "transfer", &send(json!(1)))), "deny cumulative_limit");
}

#[test]
fn fractions_add_up_exactly() {
    let policy = policy(&json!({"totals": {"r": {"on": {"tools": ["pay"]}, "scope": "run", "per": "/iban",
        "sum": {"argument": "/amount", "max": 0.3}}}}));
    let pay = |iban: &str, amount: f64| json!({"iban": iban, "amount": amount});
    let history = [past("pay", pay("A", 0.1)), past("pay", pay("B", 0.3)), past("pay", pay("A", 0.3)).run(2)];
    assert_eq!(said(&judge_after(&policy, &history, "pay", &pay("A", 0.2))), "allow");
    assert_eq!(said(&judge_after(&policy, &history, "pay", &pay("A", 0.200_000_001))), "deny cumulative_limit");
    assert_eq!(said(&judge_after(&policy, &history, "pay", &pay("B", 0.000_000_001))), "deny cumulative_limit");
    assert_eq!(said(&judge_after(&policy, &history, "pay", &pay("C", 1e-10))), "deny argument_wrong_kind");
}

#[test]
fn calls_are_counted_by_what_may_have_happened() {
    let policy = policy(
        &json!({"totals": {"r": {"on": {"tools": ["search"]}, "scope": "run", "max_count": 2, "effect": "ask"}}}),
    );
    for status in ALL {
        let history = [past("search", json!({"query": "a"})), past("search", json!({"query": "b"})).status(status)];
        let expected = if status.may_have_effect() { "ask cumulative_limit" } else { "allow" };
        assert_eq!(said(&judge_after(&policy, &history, "search", &json!({"query": "c"}))), expected, "{status:?}");
    }
}

#[test]
fn rates_slide_and_a_clock_that_went_back_does_not_help() {
    let form = |per_tool: bool| json!({"rates": {"r": {"on": {"tools": ["search", "fetch"]}, "max": 2, "window_ms": 1_000, "per_tool": per_tool}}});
    let query = json!({"query": "x"});
    let at = |ms: u64| past("search", json!({"query": "a"})).ago_ms(ms);
    let together = policy(&form(false));
    assert_eq!(said(&judge_after(&together, &[at(999)], "search", &query)), "allow");
    assert_eq!(said(&judge_after(&together, &[at(999), at(5)], "search", &query)), "deny rate_limited");
    assert_eq!(said(&judge_after(&together, &[at(1_000), at(5)], "search", &query)), "allow");
    let mut future = at(0);
    future.at = crate::world::NOW + 5_000_000;
    assert_eq!(said(&judge_after(&together, &[future, at(5)], "search", &query)), "deny rate_limited");
    let fetches = [past("fetch", json!({})).ago_ms(3), past("fetch", json!({})).ago_ms(2)];
    assert_eq!(said(&judge_after(&together, &fetches, "search", &query)), "deny rate_limited");
    assert_eq!(said(&judge_after(&policy(&form(true)), &fetches, "search", &query)), "allow");
}

#[test]
fn loops_are_found_and_polling_may_be_exempt() {
    let policy =
        policy(&json!({"repeats": {"warn": 2, "refuse": 3, "end": 4, "cycle": 2, "exempt": {"tools": ["search"]}}}));
    let level =
        |keys: &[&str], key: &str, tool: &str| policy.repetition(keys, &key, tool, "all").map(|found| found.level);
    assert_eq!(level(&[], "a", "fetch"), None);
    assert_eq!(level(&["a"], "a", "fetch"), Some(RepeatLevel::Warn));
    assert_eq!(level(&["a", "a"], "a", "fetch"), Some(RepeatLevel::Refuse));
    assert_eq!(level(&["a", "a", "a"], "a", "no_such_tool"), Some(RepeatLevel::End));
    assert_eq!(level(&["a", "b", "a"], "b", "fetch"), Some(RepeatLevel::Warn));
    assert_eq!(level(&["a", "b", "c"], "a", "fetch"), None);
    assert_eq!(level(&["a", "a", "a"], "a", "search"), None);
}
