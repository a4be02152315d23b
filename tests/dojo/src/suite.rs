//! The files that `scripts/dojo/export` writes: tools, user tasks, injection tasks of one suite. What is not here: what
//! is made of them.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use crate::error::DojoError;

/// One suite of tasks.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Suite {
    /// Version of this format; 1.
    pub format: u32,
    /// Its name.
    pub suite: String,
    /// Version of the benchmark.
    pub benchmark: String,
    /// What stands at each injection place of a poisoned output.
    pub mark: String,
    /// Every tool.
    pub tools: Vec<ToolSpec>,
    /// What users ask for.
    pub user_tasks: Vec<UserTask>,
    /// What attackers want.
    pub injection_tasks: Vec<InjectionTask>,
}

/// A tool as its own runtime describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// JSON Schema of its arguments.
    pub parameters: Value,
}

/// What a user asks for, and the calls that do it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserTask {
    /// Its name within the suite.
    pub id: String,
    /// The user's words.
    pub prompt: String,
    /// The calls, in order.
    pub calls: Vec<PlayedCall>,
}

/// What an attacker wants, and the calls that do it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct InjectionTask {
    /// Its name within the suite.
    pub id: String,
    /// What is to happen.
    pub goal: String,
    /// The injected text by kind of attack.
    pub texts: std::collections::BTreeMap<String, String>,
    /// The calls, in order; empty where the benchmark gives the goal alone.
    pub calls: Vec<PlayedCall>,
}

/// A call and what it returned.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlayedCall {
    /// The tool.
    pub tool: String,
    /// The arguments, an object.
    pub args: Value,
    /// What it returned in the clean environment.
    pub output: Value,
    /// Why it failed there.
    pub error: Option<String>,
    /// What it returned with marks at the injection places, if one of them shows in it.
    #[serde(default)]
    pub poisoned: Option<Value>,
}

impl Suite {
    /// Reads one file. Fails if it cannot be read or has another format.
    pub fn read(path: &Path) -> Result<Self, DojoError> {
        let text = fs::read_to_string(path).map_err(|source| DojoError::Read { path: path.to_owned(), source })?;
        let suite: Self =
            serde_json::from_str(&text).map_err(|source| DojoError::Shape { path: path.to_owned(), source })?;
        if suite.format == 1 {
            Ok(suite)
        } else {
            Err(DojoError::Format { path: path.to_owned(), found: suite.format })
        }
    }

    /// Reads every `.json` file of a folder, in the order of their names. Fails if there is none.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>, DojoError> {
        let unreadable = |source| DojoError::Read { path: folder.to_owned(), source };
        let mut paths: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(folder).map_err(unreadable)? {
            let path = entry.map_err(unreadable)?.path();
            if path.extension().is_some_and(|ext| ext == "json") {
                paths.push(path);
            }
        }
        paths.sort();
        if paths.is_empty() {
            return Err(DojoError::Empty { path: folder.to_owned() });
        }
        paths.iter().map(|path| Self::read(path)).collect()
    }
}

impl UserTask {
    /// The place of the first call whose output an attacker has written to.
    #[must_use]
    pub fn first_poisoned(&self) -> Option<usize> {
        self.calls.iter().position(|call| call.poisoned.is_some())
    }
}

/// A value with a text in the place of every mark.
#[must_use]
pub fn filled(value: &Value, mark: &str, text: &str) -> Value {
    match value {
        Value::String(found) => Value::String(found.replace(mark, text)),
        Value::Array(items) => items.iter().map(|item| filled(item, mark, text)).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, item)| (key.replace(mark, text), filled(item, mark, text))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}
