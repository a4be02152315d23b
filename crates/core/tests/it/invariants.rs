//! What must hold of every log and state, told from the log alone and without the code under test.

use std::collections::{BTreeMap, BTreeSet};

use toolgate_core::ask::Entry;
use toolgate_core::event::{
    AdmissionVerb, ApprovalVerb, Bound, CallEnd, Dispatch, Event, LedgerAnswer, Limits, Purpose, Raise, Recorded,
};
use toolgate_core::id::{ActorId, CallId};
use toolgate_core::output::NotExecuted;
use toolgate_core::pipeline::Decision;
use toolgate_core::profile::AtLimit;
use toolgate_core::tool::{ToolClass, Venue};
use toolgate_core::{Effect, outstanding};
use toolgate_core::{MAX_ATTEMPTS, MAX_REFUSALS_RECORDED, transcript};

use crate::generate::SECRET;
use crate::world::World;

/// A call's life as the log tells it.
#[derive(Default)]
struct Life {
    decision: Option<Decision>,
    class: Option<ToolClass>,
    venue: Option<Venue>,
    approved: bool,
    edited: bool,
    dispatches: u32,
    ended: bool,
    run: u32,
    /// Hooks that have yet to let it pass.
    admission: usize,
    /// The ledger has yet to grant it.
    charged: bool,
    /// Approvals that it needs.
    missing: u32,
    /// Approvals that it began with: the author of an edit.
    authors: usize,
    approvers: BTreeSet<ActorId>,
}

impl Life {
    fn dispatch(&mut self, call: &CallId, dispatch: &Dispatch) {
        assert_eq!(self.admission, 0, "{call} is dispatched before every hook let it pass");
        assert!(!self.charged, "{call} is dispatched before the ledger granted it");
        let may = self.decision == Some(Decision::Allow) || self.decision == Some(Decision::Escalate) && self.approved;
        assert!(may, "{call} is dispatched without an earlier allow");
        assert!(!self.ended, "{call} is dispatched after its end");
        self.dispatches += 1;
        assert_eq!(dispatch.attempt, self.dispatches, "attempts count from 1 without gaps");
        assert!(dispatch.attempt <= MAX_ATTEMPTS);
        assert!(self.dispatches == 1 || self.class != Some(ToolClass::Once), "{call} is `once` and was sent twice");
        assert_eq!(dispatch.instance.is_some(), self.venue == Some(Venue::Client), "sent to the venue of its tool");
    }
}

