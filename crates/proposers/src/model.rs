//! A model behind an endpoint, in whichever format and form its definition says, with what is asked in its place when it
//! does not answer. Each is shown what fits its own window. What is not here: formats (`wire`), sending (`exchange`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::CallForm;
use toolgate_core::proposal::{Ballot, BallotVerdict, ProviderFailure};
use toolgate_core::window;

use crate::delta::{Delta, DeltaSink};
use crate::envelope::ToolProtocol;
use crate::exchange::{Asker, Exchange, sum};
use crate::proposer::{Proposer, Seat};
use crate::tokens;
use crate::wire::{Asked, encode_as, judged};

/// What is shared by all who ask one model.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) exchange: Exchange,
    /// The endpoint said that it takes no tools.
    refuses_tools: AtomicBool,
}

impl Model {
    pub(crate) const fn new(exchange: Exchange) -> Self {
        Self { exchange, refuses_tools: AtomicBool::new(false) }
    }
}

/// A model, asked for one tenant.
#[derive(Debug)]
pub(crate) struct ModelProposer {
    pub(crate) model: Arc<Model>,
    pub(crate) tenant: Arc<str>,
    pub(crate) salt: [u8; 32],
    pub(crate) protocol: Arc<dyn ToolProtocol>,
    /// Asked when the first gives no answer.
    pub(crate) fallback: Option<Arc<dyn Proposer>>,
}

#[async_trait]
impl Proposer for ModelProposer {
    async fn propose_watched(&self, ask: &Ask, seat: Seat, deltas: Option<&dyn DeltaSink>) -> Ballot {
        let ballot = self.ask_first(ask, seat, deltas).await;
        let Some(fallback) = self.fallback.as_ref().filter(|_| is_unanswered(&ballot)) else { return ballot };
        if let Some(sink) = deltas {
            sink.delta(Delta::Discarded);
        }
        let mut other = fallback.propose_watched(ask, seat, deltas).await;
        let detail = match &ballot.verdict {
            BallotVerdict::Failed { reason, .. } => serde_json::to_value(reason).unwrap_or_default(),
            BallotVerdict::Malformed { .. } | BallotVerdict::Proposal(_) => serde_json::Value::Null,
        };
        let note = format!("fallback_after:{}", detail.as_str().unwrap_or_default());
        other.normalised = ballot.normalised.into_iter().chain([note]).chain(other.normalised).collect();
        other.usage = sum(other.usage, ballot.usage);
        other
    }
}

/// Whether another model may do better: nothing was wrong with the question.
fn is_unanswered(ballot: &Ballot) -> bool {
    use ProviderFailure::{NotACompletion, RateLimited, ServerError, TimedOut, TooLarge, Transport};
    matches!(
        ballot.verdict,
        BallotVerdict::Failed {
            reason: NotACompletion | RateLimited | ServerError | TimedOut | TooLarge | Transport,
            ..
        }
    )
}

impl ModelProposer {
    /// Asks this model what fits its window. A fallback has a window of its own.
    async fn ask_first(&self, ask: &Ask, seat: Seat, deltas: Option<&dyn DeltaSink>) -> Ballot {
        let def = self.model.exchange.def();
        let Some(fitted) = window::fit(ask, def, tokens::counter(def.tokenizer)) else {
            return self.ask_whole(ask, seat, deltas).await;
        };
        let ask = Ask { transcript: fitted.transcript, ..ask.clone() };
        let mut ballot = self.ask_whole(&ask, seat, deltas).await;
        ballot.cut = Some(fitted.cut);
        ballot
    }

    async fn ask_whole(&self, ask: &Ask, seat: Seat, deltas: Option<&dyn DeltaSink>) -> Ballot {
        let def = self.model.exchange.def();
        let mut asked = Asked::first(def.calls);
        if def.calls == CallForm::Auto && self.model.refuses_tools.load(Ordering::Relaxed) {
            asked = Asked::Envelope;
        }
        let ballot = self.ask_as(asked, ask, seat, deltas).await;
        if def.calls == CallForm::Auto && asked == Asked::Native && !ask.tools.is_empty() && refuses_tools(&ballot) {
            self.model.refuses_tools.store(true, Ordering::Relaxed);
            let mut second = self.ask_as(Asked::Envelope, ask, seat, deltas).await;
            second.normalised.insert(0, "tools_refused_by_endpoint".to_owned());
            return second;
        }
        ballot
    }

    async fn ask_as(&self, asked: Asked, ask: &Ask, seat: Seat, deltas: Option<&dyn DeltaSink>) -> Ballot {
        let exchange = &self.model.exchange;
        let def = exchange.def();
        let body = Bytes::from(encode_as(ask, def, &self.salt, (asked, &*self.protocol)).to_string());
        tracing::debug!(model = def.model, seat.step, seat.ballot, seat.attempt, "asking a model");
        let told = exchange.run(&body, Asker { tenant: &self.tenant, deltas }).await;
        let mut ballot = judged(told.answer, ask, def, (asked, &*self.protocol));
        ballot.usage = sum(ballot.usage, told.wasted);
        ballot.normalised.splice(0..0, told.notes);
        ballot
    }
}

/// Whether the endpoint refused the question because of its tools.
fn refuses_tools(ballot: &Ballot) -> bool {
    let BallotVerdict::Failed { reason: ProviderFailure::RequestRefused, detail } = &ballot.verdict else {
        return false;
    };
    let detail = detail.to_ascii_lowercase();
    [
        "not support tool",
        "tools are not supported",
        "tool use is not supported",
        "does not support function",
        "tool choice requires",
        "not supported: tools",
        "unsupported parameter: 'tools'",
        "no endpoints found that support tool",
    ]
    .iter()
    .any(|words| detail.contains(words))
}
