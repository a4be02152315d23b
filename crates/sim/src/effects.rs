//! Effects under way at a node: started where the state wants them, stopped where it does not, each moving on in
//! micro-steps. A twin of `toolgate-server`'s `sessions/effects`. What is not here: tools (`tool`), models (`model`).

use std::collections::{BTreeMap, BTreeSet};

use toolgate_core::event::{Charge, LedgerAnswer, Purpose, Settlement, SummaryFault};
use toolgate_core::id::{CallId, ClientInstance};
use toolgate_core::input::{
    AdmissionAnswer, AdmissionVerdict, BallotCast, Classified, ClassifiedLabel, Input, OutcomeReport, Reporter,
    ReservationAnswer, SummaryFailure,
};
use toolgate_core::output::{Outcome, OutcomeStatus};
use toolgate_core::proposal::{BallotVerdict, ProviderFailure, Usage};
use toolgate_core::session::Session;
use toolgate_core::time::Timestamp;
use toolgate_core::{Effect, Order, outstanding};
use toolgate_store::{self as store, Reservation, Reserved, SessionKey};

use crate::actor::{Nudge, Owned};
use crate::client::ToClient;
use crate::database::{Answer, Op};
use crate::faults::Fault;
use crate::node::Waiting;
use crate::tool::Request;
use crate::world::{Happening, World};
use crate::{Mutant, model};

/// How long a model is waited for.
const MODEL_MS: u64 = 60_000;

/// Where an effect stands next.
#[derive(Debug)]
pub(crate) enum Step {
    /// The last look at the lease.
    Check,
    /// The first byte goes out.
    Write,
    /// The model or hook answers.
    Answers,
    /// The time of a tool or model is over.
    TimesOut,
    /// The tool's answer is here.
    Reports(Box<Outcome>),
}

/// A client that executes.
#[derive(Debug)]
pub(crate) struct Attached {
    pub(crate) client: usize,
    pub(crate) connection: u64,
    pub(crate) instance: ClientInstance,
    offered: BTreeSet<(CallId, u32)>,
}

impl Attached {
    pub(crate) const fn new(client: usize, connection: u64, instance: ClientInstance) -> Self {
        Self { client, connection, instance, offered: BTreeSet::new() }
    }
}

impl World {
    /// Starts what must be under way and stops what must not, as the session's state says, or as a later one would.
    pub(crate) fn reconcile(
        &mut self,
        n: usize,
        key: &SessionKey,
        token: u64,
        owned: &mut Owned,
        later: Option<&Session>,
    ) {
        let state = later.unwrap_or(&owned.state);
        let wanted = outstanding(state, &self.bundle);
        owned.running.retain(|effect, _| wanted.contains(effect));
        let mut offers: BTreeMap<ClientInstance, Vec<Order>> = BTreeMap::new();
        let sure = self.nodes.get(n).is_some_and(|node| self.now < node.sure_until);
        if !sure && !wanted.is_empty() {
            self.figures.count("nodes", "effects held back: lease unsure");
        }
        for effect in wanted {
            if let Effect::OfferCall { instance, order } = effect {
                offers.entry(instance).or_default().push(order);
            } else if sure && !owned.running.contains_key(&effect) {
                let run = self.name();
                self.start(n, key, token, run, &effect, later.unwrap_or(&owned.state));
                owned.running.insert(effect, run);
            }
        }
        if let Some(attached) = owned.attached.as_mut().filter(|_| sure) {
            self.offer(n, attached, &offers);
        }
    }

    fn offer(&mut self, n: usize, attached: &mut Attached, offers: &BTreeMap<ClientInstance, Vec<Order>>) {
        let mine = offers.get(&attached.instance).map_or(&[][..], Vec::as_slice);
        attached.offered.retain(|(call, attempt)| mine.iter().any(|o| o.call == *call && o.attempt == *attempt));
        for order in mine {
            if attached.offered.insert((order.call.clone(), order.attempt)) {
                let (client, connection) = (attached.client, attached.connection);
                let what = ToClient::Offer { connection, order: Box::new(order.clone()) };
                let latency = self.rng.u64(1..20);
                self.depart(n, latency, Happening::Client { client, what });
            }
        }
    }

