//! Work that must be under way for a session to move on, as a function of its state alone. After a restart the same
//! question gets the same answer. What is not here: doing it (the server).

use toolgate_policy::RuleId;

use crate::apply::budget::is_asked;
use crate::bundle::Bundle;
use crate::event::{Charge, Purpose, Settlement};
use crate::id::{CallId, ClientInstance, ModelName, Sha256Digest, ToolId};
use crate::input::Seat;
use crate::json::Json;
use crate::session::{Awaited, AwaitedApproval, Call, CallState, DispatchedCall, Phase, Session};
use crate::time::Timestamp;
use crate::tool::Venue;
use crate::transcript::in_turn;

/// Time that a server tool's own time-out has before Toolgate closes the call without it, in milliseconds.
pub const SERVER_GRACE_MS: u64 = 5_000;

/// Work for the driver. Two equal effects are the same piece of work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// Ask the classifier.
    Classify {
        /// The question; the answer repeats it.
        attempt: u32,
        /// The model.
        model: ModelName,
    },
    /// Ask a model for a ballot.
    AskModel {
        /// The question; the answer repeats it.
        seat: Seat,
        /// The model.
        model: ModelName,
    },
    /// Ask a model to sum up earlier steps; nobody else is asked before.
    Summarize {
        /// The question; the answer repeats it.
        seat: Seat,
        /// The model.
        model: ModelName,
    },
    /// Ask an admission hook about a call.
    AskAdmission {
        /// The call.
        call: CallId,
        /// The hook.
        hook: RuleId,
        /// The question; the answer repeats it.
        attempt: u32,
        /// The tool.
        tool: ToolId,
        /// The canonical arguments.
        args: Json,
    },
    /// Ask the tenant's ledger; the same request may tell it what the session has yet to settle (`Session::unsettled`).
    Reserve {
        /// What it is for.
        purpose: Purpose,
        /// What must be put on the counters, all or nothing.
        charges: Vec<Charge>,
    },
    /// Tell the tenant's ledger what was really spent; nothing waits for it.
    Settle(Vec<Settlement>),
    /// Run a tool on the server.
    RunTool(Order),
    /// Offer a call to the client it was dispatched to.
    OfferCall {
        /// The instance.
        instance: ClientInstance,
        /// What to run.
        order: Order,
    },
}

/// A dispatched call as an executor gets it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Order {
    /// The call; also the idempotency key towards the tool.
    pub call: CallId,
    /// The attempt.
    pub attempt: u32,
    /// Sequence number of the dispatch.
    pub fence: u64,
    /// The tool.
    pub tool: ToolId,
    /// The canonical arguments that were decided: the tool gets these very bytes.
    pub args: Json,
    /// Their hash.
    pub args_hash: Sha256Digest,
    /// When the outcome is overdue.
    pub deadline_at: Timestamp,
}

/// What must be under way.
#[must_use]
pub fn outstanding(session: &Session, bundle: &Bundle) -> Vec<Effect> {
    if let Some(attempt) = session.classifying {
        let model = bundle.classification().and_then(|classification| classification.model.clone());
        return model.map(|model| Effect::Classify { attempt, model }).into_iter().collect();
    }
    let Some(run) = session.active_run() else {
        let settle = (!session.unsettled.is_empty()).then(|| Effect::Settle(session.unsettled.clone()));
        return settle.into_iter().collect();
    };
    match &run.phase {
        Phase::Asking(round) if round.paused.is_some() => Vec::new(),
        Phase::Asking(round) if !is_asked(round) => {
            let (run, step, attempt) = (run.no, round.step, round.attempt);
            let purpose = Purpose::Round { run, step, round: round.round, attempt };
            vec![Effect::Reserve { purpose, charges: round.charges.clone() }]
        }
        Phase::Asking(round) if round.asked_to_sum_up().is_some() => {
            let seat = Seat { run: run.no, step: round.step, round: round.round, ballot: 0, attempt: round.attempt };
            let model = round.asked_to_sum_up().map(|(model, _)| model.clone());
            model.map(|model| Effect::Summarize { seat, model }).into_iter().collect()
        }
        Phase::Asking(round) => round
            .missing()
            .filter_map(|ballot| {
                let seat = Seat { run: run.no, step: round.step, round: round.round, ballot, attempt: round.attempt };
                model_for(session, bundle, ballot).map(|model| Effect::AskModel { seat, model })
            })
            .collect(),
        Phase::Acting(step) => step.calls.iter().filter_map(call_effect).collect(),
        Phase::Ended(_) => Vec::new(),
    }
}

