//! Checks of one profile: its bounds, its evidence, who is asked. What is not here: its votes (`vote`).

use std::collections::{BTreeMap, BTreeSet};

use super::Check;
use crate::bundle::Bundle;
use crate::id::{ProfileName, Tag};
use crate::profile::{ApprovalMode, AtLimit, Harness, OnNoConsensus, OnReject, Profile};
use crate::reason::RejectReason;
use crate::schema::Schema;

impl Check {
    pub(super) fn profile(&mut self, bundle: &mut Bundle, path: &str, name: &ProfileName, profile: &Profile) {
        if profile.name.as_ref().is_some_and(|named| named != name) {
            self.fault(
                format!("{path}/name"),
                "key_is_name",
                format!("differs from its key `{name}`; write the same or leave it out"),
            );
        }
        let mut seen = BTreeSet::new();
        for (idx, id) in profile.tools.iter().enumerate() {
            if !bundle.tools.contains_key(id)
                && !self.faults.iter().any(|fault| fault.path.starts_with(&format!("/tools/{id}/")))
            {
                self.fault(format!("{path}/tools/{idx}"), "tool_exists", format!("`{id}` is no tool of this bundle"));
            }
            if !seen.insert(id) {
                self.fault(format!("{path}/tools/{idx}"), "duplicate", format!("`{id}` stands twice"));
            }
        }
        match &profile.model {
            None => self.fault(
                format!("{path}/model"),
                "model_exists",
                "names no model, and the bundle has no `default_model`",
            ),
            Some(model) if !bundle.models.contains_key(model) => {
                self.fault(format!("{path}/model"), "model_exists", format!("`{model}` is no model of this bundle"));
            }
            Some(_) => {}
        }
        if let Some(harness) = &profile.harness {
            self.harness(&format!("{path}/harness"), harness);
        }
        self.range(format!("{path}/approval/expires_ms"), profile.approval.expires_ms, 1_000, 2_592_000_000);
        self.range(format!("{path}/approval/approvers"), u64::from(profile.approval.approvers), 1, 8);
        if let Some(remind_ms) = profile.approval.remind_ms {
            self.range(format!("{path}/approval/remind_ms"), remind_ms, 1_000, 2_592_000_000);
        }
        self.approval(path, profile);
        self.budgets(bundle, path, profile);
        self.termination(bundle, path, profile);
        self.prompts(path, profile);
        self.summarize(bundle, path, profile);
        if profile.on_reject.get(&RejectReason::CrossTenantDenied) == Some(&OnReject::Feedback) {
            self.fault(
                format!("{path}/on_reject/cross_tenant_denied"),
                "always_ends",
                "a forged identity always ends the run; remove the entry",
            );
        }
        self.consensus(bundle, path, profile);
        self.evidence(bundle, &format!("{path}/trace_requirements"), &profile.trace_requirements, profile);
        if let Some(schema) = &profile.output_schema {
            match Schema::compile(schema) {
                Ok(schema) => {
                    bundle.output_schemas.insert(name.clone(), schema);
                }
                Err(fault) => self.fault(format!("{path}/output_schema{}", fault.pointer), "schema", fault.detail),
            }
        }
    }

    /// Each termination rule names exactly one condition, which can come true.
    fn termination(&mut self, bundle: &Bundle, path: &str, profile: &Profile) {
        for (name, rule) in &profile.end_when {
            let at = format!("{path}/end_when/{name}");
            let named = [rule.outcomes.is_some(), rule.refused.is_some(), rule.evidence.is_some()];
            if named.into_iter().filter(|named| *named).count() != 1 {
                self.fault(&at, "one_condition", "names not exactly one of `outcomes`, `refused` and `evidence`");
            }
            let counts = [
                rule.outcomes.as_ref().map(|count| count.at_least),
                rule.refused.as_ref().map(|count| count.at_least),
                rule.evidence.as_ref().map(|count| count.at_least),
            ];
            for count in counts.into_iter().flatten() {
                self.range(format!("{at}/at_least"), u64::from(count), 1, 10_000);
            }
            let tool = rule.outcomes.as_ref().and_then(|count| count.tool.as_ref());
            if let Some(tool) = tool.filter(|tool| !profile.tools.contains(tool)) {
                let detail = format!("`{tool}` is no tool of this profile");
                self.fault(format!("{at}/outcomes/tool"), "tool_exists", detail);
            }
            if let Some(tag) = rule.evidence.as_ref().map(|count| &count.tag) {
                let carried =
                    profile.tools.iter().filter_map(|id| bundle.tools.get(id)).any(|tool| tool.def.tags.contains(tag));
                if !carried {
                    self.fault(format!("{at}/evidence/tag"), "reachable", "no tool of the profile carries this tag");
                }
            }
        }
    }

