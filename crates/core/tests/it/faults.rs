//! Faults of budgets, hooks, votes and rules that end a run, from a bundle in which everything is said; and that no check
//! of a bundle is without a test. What is not here: the faults of tools, models and plain profiles (`bundles`), shape
//! (`written`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};
use toolgate_core::bundle::{Bundle, BundleFault};

use crate::bundles;
use crate::model_faults;
use crate::script::merge;
use crate::written::whole;

pub(crate) type Case = (Value, &'static str, &'static str);

fn load(patch: &Value) -> Result<Bundle, Vec<BundleFault>> {
    let mut form = whole();
    merge(&mut form, patch);
    Bundle::load(&form.to_string())
}

/// Each patch is refused with the fault, at the place, by the rule.
pub(crate) fn refused(cases: &[Case]) {
    for (patch, path, rule) in cases {
        let faults = load(patch).err().unwrap_or_else(|| panic!("{patch} loads"));
        assert!(
            faults.iter().any(|fault| fault.path == *path && fault.rule == *rule),
            "{patch}: expected {path} ({rule}), found {faults:?}"
        );
    }
}

fn many(name: &str, times: usize, of: &Value) -> Map<String, Value> {
    (0..times).map(|n| (format!("{name}{n}"), of.clone())).collect()
}

/// The tenant's budget and limits, and the budgets of runs and sessions.
fn budgets() -> Vec<Case> {
    let limit = |patch: Value| json!({"tenant_limits": {"cents": patch}});
    let profile = |patch: Value| json!({"profiles": {"long": patch}});
    let (at, on) = ("/tenant_limits/cents", "/tenant_limits/cents/on");
    let spare = json!({"on": {"all": true}, "max_count": 1});
    vec![
        (json!({"tenant_budget": {"window_ms": 59_999}}), "/tenant_budget/window_ms", "range"),
        (json!({"tenant_budget": {"window_ms": 2_678_400_001_u64}}), "/tenant_budget/window_ms", "range"),
        (json!({"tenant_limits": many("x", 16, &spare)}), "/tenant_limits", "count"),
        (limit(json!({"window_ms": 1})), "/tenant_limits/cents/window_ms", "range"),
        (limit(json!({"on": {"tools": null}})), on, "target"),
        (limit(json!({"on": {"all": true}})), on, "target"),
        (limit(json!({"on": {"classes": ["read"]}})), on, "target"),
        (limit(json!({"on": {"tools": ["none"]}})), "/tenant_limits/cents/on/tools", "tool_exists"),
        (limit(json!({"max_count": null, "max_sum": null, "argument": null})), at, "bounds"),
        (limit(json!({"argument": null})), at, "bounds"),
        (limit(json!({"max_sum": null})), at, "bounds"),
        (limit(json!({"argument": "/none"})), "/tenant_limits/cents/argument", "argument_exists"),
        (limit(json!({"argument": "/command"})), "/tenant_limits/cents/argument", "argument_exists"),
        (limit(json!({"argument": "cents"})), "/tenant_limits/cents/argument", "argument_exists"),
        (limit(json!({"argument": ""})), "/tenant_limits/cents/argument", "argument_exists"),
        (limit(json!({"profiles": ["long", "none"]})), "/tenant_limits/cents/profiles", "profile_exists"),
        (profile(json!({"harness": {"max_tokens": 0}})), "/profiles/long/harness/max_tokens", "can_start"),
        (
            profile(json!({"session_budget": {"max_tokens": 0}})),
            "/profiles/long/session_budget/max_tokens",
            "can_start",
        ),
        (
            profile(json!({"session_budget": {"max_model_calls": 0}})),
            "/profiles/long/session_budget/max_model_calls",
            "can_start",
        ),
        (json!({"models": {"real": {"prices": null}}}), "/profiles/long/model", "priced"),
        (json!({"models": {"scripted": {"prices": null}}}), "/profiles/short/model", "priced"),
        (json!({"models": {"real": {"max_output_tokens": null}}}), "/profiles/long/model", "bounded_answer"),
        (json!({"models": {"scripted": {"max_output_tokens": null}}}), "/profiles/short/model", "bounded_answer"),
        (
            json!({"models": {"real": {"prices": {"call_microusd": 1_000_000_000_001_u64}}}}),
            "/models/real/prices/call_microusd",
            "range",
        ),
        (
            json!({"models": {"real": {"prices": {"input_microusd_per_million": 1_000_000_000_001_u64}}}}),
            "/models/real/prices/input_microusd_per_million",
            "range",
        ),
        (
            json!({"models": {"real": {"prices": {"output_microusd_per_million": u64::MAX}}}}),
            "/models/real/prices/output_microusd_per_million",
            "range",
        ),
    ]
}

