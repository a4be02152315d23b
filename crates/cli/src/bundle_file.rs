//! Reads a bundle from a file, JSON or YAML, and checks it. What is not here: the rules (core's `bundle`).

use std::path::Path;

use toolgate_core::bundle::Bundle;
use toolgate_core::json::Json;

use crate::failure::CommandError;

/// Largest bundle file, in bytes.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Reads and checks a file. Every fault is named with file, place and rule.
pub(crate) fn read(path: &Path) -> Result<Bundle, CommandError> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| CommandError::new(format!("`{}` cannot be read: {error}", path.display())))?;
    parse(&path.display().to_string(), &text)
}

/// Checks a text; `name` is what errors call it.
pub(crate) fn parse(name: &str, text: &str) -> Result<Bundle, CommandError> {
    if text.len() > MAX_BYTES {
        return Err(CommandError::new(format!("`{name}` has {} bytes; at most {MAX_BYTES}", text.len())));
    }
    let json = to_json(name, text)?;
    Bundle::load(&json).map_err(|faults| {
        let lines: Vec<String> = faults.iter().map(|fault| format!("  {name}{fault}")).collect();
        CommandError::new(format!("`{name}` is refused:\n{}", lines.join("\n")))
    })
}

/// JSON as it is, so that its own reader names its faults; everything else is read as YAML.
fn to_json(name: &str, text: &str) -> Result<String, CommandError> {
    if text.trim_start().starts_with('{') {
        return Ok(text.to_owned());
    }
    let value: serde_json::Value = serde_saphyr::from_str(text)
        .map_err(|error| CommandError::new(format!("`{name}` is neither JSON nor YAML: {error}")))?;
    Ok(Json::from_value(&value).as_str().to_owned())
}
