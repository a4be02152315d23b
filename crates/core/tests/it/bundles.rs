//! Bundles that must not load: each rule refused with its place, and the forms that must load. What is not here: schemas
//! (`schemas`), what a loaded bundle decides (scripts).

use serde_json::{Value, json};
use toolgate_core::bundle::{BUILTINS, Bundle, BundleFault};
use toolgate_core::id::ProfileName;
use toolgate_core::profile::OnReject;

use crate::script::merge;

fn base() -> Value {
    json!({
        "version": 1,
        "models": {"m": {"provider": "scripted", "script": [{"done": 1}]}},
        "tools": {
            "t": {
                "description": "A tool.", "venue": "server", "executor": {"builtin": "echo"}, "tags": ["a"],
                "parameters": {"properties": {"q": {"type": "string"}, "key": {"type": "string"}}}
            },
            "c": {"description": "A tool.", "venue": "client", "parameters": {}}
        },
        "profiles": {"p": {
            "tools": ["t", "c"], "model": "m",
            "harness": {"max_steps": 3, "max_tool_calls": 3, "deadline_ms": 1000}
        }}
    })
}

fn patched(patch: &Value) -> Result<Bundle, Vec<(String, &'static str)>> {
    let mut form = base();
    merge(&mut form, patch);
    Bundle::load(&form.to_string()).map_err(|faults| {
        faults
            .into_iter()
            .map(|fault| {
                assert!(!fault.detail.is_empty(), "{fault} says what is wrong");
                (fault.path, fault.rule)
            })
            .collect()
    })
}

