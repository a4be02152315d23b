//! A session does only what its log allows, and the harness notices when it is asked for more.

use serde_json::{Value, json};
use toolgate_core::bundle::Bundle;
use toolgate_core::input::ApprovalDecision;
use toolgate_core::pipeline::Decision;
use toolgate_dojo::configuration::{bundle, profile};
use toolgate_dojo::error::DojoError;
use toolgate_dojo::stage::Stage;
use toolgate_dojo::tier::Tier;

use crate::office;

fn scoped() -> Bundle {
    bundle(&office(), Tier::Scoped).unwrap()
}

fn open(bundle: &Bundle) -> Stage<'_> {
    let office = office();
    let task = office.user_tasks.iter().find(|task| task.id == "tell_ann").unwrap();
    Stage::open(bundle, 9, &profile(task, Tier::Scoped).unwrap(), &task.prompt).unwrap()
}

#[test]
fn an_allowed_call_runs_once_and_the_log_verifies() {
    let bundle = scoped();
    let mut stage = open(&bundle);
    let ruling = stage.propose("list_notes", &json!({})).unwrap();
    assert_eq!(ruling.decision, Decision::Allow);
    let other = stage.run(&ruling, &json!({"x": 1}), &Value::Null, None);
    assert!(matches!(other, Err(DojoError::Stuck(_))), "other arguments do not run");
    stage.run(&ruling, &json!({}), &json!([]), None).unwrap();
    let again = stage.run(&ruling, &json!({}), &json!([]), None);
    assert!(matches!(again, Err(DojoError::Stuck(_))), "nothing runs twice");
    assert!(stage.finish().unwrap() > 5);
}

#[test]
fn a_rejected_call_neither_runs_nor_waits() {
    let bundle = scoped();
    let mut stage = open(&bundle);
    let ruling = stage.propose("water_plants", &json!({})).unwrap();
    assert_eq!(ruling.decision, Decision::Reject);
    assert!(ruling.why.starts_with("tool_not_allowlisted"), "{}", ruling.why);
    assert!(matches!(stage.run(&ruling, &json!({}), &Value::Null, None), Err(DojoError::Stuck(_))));
    assert!(matches!(stage.answer(&ruling, ApprovalDecision::Approve { grant: None }), Err(DojoError::Stuck(_))));
    assert!(stage.finish().is_ok());
}

#[test]
fn a_call_under_way_keeps_the_run_open() {
    let bundle = scoped();
    let mut stage = open(&bundle);
    stage.propose("list_notes", &json!({})).unwrap();
    assert!(matches!(stage.propose("list_notes", &json!({})), Err(DojoError::Stuck(_))));
    assert!(matches!(stage.finish(), Err(DojoError::Stuck(_))));
}

#[test]
fn a_bundle_that_does_not_load_names_its_faults() {
    let mut suite = office();
    suite.tools.iter_mut().for_each(|tool| tool.description.clear());
    let error = bundle(&suite, Tier::Generic).unwrap_err().to_string();
    assert!(
        error.contains("`office` for generic") && error.contains("/tools/get_users_in_channel/description"),
        "{error}"
    );
}
