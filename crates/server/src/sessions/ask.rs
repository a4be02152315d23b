//! Puts questions to models: builds them from the state and hands them to the adapters. What is not here: any provider's
//! format (`toolgate-proposers`).

use std::sync::Arc;

use tokio::time::Instant;
use toolgate_core::bundle::Bundle;
use toolgate_core::bundle::model::{ModelDef, Provider};
use toolgate_core::event::SummaryFault;
use toolgate_core::id::ModelName;
use toolgate_core::input::{ClassificationFailure, Classified, ClassifiedLabel, Seat, SummaryFailure, SummaryWritten};
use toolgate_core::proposal::{Ballot, BallotVerdict, Proposal, ProviderFailure, Usage};
use toolgate_core::session::Session;
use toolgate_core::{digest, transcript};
use toolgate_proposers::classifier::{ClassifyAsk, ClassifyFailure};
use toolgate_proposers::{DeltaSink, Proposer};
use toolgate_store::SessionKey;

use super::deps::Deps;
use crate::crash;
use crate::metrics::Metrics;

/// Asks for one ballot.
pub(super) fn proposal(
    deps: &Deps,
    state: &Session,
    bundle: &Bundle,
    seat: Seat,
    model: &ModelName,
) -> impl Future<Output = Ballot> + Send + 'static {
    let ask = transcript::ask(state, bundle, seat.ballot);
    let proposer = bundle.model(model).map(|def| proposer(deps, state, bundle, def));
    let key = state.opened.as_ref().map(|opened| SessionKey { tenant: opened.tenant.clone(), session: state.id });
    let sink = key.map(|key| deps.deltas.sink(key, seat, bundle));
    let (metrics, name) = (deps.metrics.clone(), model.clone());
    let provider = bundle.model(model).map(|def| def.provider);
    async move {
        crash::point("K2");
        match proposer {
            Some(proposer) => {
                let sink = sink.as_ref().map(|sink| -> &dyn DeltaSink { sink });
                counted(&metrics, &name, provider, proposer.propose_watched(&ask, place(seat), sink)).await
            }
            None => failed(ProviderFailure::Misconfigured, "the bundle has no such model"),
        }
    }
}

/// Asks for a summary of earlier steps.
pub(super) fn summary(
    deps: &Deps,
    state: &Session,
    bundle: &Bundle,
    seat: Seat,
    model: &ModelName,
) -> impl Future<Output = SummaryWritten> + Send + 'static {
    let ask = digest::ask(state, bundle);
    let proposer = bundle.model(model).map(|def| proposer(deps, state, bundle, def));
    let (metrics, name) = (deps.metrics.clone(), model.clone());
    let provider = bundle.model(model).map(|def| def.provider);
    async move {
        crash::point("K2");
        let ballot = match proposer.zip(ask) {
            Some((proposer, ask)) => counted(&metrics, &name, provider, proposer.propose(&ask, place(seat))).await,
            None => failed(ProviderFailure::Misconfigured, "the bundle has no such model"),
        };
        written(seat, ballot)
    }
}

/// Waits for an answer, and counts it with the time it took.
async fn counted(
    metrics: &Metrics,
    model: &ModelName,
    provider: Option<Provider>,
    answer: impl Future<Output = Ballot> + Send,
) -> Ballot {
    let began = Instant::now();
    let ballot = answer.await;
    if let Some(provider) = provider {
        metrics.answered(model, provider, &ballot, began.elapsed());
    }
    ballot
}

/// What an answer is as a summary.
pub(super) fn written(seat: Seat, ballot: Ballot) -> SummaryWritten {
    let none = |fault, detail: String| Err(SummaryFailure { fault, detail });
    let result = match ballot.verdict {
        BallotVerdict::Proposal(Proposal::Done { output }) => match output.value() {
            serde_json::Value::String(text) => Ok(text),
            _ => Ok(output.as_str().to_owned()),
        },
        BallotVerdict::Proposal(Proposal::Calls(_)) => {
            none(SummaryFault::Calls, "it asks for calls, and none was offered".to_owned())
        }
        BallotVerdict::Malformed { detail, .. } => none(SummaryFault::Malformed, detail),
        BallotVerdict::Failed { detail, .. } => none(SummaryFault::Failed, detail),
    };
    SummaryWritten { seat, result, usage: ballot.usage, model: ballot.model }
}

/// A model for the session's tenant, with what is asked in its place.
fn proposer(deps: &Deps, state: &Session, bundle: &Bundle, def: &ModelDef) -> Arc<dyn Proposer> {
    let fallback = def.fallback.as_ref().and_then(|name| bundle.model(name));
    let tenant = state.opened.as_ref().map_or("", |opened| opened.tenant.as_str());
    deps.models.proposer_for(tenant, def, fallback)
}

fn place(seat: Seat) -> toolgate_proposers::Seat {
    toolgate_proposers::Seat {
        step: seat.step,
        ballot: seat.ballot.saturating_sub(1),
        attempt: seat.round.saturating_sub(1),
    }
}

/// A ballot that says why there is none.
pub(super) fn failed(reason: ProviderFailure, detail: &str) -> Ballot {
    Ballot {
        verdict: BallotVerdict::Failed { reason, detail: detail.to_owned() },
        text: String::new(),
        normalised: Vec::new(),
        opaque: None,
        usage: Usage::default(),
        model: None,
        fingerprint: None,
        cut: None,
    }
}

/// Asks for a label.
pub(super) fn label(
    deps: &Deps,
    state: &Session,
    bundle: &Bundle,
    attempt: u32,
    model: &ModelName,
) -> impl Future<Output = Classified> + Send + 'static {
    let classifier = bundle.model(model).map(|def| deps.models.classifier(def));
    let classification = bundle.classification();
    let ask = ClassifyAsk {
        text: state.opened.as_ref().map(|opened| opened.prompt.clone()).unwrap_or_default(),
        labels: classification
            .map(|c| c.rules.iter().map(|(label, rule)| (label.clone(), rule.profile.to_string())).collect())
            .unwrap_or_default(),
        prompt: classification.and_then(|c| c.prompt.clone()),
        attempt: attempt.saturating_sub(1),
    };
    async move {
        let result = match classifier {
            Some(classifier) => classifier.classify(&ask).await.map_err(|failure| failure_of(&failure)),
            None => Err(ClassificationFailure { provider: None, detail: "the bundle has no such model".to_owned() }),
        };
        let result = result.map(|found| ClassifiedLabel {
            label: found.label.to_string(),
            confidence_milli: u32::from(found.confidence_milli),
            reasoning: found.reasoning,
        });
        Classified { attempt, result, usage: Usage::default() }
    }
}

fn failure_of(failure: &ClassifyFailure) -> ClassificationFailure {
    let provider = match failure {
        ClassifyFailure::Provider { reason, .. } => Some(*reason),
        _ => None,
    };
    ClassificationFailure { provider, detail: failure.to_string().chars().take(400).collect() }
}