/// Checks a whole log.
pub(crate) fn check_log(log: &[Recorded]) {
    let mut lives: BTreeMap<CallId, Life> = BTreeMap::new();
    let mut limits: Option<Limits> = None;
    let (mut run, mut ended, mut refused, mut steps) = (0, true, 0, BTreeSet::new());
    let (mut pauses, mut escalated) = (BTreeSet::new(), 0);
    let (mut model_calls, mut tool_calls, mut closed, mut epoch) = (0, 0, false, 0);
    for (place, recorded) in log.iter().enumerate() {
        assert_eq!(recorded.seq, place as u64 + 1);
        assert!(recorded.epoch >= epoch, "epochs never fall");
        assert!(
            recorded.epoch == epoch || epoch == 0 || matches!(recorded.event, Event::OwnerChanged(_)),
            "an epoch starts with `owner_changed`"
        );
        epoch = recorded.epoch;
        let late =
            matches!(recorded.event, Event::OutcomeRefused(_) | Event::OwnerChanged(_) | Event::BudgetSettled(_));
        assert!(!closed || late, "{} after `session_closed`", recorded.event.kind());
        assert!(recorded.input_id.is_none() || recorded.event.is_input());
        match &recorded.event {
            Event::RunStarted(e) => {
                assert!(ended, "a run starts while another one goes on");
                assert_eq!(e.run, run + 1);
                (run, ended, refused, model_calls, tool_calls) = (e.run, false, 0, 0, 0);
                steps.clear();
                limits = Some(e.limits.clone());
            }
            Event::BallotReceived(_) => {
                model_calls += 1;
                assert!(!ended && model_calls <= limits.as_ref().unwrap().max_model_calls);
            }
            Event::CallDecided(e) => {
                assert!(!ended);
                steps.insert(e.step);
                let life = lives.entry(e.call.clone()).or_default();
                assert!(life.decision.is_none(), "{} is decided twice", e.call);
                life.decision = Some(e.decision);
                (life.class, life.venue, life.run) = (e.class, e.venue, e.run);
                life.ended = e.decision == Decision::Reject;
                assert_eq!(e.reason.is_none(), e.decision == Decision::Allow, "what is not allowed says why");
                escalated += u32::from(e.decision == Decision::Escalate);
                life.admission = e.admission.as_ref().map_or(0, |open| open.hooks.len());
                life.charged = !e.content.charges.is_empty();
                life.missing = e.approval.as_ref().map_or(0, |open| open.approvers);
                life.authors = e.approval.as_ref().map_or(0, |open| open.approved_by.len());
                let asked = e.decision == Decision::Escalate && e.admission.is_none();
                assert_eq!(e.approval.is_some(), asked, "a human is asked once every hook has answered");
                if e.decision != Decision::Reject {
                    tool_calls += 1;
                }
                if let Some(dispatch) = &e.dispatch {
                    life.dispatch(&e.call, dispatch);
                }
            }
            Event::CallDispatched(e) => lives.get_mut(&e.call).unwrap().dispatch(&e.call, &e.dispatch),
            Event::ApprovalDecided(e) => {
                let Some(life) = lives.get_mut(&e.call) else {
                    assert!(pauses.contains(&e.call), "an answer to nothing");
                    e.raises.iter().for_each(|one| raise(limits.as_mut().unwrap(), *one));
                    continue;
                };
                assert_eq!(life.decision, Some(Decision::Escalate));
                if e.decision == ApprovalVerb::Revoke {
                    assert!(life.approved, "what was never given is taken back");
                    continue;
                }
                assert!(!life.approved && !life.edited && !life.ended, "an approval is used once");
                let approves = e.decision == ApprovalVerb::Approve;
                assert!(!approves || life.approvers.insert(e.by.clone()), "one person approves twice");
                life.approved = e.decision == ApprovalVerb::Approve && e.missing == 0;
                assert!(!life.approved || life.approvers.len() + life.authors >= life.missing as usize);
                life.edited = e.decision == ApprovalVerb::Edit;
            }
            Event::CallEnded(e) => {
                let life = lives.get_mut(&e.call).unwrap();
                assert!(!life.ended, "{} ends twice", e.call);
                life.ended = true;
                match e.end {
                    CallEnd::Outcome(_) => assert!(life.dispatches > 0, "{}: an outcome without a dispatch", e.call),
                    CallEnd::NotExecuted(NotExecuted::DryRun) => assert_eq!(life.dispatches, 0),
                    CallEnd::NotExecuted(_) => {
                        assert_eq!(life.dispatches, 0, "{}: sent, but `not_executed`", e.call);
                        tool_calls -= 1;
                    }
                }
                assert_eq!(e.attempt, life.dispatches);
            }
            Event::StepEnded(e) => {
                assert!(steps.insert(e.step), "a step ends once");
            }
            Event::RunEnded(e) => {
                assert!(!ended || run == 0, "a run ends once");
                let open: Vec<&CallId> = lives.iter().filter(|(_, life)| !life.ended).map(|(id, _)| id).collect();
                assert!(open.is_empty(), "a run ends with open calls: {open:?}");
                if let Some(limits) = &limits {
                    assert!(e.steps <= limits.max_steps && e.model_calls <= limits.max_model_calls);
                    // A human may let single calls pass that bound.
                    assert!(e.tool_calls <= limits.max_tool_calls + escalated);
                    assert_eq!(e.tool_calls, tool_calls);
                    assert!(steps.len() <= e.steps as usize, "every step counts");
                }
                (run, ended) = (e.run, true);
            }
            Event::OutcomeRefused(_) => {
                refused += 1;
                assert!(refused <= MAX_REFUSALS_RECORDED);
            }
            Event::SessionClosed(_) => closed = true,
            Event::AdmissionAnswered(e) => {
                let life = lives.get_mut(&e.call).unwrap();
                assert!(life.admission > 0 && !life.ended, "an answer to no question");
                if e.verdict == AdmissionVerb::Allow {
                    life.admission -= 1;
                }
                if let Some(approval) = &e.approval {
                    life.missing = approval.approvers;
                    life.authors = approval.approved_by.len();
                }
            }
            Event::ApprovalReminded(_) | Event::BudgetReserved(_) | Event::BudgetSettled(_) => {}
            Event::ReservationAnswered(e) => {
                if let (Purpose::Call { call }, LedgerAnswer::Granted) = (&e.purpose, &e.answer) {
                    lives.get_mut(call).unwrap().charged = false;
                }
            }
            Event::RunPaused(e) => {
                assert!(pauses.insert(e.call.clone()), "each pause has a name of its own");
            }
            Event::SessionOpened(_)
            | Event::OwnerChanged(_)
            | Event::ClassificationReceived(_)
            | Event::ProfileChosen(_)
            | Event::MessageReceived(_)
            | Event::ConsensusDecided(_)
            | Event::CallAcknowledged(_)
            | Event::ClientAttached(_)
            | Event::CancelRequested(_)
            | Event::CloseRequested(_)
            | Event::Ticked(_)
            | Event::Recovered(_) => {}
        }
    }
    for (id, life) in &lives {
        assert!(life.ended || (!ended && life.run == run), "{id} has no terminal record and no run");
    }
}