#[test]
fn budgets_and_limits_are_checked() {
    refused(&budgets());
    // Bounds that are narrow and possible.
    for patch in [
        json!({"tenant_budget": {"window_ms": 60_000, "max_model_calls": 0}}),
        json!({"tenant_budget": {"window_ms": 2_678_400_000_u64}}),
        json!({"tenant_limits": {"cents": {"argument": null, "max_sum": null, "max_count": 0}}}),
        json!({"profiles": {"long": {"examples": null, "session_budget": {"max_tool_calls": 0, "max_cost_microusd": 0}}}}),
    ] {
        load(&patch).unwrap_or_else(|faults| panic!("{patch}: {faults:?}"));
    }
}

/// Admission hooks and observers. A list is replaced whole by a patch.
fn hooks() -> Vec<Case> {
    let hook = |patch: Value| {
        let mut hook = whole()["admission"][0].clone();
        merge(&mut hook, &patch);
        json!({"admission": [hook]})
    };
    let observer = |patch: Value| {
        let mut observer = whole()["observers"][0].clone();
        merge(&mut observer, &patch);
        json!({"observers": [observer]})
    };
    let twice = |list: &str| json!({ list: [whole()[list][0], whole()[list][0]] });
    let crowd = |list: &str| {
        let named = |n: usize| {
            let mut one = whole()[list][0].clone();
            merge(&mut one, &json!({"name": format!("x{n}")}));
            one
        };
        json!({ list: (0..33).map(named).collect::<Vec<_>>() })
    };
    vec![
        (crowd("admission"), "/admission", "count"),
        (crowd("observers"), "/observers", "count"),
        (twice("admission"), "/admission/tame", "duplicate"),
        (twice("observers"), "/observers/audit", "duplicate"),
        (hook(json!({"url": "ftp://x"})), "/admission/tame/url", "url"),
        (hook(json!({"url": "http://"})), "/admission/tame/url", "url"),
        (hook(json!({"url": "http://x y"})), "/admission/tame/url", "url"),
        (hook(json!({"url": "http://u:p@x"})), "/admission/tame/url", "url"),
        (hook(json!({"bearer_env": "HOME"})), "/admission/tame/bearer_env", "secret_name"),
        (hook(json!({"timeout_ms": 0})), "/admission/tame/timeout_ms", "range"),
        (hook(json!({"timeout_ms": 30_001})), "/admission/tame/timeout_ms", "range"),
        (hook(json!({"on": {"tools": null, "classes": null, "risks": null}})), "/admission/tame/on", "target"),
        (hook(json!({"on": {"all": true}})), "/admission/tame/on", "target"),
        (hook(json!({"on": {"risks": ["low"]}})), "/admission/tame/on", "target"),
        (hook(json!({"on": {"tools": ["run", "none"]}})), "/admission/tame/on/tools", "tool_exists"),
        (observer(json!({"url": "/relative"})), "/observers/audit/url", "url"),
        (observer(json!({"bearer_env": "PATH"})), "/observers/audit/bearer_env", "secret_name"),
        (observer(json!({"on": []})), "/observers/audit/on", "observes"),
    ]
}

