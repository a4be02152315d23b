//! `toolgate lint`: the form of its lines, its exit codes, and the governed registry that has nothing left open.

use std::path::{Path, PathBuf};
use std::process::Output;

use serde_json::Value;
use tempfile::TempDir;

use crate::program::run;

/// A file of the repository's `config`.
pub(crate) fn config(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config").join(name)
}

fn lint(file: &Path, options: &[&str]) -> (Option<i32>, String) {
    let file = file.display().to_string();
    let Output { status, stdout, stderr } = run(&[&["lint", &file], options].concat());
    (status.code(), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

fn written(dir: &TempDir, text: &str) -> PathBuf {
    let path = dir.path().join("bundle.yaml");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_governed_registry_has_no_free_form_tool() {
    let path = config("relayops.yaml");
    let (code, text) = lint(&path, &["--deny-warnings"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.ends_with(": 0 errors, 0 warnings\n"), "{text}");

    // The same registry with one tool that takes any text, under a name that says nothing of the kind.
    let good = std::fs::read_to_string(&path).unwrap();
    let free = "  look_at_report:\n    {description: Shows a report., venue: server, class: read, risk: low, timeout_ms: 1000,\n     result: {type: object}, executor: {builtin: echo}, parameters: {type: object, properties: {which: {type: string}}}}\nmodels:\n";
    let dir = TempDir::new().unwrap();
    let bad = good.replacen("models:\n", free, 1).replacen(
        "[classify_document, propose_extraction]",
        "[classify_document, propose_extraction, look_at_report]",
        1,
    );
    let path = written(&dir, &bad);
    let (code, text) = lint(&path, &[]);
    assert_eq!(code, Some(1), "{text}");
    let line = format!("{}:/tools/look_at_report/parameters: error free_form_argument: ", path.display());
    assert!(text.contains(&line) && text.ends_with(": 1 errors, 0 warnings\n"), "{text}");
}

#[test]
fn warnings_fail_only_where_they_are_denied() {
    let dir = TempDir::new().unwrap();
    let good = std::fs::read_to_string(config("relayops.yaml")).unwrap();
    let path = written(&dir, &good.replacen("    risk: low\n", "", 1));
    let (code, text) = lint(&path, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(":/tools/classify_document: warning contract_risk: "), "{text}");
    assert_eq!(lint(&path, &["--deny-warnings"]).0, Some(1));
    let (code, text) = lint(&path, &["--json"]);
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &report["errors"], &report["warnings"]), (Some(0), &Value::from(0), &Value::from(1)));
    assert_eq!(report["findings"][0]["rule"], "contract_risk");
    assert_eq!(report["findings"][0]["severity"], "warning");
    assert_eq!(report["findings"][0]["path"], "/tools/classify_document");
}

#[test]
fn faults_are_findings_and_files_that_cannot_be_read_are_not() {
    let dir = TempDir::new().unwrap();
    let good = std::fs::read_to_string(config("relayops.yaml")).unwrap();
    let path = written(
        &dir,
        &good.replacen("default_harness: {max_steps: 6, max_tool_calls: 6, deadline_ms: 30000}\n", "", 1),
    );
    let (code, text) = lint(&path, &[]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains(":/profiles/agent: error bounds: "), "{text}");
    for text in ["{\"version\": 1,", "version: [1", ""] {
        let (code, said) = lint(&written(&dir, text), &[]);
        assert!(code == Some(2) || text.is_empty(), "{text:?}: {said}");
        assert_ne!(code, Some(0));
    }
    assert_eq!(lint(Path::new("/nowhere/at/all.yaml"), &[]).0, Some(2));
    let (code, text) = lint(&written(&dir, &"#".repeat(1024 * 1024 + 1)), &[]);
    assert!(code == Some(2) && text.contains("at most 1048576"), "{text}");
}

#[test]
fn words_that_look_like_booleans_are_words() {
    let dir = TempDir::new().unwrap();
    let good = std::fs::read_to_string(config("relayops.yaml")).unwrap();
    for word in ["yes", "on", "no", "Y"] {
        let path = written(&dir, &good.replacen("requires_approval: true", &format!("requires_approval: {word}"), 1));
        let (code, text) = lint(&path, &[]);
        assert_eq!(code, Some(1), "{word}: {text}");
        assert!(text.contains(":/tools/approve_document/requires_approval: error shape: "), "{text}");
    }
}
