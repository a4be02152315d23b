//! When a human is asked, who may answer, and how long the answer may take. What is not here: what an answer leads to
//! (`decide::approval`).

use serde::{Deserialize, Serialize};

/// What happens when a call needs a human.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRules {
    /// Wait for a decision, or end the run with `needs_human_approval`.
    #[serde(default)]
    pub mode: ApprovalMode,
    /// Time to decide in milliseconds, 1,000 to 2,592,000,000; then the call lapses, which is a denial.
    #[serde(default = "default_approval_ms")]
    pub expires_ms: u64,
    /// Different people that must approve, 1 to 8. One denial is enough to deny.
    #[serde(default = "one")]
    pub approvers: u32,
    /// Whoever started the session or spoke in it may approve as well. Off: four eyes see every approval.
    #[serde(default)]
    pub self_approval: bool,
    /// Time after which the log reminds of an open approval, again and again, in milliseconds, 1,000 to 2,592,000,000;
    /// absent means never.
    #[serde(default)]
    pub remind_ms: Option<u64>,
}

impl Default for ApprovalRules {
    fn default() -> Self {
        Self {
            mode: ApprovalMode::Wait,
            expires_ms: default_approval_ms(),
            approvers: 1,
            self_approval: false,
            remind_ms: None,
        }
    }
}

const fn default_approval_ms() -> u64 {
    15 * 60 * 1_000
}

const fn one() -> u32 {
    1
}

/// Wait for a human, or end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalMode {
    /// The call waits; other calls of the step go on.
    #[default]
    Wait,
    /// The run ends with `needs_human_approval`.
    End,
}

/// Which calls a human is asked about besides those whose tool or rule asks; later ones ask more. A session may choose a
/// later one than its profile, never an earlier one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlMode {
    /// None.
    #[default]
    None,
    /// Those of tools whose risk is high.
    Risky,
    /// All.
    All,
}
