//! Checks of a profile's votes: rules that can be satisfied, models, tools and arguments that exist.

use super::Check;
use super::tool::may_hold;
use crate::bundle::Bundle;
use crate::consensus::Rule;
use crate::profile::{Consensus, DecideWhen, Profile};

/// Texts that ballots get in turn: one for each ballot of the largest vote.
const MOST_TEXTS: usize = 9;

impl Check {
    pub(super) fn consensus(&mut self, bundle: &Bundle, path: &str, profile: &Profile) {
        let Some(consensus) = &profile.consensus else { return };
        let path = format!("{path}/consensus");
        self.votes(&path, consensus.n, consensus.rule, consensus.k);
        self.range(format!("{path}/retries"), u64::from(consensus.retries), 0, 10);
        for (idx, model) in consensus.models.iter().enumerate() {
            if !bundle.models.contains_key(model) {
                let detail = format!("`{model}` is no model of this bundle");
                self.fault(format!("{path}/models/{idx}"), "model_exists", detail);
            }
        }
        self.larger(&path, profile, consensus);
        self.compare(bundle, &path, profile, consensus);
        self.variety(&path, consensus);
        if let Some(percent) = consensus.escalate_below_percent {
            self.range(format!("{path}/escalate_below_percent"), u64::from(percent), 1, 100);
        }
        if consensus.rule == Rule::First {
            let why = "the rule `first` takes the first readable answer, so that no agreement is counted";
            if consensus.decide == DecideWhen::All {
                self.fault(format!("{path}/decide"), "first_decides", why);
            }
            if consensus.escalate_below_percent.is_some() {
                self.fault(format!("{path}/escalate_below_percent"), "first_decides", why);
            }
        }
        let calls = profile.harness.as_ref().and_then(|harness| harness.max_model_calls);
        if calls.is_some_and(|calls| calls < consensus.n) {
            let at = path.trim_end_matches("/consensus");
            self.fault(format!("{at}/harness/max_model_calls"), "can_start", "is smaller than one round of ballots");
        }
    }

    /// A vote that can be won: `k` stands where the rule counts it, and there alone.
    fn votes(&mut self, path: &str, n: u32, rule: Rule, k: Option<u32>) {
        self.range(format!("{path}/n"), u64::from(n), 1, 9);
        match (rule, k) {
            (Rule::KOfN, Some(k)) => self.range(format!("{path}/k"), u64::from(k), 1, u64::from(n)),
            (Rule::KOfN, None) => {
                self.fault(
                    format!("{path}/k"),
                    "k_of_n",
                    "is missing: the rule `k_of_n` needs it; or name another rule",
                );
            }
            (other, Some(_)) => {
                let detail = format!("counts with the rule `k_of_n` alone, not with `{}`; remove it", other.code());
                self.fault(format!("{path}/k"), "k_of_n", detail);
            }
            (_, None) => {}
        }
    }

    fn larger(&mut self, path: &str, profile: &Profile, consensus: &Consensus) {
        for id in consensus.by_tool.keys().filter(|id| !profile.tools.contains(id)) {
            self.fault(format!("{path}/by_tool/{id}"), "tool_exists", "is no tool of this profile");
        }
        let by_risk = consensus.by_risk.iter().map(|(risk, votes)| (format!("by_risk/{}", risk.code()), votes));
        let by_tool = consensus.by_tool.iter().map(|(id, votes)| (format!("by_tool/{id}"), votes));
        for (name, votes) in by_risk.chain(by_tool) {
            self.votes(&format!("{path}/{name}"), votes.n, votes.rule, votes.k);
            if votes.rule == Rule::First {
                let detail = "a larger vote needs agreement, and `first` needs none";
                self.fault(format!("{path}/{name}/rule"), "first_decides", detail);
            }
        }
    }

    /// Each argument that is compared can stand in the arguments of its tool.
    fn compare(&mut self, bundle: &Bundle, path: &str, profile: &Profile, consensus: &Consensus) {
        for (id, pointers) in &consensus.compare {
            let at = format!("{path}/compare/{id}");
            let Some(tool) = bundle.tools.get(id).filter(|_| profile.tools.contains(id)) else {
                self.fault(at, "tool_exists", "is no tool of this profile");
                continue;
            };
            if pointers.is_empty() {
                self.fault(&at, "pointer", "names no argument; remove the tool to compare all of them");
            }
            for (idx, pointer) in pointers.iter().enumerate() {
                let first = pointer.strip_prefix('/').and_then(|rest| rest.split('/').next());
                match first {
                    None => self.fault(format!("{at}/{idx}"), "pointer", "needs a JSON pointer such as `/path`"),
                    Some(first) if !may_hold(&tool.def.parameters, first) => {
                        let detail = format!("no property `{first}` is declared, so nothing would be compared");
                        self.fault(format!("{at}/{idx}"), "field_exists", detail);
                    }
                    Some(_) => {}
                }
            }
        }
    }

    fn variety(&mut self, path: &str, consensus: &Consensus) {
        self.limit(&format!("{path}/variety"), consensus.variety.len(), MOST_TEXTS);
        for (idx, text) in consensus.variety.iter().enumerate() {
            if text.trim().is_empty() {
                self.fault(format!("{path}/variety/{idx}"), "empty", "says nothing");
            }
            if let Some(unknown) = crate::transcript::unknown_value(text) {
                let known = crate::transcript::VALUES.join("`, `");
                let detail = format!("`{{{{{unknown}}}}}` is no value; there are `{known}`");
                self.fault(format!("{path}/variety/{idx}"), "prompt_value", detail);
            }
        }
    }
}
