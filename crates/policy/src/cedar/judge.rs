//! Putting a call before the policies. Whatever cannot be asked or answered denies. What is not here: which policies there
//! are (`compile`).

use std::collections::BTreeMap;
use std::sync::Arc;

use cedar_policy::{Context, Decision, Entities, Entity, EntityUid, PolicySet, Request, RestrictedExpression};

use super::CedarAnswer;
use super::compile::Cedar;
use super::context;
use super::schema::uid;
use super::slice::Slice;
use crate::derive::Derived;
use crate::facts::Facts;
use crate::finding::{Code, Finding, Layer, Outcome};

/// The id of findings that no single policy makes.
const DEFAULT: &str = "cedar.default";

/// A request with its entities, ready to be evaluated.
struct Question {
    request: Request,
    entities: Entities,
}

/// What a set of policies says.
struct Said {
    outcome: Outcome,
    code: Option<Code>,
    deciding: Vec<String>,
    failed: Vec<String>,
}

impl Cedar {
    /// Judges a call of a known tool.
    pub(crate) fn judge(
        &self,
        facts: &Facts<'_>,
        derived: &BTreeMap<String, Derived>,
    ) -> (Vec<Finding>, Option<CedarAnswer>) {
        let Some(slice) = self.slices.get(facts.tool) else {
            return (vec![unasked("the tool is not in the policies' schema")], None);
        };
        let mut answer = CedarAnswer {
            deciding: Vec::new(),
            failed: Vec::new(),
            policy_hash: Arc::clone(&self.policy_hash),
            schema_hash: Arc::clone(&self.schema_hash),
            engine: Arc::clone(&self.engine),
        };
        let question = match self.question(slice, facts, derived) {
            Ok(question) => question,
            Err(detail) => {
                let mut finding = unasked(detail);
                finding.shadow = !self.enforced;
                return (vec![finding], Some(answer));
            }
        };
        let mut findings = Vec::new();
        if self.enforced {
            let said = self.ask(&question, &slice.enforced);
            findings.extend(self.findings(&said));
            answer.deciding = said.deciding;
            answer.failed = said.failed;
        }
        for (set, policies) in &slice.shadow {
            findings.push(self.shadow(set, &self.ask(&question, policies)));
        }
        (findings, Some(answer))
    }

    fn question(
        &self,
        slice: &Slice,
        facts: &Facts<'_>,
        derived: &BTreeMap<String, Derived>,
    ) -> Result<Question, String> {
        let values = context::values(slice, &self.counted, facts, derived)
            .map_err(|unfit| format!("the arguments cannot be put before the policies: {unfit}"))?;
        let context = Context::from_pairs(values).map_err(|_| "the call's context cannot be built".to_owned())?;
        let principal = uid(&self.names.agent, facts.principal.id);
        let resource = uid(&self.names.session, facts.session.id);
        let agent = self.agent(&principal, facts)?;
        let request =
            Request::new(principal, slice.action.clone(), resource, context, Some(&self.schema)).map_err(|_| {
                "the call does not fit the policies' schema: an argument is missing, null or of another kind".to_owned()
            })?;
        let entities = Entities::from_entities(slice.entities.iter().cloned().chain(std::iter::once(agent)), None)
            .map_err(|_| "the call's entities cannot be built".to_owned())?;
        Ok(Question { request, entities })
    }

    fn agent(&self, principal: &EntityUid, facts: &Facts<'_>) -> Result<Entity, String> {
        let text = |word: &str| RestrictedExpression::new_string(word.to_owned());
        let roles = RestrictedExpression::new_set(facts.principal.roles.iter().map(|role| text(role)));
        let attributes = [
            ("tenant".to_owned(), text(facts.principal.tenant)),
            ("id".to_owned(), text(facts.principal.id)),
            ("roles".to_owned(), roles),
        ];
        let parents = facts.principal.roles.iter().map(|role| uid(&self.names.role, role));
        Entity::new(principal.clone(), attributes.into_iter().collect(), parents.collect())
            .map_err(|_| "the principal cannot be built".to_owned())
    }

    fn ask(&self, question: &Question, policies: &PolicySet) -> Said {
        let response = self.authorizer.is_authorized(&question.request, policies, &question.entities);
        let sorted = |ids: Vec<String>| {
            let mut ids = ids;
            ids.sort();
            ids
        };
        let deciding = sorted(response.diagnostics().reason().map(ToString::to_string).collect());
        let failed = sorted(
            response
                .diagnostics()
                .errors()
                .map(|error| match error {
                    cedar_policy::AuthorizationError::PolicyEvaluationError(error) => error.policy_id().to_string(),
                })
                .collect(),
        );
        let escalates = |id: &String| self.infos.get(id).is_some_and(|info| info.escalates);
        let (outcome, code) = match response.decision() {
            // Cedar skips a policy that fails; here it denies, since a forbid may be among the skipped.
            _ if !failed.is_empty() => (Outcome::Deny, Some(Code::PolicyFault)),
            Decision::Deny if deciding.is_empty() => (Outcome::Deny, Some(Code::PolicyNotPermitted)),
            Decision::Deny => (Outcome::Deny, Some(Code::PolicyForbids)),
            Decision::Allow if deciding.iter().any(escalates) => (Outcome::Ask, Some(Code::PolicyEscalates)),
            Decision::Allow => (Outcome::Pass, None),
        };
        Said { outcome, code, deciding, failed }
    }

    /// One finding per policy that decided or failed.
    fn findings(&self, said: &Said) -> Vec<Finding> {
        let ids: Vec<&String> = match said.code {
            Some(Code::PolicyFault) => said.failed.iter().collect(),
            Some(Code::PolicyEscalates) => {
                said.deciding.iter().filter(|id| self.infos.get(*id).is_some_and(|info| info.escalates)).collect()
            }
            _ => said.deciding.iter().collect(),
        };
        if ids.is_empty() {
            return vec![finding(DEFAULT, said, Arc::default(), false)];
        }
        ids.into_iter()
            .map(|id| {
                let looked_at = self.infos.get(id).map(|info| Arc::clone(&info.looked_at)).unwrap_or_default();
                finding(id, said, looked_at, false)
            })
            .collect()
    }

    /// What the answer would be with a set that is in shadow.
    fn shadow(&self, set: &str, said: &Said) -> Finding {
        let mut looked_at: Vec<String> = said.deciding.iter().chain(&said.failed).cloned().collect();
        looked_at.dedup();
        finding(set, said, looked_at.into(), true)
    }
}

fn finding(id: &str, said: &Said, looked_at: Arc<[String]>, shadow: bool) -> Finding {
    let detail = said.code.map(|code| {
        let words = match code {
            Code::PolicyFault => {
                "a policy failed while it was evaluated; guard what may be absent with `has`, and sums"
            }
            Code::PolicyForbids => "a policy forbids this call as it stands",
            Code::PolicyEscalates => "a policy permits this call if a human agrees",
            _ => "no policy permits this call",
        };
        words.to_owned()
    });
    Finding {
        rule_id: id.into(),
        layer: Layer::Cedar,
        outcome: said.outcome,
        code: said.code,
        shadow,
        detail,
        looked_at,
    }
}

fn unasked(detail: impl Into<String>) -> Finding {
    Finding {
        rule_id: DEFAULT.into(),
        layer: Layer::Cedar,
        outcome: Outcome::Deny,
        code: Some(Code::ContextInvalid),
        shadow: false,
        detail: Some(detail.into()),
        looked_at: ["arguments".to_owned()].into(),
    }
}
