//! Effects under way: each is a task that ends by giving the actor one result. They never touch the session. What is
//! not here: which effects must be under way (core's `outstanding`).

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::task::{JoinError, JoinSet};
use toolgate_core::bundle::Bundle;
use toolgate_core::id::{ClientInstance, SessionId, TenantId};
use toolgate_core::input::{
    AdmissionAnswer, BallotCast, ClassificationFailure, Classified, Input, OutcomeReport, Reporter, ReservationAnswer,
    Seat, SummaryWritten,
};
use toolgate_core::output::OutcomeStatus;
use toolgate_core::proposal::{Ballot, ProviderFailure, Usage};
use toolgate_core::session::Session;
use toolgate_core::tool::ToolClass;
use toolgate_core::{Effect, Order};
use toolgate_store::{Blob, Codec};

use super::ask;
use super::deps::Deps;
use super::{admission, ledger, output};
use crate::crash;
use crate::tools::{RawOutcome, ToolOrder};

/// Separates what is offered to clients from what the server does itself.
pub(super) fn split(wanted: Vec<Effect>) -> (BTreeMap<ClientInstance, Vec<Order>>, Vec<Effect>) {
    let mut offers: BTreeMap<ClientInstance, Vec<Order>> = BTreeMap::new();
    let mut tasks = Vec::new();
    for effect in wanted {
        match effect {
            Effect::OfferCall { instance, order } => offers.entry(instance).or_default().push(order),
            own @ (Effect::Classify { .. }
            | Effect::AskModel { .. }
            | Effect::Summarize { .. }
            | Effect::AskAdmission { .. }
            | Effect::Reserve { .. }
            | Effect::Settle(_)
            | Effect::RunTool(_)) => tasks.push(own),
        }
    }
    (offers, tasks)
}

/// The result of an effect.
#[derive(Debug)]
pub(super) enum Done {
    Classified(Classified),
    Ballot(Seat, Box<Ballot>),
    Summary(Box<SummaryWritten>),
    Tool(Box<Order>, RawOutcome),
    Admission(AdmissionAnswer),
    Reservation(ReservationAnswer),
    Settled(Vec<String>),
}

impl Done {
    /// Whether it is the outcome of a call that may be sent again when the outcome is lost.
    pub(super) fn is_repeatable(&self, bundle: &Bundle) -> bool {
        let Self::Tool(order, _) = self else { return false };
        bundle.tool(&order.tool).is_some_and(|tool| tool.def.class != ToolClass::Once)
    }

    /// The answer has come, and is not recorded.
    pub(super) fn crash_point(&self) {
        match self {
            Self::Ballot(..) | Self::Summary(_) => crash::point("K3"),
            Self::Tool(..) => crash::point("K9"),
            Self::Classified(_) | Self::Admission(_) | Self::Reservation(_) | Self::Settled(_) => {}
        }
    }

    /// The input it is, and the contents too large for a row.
    pub(super) fn into_input(self, codec: &Codec) -> (Input, Vec<Blob>) {
        match self {
            Self::Classified(classified) => (Input::Classified(classified), Vec::new()),
            Self::Ballot(seat, ballot) => (Input::Ballot(Box::new(BallotCast { seat, ballot: *ballot })), Vec::new()),
            Self::Summary(written) => (Input::Summary(written), Vec::new()),
            Self::Admission(answer) => (Input::Admission(answer), Vec::new()),
            Self::Reservation(answer) => (Input::Reservation(answer), Vec::new()),
            Self::Settled(keys) => (Input::Settled(keys), Vec::new()),
            Self::Tool(order, raw) => {
                let (outcome, blobs) = output::outcome(codec, raw);
                let report = OutcomeReport {
                    call: order.call.clone(),
                    attempt: order.attempt,
                    reporter: Reporter::Server,
                    outcome,
                };
                (Input::Outcome(report), blobs)
            }
        }
    }
}

/// The running effects of one session.
#[derive(Debug)]
pub(super) struct Effects {
    deps: Arc<Deps>,
    tenant: TenantId,
    session: SessionId,
    /// Few, and mostly none: a list takes no memory then.
    running: Vec<(Effect, tokio::task::AbortHandle)>,
    tasks: JoinSet<(Effect, Done)>,
}

