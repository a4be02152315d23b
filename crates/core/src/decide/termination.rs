//! Termination rules: a run ends once a named condition on its calls holds.

use super::Draft;
use crate::event::CallEnd;
use crate::id::ToolId;
use crate::output::OutcomeStatus;
use crate::profile::{EndWhen, EvidenceCount, OutcomeCount, RefusedCount};
use crate::reason::{Ending, RejectReason};
use crate::session::{CallState, Session};

/// What a condition may read of a call that is over.
struct Over<'a> {
    tool: Option<&'a ToolId>,
    name: &'a str,
    end: CallEnd,
    reason: Option<RejectReason>,
}

impl Draft<'_> {
    /// Ends the run if a rule of its profile holds, and says whether it did.
    pub(super) fn ended_by_rule(&mut self) -> bool {
        let Some(profile) = self.profile().filter(|profile| !profile.end_when.is_empty()) else { return false };
        if self.session.active_run().is_none() {
            return false;
        }
        let Some((name, rule)) = profile.end_when.iter().find(|(_, rule)| holds(&self.session, rule)) else {
            return false;
        };
        let detail = if rule.description.is_empty() {
            format!("the rule `{name}` holds")
        } else {
            format!("the rule `{name}` holds: {}", rule.description)
        };
        self.end_run(Ending::TerminationRule, None, Some(detail));
        true
    }
}

fn holds(session: &Session, rule: &EndWhen) -> bool {
    rule.outcomes.as_ref().is_some_and(|count| outcomes(session, count))
        || rule.refused.as_ref().is_some_and(|count| refused(session, count))
        || rule.evidence.as_ref().is_some_and(|count| evidence(session, count))
}

fn outcomes(session: &Session, count: &OutcomeCount) -> bool {
    let fits = |call: &Over<'_>| {
        call.end == CallEnd::Outcome(count.status) && count.tool.as_ref().is_none_or(|tool| call.tool == Some(tool))
    };
    reached(session, count.at_least, fits)
}

fn refused(session: &Session, count: &RefusedCount) -> bool {
    let fits = |call: &Over<'_>| {
        matches!(call.end, CallEnd::NotExecuted(_) | CallEnd::Outcome(OutcomeStatus::DeniedByClient))
            && count.reason.is_none_or(|reason| call.reason == Some(reason))
            && count.tool.as_ref().is_none_or(|tool| call.name == tool)
    };
    reached(session, count.at_least, fits)
}

fn evidence(session: &Session, count: &EvidenceCount) -> bool {
    session.run.as_ref().is_some_and(|run| run.evidence.get(&count.tag).is_some_and(|have| *have >= count.at_least))
}

fn reached(session: &Session, at_least: u32, fits: impl Fn(&Over<'_>) -> bool) -> bool {
    let run = session.run.as_ref().map_or(0, |run| run.no);
    let past = session.history.iter().filter(|past| past.run == run && !past.replaced).map(|past| Over {
        tool: past.tool_id.as_ref(),
        name: &past.tool,
        end: past.end,
        reason: past.reason,
    });
    let here = session.calls().iter().filter_map(|call| match &call.state {
        CallState::Ended(ended) if ended.replaced_by.is_none() => {
            Some(Over { tool: call.tool.as_ref(), name: &call.tool_text, end: ended.end, reason: call.reason })
        }
        CallState::Ended(_) | CallState::Waiting(_) | CallState::Queued | CallState::Dispatched(_) => None,
    });
    let found = past.chain(here).filter(fits).count();
    found >= usize::try_from(at_least).unwrap_or(usize::MAX)
}
