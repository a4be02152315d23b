//! Reads a bundle from a file, JSON or YAML, and checks it. What is not here: the rules (core's `bundle`).

use std::path::Path;

use serde::de::DeserializeOwned;
use toolgate_core::bundle::{Bundle, BundleFault};
use toolgate_core::json::Json;

use crate::failure::CommandError;

/// Largest bundle file, in bytes: what a server takes as the body of a request (`docs/API.md`).
const MAX_BYTES: usize = 1024 * 1024;

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BundleFileError {
    /// The file is not there, too large, or neither JSON nor YAML.
    #[error("{0}")]
    Unreadable(String),
    /// It is read and refused.
    #[error("`{name}` is refused:\n{}", listed(.name, .faults))]
    Refused {
        /// What the file is called.
        name: String,
        /// Every fault.
        faults: Vec<BundleFault>,
    },
}

impl From<BundleFileError> for CommandError {
    fn from(error: BundleFileError) -> Self {
        Self::new(error.to_string())
    }
}

fn listed(name: &str, faults: &[BundleFault]) -> String {
    let lines: Vec<String> = faults.iter().map(|fault| format!("  {name}:{fault}")).collect();
    lines.join("\n")
}

/// Reads and checks a file. Every fault is named with file, place and rule.
pub(crate) fn read(path: &Path) -> Result<Bundle, BundleFileError> {
    parse(&path.display().to_string(), &text_of(path)?)
}

/// The text of a file, within the limit.
pub(crate) fn text_of(path: &Path) -> Result<String, BundleFileError> {
    let name = path.display();
    let unreadable = |error| BundleFileError::Unreadable(format!("`{name}` cannot be read: {error}"));
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_BYTES as u64 {
        return Err(too_large(&name.to_string(), size));
    }
    std::fs::read_to_string(path).map_err(unreadable)
}

fn too_large(name: &str, size: u64) -> BundleFileError {
    BundleFileError::Unreadable(format!("`{name}` has {size} bytes; at most {MAX_BYTES}, as a server takes"))
}

/// Checks a text; `name` is what errors call it.
pub(crate) fn parse(name: &str, text: &str) -> Result<Bundle, BundleFileError> {
    let json = to_json(name, text)?;
    Bundle::load(&json).map_err(|faults| match faults.as_slice() {
        // The reader's own fault means that there was no JSON to judge.
        [only] if only.rule == "json" => BundleFileError::Unreadable(format!("`{name}` is no JSON: {}", only.detail)),
        _ => BundleFileError::Refused { name: name.to_owned(), faults },
    })
}

/// JSON as it is, so that its own reader names its faults; everything else is read as YAML.
pub(crate) fn to_json(name: &str, text: &str) -> Result<String, BundleFileError> {
    if text.len() > MAX_BYTES {
        return Err(too_large(name, text.len() as u64));
    }
    if text.trim_start().starts_with('{') {
        return Ok(text.to_owned());
    }
    let value: serde_json::Value = from_yaml(name, text)?;
    let json = Json::from_value(&value).as_str().to_owned();
    if json.len() > MAX_BYTES {
        return Err(too_large(name, json.len() as u64));
    }
    Ok(json)
}

/// YAML, of which only `true` and `false` are booleans: `no`, `on` and `y` are the words they look like.
pub(crate) fn from_yaml<T: DeserializeOwned>(name: &str, text: &str) -> Result<T, BundleFileError> {
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| BundleFileError::Unreadable(format!("`{name}` is neither JSON nor YAML: {error}")))
}
