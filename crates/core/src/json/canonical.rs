//! Writes the canonical text of a JSON value. What is not here: reading.

use serde_json::Value;

pub(super) fn write(value: &Value) -> String {
    value.to_string()
}
