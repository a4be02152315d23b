//! Data that is none is refused with its place.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolgate_dojo::error::DojoError;
use toolgate_dojo::suite::{Suite, filled};

use crate::{folder, office};

/// A folder of this test's own.
fn own(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

#[test]
fn the_fixture_is_read() {
    let suites = Suite::read_all(&folder()).unwrap();
    let names: Vec<&str> = suites.iter().map(|suite| suite.suite.as_str()).collect();
    assert_eq!(names, ["office"]);
    assert!(office().user_tasks.iter().all(|task| task.first_poisoned() == Some(0)));
}

#[test]
fn what_is_no_suite_is_refused() {
    let path = own("refused");
    assert!(matches!(Suite::read_all(&path), Err(DojoError::Empty { .. })));
    assert!(matches!(Suite::read_all(&path.join("gone")), Err(DojoError::Read { .. })));
    let text = fs::read_to_string(folder().join("office.json")).unwrap();
    let good: Value = serde_json::from_str(&text).unwrap();
    let file = path.join("changed.json");
    let read = |change: &dyn Fn(&mut Value)| {
        let mut value = good.clone();
        change(&mut value);
        fs::write(&file, value.to_string()).unwrap();
        Suite::read_all(&path)
    };
    assert!(read(&|_| {}).is_ok());
    assert!(matches!(read(&|value| value["format"] = json!(2)), Err(DojoError::Format { found: 2, .. })));
    let unknown = read(&|value| value["extra"] = json!(1)).unwrap_err().to_string();
    assert!(unknown.contains("changed.json") && unknown.contains("extra"), "{unknown}");
    assert!(matches!(read(&|value| value["tools"] = json!({})), Err(DojoError::Shape { .. })));
}

#[test]
fn marks_are_filled_wherever_they_stand() {
    let value = json!({"HERE": [1, "a HERE b HERE", null, {"x": "HERE"}]});
    assert_eq!(filled(&value, "HERE", "now"), json!({"now": [1, "a now b now", null, {"x": "now"}]}));
}
