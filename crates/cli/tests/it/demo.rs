//! `toolgate demo` does the main job and says so; small commands answer as a user expects.

use crate::program::run;

#[test]
fn the_demo_verifies_every_log() {
    let output = run(&["demo"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.trim_end().ends_with("5 of 5 sessions: every log verified\nverified"), "{text}");
    for word in
        ["unknown_tool", "trace_requirements_not_met", "ESCALATE", "approve by", "at the client", "cross_tenant_denied"]
    {
        assert!(text.contains(word), "`{word}` is missing in:\n{text}");
    }
}

#[test]
fn a_bundle_is_checked_without_a_server() {
    let sample = concat!(env!("CARGO_MANIFEST_DIR"), "/../../config/bundle.yaml");
    let output = run(&["apply", "--check", sample]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("bad.json");
    std::fs::write(&file, r#"{"version":1,"models":{},"profiles":{"p":["nothing"]},"colour":"red"}"#).unwrap();
    let output = run(&["apply", "--check", file.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(text.contains("bad.json") && text.contains("colour"), "file and key are named: {text}");
}
