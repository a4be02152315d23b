//! Judging one call: the layers in their fixed order; a layer that denies is the last one asked. What is not here: what
//! leads to a finding (the rules).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Policy;
use crate::cedar::CedarAnswer;
use crate::derive::{Compiled, Derived, OnRefused};
use crate::facts::Facts;
use crate::finding::{Code, Decision, Finding, First, Judgement, Layer, Outcome};

impl Policy {
    /// Judges a call. Total: whatever the facts are, there is an answer, and what cannot be looked at is denied.
    #[must_use]
    pub fn judge(&self, facts: &Facts<'_>) -> Judgement {
        let mut case = Case::default();
        if !self.tools.contains_key(facts.tool) {
            case.findings.push(unknown_tool());
            return case.close();
        }
        self.lists(facts, &mut case);
        let fields = if case.is_open() { self.derive(facts, &mut case) } else { BTreeMap::new() };
        case.layer(|| self.arguments.iter().filter_map(|rule| rule.judge(facts)).collect());
        case.layer(|| self.sequences.iter().filter_map(|rule| rule.judge(facts)).collect());
        case.layer(|| self.rates.iter().filter_map(|rule| rule.judge(facts)).collect());
        case.layer(|| self.totals.iter().filter_map(|rule| rule.judge(facts)).collect());
        case.layer(|| self.origins.iter().filter_map(|rule| rule.judge(facts)).collect());
        case.layer(|| self.checks.iter().filter_map(|rule| rule.judge(facts)).collect());
        if let Some(cedar) = self.cedar.as_ref().filter(|_| case.is_open()) {
            let (findings, answer) = cedar.judge(facts, &fields);
            case.findings.extend(findings);
            case.cedar = answer;
        }
        case.close()
    }

    fn lists(&self, facts: &Facts<'_>, case: &mut Case) {
        let hits = self.lists.iter().filter(|head| head.applies(facts.tool, facts.profile));
        case.findings.extend(hits.map(|head| head.object(Code::Denylisted, "this tool is denied here")));
    }

    /// Derives the declared fields. Those of secret arguments are given to policies and to nobody else.
    fn derive(&self, facts: &Facts<'_>, case: &mut Case) -> BTreeMap<String, Derived> {
        let mut fields = BTreeMap::new();
        for field in self.derived.get(facts.tool).into_iter().flatten() {
            match field.derive(facts.args) {
                None => {}
                Some(Ok(derived)) => {
                    if !field.secret {
                        case.derived.insert(field.name.clone(), derived.clone());
                    }
                    fields.insert(field.name.clone(), derived);
                }
                Some(Err(refused)) => case.findings.push(not_derived(field, &refused.to_string())),
            }
        }
        fields
    }
}

/// The judgement while it is made.
#[derive(Default)]
struct Case {
    findings: Vec<Finding>,
    derived: BTreeMap<String, Derived>,
    cedar: Option<CedarAnswer>,
}

impl Case {
    /// No enforced rule has denied yet.
    fn is_open(&self) -> bool {
        !self.findings.iter().any(|finding| !finding.shadow && finding.outcome == Outcome::Deny)
    }

    fn layer(&mut self, ask: impl FnOnce() -> Vec<Finding>) {
        if self.is_open() {
            self.findings.extend(ask());
        }
    }

    fn close(self) -> Judgement {
        let worst = self.findings.iter().filter(|finding| !finding.shadow).map(|finding| finding.outcome).max();
        let decision = match worst {
            None | Some(Outcome::Pass) => Decision::Allow,
            Some(Outcome::Ask) => Decision::Ask,
            Some(Outcome::Deny) => Decision::Deny,
        };
        let first = self
            .findings
            .iter()
            .find(|finding| !finding.shadow && finding.outcome != Outcome::Pass && Some(finding.outcome) == worst)
            .map(|finding| First {
                rule_id: Arc::clone(&finding.rule_id),
                code: finding.code.unwrap_or(Code::PolicyFault),
                detail: finding.detail.clone().unwrap_or_default(),
            });
        Judgement { decision, first, findings: self.findings, derived: self.derived, cedar: self.cedar }
    }
}

fn unknown_tool() -> Finding {
    Finding {
        rule_id: "engine.tool".into(),
        layer: Layer::List,
        outcome: Outcome::Deny,
        code: Some(Code::UnknownTool),
        shadow: false,
        detail: Some("there is no tool of this name".to_owned()),
        looked_at: ["tool".to_owned()].into(),
    }
}

fn not_derived(field: &Compiled, refused: &str) -> Finding {
    let outcome = match field.on_refused {
        OnRefused::Deny => Outcome::Deny,
        OnRefused::Ask => Outcome::Ask,
    };
    Finding {
        rule_id: format!("derived.{}", field.name).into(),
        layer: Layer::Derived,
        outcome,
        code: Some(Code::DerivedRefused),
        shadow: false,
        detail: Some(format!("`{}` {refused}", field.from.as_str())),
        looked_at: [field.from.as_str().to_owned()].into(),
    }
}
