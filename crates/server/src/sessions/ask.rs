//! Puts questions to models: builds them from the state and hands them to the adapters. What is not here: any provider's
//! format (`toolgate-proposers`).

use toolgate_core::bundle::Bundle;
use toolgate_core::bundle::model::ModelDef;
use toolgate_core::id::ModelName;
use toolgate_core::input::{ClassificationFailure, Classified, ClassifiedLabel, Seat};
use toolgate_core::proposal::{Ballot, BallotVerdict, ProviderFailure, Usage};
use toolgate_core::session::Session;
use toolgate_core::transcript;
use toolgate_proposers::classifier::{ClassifyAsk, ClassifyFailure};

use super::deps::Deps;
use crate::crash;

/// Asks for one ballot.
pub(super) fn proposal(
    deps: &Deps,
    state: &Session,
    bundle: &Bundle,
    seat: Seat,
    model: &ModelName,
) -> impl Future<Output = Ballot> + Send + 'static {
    let ask = transcript::ask(state, bundle, seat.ballot);
    let def = bundle.model(model);
    let fallback = |def: &ModelDef| def.fallback.as_ref().and_then(|name| bundle.model(name));
    let tenant = state.opened.as_ref().map_or("", |opened| opened.tenant.as_str());
    let proposer = def.map(|def| deps.models.proposer_for(tenant, def, fallback(def)));
    let place = toolgate_proposers::Seat {
        step: seat.step,
        ballot: seat.ballot.saturating_sub(1),
        attempt: seat.round.saturating_sub(1),
    };
    async move {
        crash::point("K2");
        match proposer {
            Some(proposer) => proposer.propose(&ask, place).await,
            None => failed(ProviderFailure::Misconfigured, "the bundle has no such model"),
        }
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
