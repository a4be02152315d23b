//! Facts about summaries: the conversation has outgrown a model, and another one sums up its earlier steps.

use serde::{Deserialize, Serialize};

use super::Amount;
use crate::id::ModelName;
use crate::input::{Seat, SummaryFailure};
use crate::proposal::Usage;

/// See [`super::Event::SummaryAsked`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryAsked {
    /// The question; its ballot is 0.
    pub seat: Seat,
    /// The model that is asked for it.
    pub model: ModelName,
    /// Entries of the conversation, from its beginning, that it is to stand for; what users said among them stays.
    pub entries: u32,
    /// Answers of models among them, in earlier summaries as well.
    pub answers: u32,
}

/// See [`super::Event::SummaryReceived`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryReceived {
    /// The question it answers.
    pub seat: Seat,
    /// Why it cannot be used; earlier steps are left out then.
    pub fault: Option<SummaryFault>,
    /// What the provider said it spent.
    pub usage: Usage,
    /// The model the provider reported.
    pub model: Option<String>,
    /// What it cost in millionths of a dollar, by the model's prices; absent when the provider did not say what it spent.
    pub cost_microusd: Option<u64>,
    /// What counts against the budgets: what it cost, or what was reserved where that is unknown.
    pub charged: Amount,
    /// What came.
    pub content: SummaryContent,
}

impl SummaryReceived {
    /// What whoever asked the model said of its answer; none in a record that no answer leads to.
    #[must_use]
    pub fn answer(&self) -> Option<Result<String, SummaryFailure>> {
        match (self.fault.filter(|fault| fault.is_reported()), &self.content) {
            (Some(fault), SummaryContent { detail: Some(detail), .. }) => {
                Some(Err(SummaryFailure { fault, detail: detail.clone() }))
            }
            (None, SummaryContent { text: Some(text), .. }) => Some(Ok(text.clone())),
            _ => None,
        }
    }
}

/// Content of [`SummaryReceived`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryContent {
    /// The summary, cut to the length that the profile allows; absent when none came.
    pub text: Option<String>,
    /// Why none came, in a sentence.
    pub detail: Option<String>,
}

/// Why there is no summary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SummaryFault {
    /// No complete answer came.
    Failed,
    /// The answer cannot be read.
    Malformed,
    /// It asks for calls, of which none was offered.
    Calls,
    /// It is empty.
    Empty,
    /// It is no shorter than what it would stand for.
    NotShorter,
}

impl SummaryFault {
    /// The code used in log and API.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Malformed => "malformed",
            Self::Calls => "calls",
            Self::Empty => "empty",
            Self::NotShorter => "not_shorter",
        }
    }

    /// Whether it is said by whoever asked the model; the others are decided.
    #[must_use]
    pub const fn is_reported(self) -> bool {
        matches!(self, Self::Failed | Self::Malformed | Self::Calls)
    }
}
