//! Facts about what a run may spend: reserved before it is spent, answered by the tenant's ledger, raised by a human.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ApprovalOpened;
use crate::id::CallId;
use crate::json::Json;

/// Tokens and money.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Amount {
    /// Tokens of prompt and answer.
    pub tokens: u64,
    /// Money in millionths of a dollar.
    pub cost_microusd: u64,
}

/// The largest number that one ballot or call counts for: 2^53. What a provider claims beyond it counts as this, so that no
/// sum of a tenant overflows.
pub const MOST: u64 = 1 << 53;

impl Amount {
    /// Both parts, each at most [`MOST`].
    #[must_use]
    pub fn capped(self) -> Self {
        Self { tokens: self.tokens.min(MOST), cost_microusd: self.cost_microusd.min(MOST) }
    }

    /// Both parts added; the largest number stands for everything beyond it.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost_microusd: self.cost_microusd.saturating_add(other.cost_microusd),
        }
    }
}

/// What the ledger is asked to put on one of a tenant's counters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Charge {
    /// The counter: `budget.` and what it counts, or `limit.` and the rule.
    pub counter: String,
    /// Length of the counter's window in milliseconds, which begins at multiples of it since 1970; absent means for ever.
    /// The window is that in which the ledger is asked.
    pub window_ms: Option<u64>,
    /// How much.
    pub amount: u64,
    /// The most that the counter may reach.
    pub limit: u64,
}

/// What was really spent of an earlier reservation; counters not named are 0.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Settlement {
    /// The reservation.
    pub key: String,
    /// Counter and amount.
    pub used: BTreeMap<String, u64>,
}

/// See [`super::Event::BudgetReserved`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetReserved {
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// The round.
    pub round: u32,
    /// The attempt.
    pub attempt: u32,
    /// The most that each missing ballot of the round can cost.
    pub ballots: Vec<BallotBudget>,
    /// What the tenant's ledger must grant before a model is asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub charges: Vec<Charge>,
}

/// What is set aside for a ballot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BallotBudget {
    /// Its number.
    pub ballot: u32,
    /// The most that it can cost.
    pub most: Amount,
}

/// What a reservation is for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// A round of ballots.
    Round {
        /// The run.
        run: u32,
        /// The step.
        step: u32,
        /// The round.
        round: u32,
        /// The attempt.
        attempt: u32,
    },
    /// A call.
    Call {
        /// The call.
        call: CallId,
    },
}

impl Purpose {
    /// The key under which the ledger knows the reservation; unique in the session.
    #[must_use]
    pub fn key(&self) -> String {
        match self {
            Self::Round { run, step, round, attempt } => format!("round-{run}-{step}-{round}-{attempt}"),
            Self::Call { call } => call.to_string(),
        }
    }
}

/// What the ledger answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerAnswer {
    /// Everything was put on the counters.
    Granted,
    /// Nothing was: this counter would pass its limit.
    Refused {
        /// The counter.
        counter: String,
        /// What stands on it.
        used: u64,
        /// Its limit.
        limit: u64,
    },
}

/// See [`super::Event::ReservationAnswered`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationAnswered {
    /// What it was for.
    pub purpose: Purpose,
    /// The answer.
    pub answer: LedgerAnswer,
    /// Earlier reservations that were settled with the same request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settled: Vec<String>,
}

/// See [`super::Event::BudgetSettled`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetSettled {
    /// The reservations.
    pub settled: Vec<String>,
}

/// See [`super::Event::RunPaused`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunPaused {
    /// The run.
    pub run: u32,
    /// The step that cannot begin.
    pub step: u32,
    /// Stands for the pause where lists of approvals name a call.
    pub call: CallId,
    /// The bound.
    pub bound: Bound,
    /// What was spent or reserved.
    pub used: u64,
    /// The bound's value.
    pub limit: u64,
    /// What a human must decide.
    pub approval: ApprovalOpened,
    /// What is asked for, as approvers see it: `{"bound", "from", "to"}`.
    pub content: RaiseContent,
}

/// Content of [`RunPaused`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RaiseContent {
    /// The arguments.
    pub args: Json,
}

/// A bound that a human may raise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Steps of the run.
    MaxSteps,
    /// Model calls of the run.
    MaxModelCalls,
    /// Tokens of the run.
    MaxTokens,
    /// Money of the run.
    MaxCostMicrousd,
    /// Model calls of the session.
    SessionMaxModelCalls,
    /// Tokens of the session.
    SessionMaxTokens,
    /// Money of the session.
    SessionMaxCostMicrousd,
}

impl Bound {
    /// The highest value that a human may raise it to: that which a bundle may name.
    #[must_use]
    pub const fn most(self) -> u64 {
        match self {
            Self::MaxSteps => 200,
            Self::MaxModelCalls => 10_000,
            Self::MaxTokens
            | Self::MaxCostMicrousd
            | Self::SessionMaxModelCalls
            | Self::SessionMaxTokens
            | Self::SessionMaxCostMicrousd => MOST,
        }
    }

    /// The code used in log and API.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::MaxSteps => "max_steps",
            Self::MaxModelCalls => "max_model_calls",
            Self::MaxTokens => "max_tokens",
            Self::MaxCostMicrousd => "max_cost_microusd",
            Self::SessionMaxModelCalls => "session_max_model_calls",
            Self::SessionMaxTokens => "session_max_tokens",
            Self::SessionMaxCostMicrousd => "session_max_cost_microusd",
        }
    }
}

/// A bound and its new value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Raise {
    /// The bound.
    pub bound: Bound,
    /// Its new value.
    pub to: u64,
}