/// The model that casts this ballot.
pub(crate) fn model_for(session: &Session, bundle: &Bundle, ballot: u32) -> Option<ModelName> {
    let profile = session.profile.as_ref().and_then(|name| bundle.profile(name))?;
    let own = profile.model.clone();
    let voters = profile.consensus.as_ref().map_or(&[][..], |consensus| consensus.models.as_slice());
    in_turn(voters, ballot).cloned().or(own)
}

fn call_effect(call: &Call) -> Option<Effect> {
    match &call.state {
        CallState::Waiting(Awaited::Admission(awaited)) => Some(Effect::AskAdmission {
            call: call.id.clone(),
            hook: awaited.hooks.first()?.clone(),
            attempt: awaited.attempt,
            tool: call.tool.clone()?,
            args: call.args.clone()?,
        }),
        CallState::Waiting(Awaited::Reservation) => {
            Some(Effect::Reserve { purpose: Purpose::Call { call: call.id.clone() }, charges: call.charges.clone() })
        }
        CallState::Dispatched(_) => order_effect(call),
        CallState::Waiting(Awaited::Approval(_)) | CallState::Queued | CallState::Ended(_) => None,
    }
}

fn order_effect(call: &Call) -> Option<Effect> {
    let CallState::Dispatched(open) = &call.state else { return None };
    let order = Order {
        call: call.id.clone(),
        attempt: open.attempt,
        fence: open.fence,
        tool: call.tool.clone()?,
        args: call.args.clone()?,
        args_hash: call.args_hash?,
        deadline_at: open.deadline_at,
    };
    match (call.venue?, open.instance.clone()) {
        (Venue::Server, _) => Some(Effect::RunTool(order)),
        (Venue::Client, Some(instance)) => Some(Effect::OfferCall { instance, order }),
        (Venue::Client, None) => None,
    }
}

/// When the session must be ticked, if nothing else happens before.
#[must_use]
pub fn next_wake(session: &Session) -> Option<Timestamp> {
    if session.classifying.is_some() {
        return session.classify_by;
    }
    let run = session.active_run()?;
    let pause = match &run.phase {
        Phase::Asking(round) => round.paused.as_ref().map(|pause| approval_wake(&pause.approval)),
        Phase::Acting(_) | Phase::Ended(_) => None,
    };
    let calls = session.calls().iter().filter_map(|call| match &call.state {
        CallState::Waiting(Awaited::Approval(awaited)) => Some(approval_wake(awaited)),
        CallState::Waiting(Awaited::Admission(awaited)) => Some(awaited.answer_by),
        CallState::Waiting(Awaited::Reservation) => None,
        CallState::Dispatched(open) => Some(overdue_at(call, open)),
        CallState::Queued | CallState::Ended(_) => None,
    });
    calls.chain(pause).chain([run.deadline_at]).min()
}

fn approval_wake(awaited: &AwaitedApproval) -> Timestamp {
    awaited.remind_at().unwrap_or(awaited.opened.expires_at)
}

/// When Toolgate closes a dispatched call itself: a server tool's runner gets a little longer to report its own time-out.
pub(crate) const fn overdue_at(call: &Call, open: &DispatchedCall) -> Timestamp {
    match call.venue {
        Some(Venue::Server) => open.deadline_at.plus_ms(SERVER_GRACE_MS),
        Some(Venue::Client) | None => open.deadline_at,
    }
}
