//! The scripted model: answers written in the bundle, for demos, tests and dry runs. It goes through the same decoders as
//! a real model. What is not here: the wording of scripts (`toolgate_core::bundle::model`).

use async_trait::async_trait;
use serde_json::Value;
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::{ModelDef, ScriptedAnswer, ScriptedCall};
use toolgate_core::json::Json;
use toolgate_core::proposal::{Ballot, BallotVerdict, Proposal, ProposedCall, ProviderFailure};

use crate::classifier::{Classified, Classifier, ClassifyAsk, ClassifyFailure, read_answer};
use crate::delta::DeltaSink;
use crate::envelope;
use crate::judge::read_args;
use crate::proposer::{Proposer, Seat};
use crate::quote;

/// Answers from a script. Which answer is next follows from `Ask::answers_so_far` alone, never from the memory of the
/// process: a restarted server goes on where it stopped.
#[derive(Debug)]
pub(crate) struct ScriptedProposer {
    def: ModelDef,
}

impl ScriptedProposer {
    pub(crate) const fn new(def: ModelDef) -> Self {
        Self { def }
    }
}

#[async_trait]
impl Proposer for ScriptedProposer {
    async fn propose_watched(&self, ask: &Ask, _seat: Seat, _deltas: Option<&dyn DeltaSink>) -> Ballot {
        answer(ask, &self.def)
    }
}

/// The ballot a scripted model gives to an ask. Pure.
#[must_use]
pub fn answer(ask: &Ask, def: &ModelDef) -> Ballot {
    let Some(next) = entry(def, ask.answers_so_far) else {
        let said = format!("the script has {} answers, and all were given", def.script.len());
        return quote::bare(quote::failed(ProviderFailure::ScriptExhausted, &said));
    };
    let mut ballot = quote::bare(quote::failed(ProviderFailure::ScriptExhausted, ""));
    (ballot.text, ballot.verdict) = match next {
        ScriptedAnswer::Fail(reason) => (String::new(), quote::failed(*reason, "the script says so")),
        ScriptedAnswer::Text(text) => {
            (text.clone(), envelope::judge(&envelope::JsonEnvelope, text, def.lenient, &mut ballot.normalised))
        }
        ScriptedAnswer::Done(output) => {
            let text = output.as_str().map_or_else(|| output.to_string(), str::to_owned);
            (text, BallotVerdict::Proposal(Proposal::Done { output: Json::from_value(output) }))
        }
        ScriptedAnswer::Calls(calls) => {
            let calls = calls.iter().map(|call| proposed(call, ask)).collect();
            (String::new(), BallotVerdict::Proposal(Proposal::Calls(calls)))
        }
    };
    ballot.model = Some("scripted".to_owned());
    ballot
}

fn entry(def: &ModelDef, index: u32) -> Option<&ScriptedAnswer> {
    let at = usize::try_from(index).ok().and_then(|at| def.script.get(at));
    at.or_else(|| def.script.last().filter(|_| def.repeat_last))
}

/// Arguments written as a string are text as a provider would send it, so that a script can hold broken ones.
fn proposed(call: &ScriptedCall, ask: &Ask) -> ProposedCall {
    let args = match &call.args {
        Value::String(text) => read_args(Some(&Value::String(text.clone())), schema(ask, &call.tool), &mut Vec::new()),
        Value::Null => read_args(None, None, &mut Vec::new()),
        other => read_args(Some(other), None, &mut Vec::new()),
    };
    ProposedCall { tool: call.tool.clone(), provider_id: None, args: args.0, raw_args: args.1 }
}

fn schema<'a>(ask: &'a Ask, tool: &str) -> Option<&'a Json> {
    ask.tools.iter().find(|view| view.id.as_str() == tool).map(|view| &view.parameters)
}

/// A classifier that answers from a script: the entry of the attempt, read as a model's answer would be.
#[derive(Debug)]
pub(crate) struct ScriptedClassifier {
    def: ModelDef,
}

impl ScriptedClassifier {
    pub(crate) const fn new(def: ModelDef) -> Self {
        Self { def }
    }
}

#[async_trait]
impl Classifier for ScriptedClassifier {
    async fn classify(&self, ask: &ClassifyAsk) -> Result<Classified, ClassifyFailure> {
        match entry(&self.def, ask.attempt) {
            Some(ScriptedAnswer::Text(text)) => read_answer(text, ask),
            Some(ScriptedAnswer::Done(value)) => read_answer(&value.to_string(), ask),
            Some(ScriptedAnswer::Calls(_)) => Err(ClassifyFailure::NotAnObject { found: "a call".to_owned() }),
            Some(ScriptedAnswer::Fail(reason)) => {
                Err(ClassifyFailure::Provider { reason: *reason, detail: "the script says so".to_owned() })
            }
            None => Err(ClassifyFailure::Provider {
                reason: ProviderFailure::ScriptExhausted,
                detail: format!("the script has {} answers, and all were given", self.def.script.len()),
            }),
        }
    }
}
