//! The forms of events about what a run may spend. What is not here: the other kinds (`fact`).

use schemars::JsonSchema;
use serde::Serialize;
use utoipa::ToSchema;

use super::ApprovalOpenedView;
use crate::wire::RawJson;

/// Tokens and money.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct AmountView {
    /// Tokens of prompt and answer.
    pub tokens: u64,
    /// Money in millionths of a dollar.
    pub cost_microusd: u64,
}

/// What is put on one of a tenant's counters.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ChargeView {
    /// The counter: `budget.` and what it counts, or `limit.count.` or `limit.sum.` and the rule.
    pub counter: String,
    /// Length of the counter's window in milliseconds; absent means for ever.
    pub window_ms: Option<u64>,
    /// How much.
    pub amount: u64,
    /// The most that the counter may reach.
    pub limit: u64,
}

/// What is set aside for a ballot.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct BallotBudgetView {
    /// Its number.
    pub ballot: u32,
    /// The most that it can cost.
    pub most: AmountView,
}

/// What a round of ballots may cost was set aside.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct BudgetReserved {
    /// The round.
    pub round: u32,
    /// The attempt.
    pub attempt: u32,
    /// The most that each missing ballot can cost.
    pub ballots: Vec<BallotBudgetView>,
    /// What the tenant's ledger must grant before a model is asked.
    pub charges: Vec<ChargeView>,
}

/// The tenant's ledger answered.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct ReservationAnswered {
    /// What it was for: `round-` and its place, or the id of a call.
    pub reservation: String,
    /// `granted` or `refused`.
    pub answer: &'static str,
    /// The counter that would pass its limit, when refused.
    pub counter: Option<String>,
    /// What stands on that counter.
    pub used: Option<u64>,
    /// Its limit.
    pub limit: Option<u64>,
    /// Earlier reservations of which the ledger has taken what was really spent.
    pub settled: Vec<String>,
}

/// The ledger has taken what was really spent.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct BudgetSettled {
    /// The reservations.
    pub settled: Vec<String>,
}

/// The run stands at a bound that a human may raise.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct RunPaused {
    /// The bound, for example `max_steps`.
    pub bound: &'static str,
    /// What was spent or set aside.
    pub used: u64,
    /// The bound's value.
    pub limit: u64,
    /// What a human must decide.
    pub approval: ApprovalOpenedView,
    /// What is asked for.
    pub content: RaiseContent,
}

/// What a paused run asks for.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct RaiseContent {
    /// `bound`, `from` and `to`, as the approval shows them.
    #[schema(value_type = RawJson)]
    pub args: RawJson,
}

/// A bound and its new value.
#[derive(Debug, Clone, Serialize, ToSchema, JsonSchema)]
pub struct RaiseView {
    /// The bound.
    pub bound: &'static str,
    /// Its new value.
    pub to: u64,
}
