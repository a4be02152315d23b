//! One run: its bounds, what it has spent, and what it is doing. What is not here: its calls (`call`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{AwaitedApproval, Call, Spent};
use crate::consensus::Electorate;
use crate::event::{Amount, Bound, Charge, ConsensusDecided, Limits};
use crate::id::{CallId, ModelName, Sha256Digest, Tag};
use crate::json::Json;
use crate::proposal::{Ballot, Usage};
use crate::reason::Ending;
use crate::time::Timestamp;

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Its number, from 1.
    pub no: u32,
    /// The bounds.
    pub limits: Limits,
    /// When it must be over.
    pub deadline_at: Timestamp,
    /// What it is doing.
    pub phase: Phase,
    /// Steps completed.
    pub steps: u32,
    /// Model calls counted, lost ones included.
    pub model_calls: u32,
    /// Tool calls allowed or waiting for approval, not yet refused.
    pub tool_calls: u32,
    /// Steps in a row in which nothing was allowed.
    pub rejections: u32,
    /// Unreadable answers in a row.
    pub parse_failures: u32,
    /// Final answers in a row that did not match the output schema.
    pub schema_failures: u32,
    /// How often each canonical call was proposed.
    pub repeats: BTreeMap<Sha256Digest, u32>,
    /// Successes per tag.
    pub evidence: BTreeMap<Tag, u32>,
    /// Tokens and money spent, lost reservations included.
    pub spent: Amount,
    /// It has used up its steps, and the model gets one turn to finish in.
    pub wrapping_up: bool,
    /// What models said they used in it.
    pub usage: RunUsage,
    /// Pauses so far, each with an approval of its own.
    pub pauses: u32,
    /// Refused reports recorded.
    pub refused_reports: u32,
    /// The final output, once the run is done.
    pub output: Option<Json>,
    /// What ended the run, in a sentence.
    pub detail: Option<String>,
}

impl Run {
    /// Steps that it may take, with the one to finish in.
    #[must_use]
    pub const fn most_steps(&self) -> u32 {
        self.limits.max_steps.saturating_add(if self.wrapping_up { 1 } else { 0 })
    }
}

/// What the models of a run said they used, summed up. What they did not say is in none of these figures, and counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunUsage {
    /// Tokens of prompts.
    pub input_tokens: u64,
    /// Tokens of answers.
    pub output_tokens: u64,
    /// Money in millionths of a dollar, by the models' prices.
    pub cost_microusd: u64,
    /// Answers whose provider left out a figure.
    pub unreported: u32,
}

impl RunUsage {
    /// With one more answer.
    pub(crate) const fn add(&mut self, usage: Usage, cost_microusd: Option<u64>) {
        self.input_tokens = self.input_tokens.saturating_add(known(usage.input_tokens));
        self.output_tokens = self.output_tokens.saturating_add(known(usage.output_tokens));
        self.cost_microusd = self.cost_microusd.saturating_add(known(cost_microusd));
        if usage.input_tokens.is_none() || usage.output_tokens.is_none() {
            self.unreported = self.unreported.saturating_add(1);
        }
    }
}

const fn known(figure: Option<u64>) -> u64 {
    match figure {
        Some(figure) => figure,
        None => 0,
    }
}

/// What a run is doing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Waiting for model answers.
    Asking(Round),
    /// Executing the calls of a step.
    Acting(Step),
    /// Over.
    Ended(Ending),
}

/// A round of ballots.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Round {
    /// The step.
    pub step: u32,
    /// 1, and one more for each retry without consensus.
    pub round: u32,
    /// 1, and one more after each take-over, each larger vote and a summary.
    pub attempt: u32,
    /// Ballots of the vote as it is now.
    pub n: u32,
    /// The larger vote that a tool has asked for.
    pub widened: Option<Electorate>,
    /// Answers so far, by number.
    pub ballots: BTreeMap<u32, Ballot>,
    /// Their numbers in the order in which they came.
    pub arrived: Vec<u32>,
    /// What is set aside for ballots that have not come, by number.
    pub reserved: BTreeMap<u32, Amount>,
    /// What the tenant's ledger was asked to grant for this attempt.
    pub charges: Vec<Charge>,
    /// The ledger has granted it.
    pub granted: bool,
    /// What the ballots of this attempt really cost.
    pub used: Spent,
    /// The run stands still until a human raises a bound.
    pub paused: Option<Box<Pause>>,
    /// Ballots that agreed on the one that stands; 1 without a vote.
    pub agreed: u32,
    /// What the vote came to.
    pub vote: Option<Box<ConsensusDecided>>,
    /// Whether earlier steps are summed up before its models are asked.
    pub summing: Summing,
}

/// What is under way about a summary.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Summing {
    /// Nothing.
    #[default]
    Not,
    /// A model is asked to sum up so many entries of the conversation; nobody else is asked meanwhile.
    Asked {
        /// The model.
        model: ModelName,
        /// How many, from the beginning.
        entries: u32,
    },
    /// It came, or none did; the round asks for no other.
    Over,
}

impl Round {
    /// A round that has yet to be asked.
    #[must_use]
    pub fn new(step: u32, round: u32, n: u32) -> Self {
        Self {
            step,
            round,
            attempt: 1,
            n,
            widened: None,
            ballots: BTreeMap::new(),
            arrived: Vec::new(),
            reserved: BTreeMap::new(),
            charges: Vec::new(),
            granted: false,
            used: Spent::default(),
            paused: None,
            agreed: 1,
            summing: Summing::Not,
            vote: None,
        }
    }

    /// The model that is asked for a summary, and of how many entries.
    #[must_use]
    pub const fn asked_to_sum_up(&self) -> Option<(&ModelName, u32)> {
        match &self.summing {
            Summing::Asked { model, entries } => Some((model, *entries)),
            Summing::Not | Summing::Over => None,
        }
    }

    /// How many answers are awaited now.
    #[must_use]
    pub fn awaited_count(&self) -> u32 {
        if self.asked_to_sum_up().is_some() { 1 } else { self.missing_count() }
    }

    /// Ballots that have yet to come, by number.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        (1..=self.n).filter(|ballot| !self.ballots.contains_key(ballot))
    }

    /// How many those are.
    #[must_use]
    pub fn missing_count(&self) -> u32 {
        u32::try_from(self.missing().count()).unwrap_or(u32::MAX)
    }
}

/// A run that stands at a bound.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// Stands for the pause where lists of approvals name a call.
    pub call: CallId,
    /// The bound.
    pub bound: Bound,
    /// Its value.
    pub limit: u64,
    /// What is asked for, as approvers see it.
    pub args: Json,
    /// The question.
    pub approval: AwaitedApproval,
}

/// A step whose calls have been decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its number, from 1.
    pub no: u32,
    /// How many calls the model asked for; edited ones come on top.
    pub proposed: u32,
    /// Ballots that were asked for it.
    pub ballots: u32,
    /// Ballots that agreed on it.
    pub agreed: u32,
    /// What the vote on it came to, for those who are asked to approve it.
    pub vote: Option<Box<ConsensusDecided>>,
    /// Its calls in order.
    pub calls: Vec<Call>,
    /// Whether anything was allowed, escalated or answered from the record.
    pub any_accepted: bool,
    /// Whether arguments of some call could not be read.
    pub any_malformed: bool,
}