/// Patches of the small bundle, each with the place and the rule of the fault it must give.
fn cases() -> Vec<(Value, &'static str, &'static str)> {
    let profile = |patch: Value| json!({"profiles": {"p": patch}});
    let tool = |patch: Value| json!({"tools": {"t": patch}});
    let model = |patch: Value| json!({"models": {"m": patch}});
    let harness = |patch: Value| json!({"profiles": {"p": {"harness": patch}}});
    vec![
        (json!({"version": 2}), "/version", "version"),
        (json!({"profiles": {"p": null}}), "/profiles", "profile_exists"),
        (json!({"default_model": "none"}), "/default_model", "model_exists"),
        (json!({"identity_keys": ["_-"]}), "/identity_keys", "identity_key"),
        (
            json!({"default_harness": {"max_steps": 0, "max_tool_calls": 1, "deadline_ms": 1}}),
            "/default_harness/max_steps",
            "range",
        ),
        // Models.
        (model(json!({"timeout_ms": 0})), "/models/m/timeout_ms", "range"),
        (model(json!({"timeout_ms": 600_001})), "/models/m/timeout_ms", "range"),
        (model(json!({"retries": 11})), "/models/m/retries", "range"),
        (model(json!({"max_concurrency": 0})), "/models/m/max_concurrency", "range"),
        (model(json!({"script": []})), "/models/m/script", "script"),
        (model(json!({"provider": "openai", "model": "x", "script": []})), "/models/m/base_url", "url"),
        (
            model(json!({"provider": "openai", "base_url": "ftp://x", "model": "x", "script": []})),
            "/models/m/base_url",
            "url",
        ),
        (model(json!({"provider": "openai", "base_url": "http://x", "script": []})), "/models/m/model", "model_id"),
        (model(json!({"provider": "openai", "base_url": "http://x", "model": "x"})), "/models/m/script", "script"),
        // Tools.
        (tool(json!({"id": "other"})), "/tools/t/id", "key_is_name"),
        (tool(json!({"description": ""})), "/tools/t/description", "range"),
        (tool(json!({"description": "x".repeat(4_097)})), "/tools/t/description", "range"),
        (tool(json!({"timeout_ms": 900_001})), "/tools/t/timeout_ms", "range"),
        (tool(json!({"max_output_bytes": 0})), "/tools/t/max_output_bytes", "range"),
        (tool(json!({"executor": null})), "/tools/t/executor", "executor"),
        (tool(json!({"executor": {"builtin": "rm"}})), "/tools/t/executor", "executor"),
        (
            tool(json!({"executor": {"builtin": null, "http": {"url": "file:///etc/passwd"}}})),
            "/tools/t/executor/http/url",
            "url",
        ),
        (tool(json!({"capability": "x"})), "/tools/t/capability", "capability"),
        (json!({"tools": {"c": {"executor": {"builtin": "echo"}}}}), "/tools/c/executor", "executor"),
        (tool(json!({"idempotency_key": "none"})), "/tools/t/idempotency_key", "field_exists"),
        (
            tool(json!({"parameters": {"properties": {"q": {"type": "integer"}}}, "idempotency_key": "q"})),
            "/tools/t/idempotency_key",
            "field_exists",
        ),
        (tool(json!({"redact": ["q"]})), "/tools/t/redact/0", "pointer"),
        (tool(json!({"redact": ["/q", "/pasword"]})), "/tools/t/redact/1", "field_exists"),
        (tool(json!({"redact": ["/key"], "idempotency_key": "key"})), "/tools/t/redact/0", "redact_key"),
        (
            tool(json!({"parameters": {"properties": {"Tenant-Id": {"type": "string"}}}})),
            "/tools/t/parameters",
            "identity_key",
        ),
        (
            tool(json!({"parameters": {"properties": {"x": {"type": "object", "properties": {"approvedBy": {}}}}}})),
            "/tools/t/parameters",
            "identity_key",
        ),
        (json!({"identity_keys": ["q"]}), "/tools/t/parameters", "identity_key"),
        (tool(json!({"parameters": 7})), "/tools/t/parameters", "schema"),
        (tool(json!({"parameters": {"type": "array"}})), "/tools/t/parameters/type", "schema"),
        (
            tool(json!({"parameters": {"properties": {"x": {"$ref": "http://x/"}}}})),
            "/tools/t/parameters/properties/x/$ref",
            "schema",
        ),
        (tool(json!({"result": {"type": "nothing"}})), "/tools/t/result/type", "schema"),
        // Profiles.
        (profile(json!({"name": "other"})), "/profiles/p/name", "key_is_name"),
        (profile(json!({"tools": ["t", "none"]})), "/profiles/p/tools/1", "tool_exists"),
        (profile(json!({"tools": ["t", "t"]})), "/profiles/p/tools/1", "duplicate"),
        (profile(json!({"model": null})), "/profiles/p/model", "model_exists"),
        (profile(json!({"model": "none"})), "/profiles/p/model", "model_exists"),
        (profile(json!({"harness": null})), "/profiles/p", "bounds"),
        (json!({"profiles": {"short": ["t"]}}), "/profiles/short", "bounds"),
        (harness(json!({"max_steps": 0})), "/profiles/p/harness/max_steps", "range"),
        (harness(json!({"max_steps": 201})), "/profiles/p/harness/max_steps", "range"),
        (harness(json!({"max_tool_calls": 10_001})), "/profiles/p/harness/max_tool_calls", "range"),
        (harness(json!({"deadline_ms": 0})), "/profiles/p/harness/deadline_ms", "range"),
        (harness(json!({"deadline_ms": 2_592_000_001_u64})), "/profiles/p/harness/deadline_ms", "range"),
        (harness(json!({"max_model_calls": 0})), "/profiles/p/harness/max_model_calls", "range"),
        (harness(json!({"max_parallel_calls": 17})), "/profiles/p/harness/max_parallel_calls", "range"),
        (harness(json!({"max_consecutive_rejections": 0})), "/profiles/p/harness/max_consecutive_rejections", "range"),
        (harness(json!({"max_parse_failures": 0})), "/profiles/p/harness/max_parse_failures", "range"),
        (harness(json!({"repeat_limit": 0})), "/profiles/p/harness/repeat_limit", "range"),
        (profile(json!({"approval": {"expires_ms": 999}})), "/profiles/p/approval/expires_ms", "range"),
        (
            profile(json!({"on_reject": {"cross_tenant_denied": "feedback"}})),
            "/profiles/p/on_reject/cross_tenant_denied",
            "always_ends",
        ),
        (
            profile(json!({"on_reject": {"needs_human_approval": "end"}})),
            "/profiles/p/on_reject/needs_human_approval",
            "approval_mode",
        ),
        (
            profile(json!({"approval": {"mode": "end"}, "on_reject": {"needs_human_approval": "feedback"}})),
            "/profiles/p/on_reject/needs_human_approval",
            "approval_mode",
        ),
        (
            profile(json!({"approval": {"mode": "end"}, "consensus": {"n": 2, "k": 2, "on_no_consensus": "escalate"}})),
            "/profiles/p/consensus/on_no_consensus",
            "approval_mode",
        ),
        (profile(json!({"consensus": {"n": 10, "k": 1}})), "/profiles/p/consensus/n", "range"),
        (profile(json!({"consensus": {"n": 2, "k": 3}})), "/profiles/p/consensus/k", "range"),
        (profile(json!({"consensus": {"n": 2, "k": 0}})), "/profiles/p/consensus/k", "range"),
        (profile(json!({"consensus": {"n": 2, "k": 2, "retries": 11}})), "/profiles/p/consensus/retries", "range"),
        (
            profile(json!({"consensus": {"n": 2, "k": 2, "models": ["m", "none"]}})),
            "/profiles/p/consensus/models/1",
            "model_exists",
        ),
        (
            profile(json!({"consensus": {"n": 3, "k": 2}, "harness": {"max_model_calls": 2}})),
            "/profiles/p/harness/max_model_calls",
            "can_start",
        ),
        (profile(json!({"trace_requirements": {"b": 1}})), "/profiles/p/trace_requirements/b", "reachable"),
        (profile(json!({"trace_requirements": {"a": 4}})), "/profiles/p/trace_requirements/a", "reachable"),
        (
            profile(json!({"trace_requirements": {"a": 1}, "harness": {"max_steps": 1}})),
            "/profiles/p/trace_requirements",
            "reachable",
        ),
        (profile(json!({"output_schema": {"type": 7}})), "/profiles/p/output_schema/type", "schema"),
        (
            profile(json!({"examples": [{"propose": {"tool": "t"}, "expect": "maybe"}]})),
            "/profiles/p/examples/0/expect",
            "example",
        ),
        (
            profile(json!({"examples": [{"propose": {"tool": "t"}, "expect": "reject:nothing"}]})),
            "/profiles/p/examples/0/expect",
            "example",
        ),
        (
            profile(json!({"examples": [{"propose": {"tool": "t"}, "expect": "escalate"}]})),
            "/profiles/p/examples/0",
            "example",
        ),
        // Classification.
        (
            json!({"classification": {"model": "none", "rules": {"l": {"profile": "p"}}}}),
            "/classification/model",
            "model_exists",
        ),
        (json!({"classification": {"rules": {}}}), "/classification/rules", "rule_exists"),
        (
            json!({"classification": {"rules": {"l": {"profile": "none"}}}}),
            "/classification/rules/l/profile",
            "profile_exists",
        ),
        (
            json!({"classification": {"rules": {"l": {"profile": "p", "trace_requirements": {"b": 1}}}}}),
            "/classification/rules/l/trace_requirements/b",
            "reachable",
        ),
        (
            json!({"classification": {"rules": {"l": {"profile": "p"}}, "default": {"profile": "none"}}}),
            "/classification/default/profile",
            "profile_exists",
        ),
        // The shape of the document.
        (json!({"extra": 1}), "/extra", "shape"),
        (tool(json!({"venu": "server"})), "/tools/t/venu", "shape"),
        (tool(json!({"venue": "moon"})), "/tools/t/venue", "shape"),
        (tool(json!({"timeout_ms": "30"})), "/tools/t/timeout_ms", "shape"),
        (tool(json!({"timeout_ms": -1})), "/tools/t/timeout_ms", "shape"),
        (tool(json!({"executor": {"shell": "sh"}})), "/tools/t/executor", "shape"),
        (profile(json!({"harnes": {}})), "/profiles/p/harnes", "shape"),
        (harness(json!({"max_steps": null})), "/profiles/p/harness", "shape"),
        (harness(json!({"deadline_ms": null})), "/profiles/p/harness", "shape"),
        (profile(json!({"tools": "t"})), "/profiles/p/tools", "shape"),
        (profile(json!({"on_reject": {"unknown_reason": "end"}})), "/profiles/p/on_reject", "shape"),
        (json!({"profiles": {"Not A Name": []}}), "/profiles", "shape"),
        (json!({"tools": {"Tool": {}}}), "/tools", "shape"),
    ]
}

