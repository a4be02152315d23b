//! `toolgate policy`: case files and examples in the form of continuous integration, and one call decided and explained.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::lint::config;
use crate::program::run;

fn policy(arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["policy"], arguments].concat());
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

fn relayops() -> String {
    config("relayops.yaml").display().to_string()
}

fn file(dir: &TempDir, name: &str, text: &str) -> String {
    let path: PathBuf = dir.path().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn the_sample_cases_pass() {
    let cases = config("relayops.cases.yaml").display().to_string();
    let dir = TempDir::new().unwrap();
    let junit = dir.path().join("results.xml");
    let (code, text) = policy(&["test", &relayops(), &cases, "--junit", &junit.display().to_string()]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with("11 passed, 0 failed\n") && !text.contains("FAIL"), "{text}");
    assert!(text.contains("/profiles/agent/examples/1: run_shell expects reject:unknown_tool\n"), "{text}");
    let xml = std::fs::read_to_string(junit).unwrap();
    assert!(
        xml.contains("tests=\"11\" failures=\"0\"") && xml.contains("what cannot be read is not repaired"),
        "{xml}"
    );
}

#[test]
fn a_case_fails_with_what_it_got() {
    let dir = TempDir::new().unwrap();
    let cases = file(
        &dir,
        "cases.json",
        r#"{"cases": [
            {"name": "wrong", "profile": "agent", "expect": "allow", "call": {"tool": "approve_document", "args": {"document_id": "doc_1"}}},
            {"name": "other rule", "profile": "agent", "expect": "reject", "rule": "nobody",
                "call": {"tool": "propose_extraction", "args": {"document_id": "doc_1", "idempotency_key": "e", "fields": {"invoice_id": "A", "currency": "EUR"}}}},
            {"name": "untrue past", "profile": "workflow", "expect": "allow", "call": {"tool": "classify_document"},
                "earlier": [{"tool": "approve_document", "args": {"document_id": "doc_1"}}]},
            {"name": "bad result", "profile": "workflow", "expect": "allow", "call": {"tool": "classify_document"},
                "earlier": [{"tool": "classify_document", "args": {"document_id": "doc_1", "idempotency_key": "c"}, "result": "text"}]},
            {"name": "too long a past", "profile": "agent", "expect": "allow", "call": {"tool": "classify_document"}, "earlier": [
                {"tool": "a", "outcome": "rejected"}, {"tool": "b", "outcome": "rejected"}]}
        ]}"#,
    );
    let (code, text) = policy(&["test", &relayops(), &cases]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("wrong: must get allow, gets reject:needs_human_approval"), "{text}");
    assert!(
        text.contains(
            "other rule: must get reject by rule `nobody`, gets reject:sequence_rule by rule `classified_first`"
        ),
        "{text}"
    );
    assert!(
        text.contains("untrue past: earlier call 0 (`approve_document`) is decided `tool_not_allowlisted`"),
        "{text}"
    );
    assert!(text.contains("bad result: earlier call 0 (`classify_document`) ends `failed`: "), "{text}");
    assert!(text.contains("too long a past: the run ends (unknown_tool) before"), "{text}");
    assert!(text.ends_with("5 passed, 5 failed\n"), "{text}");
}

#[test]
fn an_example_that_fails_is_a_case_that_fails() {
    let dir = TempDir::new().unwrap();
    let good = std::fs::read_to_string(config("relayops.yaml")).unwrap();
    let bad = good.replacen("reject:unknown_tool", "allow", 1).replacen("deny:classified_first", "allow", 1);
    let bundle = file(&dir, "bundle.yaml", &bad);
    let cases = config("relayops.cases.yaml").display().to_string();
    let (code, text) = policy(&["test", &bundle, &cases]);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("FAIL  ") && text.contains("/policies/examples/0: propose_extraction expects allow: must get"),
        "{text}"
    );
    assert!(text.contains("/profiles/agent/examples/1: run_shell expects allow: expected `allow`"), "{text}");
    assert!(text.ends_with("9 passed, 2 failed\n"), "{text}");
}

