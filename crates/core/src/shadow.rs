//! What rules in shadow would have done, summed over logs: what an owner reads before enforcing them. What is not here:
//! the rules (`toolgate-policy`), the story of one call (`explain`).

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::event::{CallDecided, Event, FindingRecord, Recorded, RunEnded};
use crate::id::CallId;
use crate::pipeline::Decision;

/// What rules in shadow would have done; takes the events of any number of sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShadowReport {
    /// Calls decided.
    pub calls: u64,
    /// Runs ended.
    pub runs: u64,
    /// What each rule found, by id; rules that looked at nothing are not in it.
    pub rules: BTreeMap<Arc<str>, ShadowRule>,
}

/// What one rule in shadow found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShadowRule {
    /// Calls and ends of runs it looked at.
    pub looked_at: u64,
    /// Those it had a remark on and no objection to.
    pub flagged: u64,
    /// Those it wanted a human to be asked about.
    pub would_ask: u64,
    /// Those it wanted to deny.
    pub would_deny: u64,
    /// Those where the recorded decision would have been a stricter one, in the order of the logs.
    pub stricter: Vec<Found>,
}

/// Where a rule in shadow would have changed what happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The log, as the caller named it.
    pub log: Arc<str>,
    /// The place in its log.
    pub seq: u64,
    /// The call; absent for the end of a run.
    pub call: Option<CallId>,
    /// What was decided.
    pub was: Decision,
    /// What the rule alone would have made of it.
    pub would: Decision,
}

impl ShadowReport {
    /// Takes the next event of the log that the caller calls `log`.
    pub fn take(&mut self, log: &Arc<str>, recorded: &Recorded) {
        // No other event holds findings.
        if let Event::CallDecided(decided) = &recorded.event {
            self.decided(log, recorded.seq, decided);
        } else if let Event::RunEnded(ended) = &recorded.event {
            self.ended(log, recorded.seq, ended);
        }
    }

    fn decided(&mut self, log: &Arc<str>, seq: u64, decided: &CallDecided) {
        self.calls += 1;
        let findings = decided.policy.iter().flat_map(|policy| &policy.findings);
        for finding in findings.filter(|finding| finding.shadow) {
            self.found(finding, log, seq, Some(&decided.call), decided.decision);
        }
    }

    fn ended(&mut self, log: &Arc<str>, seq: u64, ended: &RunEnded) {
        self.runs += 1;
        for finding in &ended.shadow {
            self.found(finding, log, seq, None, Decision::Allow);
        }
    }

    fn found(&mut self, finding: &FindingRecord, log: &Arc<str>, seq: u64, call: Option<&CallId>, was: Decision) {
        let rule = self.rules.entry(Arc::clone(&finding.rule)).or_default();
        rule.looked_at += 1;
        let would = match &*finding.outcome {
            "deny" => {
                rule.would_deny += 1;
                Decision::Reject
            }
            "ask" => {
                rule.would_ask += 1;
                Decision::Escalate
            }
            _ => {
                rule.flagged += u64::from(finding.code.is_some());
                Decision::Allow
            }
        };
        if would > was {
            rule.stricter.push(Found { log: Arc::clone(log), seq, call: call.cloned(), was, would });
        }
    }
}