/// Addresses that no request could be sent to, or that hold a secret: in each place that has one.
#[test]
fn unusable_addresses_are_refused_wherever_one_stands() {
    let bad = [
        "http://",
        "http://[::1",
        "http://x\r\nh: y",
        "http://x y/",
        "http://u:p@x/",
        "http://u@x/",
        "http:x",
        "//x",
        "https://x:99999/",
        "ftp://x/",
        "",
        " http://x",
        "http://x\u{0}/",
        "http://x/\u{a0}",
    ];
    for url in bad {
        let model = json!({"provider": "openai", "base_url": url, "model": "m", "script": []});
        let tool = json!({"executor": {"http": {"url": url}}});
        let first = |list: &str| {
            let mut one = whole()[list][0].clone();
            merge(&mut one, &json!({"url": url}));
            json!({ list: [one] })
        };
        refused(&[
            (json!({"models": {"other": model}}), "/models/other/base_url", "url"),
            (json!({"tools": {"run": tool}}), "/tools/run/executor/http/url", "url"),
            (first("admission"), "/admission/tame/url", "url"),
            (first("observers"), "/observers/audit/url", "url"),
        ]);
    }
}

#[test]
fn hooks_and_observers_are_checked() {
    refused(&hooks());
}

/// Rules that end a run.
fn termination() -> Vec<Case> {
    let rule = |name: &str, patch: Value| json!({"profiles": {"long": {"end_when": {name: patch}}}});
    vec![
        (rule("ran", json!({"outcomes": null})), "/profiles/long/end_when/ran", "one_condition"),
        (
            rule("ran", json!({"evidence": {"tag": "seen", "at_least": 1}})),
            "/profiles/long/end_when/ran",
            "one_condition",
        ),
        (rule("ran", json!({"outcomes": {"at_least": 0}})), "/profiles/long/end_when/ran/at_least", "range"),
        (
            rule("refused", json!({"refused": {"at_least": 10_001}})),
            "/profiles/long/end_when/refused/at_least",
            "range",
        ),
        (rule("seen", json!({"evidence": {"at_least": 0}})), "/profiles/long/end_when/seen/at_least", "range"),
        (
            rule("ran", json!({"outcomes": {"tool": "none"}})),
            "/profiles/long/end_when/ran/outcomes/tool",
            "tool_exists",
        ),
        (rule("seen", json!({"evidence": {"tag": "none"}})), "/profiles/long/end_when/seen/evidence/tag", "reachable"),
    ]
}

#[test]
fn rules_that_end_a_run_are_checked() {
    refused(&termination());
}