/// What a human has raised holds from then on.
fn raise(limits: &mut Limits, raise: Raise) {
    match raise {
        Raise { bound: Bound::MaxSteps, to } => limits.max_steps = u32::try_from(to).unwrap(),
        Raise { bound: Bound::MaxModelCalls, to } => limits.max_model_calls = u32::try_from(to).unwrap(),
        _ => {}
    }
}

/// Checks the state between two inputs.
pub(crate) fn check_state(world: &World) {
    let under_way = outstanding(&world.session, &world.bundle);
    let set: BTreeSet<_> = under_way.iter().collect();
    assert_eq!(set.len(), under_way.len(), "no effect stands twice");
    if let Some(run) = world.session.active_run() {
        assert!(run.steps <= run.limits.max_steps && run.model_calls <= run.limits.max_model_calls);
        let asks_beyond = world.bundle.profiles().any(|(_, profile)| {
            profile.harness.as_ref().is_some_and(|harness| harness.at_limit == AtLimit::PauseAndAsk)
        });
        assert!(asks_beyond || run.tool_calls <= run.limits.max_tool_calls);
        let running = under_way.iter().filter(|e| matches!(e, Effect::RunTool(_) | Effect::OfferCall { .. })).count();
        let asks = world.session.calls().is_empty();
        assert!(asks || running <= run.limits.max_parallel_calls as usize, "too many calls at once");
    }
}

/// Checks what models are shown.
pub(crate) fn check_ask(world: &World) {
    let asked = transcript::ask(&world.session, &world.bundle);
    if world.session.calls().is_empty() {
        check_conversation(&asked.transcript);
    }
    assert!(!redacts(world) || !serde_json::to_string(&asked).unwrap().contains(SECRET), "a secret is shown to models");
}

/// Every call has exactly one result, right after the answer that asked for it, in its order.
fn check_conversation(entries: &[std::sync::Arc<Entry>]) {
    let mut expected: Vec<&CallId> = Vec::new();
    for entry in entries {
        match &**entry {
            Entry::Result { call, .. } => {
                assert!(!expected.is_empty(), "a result without a call");
                assert_eq!(expected.remove(0), call);
            }
            Entry::User { .. } | Entry::Model { .. } | Entry::Feedback { .. } => {
                assert!(expected.is_empty(), "calls without a result: {expected:?}");
                if let Entry::Model { calls, .. } = &**entry {
                    expected = calls.iter().map(|view| &view.call).collect();
                }
            }
        }
    }
    assert!(expected.is_empty(), "calls without a result: {expected:?}");
}

/// Whether every tool that takes the secret redacts it.
fn redacts(world: &World) -> bool {
    world.bundle.tools().all(|tool| !tool.def.redact.is_empty() || tool.id.as_str() == "hidden")
}

/// No event shows the secret outside its seal, when every tool that takes it redacts it.
pub(crate) fn check_secrets(world: &World) {
    if !redacts(world) {
        return;
    }
    for recorded in &world.log {
        // Calls of unknown names carry what the model made up; no contract says what of it is secret.
        let mut value = serde_json::to_value(&recorded.event).unwrap();
        value.as_object_mut().unwrap().remove("sealed");
        assert!(!value.to_string().contains(SECRET), "a secret outside its seal: {value}");
    }
}