    fn start(&mut self, n: usize, key: &SessionKey, token: u64, run: u64, effect: &Effect, state: &Session) {
        match effect {
            Effect::AskModel { .. }
            | Effect::Summarize { .. }
            | Effect::Classify { .. }
            | Effect::AskAdmission { .. } => {
                self.figures.count("effects", "model or hook asked");
                let (wait, step) = if self.strikes(Fault::ModelSilent) {
                    (MODEL_MS, Step::TimesOut)
                } else {
                    (self.rng.u64(5..900), Step::Answers)
                };
                self.nudge_later(n, key, token, wait, Nudge::Effect { run, step });
            }
            Effect::RunTool(order) => {
                let left = order.deadline_at.as_micros().saturating_sub(self.now.as_micros());
                let left_ms = u64::try_from(left).unwrap_or(0) / 1_000;
                self.nudge_later(n, key, token, left_ms, Nudge::Effect { run, step: Step::TimesOut });
                self.nudge_later(n, key, token, 0, Nudge::Effect { run, step: Step::Check });
            }
            Effect::Reserve { purpose, charges } => {
                let reservation = self.reservation(key, state, purpose, charges);
                self.ask(n, Waiting::Ledger { key: key.clone(), token, run }, Op::Reserve(reservation));
            }
            Effect::Settle(settle) => {
                let settle = settle.iter().map(settlement).collect();
                let op = Op::Settle(key.clone(), settle, self.now);
                self.ask(n, Waiting::Ledger { key: key.clone(), token, run }, op);
            }
            Effect::OfferCall { .. } => {}
        }
    }

    fn reservation(&self, key: &SessionKey, state: &Session, purpose: &Purpose, charges: &[Charge]) -> Reservation {
        let charge = |charge: &Charge| store::Charge {
            counter: charge.counter.clone(),
            window_start: Timestamp(0),
            amount: charge.amount,
            limit: charge.limit,
        };
        Reservation {
            tenant: key.tenant.clone(),
            session: key.session,
            key: purpose.key(),
            charges: charges.iter().map(charge).collect(),
            settle: state.unsettled.iter().map(settlement).collect(),
            at: self.now,
        }
    }

    /// The ledger has answered.
    pub(crate) fn ledger_answered(&mut self, n: usize, key: &SessionKey, token: u64, run: u64, answer: &Answer) {
        let Some(owned) = self.owned(n, key, token) else { return };
        let found = owned.running.iter().find(|(_, known)| **known == run).map(|(effect, _)| effect.clone());
        let Some(effect) = found else { return };
        let settled: Vec<String> = owned.state.unsettled.iter().map(|one| one.key.clone()).collect();
        let input = match (&effect, answer) {
            (Effect::Reserve { purpose, .. }, Answer::Reserved(reserved)) => {
                let answer = match reserved {
                    Reserved::Granted => LedgerAnswer::Granted,
                    Reserved::Refused { counter, used, limit } => {
                        LedgerAnswer::Refused { counter: counter.clone(), used: *used, limit: *limit }
                    }
                };
                Input::Reservation(ReservationAnswer { purpose: purpose.clone(), answer, settled })
            }
            (Effect::Settle(told), Answer::Settled) => Input::Settled(told.iter().map(|one| one.key.clone()).collect()),
            _ => return,
        };
        self.finished(n, key, token, &effect, input);
    }

    /// One effect takes its next step, if it is still wanted.
    pub(crate) fn effect_steps(&mut self, n: usize, key: &SessionKey, token: u64, run: u64, step: Step) {
        let Some(owned) = self.owned(n, key, token) else { return };
        let found = owned.running.iter().find(|(_, known)| **known == run).map(|(effect, _)| effect.clone());
        let Some(effect) = found else { return };
        match (&effect, step) {
            (Effect::RunTool(_), Step::Check) => self.check(n, key, token, run, &effect),
            (Effect::RunTool(order), Step::Write) => self.write(n, key, token, run, order.clone()),
            (Effect::RunTool(order), Step::TimesOut) => {
                let outcome = Outcome::bare(OutcomeStatus::TimedOut, "no answer in time; it may have happened");
                let input = reported(order, outcome);
                self.finished(n, key, token, &effect, input);
            }
            (Effect::RunTool(order), Step::Reports(outcome)) => {
                if self.gap(n) {
                    return;
                }
                let input = reported(order, *outcome);
                self.finished(n, key, token, &effect, input);
            }
            (_, Step::Answers) => {
                if self.gap(n) {
                    return;
                }
                if let Some(input) = self.answer_of(n, key, token, &effect) {
                    self.finished(n, key, token, &effect, input);
                }
            }
            (_, Step::TimesOut) => {
                let input = silence(&effect);
                self.finished(n, key, token, &effect, input);
            }
            _ => {}
        }
    }

    /// The last look at the lease; between it and the first byte the node may stand still.
    fn check(&mut self, n: usize, key: &SessionKey, token: u64, run: u64, effect: &Effect) {
        if self.nodes.get(n).is_some_and(|node| self.now >= node.sure_until) {
            if let Some(owned) = self.owned(n, key, token) {
                // It is started again once the lease is renewed.
                owned.running.remove(effect);
            }
            return;
        }
        if self.gap(n) {
            return;
        }
        self.nudge_later(n, key, token, 0, Nudge::Effect { run, step: Step::Write });
    }

