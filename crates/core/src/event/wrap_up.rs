//! The fact that a run has used up its steps and gets one turn to finish in.

use serde::{Deserialize, Serialize};

/// See [`super::Event::WrapUpStarted`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WrapUpStarted {
    /// The run.
    pub run: u32,
    /// The step, one more than the run's bound.
    pub step: u32,
}