/// Every fault of the table, for whoever asks which checks it reaches.
pub(crate) fn faults() -> Vec<BundleFault> {
    let load = |(patch, _, _): (Value, _, _)| {
        let mut form = base();
        merge(&mut form, &patch);
        Bundle::load(&form.to_string()).err().unwrap_or_default()
    };
    cases().into_iter().flat_map(load).collect()
}

#[test]
fn each_rule_is_refused_with_its_place() {
    assert!(patched(&json!({})).is_ok());
    for (patch, path, rule) in cases() {
        let faults = patched(&patch).err().unwrap_or_else(|| panic!("{patch} loads"));
        assert!(
            faults.iter().any(|(at, by)| *by == rule && (at == path || rule == "shape" && at.starts_with(path))),
            "{patch}: expected {path} ({rule}), found {faults:?}"
        );
    }
}

#[test]
fn every_fault_is_reported_at_once() {
    let faults = patched(&json!({
        "default_model": "none",
        "tools": {"t": {"timeout_ms": 0, "capability": "x"}},
        "profiles": {"p": {"harness": {"max_steps": 0}, "tools": ["none"]}}
    }));
    assert_eq!(faults.unwrap_err().len(), 5);
}

#[test]
fn text_is_read_strictly() {
    for (text, rule) in [
        ("", "json"),
        ("{", "json"),
        ("{\"version\":1,\"version\":1,\"profiles\":{},\"models\":{}}", "json"),
        ("{\"version\":1,\"profiles\":{},\"models\":{},}", "json"),
        ("[]", "shape"),
        ("{\"version\":1,\"models\":{}}", "shape"),
    ] {
        let faults = Bundle::load(text).unwrap_err();
        assert_eq!(faults[0].rule, rule, "{text}: {faults:?}");
    }
}