    /// Prompt hooks may name only values that exist.
    fn prompts(&mut self, path: &str, profile: &Profile) {
        for (name, text) in [("before", &profile.prompt.before), ("after", &profile.prompt.after)] {
            if let Some(unknown) = text.as_deref().and_then(crate::transcript::unknown_value) {
                let known = crate::transcript::VALUES.join("`, `");
                let detail = format!("`{{{{{unknown}}}}}` is no value; there are `{known}`");
                self.fault(format!("{path}/prompt/{name}"), "prompt_value", detail);
            }
        }
    }

    /// Who sums up must exist, and have a reason to.
    fn summarize(&mut self, bundle: &Bundle, path: &str, profile: &Profile) {
        let Some(summarize) = &profile.summarize else { return };
        let path = format!("{path}/summarize");
        self.range(format!("{path}/max_bytes"), u64::from(summarize.max_bytes), 100, 100_000);
        if !bundle.models.contains_key(&summarize.model) {
            let detail = format!("`{}` is no model of this bundle", summarize.model);
            self.fault(format!("{path}/model"), "model_exists", detail);
        }
        let voters = profile.consensus.iter().flat_map(|consensus| &consensus.models);
        let mut named = profile.model.iter().chain(voters).filter_map(|name| bundle.models.get(name));
        if !named.any(|model| model.max_input_tokens.is_some()) {
            let detail =
                "no model of the profile says how much it reads (`max_input_tokens`), so nothing is ever summed up";
            self.fault(&path, "summary_due", detail);
        }
    }

    /// One place says whether a human is asked: `approval.mode`. Nothing else may contradict it.
    fn approval(&mut self, path: &str, profile: &Profile) {
        let asks = profile.approval.mode == ApprovalMode::Wait;
        let on_reject = profile.on_reject.get(&RejectReason::NeedsHumanApproval);
        if on_reject.is_some_and(|then| asks == (*then == OnReject::End)) {
            self.fault(
                format!("{path}/on_reject/needs_human_approval"),
                "approval_mode",
                "contradicts `approval.mode`; say `wait` or `end` there and remove the entry",
            );
        }
        let consensus = profile.consensus.as_ref().filter(|_| !asks);
        if consensus.is_some_and(|consensus| consensus.on_no_consensus == OnNoConsensus::Escalate) {
            self.fault(
                format!("{path}/consensus/on_no_consensus"),
                "approval_mode",
                "asks a human, but `approval.mode` is `end`; write `wait` there, or `reject` here",
            );
        }
        if consensus.is_some_and(|consensus| consensus.escalate_below_percent.is_some()) {
            self.fault(
                format!("{path}/consensus/escalate_below_percent"),
                "approval_mode",
                "asks a human, but `approval.mode` is `end`; write `wait` there, or remove the entry",
            );
        }
    }

    pub(super) fn harness(&mut self, path: &str, harness: &Harness) {
        self.range(format!("{path}/max_steps"), u64::from(harness.max_steps), 1, 200);
        self.range(format!("{path}/max_tool_calls"), u64::from(harness.max_tool_calls), 0, 10_000);
        self.range(format!("{path}/deadline_ms"), harness.deadline_ms, 1, 2_592_000_000);
        if let Some(calls) = harness.max_model_calls {
            self.range(format!("{path}/max_model_calls"), u64::from(calls), 1, 10_000);
        }
        self.range(format!("{path}/max_parallel_calls"), u64::from(harness.max_parallel_calls), 1, 16);
        self.range(format!("{path}/max_consecutive_rejections"), u64::from(harness.max_consecutive_rejections), 1, 200);
        self.range(format!("{path}/max_parse_failures"), u64::from(harness.max_parse_failures), 1, 200);
        if let Some(most) = harness.max_output_schema_failures {
            self.range(format!("{path}/max_output_schema_failures"), u64::from(most), 1, 200);
        }
        self.range(format!("{path}/repeat_limit"), u64::from(harness.repeat_limit), 1, 10_000);
    }

    /// A quota that no allowed tool can meet would refuse `done` for ever.
    pub(super) fn evidence(&mut self, bundle: &Bundle, path: &str, required: &BTreeMap<Tag, u32>, profile: &Profile) {
        let calls = profile.harness.as_ref().map_or(0, |harness| harness.max_tool_calls);
        let steps = profile
            .harness
            .as_ref()
            .map_or(0, |harness| harness.max_steps.saturating_add(u32::from(harness.at_limit == AtLimit::WrapUp)));
        if steps == 1 && required.values().any(|need| *need > 0) {
            self.fault(path, "reachable", "evidence takes a step and `done` another one, but `max_steps` is 1");
        }
        for (tag, need) in required.iter().filter(|(_, need)| **need > 0) {
            let carried =
                profile.tools.iter().filter_map(|id| bundle.tools.get(id)).any(|tool| tool.def.tags.contains(tag));
            if !carried {
                self.fault(
                    format!("{path}/{tag}"),
                    "reachable",
                    "no tool of the profile carries this tag, so `done` could never be accepted",
                );
            } else if *need > calls {
                self.fault(
                    format!("{path}/{tag}"),
                    "reachable",
                    format!("needs {need} calls, but the profile allows {calls}"),
                );
            }
        }
    }
}