/// Votes for single tools and risks.
fn votes() -> Vec<Case> {
    let consensus = |patch: Value| json!({"profiles": {"long": {"consensus": patch}}});
    let at = "/profiles/long/consensus";
    let (high, look) = ("/profiles/long/consensus/by_risk/high", "/profiles/long/consensus/by_tool/look");
    let place = |at: &str, name: &str| -> &'static str { Box::leak(format!("{at}/{name}").into_boxed_str()) };
    vec![
        (consensus(json!({"by_risk": {"high": {"n": 0, "k": 0}}})), place(high, "n"), "range"),
        (consensus(json!({"by_risk": {"high": {"n": 10}}})), place(high, "n"), "range"),
        (consensus(json!({"by_risk": {"high": {"k": 0}}})), place(high, "k"), "range"),
        (consensus(json!({"by_risk": {"high": {"k": 6}}})), place(high, "k"), "range"),
        (consensus(json!({"by_risk": {"none": {"n": 1, "k": 1}}})), "/profiles/long/consensus/by_risk/none", "shape"),
        (consensus(json!({"by_risk": {"high": {"n": null}}})), high, "shape"),
        (consensus(json!({"by_tool": {"look": {"n": 0, "k": 0}}})), place(look, "n"), "range"),
        (consensus(json!({"by_tool": {"look": {"n": 10}}})), place(look, "n"), "range"),
        (consensus(json!({"by_tool": {"look": {"k": 0}}})), place(look, "k"), "range"),
        (consensus(json!({"by_tool": {"look": {"k": 2}}})), place(look, "k"), "range"),
        (
            consensus(json!({"by_tool": {"none": {"n": 1, "k": 1}}})),
            "/profiles/long/consensus/by_tool/none",
            "tool_exists",
        ),
        (json!({"profiles": {"long": {"tools": ["run", "open"]}}}), look, "tool_exists"),
        (consensus(json!({"by_tool": {"look": {"rule": "first", "k": null}}})), place(look, "rule"), "first_decides"),
        (consensus(json!({"by_tool": {"look": {"rule": "majority"}}})), place(look, "k"), "k_of_n"),
        (consensus(json!({"by_risk": {"high": {"k": null}}})), place(high, "k"), "k_of_n"),
        (consensus(json!({"k": null})), place(at, "k"), "k_of_n"),
        (consensus(json!({"rule": "unanimous"})), place(at, "k"), "k_of_n"),
        (consensus(json!({"rule": "most"})), place(at, "rule"), "shape"),
        (consensus(json!({"decide": "late"})), place(at, "decide"), "shape"),
        (consensus(json!({"rule": "first", "k": null, "decide": "all"})), place(at, "decide"), "first_decides"),
        (consensus(json!({"rule": "first", "k": null})), place(at, "escalate_below_percent"), "first_decides"),
        (consensus(json!({"escalate_below_percent": 0})), place(at, "escalate_below_percent"), "range"),
        (consensus(json!({"escalate_below_percent": 101})), place(at, "escalate_below_percent"), "range"),
        (
            json!({"profiles": {"long": {"approval": {"mode": "end"}}}}),
            place(at, "escalate_below_percent"),
            "approval_mode",
        ),
        (consensus(json!({"variety": ["a", " "]})), place(at, "variety/1"), "empty"),
        (consensus(json!({"variety": ["{{nothing}}"]})), place(at, "variety/0"), "prompt_value"),
        (
            consensus(json!({"variety": ["a", "a", "a", "a", "a", "a", "a", "a", "a", "a"]})),
            place(at, "variety"),
            "count",
        ),
        (consensus(json!({"compare": {"none": ["/path"]}})), place(at, "compare/none"), "tool_exists"),
        (consensus(json!({"compare": {"look": []}})), place(at, "compare/look"), "pointer"),
        (consensus(json!({"compare": {"look": ["path"]}})), place(at, "compare/look/0"), "pointer"),
        (consensus(json!({"compare": {"look": ["/path", "/none"]}})), place(at, "compare/look/1"), "field_exists"),
    ]
}

#[test]
fn votes_for_risks_and_tools_are_checked() {
    refused(&votes());
}

/// What remains: places that the small bundle does not have.
fn others() -> Vec<Case> {
    let tool = |patch: Value| json!({"tools": {"run": patch}});
    let spare = json!({"description": "x", "venue": "client", "parameters": {}});
    vec![
        (json!({"tools": many("x", 510, &spare)}), "/tools", "count"),
        (json!({"profiles": many("x", 511, &json!(["look"]))}), "/profiles", "count"),
        (json!({"tools": {"toolgate.mine": spare}}), "/tools/toolgate.mine", "reserved"),
        (json!({"models": {"real": {"api_key_env": "KEY"}}}), "/models/real/api_key_env", "secret_name"),
        (
            tool(json!({"executor": {"http": {"bearer_env": "KEY"}}})),
            "/tools/run/executor/http/bearer_env",
            "secret_name",
        ),
        (
            json!({"policies": {"lists": {"never": {"on": {"tools": ["none"]}}}}}),
            "/policies/lists/never/on/tools",
            "tool_exists",
        ),
        (json!({"profiles": {"long": {"approval": {"approvers": 0}}}}), "/profiles/long/approval/approvers", "range"),
        (json!({"profiles": {"long": {"approval": {"approvers": 9}}}}), "/profiles/long/approval/approvers", "range"),
        (json!({"profiles": {"long": {"approval": {"remind_ms": 999}}}}), "/profiles/long/approval/remind_ms", "range"),
        (
            json!({"profiles": {"long": {"prompt": {"before": "{{nothing}}"}}}}),
            "/profiles/long/prompt/before",
            "prompt_value",
        ),
        (
            json!({"profiles": {"long": {"harness": {"max_output_schema_failures": 0}}}}),
            "/profiles/long/harness/max_output_schema_failures",
            "range",
        ),
        (
            json!({"profiles": {"long": {"summarize": {"model": "none"}}}}),
            "/profiles/long/summarize/model",
            "model_exists",
        ),
        (
            json!({"profiles": {"long": {"summarize": {"max_bytes": 99}}}}),
            "/profiles/long/summarize/max_bytes",
            "range",
        ),
        (json!({"models": {"real": {"max_input_tokens": null}}}), "/profiles/long/summarize", "summary_due"),
        (json!({"profiles": {"long": {"prompt": {"after": "{{ }}"}}}}), "/profiles/long/prompt/after", "prompt_value"),
    ]
}