#[test]
fn a_bare_list_of_tools_takes_the_defaults() {
    let bundle = patched(&json!({
        "default_model": "m",
        "default_harness": {"max_steps": 2, "max_tool_calls": 1, "deadline_ms": 9},
        "profiles": {"short": ["t"]}
    }));
    let bundle = bundle.unwrap();
    let short = bundle.profile(&ProfileName::new("short").unwrap()).unwrap();
    assert_eq!(short.harness.as_ref().unwrap().deadline_ms, 9);
    assert_eq!(short.model.as_ref().unwrap().as_str(), "m");
    assert_eq!(short.on_indeterminate, OnReject::End);
}

#[test]
fn examples_are_judged_when_the_bundle_is_loaded() {
    let examples = json!([
        {"propose": {"tool": "t", "args": {"q": "x"}}, "expect": "allow"},
        {"propose": {"tool": "t"}, "expect": "allow"},
        {"propose": {"tool": "c"}, "expect": "allow"},
        {"propose": {"tool": "t", "args": {"q": 1}}, "expect": "reject:schema_invalid"},
        {"propose": {"tool": "T"}, "expect": "reject:unknown_tool"},
        {"propose": {"tool": "t", "args": {"tenant": "x"}}, "expect": "reject:cross_tenant_denied"}
    ]);
    assert!(patched(&json!({"profiles": {"p": {"examples": examples}}})).is_ok());
    let asks = json!({"tools": {"t": {"requires_approval": true}}, "profiles": {"p": {
        "examples": [{"propose": {"tool": "t"}, "expect": "escalate"}]
    }}});
    assert!(patched(&asks).is_ok());
    let ends = json!({"tools": {"t": {"requires_approval": true}}, "profiles": {"p": {
        "approval": {"mode": "end"},
        "examples": [{"propose": {"tool": "t"}, "expect": "reject:needs_human_approval"}]
    }}});
    assert!(patched(&ends).is_ok());
}

#[test]
fn a_bundle_is_named_by_what_it_says() {
    let one = Bundle::load(&base().to_string()).unwrap();
    let other_spelling = serde_json::to_string_pretty(&base()).unwrap();
    assert_eq!(Bundle::load(&other_spelling).unwrap().digest(), one.digest());
    let changed = patched(&json!({"tools": {"t": {"description": "Another tool."}}})).unwrap();
    assert_ne!(changed.digest(), one.digest());
    let versions = |bundle: &Bundle| bundle.tools().map(|tool| tool.version).collect::<Vec<_>>();
    assert_eq!(versions(&changed)[0], versions(&one)[0], "`c` did not change");
    assert_ne!(versions(&changed)[1], versions(&one)[1]);
    assert_eq!(Bundle::load(one.source().as_str()).unwrap().digest(), one.digest());
}

#[test]
fn every_builtin_may_be_named() {
    for name in BUILTINS {
        assert!(patched(&json!({"tools": {"t": {"executor": {"builtin": name}}}})).is_ok(), "{name}");
    }
}

#[test]
fn too_many_entries_are_refused() {
    let tools: serde_json::Map<String, Value> =
        (0..513).map(|n| (format!("x{n}"), json!({"description": "x", "venue": "client", "parameters": {}}))).collect();
    let faults = patched(&json!({"tools": tools})).unwrap_err();
    assert!(faults.contains(&("/tools".to_owned(), "count")), "{faults:?}");
    let profiles: serde_json::Map<String, Value> = (0..513).map(|n| (format!("x{n}"), json!(["t"]))).collect();
    let faults = patched(&json!({"profiles": profiles})).unwrap_err();
    assert!(faults.contains(&("/profiles".to_owned(), "count")), "{faults:?}");
}
