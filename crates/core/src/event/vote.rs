//! Facts about votes: a round was added up, or asks for more ballots than it began with.

use serde::{Deserialize, Serialize};

use crate::consensus::{Electorate, Rule, Tally};
use crate::id::ToolId;

/// See [`super::Event::ConsensusDecided`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConsensusDecided {
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// The round.
    pub round: u32,
    /// Ballots of the electorate; 0 in logs of rules before version 3, where the tally holds all of them.
    #[serde(default)]
    pub n: u32,
    /// Who wins.
    #[serde(default)]
    pub rule: Rule,
    /// Ballots needed.
    pub k: u32,
    /// How the ballots group, largest group first.
    pub tally: Tally,
    /// Ballots that were asked for and could change nothing any more. They count as asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cancelled: Vec<u32>,
    /// What follows.
    pub result: ConsensusResult,
}

impl ConsensusDecided {
    /// Ballots of the electorate.
    #[must_use]
    pub fn electorate(&self) -> u32 {
        if self.n == 0 { self.tally.counted() } else { self.n }
    }
}

/// What follows from a tally.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConsensusResult {
    /// This ballot's proposal stands for its group.
    Agreed {
        /// The ballot.
        ballot: u32,
    },
    /// The strongest group's proposal waits for a human.
    Escalated {
        /// The ballot.
        ballot: u32,
    },
    /// Another round.
    Retry,
    /// The step is rejected.
    Rejected,
}

/// See [`super::Event::VoteWidened`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteWidened {
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// The round.
    pub round: u32,
    /// The vote so far.
    pub from: Electorate,
    /// The vote that is held instead, over the ballots so far and the missing ones.
    pub to: Electorate,
    /// The tool that asks for it.
    pub tool: ToolId,
    /// Where it does.
    pub why: WidenedBy,
}

/// Where a larger vote is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WidenedBy {
    /// For the tool.
    Tool,
    /// For its risk.
    Risk,
}

impl WidenedBy {
    /// The word used in log and API.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Tool => "tool",
            Self::Risk => "risk",
        }
    }
}