#[test]
fn other_places_are_checked() {
    refused(&others());
}

/// The string literals of the checks: paths, rules and what they say.
fn literals() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bundle");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder.join("check")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.push(folder.join("check.rs"));
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let code: String = text
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .fold(String::new(), |code, line| code + line + "\n");
        let (mut literal, mut escaped): (Option<String>, bool) = (None, false);
        for c in code.chars() {
            match (&mut literal, c) {
                (Some(text), _) if escaped => {
                    text.push_str(if c == '"' { "\"" } else { "\\\n" });
                    escaped = false;
                }
                (Some(_), '\\') => escaped = true,
                (Some(text), '"') => {
                    let joined = text.split("\\\n").map(str::trim_start).collect();
                    found.push((path.clone(), joined));
                    literal = None;
                }
                (Some(text), _) => text.push(c),
                (None, '"') => literal = Some(String::new()),
                (None, _) => {}
            }
        }
    }
    found
}

/// The fixed parts of a format string, in their order.
fn fixed(template: &str) -> Vec<String> {
    let (mut parts, mut inside) = (vec![String::new()], false);
    let mut chars = template.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '}' if inside => inside = false,
            _ if inside => {}
            '{' if chars.peek() != Some(&'{') => {
                inside = true;
                parts.push(String::new());
            }
            _ => {
                if matches!(c, '{' | '}') {
                    chars.next();
                }
                parts.last_mut().unwrap().push(c);
            }
        }
    }
    parts
}

/// Whether a text is what a format string can give. A place may be a step on the way to the fault.
fn gives(template: &str, text: &str) -> bool {
    let parts = fixed(template);
    let mut rest = text;
    for (place, part) in parts.iter().enumerate() {
        let last = place + 1 == parts.len();
        let found = if last && !text.starts_with('/') {
            rest.strip_suffix(part.as_str()).map(str::len)
        } else {
            rest.find(part.as_str())
        };
        let Some(at) = found else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || (text.starts_with('/') && (rest.starts_with('/') || template.ends_with('}')))
}

/// A check that no case reaches is one that nobody would miss.
#[test]
fn no_check_is_without_a_test() {
    let tables = [budgets(), hooks(), termination(), votes(), others(), model_faults::cases()];
    let mut faults: Vec<BundleFault> = bundles::faults();
    faults.extend(tables.iter().flatten().filter_map(|(patch, _, _)| load(patch).err()).flatten());
    let seen = |literal: &str| {
        faults.iter().any(|fault| {
            fault.detail == literal || gives(literal, if literal.contains(' ') { &fault.detail } else { &fault.path })
        })
    };
    // What a check compares with, or puts together.
    let compared = ["http://", "https://", "/properties/{}", "/properties/{token}", "{place}/type", "/tools/{id}/"];
    let mut unseen = BTreeSet::new();
    let mut count = 0;
    for (path, literal) in literals() {
        let said = literal.contains([' ', '/']) && literal.contains(|c: char| c.is_alphabetic());
        if said && !compared.contains(&literal.as_str()) {
            count += 1;
            if !seen(&literal) {
                unseen.insert(format!("{}: {literal}", path.file_name().unwrap().to_string_lossy()));
            }
        }
    }
    assert!(count > 100, "{count} literals are found");
    assert!(unseen.is_empty(), "no case gives these:\n{}", unseen.into_iter().collect::<Vec<_>>().join("\n"));
}
