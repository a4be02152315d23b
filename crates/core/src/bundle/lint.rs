//! What a sound bundle still leaves open: the checklist of an owner who is about to grant it. What is not here: faults that
//! refuse a bundle (`check`), rules over rules (`toolgate-policy`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;
use toolgate_policy::{Fault, PolicyForm, Reach};

use super::dialect;
use super::model::{CallForm, Provider};
use super::{Bundle, BundleFault, Tool};
use crate::id::ModelName;
use crate::profile::{Harness, Profile};
use crate::tool::{Risk, ToolClass};

/// Tool calls of one run beyond which a limit bounds nothing in practice.
const WIDE_CALLS: u32 = 1_000;
/// Milliseconds of one run beyond which a limit bounds nothing in practice: a day.
const WIDE_MS: u64 = 24 * 60 * 60 * 1_000;

/// Tools of one request beyond which providers refuse it.
const MANY_TOOLS: usize = 128;

/// How much a finding matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The bundle does not do what it seems to, or leaves open what should be closed.
    Error,
    /// It may be meant; say so or mend it.
    Warning,
}

impl Severity {
    /// The word for people and programs.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warning => "warning",
        }
    }
}

/// One thing that a bundle leaves open.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct LintFinding {
    /// JSON pointer into the bundle.
    pub path: String,
    /// The rule's short name, for example `free_form_argument`.
    pub rule: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// What is open and how to close it.
    pub detail: String,
}

impl From<BundleFault> for LintFinding {
    /// A fault refuses the bundle: an error.
    fn from(fault: BundleFault) -> Self {
        Self { path: fault.path, rule: fault.rule, severity: Severity::Error, detail: fault.detail }
    }
}

impl Bundle {
    /// Everything the bundle leaves open, in the order of places. Empty means that nothing was found.
    #[must_use]
    pub fn lint(&self) -> Vec<LintFinding> {
        let mut lint = Lint { bundle: self, found: Vec::new() };
        lint.tools();
        lint.profiles();
        lint.models();
        lint.dialects();
        lint.labels();
        lint.policies();
        lint.found.sort();
        lint.found.dedup();
        lint.found
    }
}

struct Lint<'a> {
    bundle: &'a Bundle,
    found: Vec<LintFinding>,
}