    fn write(&mut self, n: usize, key: &SessionKey, token: u64, run: u64, order: Order) {
        let Some((life, sure_until)) = self.nodes.get(n).map(|node| (node.life, node.sure_until)) else { return };
        if self.now >= order.deadline_at {
            let outcome = Outcome::bare(OutcomeStatus::Failed, "its time was over before it was sent");
            let input = reported(&order, outcome);
            return self.finished(n, key, token, &Effect::RunTool(order), input);
        }
        let late = self.strikes(Fault::ToolRequestLate);
        let latency = if late { self.rng.u64(500..60_000) } else { self.rng.u64(1..30) };
        // Only a node that stood still after its last look, or a network that held the request, may explain that it
        // reaches the tool after somebody else has closed the call.
        let excused = late || self.now >= sure_until;
        let request = Request { node: n, life, key: key.clone(), token, run, order, excused };
        self.at_ms(latency, Happening::Tool(Box::new(request)));
        self.gap(n);
    }

    /// The result of an effect becomes an input.
    fn finished(&mut self, n: usize, key: &SessionKey, token: u64, effect: &Effect, input: Input) {
        let again = self.mutant == Some(Mutant::SentAgain);
        let Some(owned) = self.owned(n, key, token) else { return };
        let Some(run) = owned.running.get(effect).copied() else { return };
        if owned.done.iter().any(|(known, _)| *known == run) {
            return;
        }
        let unknown = matches!(&input, Input::Outcome(report)
            if matches!(report.outcome.status, OutcomeStatus::TimedOut | OutcomeStatus::Indeterminate));
        if again
            && unknown
            && let Effect::RunTool(order) = effect
        {
            // Broken on purpose: what may have happened is asked for once more.
            let mut order = order.clone();
            order.deadline_at = self.now.plus_ms(60_000);
            return self.write(n, key, token, 0, order);
        }
        owned.done.push_back((run, input));
        self.poke(n, key);
    }

    fn answer_of(&mut self, n: usize, key: &SessionKey, token: u64, effect: &Effect) -> Option<Input> {
        match effect {
            Effect::AskModel { seat, .. } => {
                let calm = self.is_calm();
                let steps = self.owned(n, key, token)?.state.run.as_ref().map_or(0, |run| run.steps);
                let ballot = model::ballot(&mut self.rng, steps, calm);
                Some(Input::Ballot(Box::new(BallotCast { seat: *seat, ballot })))
            }
            Effect::Summarize { seat, .. } => Some(model::summary(*seat, Ok("what was done".to_owned()))),
            Effect::Classify { attempt, .. } => {
                let found = ClassifiedLabel { label: "l".to_owned(), confidence_milli: 900, reasoning: None };
                Some(Input::Classified(Classified { attempt: *attempt, result: Ok(found), usage: Usage::default() }))
            }
            Effect::AskAdmission { call, hook, attempt, .. } => {
                let verdict = match self.rng.u8(0..6) {
                    0 => AdmissionVerdict::Deny { reason: None },
                    1 => AdmissionVerdict::Failed { detail: "reset".to_owned() },
                    _ => AdmissionVerdict::Allow { reason: None },
                };
                let (call, hook, attempt) = (call.clone(), hook.clone(), *attempt);
                Some(Input::Admission(AdmissionAnswer { call, hook, attempt, verdict }))
            }
            Effect::Reserve { .. } | Effect::Settle(_) | Effect::RunTool(_) | Effect::OfferCall { .. } => None,
        }
    }
}

fn settlement(settlement: &Settlement) -> store::Settlement {
    let used = settlement.used.iter().map(|(counter, used)| (counter.clone(), *used)).collect();
    store::Settlement { key: settlement.key.clone(), used }
}

fn reported(order: &Order, outcome: Outcome) -> Input {
    let (call, attempt) = (order.call.clone(), order.attempt);
    Input::Outcome(OutcomeReport { call, attempt, reporter: Reporter::Server, outcome })
}

/// What a model or hook that says nothing amounts to.
fn silence(effect: &Effect) -> Input {
    match effect {
        Effect::AskModel { seat, .. } => {
            let verdict = BallotVerdict::Failed { reason: ProviderFailure::TimedOut, detail: "silent".to_owned() };
            Input::Ballot(Box::new(BallotCast { seat: *seat, ballot: model::of(verdict) }))
        }
        Effect::Summarize { seat, .. } => {
            let detail = "silent".to_owned();
            model::summary(*seat, Err(SummaryFailure { fault: SummaryFault::Failed, detail }))
        }
        Effect::AskAdmission { call, hook, attempt, .. } => Input::Admission(AdmissionAnswer {
            call: call.clone(),
            hook: hook.clone(),
            attempt: *attempt,
            verdict: AdmissionVerdict::Failed { detail: "silent".to_owned() },
        }),
        // A tick ends it.
        Effect::Classify { .. }
        | Effect::Reserve { .. }
        | Effect::Settle(_)
        | Effect::RunTool(_)
        | Effect::OfferCall { .. } => Input::Tick,
    }
}
