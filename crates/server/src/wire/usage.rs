//! The tenant's counters as callers see them. What is not here: counting (the ledger).

use serde::Serialize;
use toolgate_core::time::Timestamp;
use toolgate_store::Usage;
use utoipa::ToSchema;

use super::time_text;

/// One counter of the tenant in one window.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct CounterUsage {
    /// The counter: `budget.` and what it counts, or `limit.count.` or `limit.sum.` and the rule.
    #[schema(example = "budget.cost_microusd")]
    pub counter: String,
    /// When its window began; null for one that counts for ever.
    pub window_start: Option<String>,
    /// What was spent or is set aside, in the counter's own unit.
    pub used: u64,
}

impl From<&Usage> for CounterUsage {
    fn from(usage: &Usage) -> Self {
        let start = Some(usage.window_start).filter(|start| *start != Timestamp(0));
        Self { counter: usage.counter.clone(), window_start: start.map(time_text), used: usage.used }
    }
}