impl Lint<'_> {
    fn error(&mut self, path: String, rule: &'static str, detail: String) {
        self.found.push(LintFinding { path, rule, severity: Severity::Error, detail });
    }

    fn warning(&mut self, path: String, rule: &'static str, detail: String) {
        self.found.push(LintFinding { path, rule, severity: Severity::Warning, detail });
    }

    fn tools(&mut self) {
        // What was written, since a default that nobody said is what is looked for.
        let bundle = self.bundle;
        let source = bundle.source().value();
        let profiles = bundle.profile_tools();
        for tool in bundle.tools() {
            let path = format!("/tools/{}", tool.id);
            let written = source.pointer(&path);
            self.contract(tool, &path, written);
            if !profiles.values().any(|tools| tools.contains(tool.id.as_str())) {
                let detail = format!("no profile has `{}`; give it to one or take it out", tool.id);
                self.warning(path, "unused_tool", detail);
            } else if effectful(tool) && !tool.def.requires_approval && !self.restrained(tool, &profiles) {
                let detail = format!(
                    "`{}` has effects, and neither a human nor a rule stands before it; set `requires_approval`, or give it a rule that denies or asks",
                    tool.id
                );
                self.error(path, "effect_unguarded", detail);
            }
        }
    }

    fn restrained(&self, tool: &Tool, profiles: &BTreeMap<String, BTreeSet<String>>) -> bool {
        self.bundle.policy().is_some_and(|policy| policy.restrains(tool.id.as_str(), profiles))
    }

    /// What a contract leaves to defaults.
    fn contract(&mut self, tool: &Tool, path: &str, written: Option<&Value>) {
        let said = |key: &str| written.is_some_and(|written| written.get(key).is_some_and(|value| !value.is_null()));
        let description = tool.def.description.trim();
        if description.is_empty() || description == tool.id.as_str() {
            let detail = "says nothing; tell the model what the tool does".to_owned();
            self.warning(format!("{path}/description"), "contract_description", detail);
        }
        for (key, rule, mend) in [
            ("class", "contract_class", "say `read`, `idempotent` or `once`: what may happen after an unknown outcome"),
            ("risk", "contract_risk", "say `low`, `medium` or `high`: approvers see it"),
            ("timeout_ms", "contract_timeout", "say how long a call may take"),
            ("result", "contract_result", "give the JSON Schema of a successful result"),
        ] {
            if !said(key) {
                self.warning(path.to_owned(), rule, format!("`{}` has no `{key}`; {mend}", tool.id));
            }
        }
    }

    fn profiles(&mut self) {
        let bundle = self.bundle;
        for (name, profile) in bundle.profiles() {
            if let Some(harness) = &profile.harness {
                self.harness(&format!("/profiles/{name}"), harness, profile);
            }
        }
    }

    fn harness(&mut self, path: &str, harness: &Harness, profile: &Profile) {
        let calls = harness.max_tool_calls;
        if calls > WIDE_CALLS {
            let detail =
                format!("`max_tool_calls` {calls} bounds nothing in practice; at most {WIDE_CALLS} is a limit");
            self.warning(path.to_owned(), "limit_wide", detail);
        }
        if harness.deadline_ms > WIDE_MS {
            let detail = format!("`deadline_ms` {} is more than a day; bound the run", harness.deadline_ms);
            self.warning(path.to_owned(), "limit_wide", detail);
        }
        if calls == 0 && !profile.tools.is_empty() {
            let detail = "has tools and no tool call; raise `max_tool_calls` or take the tools out".to_owned();
            self.warning(path.to_owned(), "limit_closed", detail);
        }
    }

    fn models(&mut self) {
        let bundle = self.bundle;
        let profiles = bundle.profiles().flat_map(|(_, profile)| {
            let of_votes = profile.consensus.iter().flat_map(|consensus| &consensus.models);
            profile.model.iter().chain(of_votes)
        });
        let of_labels = bundle.classification().and_then(|classification| classification.model.as_ref());
        let fallbacks = bundle.models().filter_map(|(_, model)| model.fallback.as_ref());
        let used: BTreeSet<&ModelName> = profiles.chain(of_labels).chain(fallbacks).collect();
        for (name, _) in bundle.models().filter(|(name, _)| !used.contains(name)) {
            let detail = format!("nobody asks `{name}`; use it or take it out");
            self.warning(format!("/models/{name}"), "unused_model", detail);
        }
    }

    /// What a provider would refuse of a tool is shown otherwise to its models; the owner should know.
    fn dialects(&mut self) {
        let bundle = self.bundle;
        for (profile_name, profile) in bundle.profiles() {
            let of_votes = profile.consensus.iter().flat_map(|consensus| &consensus.models);
            let models = profile.model.iter().chain(of_votes).filter_map(|name| bundle.model(name));
            for model in models.filter(|model| model.calls != CallForm::Envelope) {
                for tool in profile.tools.iter().filter_map(|id| bundle.tool(id)) {
                    let schema = tool.parameters.shown().value();
                    for change in dialect::shown(model.provider, &schema).changes {
                        let detail = format!("{}; what is validated stays the same", change.detail);
                        self.warning(
                            format!("/tools/{}/parameters{}", tool.id, change.pointer),
                            "shown_otherwise",
                            detail,
                        );
                    }
                }
                if profile.tools.len() > MANY_TOOLS && model.provider != Provider::Scripted {
                    let count = profile.tools.len();
                    let detail = format!("{count} tools are offered; several providers take {MANY_TOOLS} at most");
                    self.warning(format!("/profiles/{profile_name}/tools"), "many_tools", detail);
                }
            }
        }
    }

    fn labels(&mut self) {
        let Some(classification) = self.bundle.classification() else { return };
        let Some(default) = &classification.default else { return };
        for (label, _) in classification.rules.iter().filter(|(_, rule)| *rule == default) {
            let detail = format!("`{label}` leads where the default leads; take it out, or let it lead elsewhere");
            self.warning(format!("/classification/rules/{label}"), "label_redundant", detail);
        }
    }

    fn policies(&mut self) {
        let bundle = self.bundle;
        let Some(policy) = bundle.policy() else {
            return self.take(toolgate_policy::unguarded_without_rules(&bundle.tool_facts()));
        };
        self.take(policy.checklist());
        for trap in policy.lint() {
            self.warning(format!("/policies{}", trap.pointer), trap.rule, trap.detail.clone());
        }
        let written = bundle.source().value();
        // The section was read when the bundle was loaded.
        let Some(form) = written.get("policies").and_then(|form| PolicyForm::read(form).ok()) else { return };
        let rules = bundle.classification().map(|classification| &classification.rules);
        let labels: BTreeSet<String> = rules.into_iter().flatten().map(|(label, _)| label.to_string()).collect();
        self.take(policy.review(&form, Reach { profiles: &bundle.profile_tools(), labels: &labels }));
    }

    fn take(&mut self, faults: Vec<Fault>) {
        for fault in faults {
            let severity = match fault.rule {
                "rule_in_shadow" | "rule_off" | "shadowed_rule" => Severity::Warning,
                _ => Severity::Error,
            };
            self.found.push(LintFinding { path: fault.pointer, rule: fault.rule, severity, detail: fault.detail });
        }
    }
}

/// Whether a wrong call does harm that stays.
fn effectful(tool: &Tool) -> bool {
    tool.def.class == ToolClass::Once || tool.def.risk == Risk::High
}
