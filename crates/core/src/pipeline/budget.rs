//! The budget layer: tool calls of the run and the session, and what the tenant's ledger must grant. What is not here:
//! asking the ledger (an effect), money and tokens of models (`decide::budget`).

use serde_json::Value;

use super::{Judge, Stop};
use crate::apply::budget::TOOL_CALLS;
use crate::bundle::Tool;
use crate::event::{Charge, MOST};
use crate::profile::AtLimit;
use crate::reason::RejectReason;
use crate::session::Session;

impl Judge<'_, '_> {
    pub(super) fn budget(&mut self, tool: &Tool, args: &Value) -> Result<(), Stop> {
        if self.situation.session.and_then(Session::active_run).is_some_and(|run| run.wrapping_up) {
            let detail = "the steps of this run are used; its last turn takes a final answer and no calls".to_owned();
            return Err((RejectReason::BudgetExhausted, detail));
        }
        let in_run = (u64::from(self.situation.tool_calls), u64::from(self.situation.limits.max_tool_calls), "run");
        let spent = self.situation.session.map_or(0, |session| session.spent.tool_calls);
        let of_session = self.situation.profile.session_budget.max_tool_calls;
        let bounds = [Some(in_run), of_session.map(|limit| (spent, limit, "session"))];
        if let Some((_, limit, what)) = bounds.into_iter().flatten().find(|(used, limit, _)| used >= limit) {
            let at_limit = self.situation.profile.harness.as_ref().map(|harness| harness.at_limit);
            if at_limit != Some(AtLimit::PauseAndAsk) {
                let detail = format!("all {limit} tool calls of this {what} are used; finish without further calls");
                return Err((RejectReason::BudgetExhausted, detail));
            }
            self.beyond = Some(format!("all {limit} tool calls of this {what} are used; a human must approve more"));
        }
        self.verdict.charges = self.charges(tool, args)?;
        Ok(())
    }

    /// What the ledger must grant: the tenant's tool calls, and each limit that counts this call.
    fn charges(&self, tool: &Tool, args: &Value) -> Result<Vec<Charge>, Stop> {
        let bundle = self.situation.bundle;
        let budget = bundle.tenant_budget();
        let mut charges: Vec<Charge> = Vec::new();
        if let Some(limit) = budget.max_tool_calls {
            charges.push(Charge { counter: TOOL_CALLS.to_owned(), window_ms: budget.window_ms, amount: 1, limit });
        }
        let profile = self.situation.session.and_then(|session| session.profile.as_ref());
        for (name, rule) in bundle.tenant_limits() {
            let counts = rule.profiles.is_empty() || profile.is_some_and(|profile| rule.profiles.contains(profile));
            if !counts || !rule.on.fits(&tool.id, &tool.def) {
                continue;
            }
            if let Some(limit) = rule.max_count {
                let counter = format!("limit.count.{name}");
                charges.push(Charge { counter, window_ms: rule.window_ms, amount: 1, limit });
            }
            if let (Some(limit), Some(pointer)) = (rule.max_sum, &rule.argument) {
                let amount = args.pointer(pointer).and_then(Value::as_u64).filter(|amount| *amount <= MOST);
                let Some(amount) = amount else {
                    let detail = format!("`{name}` adds up `{pointer}`, which must be a whole number from 0 to {MOST}");
                    return Err((RejectReason::CumulativeLimit, detail));
                };
                let counter = format!("limit.sum.{name}");
                charges.push(Charge { counter, window_ms: rule.window_ms, amount, limit });
            }
        }
        Ok(charges)
    }
}