#[test]
fn what_cannot_be_read_is_not_a_failure() {
    let dir = TempDir::new().unwrap();
    let unknown =
        file(&dir, "a.yaml", "cases:\n  - {name: x, profile: agent, call: {tool: t}, expect: allow, typo: 1}\n");
    let (code, text) = policy(&["test", &relayops(), &unknown]);
    assert!(code == Some(2) && text.contains("unknown field `typo`") && text.contains("`/cases/0/typo`"), "{text}");
    let wrong =
        file(&dir, "b.yaml", "cases:\n  - {name: x, profile: agent, call: {tool: t}, expect: reject:nothing}\n");
    let (code, text) = policy(&["test", &relayops(), &wrong]);
    assert!(code == Some(2) && text.contains("`nothing` is no reason code"), "{text}");
    for (cases, place) in [
        (r#"{"cases": [["x", "agent"]]}"#, "/cases/0"),
        (r#"{"cases": [{"name": "x", "expect": "allow", "call": ["t", {}]}]}"#, "/cases/0/call"),
        (
            r#"{"cases": [{"name": "x", "expect": "allow", "call": {"tool": "t"},
                "earlier": [{"tool": "t", "outcome": {"ok": null}}]}]}"#,
            "/cases/0/earlier/0/outcome",
        ),
    ] {
        let listed = file(&dir, "list.json", cases);
        let (code, text) = policy(&["test", &relayops(), &listed]);
        assert!(code == Some(2) && text.contains(&format!("at `{place}`: ")), "{cases}: {text}");
    }
    let refused = file(&dir, "c.yaml", "version: 1\nprofiles: {}\nmodels: {}\n");
    assert_eq!(policy(&["test", &refused]).0, Some(2));
    assert_eq!(policy(&["test", "/nowhere.yaml"]).0, Some(2));
}

#[test]
fn one_call_is_decided_and_explained() {
    let bundle = relayops();
    let fields = r#"{"document_id":"doc_1","idempotency_key":"e1","fields":{"invoice_id":"A","currency":"EUR"}}"#;
    let call = ["try", &bundle, "--profile", "agent", "--tool", "propose_extraction", "--args", fields];
    let (code, text) = policy(&call);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\ndecision: reject sequence_rule, ") || text.starts_with("call: "), "{text}");
    assert!(text.contains(", by the policy rule `classified_first` (sequence_rule)\n"), "{text}");
    let dir = TempDir::new().unwrap();
    let earlier = file(
        &dir,
        "earlier.yaml",
        "- {tool: classify_document, args: {document_id: doc_1, idempotency_key: c1}, result: {kind: invoice}}\n",
    );
    let (code, text) = policy(&[&call[..], &["--earlier", &earlier, "--user", "Read it"]].concat());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("\ndecision: allow, ") && text.contains("\ncause: every layer let it pass\n"), "{text}");
    let (code, text) = policy(&["try", &bundle, "--profile", "nobody", "--tool", "t"]);
    assert!(code == Some(1) && text.contains("unknown_profile"), "{text}");
    for (args, why) in [
        ("{\"document_id\":\n  'doc_1'}", "keys and strings need double quotes at line 2 column 3\n"),
        (
            "{\"document_id\":",
            "not valid JSON: the text ends inside the value (EOF while parsing a value) at line 1 column 15\n",
        ),
        ("{\"a\":1,\"a\":2}", " at line 1 column 10\n"),
        ("[1]", "are no JSON object\n"),
    ] {
        let (code, text) =
            policy(&["try", &bundle, "--profile", "agent", "--tool", "classify_document", "--args", args]);
        assert!(code == Some(0) && text.contains("\ndecision: reject malformed"), "{text}");
        assert!(text.contains("\ntool: `classify_document`, which was not looked for\n"), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix("change: the arguments ")).unwrap();
        assert!(format!("{line}\n").ends_with(why), "{line}");
    }
    let (_, text) = policy(&["try", &bundle, "--profile", "agent", "--tool", "nothing"]);
    assert!(text.contains("\ntool: `nothing`, which does not exist\narguments: {}\n"), "{text}");
    assert!(!Path::new(&bundle).with_extension("xml").exists());
}
