//! Who sums up earlier steps that do not fit any more. What is not here: when that is (`decide::summary`), and what is
//! asked (`digest`).

use serde::{Deserialize, Serialize};

use crate::id::ModelName;

/// A model that writes summaries.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Summarize {
    /// The model.
    pub model: ModelName,
    /// What it is told besides how to sum up.
    #[serde(default)]
    pub prompt: Option<String>,
    /// The longest summary in bytes, 100 to 100,000; what is longer is cut.
    #[serde(default = "default_bytes")]
    pub max_bytes: u32,
}

const fn default_bytes() -> u32 {
    6_000
}