impl Effects {
    pub(super) fn new(deps: Arc<Deps>, tenant: TenantId, session: SessionId) -> Self {
        Self { deps, tenant, session, running: Vec::new(), tasks: JoinSet::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether a tool is at work whose outcome would be lost.
    pub(super) fn running_tool(&self) -> bool {
        self.running.iter().any(|(effect, _)| matches!(effect, Effect::RunTool(_)))
    }

    /// Starts what is missing and aborts what is not wanted any more.
    pub(super) fn reconcile(&mut self, wanted: Vec<Effect>, state: &Session, bundle: &Arc<Bundle>) {
        self.running.retain(|(effect, task)| {
            let keep = wanted.contains(effect);
            if !keep {
                task.abort();
            }
            keep
        });
        for effect in wanted {
            if !self.running.iter().any(|(running, _)| *running == effect) {
                self.start(effect, state, bundle);
            }
        }
    }

    fn start(&mut self, effect: Effect, state: &Session, bundle: &Arc<Bundle>) {
        let key = effect.clone();
        let handle = match &effect {
            Effect::AskModel { seat, model } => {
                let asked = ask::proposal(&self.deps, state, bundle, *seat, model);
                let seat = *seat;
                self.tasks.spawn(guarded(
                    effect,
                    asked,
                    move |ballot| Done::Ballot(seat, Box::new(ballot)),
                    lost_ballot,
                ))
            }
            Effect::Summarize { seat, model } => {
                let asked = ask::summary(&self.deps, state, bundle, *seat, model);
                let seat = *seat;
                let lost = move |why: &str| ask::written(seat, lost_ballot(why));
                self.tasks.spawn(guarded(effect, asked, |written| Done::Summary(Box::new(written)), lost))
            }
            Effect::Classify { attempt, model } => {
                let asked = ask::label(&self.deps, state, bundle, *attempt, model);
                let attempt = *attempt;
                self.tasks.spawn(guarded(effect, asked, Done::Classified, move |why| lost_label(attempt, why)))
            }
            Effect::RunTool(order) => {
                let Some(tool) = bundle.tool(&order.tool) else { return };
                let Some(opened) = &state.opened else { return };
                let tool_order = ToolOrder {
                    order: order.clone(),
                    tool: Arc::new(tool.def.clone()),
                    tenant: self.tenant.clone(),
                    actor: opened.by.clone(),
                    session: self.session,
                };
                let runner = Arc::clone(&self.deps.tools);
                let order = Box::new(order.clone());
                let run = async move { runner.run(&tool_order).await };
                self.tasks.spawn(guarded(effect, run, move |raw| Done::Tool(order, raw), lost_call))
            }
            Effect::AskAdmission { call, hook, attempt, .. } => {
                let Some(question) = admission::question(&self.tenant, state, bundle, &effect) else { return };
                let hooks = Arc::clone(&self.deps.hooks);
                let ask = async move { hooks.ask(&question).await };
                let (call, hook, attempt) = (call.clone(), hook.clone(), *attempt);
                let done = move |verdict| Done::Admission(AdmissionAnswer { call, hook, attempt, verdict });
                self.tasks.spawn(guarded(effect, ask, done, admission::lost))
            }
            Effect::Reserve { purpose, charges } => {
                let asked = ledger::reserve(&self.deps, &self.tenant, state, purpose.clone(), charges);
                let purpose = purpose.clone();
                // Without an answer nothing is granted: the effect still stands, and is started again.
                self.tasks.spawn(guarded(effect, asked, Done::Reservation, move |why| ledger::lost(purpose, why)))
            }
            Effect::Settle(settle) => {
                let told = ledger::settle(&self.deps, &self.tenant, state, settle);
                self.tasks.spawn(guarded(effect, told, Done::Settled, |_| Vec::new()))
            }
            Effect::OfferCall { .. } => return,
        };
        self.running.reserve_exact(1);
        self.running.push((key, handle));
    }

    /// Forgets an effect; whether it was wanted.
    fn ended(&mut self, effect: &Effect) -> bool {
        let Some(place) = self.running.iter().position(|(running, _)| running == effect) else { return false };
        drop(self.running.swap_remove(place));
        if self.running.is_empty() {
            self.running = Vec::new();
        }
        true
    }

    /// The next result of an effect that is still wanted; pending while there is none.
    pub(super) async fn next(&mut self) -> Option<Done> {
        loop {
            match self.tasks.join_next().await {
                Some(Ok((effect, done))) => {
                    if self.ended(&effect) {
                        return Some(done);
                    }
                }
                // An aborted effect has no result that anybody waits for.
                Some(Err(_)) => {}
                None => return std::future::pending().await,
            }
        }
    }
}

/// Runs one effect in a task of its own, so that a panic in it is a recorded failure and nothing more.
async fn guarded<T: Send + 'static>(
    effect: Effect,
    work: impl Future<Output = T> + Send + 'static,
    done: impl FnOnce(T) -> Done + Send + 'static,
    lost: impl FnOnce(&str) -> T + Send + 'static,
) -> (Effect, Done) {
    let task = tokio_util::task::AbortOnDropHandle::new(tokio::spawn(work));
    let result = match task.await {
        Ok(result) => result,
        Err(error) => lost(&describe(&error)),
    };
    (effect, done(result))
}

fn describe(error: &JoinError) -> String {
    if error.is_panic() { "an internal error stopped it".to_owned() } else { "it was stopped".to_owned() }
}

fn lost_ballot(why: &str) -> Ballot {
    ask::failed(ProviderFailure::Misconfigured, why)
}

fn lost_label(attempt: u32, why: &str) -> Classified {
    Classified {
        attempt,
        result: Err(ClassificationFailure { provider: None, detail: why.to_owned() }),
        usage: Usage::default(),
    }
}

fn lost_call(why: &str) -> RawOutcome {
    RawOutcome::bare(OutcomeStatus::Indeterminate, why)
}
