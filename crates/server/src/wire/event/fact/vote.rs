//! Votes in the public form.

use schemars::JsonSchema;
use serde::Serialize;
use utoipa::ToSchema;

/// A tool asks for a larger vote than the round's: more ballots are asked for, and nothing is decided before they are in.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct VoteWidened {
    /// The round.
    pub round: u32,
    /// The vote so far.
    pub from: ElectorateView,
    /// The vote that is held instead.
    pub to: ElectorateView,
    /// The tool.
    pub tool: String,
    /// Where the profile asks for it: `tool` or `risk`.
    pub why: &'static str,
}

/// Who votes, and what it takes to win.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ElectorateView {
    /// Ballots.
    pub n: u32,
    /// `first`, `k_of_n`, `plurality`, `majority`, `supermajority` or `unanimous`.
    pub rule: &'static str,
    /// Ballots that must agree.
    pub k: u32,
}

/// The ballots of a round were added up.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ConsensusDecided {
    /// The round.
    pub round: u32,
    /// Ballots that were asked for.
    pub n: u32,
    /// `first`, `k_of_n`, `plurality`, `majority`, `supermajority` or `unanimous`.
    pub rule: &'static str,
    /// Ballots needed.
    pub k: u32,
    /// Ballots of equal proposals, largest group first.
    pub groups: Vec<Vec<u32>>,
    /// Ballots without a readable proposal.
    pub unreadable: Vec<u32>,
    /// Ballots that could change nothing any more and were given up. They count as asked.
    pub cancelled: Vec<u32>,
    /// `agreed`, `escalated`, `retry` or `rejected`.
    pub result: &'static str,
    /// The ballot whose proposal stands, when agreed or escalated.
    pub ballot: Option<u32>,
}
