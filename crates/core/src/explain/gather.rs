//! Gathers what the log says about one call, event by event, so that no log need be held whole. What is not here: the
//! form of an explanation (`explain`), its text (`text`).

use super::looked_at::{cause, layers};
use super::{
    Acknowledged, Admitted, Answer, Asked, Asking, Basis, Consensus, Decided, End, Explanation, RefusedReport,
    Reserved, Sent,
};
use crate::event::{
    AdmissionAnswered, ApprovalDecided, ApprovalOpened, ApprovalReminded, ApprovalVerb, CallAcknowledged, CallContent,
    CallDecided, CallDispatched, CallEnd, CallEnded, ConsensusDecided, EndCause, EndedContent, Event, OutcomeRefused,
    ProfileChosen, Purpose, Recorded, ReservationAnswered, RunEnded, RunStarted, SessionOpened, VoteWidened,
};
use crate::id::CallId;
use crate::input::Reporter;
use crate::output::NotExecuted;
use crate::pipeline::Decision;

/// Takes the events of one session in order and explains one of its calls.
#[derive(Debug, Clone)]
pub struct Explainer {
    call: CallId,
    basis: Basis,
    /// The last larger vote: the tally of its round follows.
    widened: Option<VoteWidened>,
    consensus: Option<((u32, u32), Consensus)>,
    /// The last edit of an approver: the edited call follows it at once.
    edit: Option<(CallId, Answer)>,
    found: Option<Explanation>,
}

impl Explainer {
    /// Nothing is known yet of this call.
    #[must_use]
    pub const fn new(call: CallId) -> Self {
        let basis = Basis {
            by: None,
            bundle: None,
            profile: None,
            label: None,
            rules_version: None,
            schema_engine: None,
            limits: None,
            control: None,
            dry_run: false,
        };
        Self { call, basis, widened: None, consensus: None, edit: None, found: None }
    }

    /// The explanation; none where no event decided the call.
    #[must_use]
    pub fn finish(self) -> Option<Explanation> {
        self.found
    }

    /// Takes the next event. A kind that is added must be given its place here.
    pub fn take(&mut self, recorded: &Recorded) {
        match &recorded.event {
            Event::SessionOpened(e) => self.opened(e),
            Event::ProfileChosen(e) => self.chosen(e),
            Event::RunStarted(e) => self.started(e),
            Event::VoteWidened(e) => self.widened = Some(e.clone()),
            Event::ConsensusDecided(e) => self.counted(e),
            Event::CallDecided(e) => self.decided(recorded, e),
            Event::CallDispatched(e) => self.dispatched(recorded, e),
            Event::CallAcknowledged(e) => self.acknowledged(recorded, e),
            Event::CallEnded(e) => self.ended(recorded, e),
            Event::ApprovalDecided(e) => self.answered(recorded, e),
            Event::OutcomeRefused(e) => self.refused(recorded, e),
            Event::RunEnded(e) => self.run_ended(e),
            Event::AdmissionAnswered(e) => self.admitted(recorded, e),
            Event::ApprovalReminded(e) => self.reminded(e),
            Event::ReservationAnswered(e) => self.reserved(recorded, e),
            Event::OwnerChanged(_)
            | Event::BudgetReserved(_)
            | Event::BudgetSettled(_)
            | Event::RunPaused(_)
            | Event::ClassificationReceived(_)
            | Event::MessageReceived(_)
            | Event::BallotReceived(_)
            | Event::SummaryAsked(_)
            | Event::SummaryReceived(_)
            | Event::WrapUpStarted(_)
            | Event::StepEnded(_)
            | Event::ClientAttached(_)
            | Event::CancelRequested(_)
            | Event::CloseRequested(_)
            | Event::SessionClosed(_)
            | Event::Ticked(_)
            | Event::Recovered(_) => {}
        }
    }

    fn of_call(&mut self, call: &CallId) -> Option<&mut Explanation> {
        if *call == self.call { self.found.as_mut() } else { None }
    }

    fn opened(&mut self, e: &SessionOpened) {
        self.basis.by = Some(e.by.clone());
        self.basis.bundle = Some(e.bundle);
        self.basis.rules_version = Some(e.rules_version);
        self.basis.control = e.control;
        self.basis.dry_run = e.dry_run;
    }

    fn chosen(&mut self, e: &ProfileChosen) {
        let ProfileChosen { profile, label, trace_requirements: _ } = e;
        self.basis.profile = Some(profile.clone());
        self.basis.label.clone_from(label);
    }

    fn started(&mut self, e: &RunStarted) {
        let RunStarted { run: _, rules_version, schema_engine, limits, deadline_at: _ } = e;
        self.basis.rules_version = Some(*rules_version);
        self.basis.schema_engine = Some(schema_engine.clone());
        self.basis.limits = Some(limits.clone());
    }

    fn counted(&mut self, e: &ConsensusDecided) {
        let widened = self.widened.take().filter(|one| (one.run, one.step, one.round) == (e.run, e.step, e.round));
        let widened = widened.map(|one| (one.tool, one.why));
        self.consensus = Some(((e.run, e.step), Consensus { widened, ..Consensus::from(e) }));
    }

    fn decided(&mut self, recorded: &Recorded, e: &CallDecided) {
        if e.call != self.call {
            return;
        }
        let (cause, layers) = (cause(e), layers(e));
        // Taken apart field by field: whoever adds one must say here whether it explains something.
        let CallDecided {
            call,
            run,
            step,
            index,
            decided_at: _,
            edited_from,
            tool,
            tool_version,
            venue,
            class,
            tags,
            decision,
            reason,
            layer,
            rules: _,
            replay_of,
            dispatch,
            approval,
            edited_by,
            rewritten_by,
            admission,
            granted_by,
            policy,
            ends_run,
            args_bytes,
            content,
            sealed: _,
        } = e;
        let CallContent { tool: name, args, args_hash, redacted, derived, charges, idempotency_key, detail } = content;
        let sent =
            dispatch.iter().map(|dispatch| Sent { seq: recorded.seq, at: recorded.at, dispatch: dispatch.clone() });
        let edit = self.edit.take().filter(|(from, _)| Some(from) == edited_from.as_ref()).map(|(_, answer)| answer);
        self.found = Some(Explanation {
            call: call.clone(),
            run: *run,
            step: *step,
            index: *index,
            asked: Asked {
                name: name.clone(),
                tool: tool.clone(),
                tool_version: *tool_version,
                venue: *venue,
                class: *class,
                tags: tags.clone(),
                args: args.clone(),
                args_hash: *args_hash,
                args_bytes: *args_bytes,
                redacted: *redacted,
                derived: derived.clone(),
                idempotency_key: idempotency_key.clone(),
            },
            basis: self.basis.clone(),
            decided: Decided {
                seq: recorded.seq,
                at: recorded.at,
                decision: *decision,
                reason: *reason,
                layer: *layer,
                ends_run: *ends_run,
                cause,
                change: detail.clone(),
            },
            layers,
            policy: policy.clone(),
            consensus: self.consensus.clone().filter(|(place, _)| *place == (*run, *step)).map(|(_, found)| found),
            edited_from: edited_from.clone(),
            edited_by: edited_by.clone(),
            rewritten_by: rewritten_by.clone(),
            edit,
            replaced_by: None,
            replay_of: replay_of.clone(),
            granted_by: granted_by.clone(),
            hooks: admission.as_ref().map(|opened| opened.hooks.clone()).unwrap_or_default(),
            admissions: Vec::new(),
            charges: charges.clone(),
            ledger: Vec::new(),
            approval: approval.as_ref().map(asking),
            answers: Vec::new(),
            dispatches: sent.collect(),
            acknowledged: Vec::new(),
            refused: Vec::new(),
            end: (*decision == Decision::Reject).then(|| rejected(recorded)),
            run_ending: None,
        });
    }

    fn dispatched(&mut self, recorded: &Recorded, e: &CallDispatched) {
        let CallDispatched { call, run: _, step: _, dispatch } = e;
        if let Some(found) = self.of_call(call) {
            found.dispatches.push(Sent { seq: recorded.seq, at: recorded.at, dispatch: dispatch.clone() });
        }
    }

    fn acknowledged(&mut self, recorded: &Recorded, e: &CallAcknowledged) {
        let CallAcknowledged { call, attempt, instance } = e;
        if let Some(found) = self.of_call(call) {
            let (seq, at) = (recorded.seq, recorded.at);
            found.acknowledged.push(Acknowledged { seq, at, attempt: *attempt, instance: instance.clone() });
        }
    }

    fn ended(&mut self, recorded: &Recorded, e: &CallEnded) {
        let CallEnded { call, run: _, step: _, attempt, end, cause, reason, replaced_by, output_bytes, content } = e;
        let EndedContent { outcome, detail } = content;
        let Some(found) = self.of_call(call) else { return };
        let (cause, reporter) = closed_by(cause);
        found.replaced_by.clone_from(replaced_by);
        found.end = Some(End {
            seq: recorded.seq,
            at: recorded.at,
            end: *end,
            cause,
            reason: *reason,
            reporter,
            attempt: *attempt,
            output_bytes: *output_bytes,
            detail: outcome.as_ref().and_then(|outcome| outcome.detail.clone()).or_else(|| detail.clone()),
        });
    }

    fn answered(&mut self, recorded: &Recorded, e: &ApprovalDecided) {
        let ApprovalDecided { approval, call, by, digest, decision, missing, grant, raises: _, content, sealed: _ } = e;
        let answer = Answer {
            seq: recorded.seq,
            at: recorded.at,
            approval: approval.clone(),
            by: by.clone(),
            digest: *digest,
            verb: *decision,
            missing: *missing,
            grant: grant.clone(),
            message: content.message.clone(),
        };
        if *decision == ApprovalVerb::Edit {
            self.edit = Some((call.clone(), answer.clone()));
        }
        if let Some(found) = self.of_call(call) {
            found.answers.push(answer);
        }
    }

    fn admitted(&mut self, recorded: &Recorded, e: &AdmissionAnswered) {
        let AdmissionAnswered {
            call,
            run: _,
            step: _,
            hook,
            attempt,
            verdict,
            next_by: _,
            approval,
            content,
            sealed: _,
        } = e;
        let Some(found) = self.of_call(call) else { return };
        found.admissions.push(Admitted {
            seq: recorded.seq,
            at: recorded.at,
            hook: hook.clone(),
            attempt: *attempt,
            verdict: *verdict,
            reason: content.reason.clone(),
        });
        if let Some(opened) = approval {
            found.approval = Some(asking(opened));
        }
    }

    fn reminded(&mut self, e: &ApprovalReminded) {
        let ApprovalReminded { approval: _, call, run: _, step: _, reminder, expires_at } = e;
        if let Some(asking) = self.of_call(call).and_then(|found| found.approval.as_mut()) {
            asking.reminders = *reminder;
            asking.expires_at = *expires_at;
        }
    }

    fn reserved(&mut self, recorded: &Recorded, e: &ReservationAnswered) {
        let ReservationAnswered { purpose, answer, settled: _ } = e;
        let call = match purpose {
            Purpose::Call { call } => call,
            Purpose::Round { .. } => return,
        };
        if let Some(found) = self.of_call(call) {
            found.ledger.push(Reserved { seq: recorded.seq, at: recorded.at, answer: answer.clone() });
        }
    }

    fn refused(&mut self, recorded: &Recorded, e: &OutcomeRefused) {
        let OutcomeRefused { run: _, call, code, reporter, claimed } = e;
        if let Some(found) = self.of_call(call) {
            found.refused.push(RefusedReport {
                seq: recorded.seq,
                at: recorded.at,
                code: *code,
                reporter: reporter.clone(),
                claimed: *claimed,
            });
        }
    }

    fn run_ended(&mut self, e: &RunEnded) {
        if let Some(found) = self.found.as_mut().filter(|found| found.run == e.run) {
            found.run_ending = Some(e.ending);
        }
    }
}

fn asking(opened: &ApprovalOpened) -> Asking {
    let ApprovalOpened { id, requested_at: _, expires_at, digest, remind_ms: _, approvers, approved_by: _ } = opened;
    Asking { id: id.clone(), expires_at: *expires_at, digest: *digest, approvers: *approvers, reminders: 0 }
}

/// The decision to reject a call is its terminal record.
const fn rejected(recorded: &Recorded) -> End {
    End {
        seq: recorded.seq,
        at: recorded.at,
        end: CallEnd::NotExecuted(NotExecuted::Rejected),
        cause: "decision",
        reason: None,
        reporter: None,
        attempt: 0,
        output_bytes: 0,
        detail: None,
    }
}

/// The word for what closed a call, and who reported it.
fn closed_by(cause: &EndCause) -> (&'static str, Option<Reporter>) {
    match cause {
        EndCause::Reported(reporter) => ("reported", Some(reporter.clone())),
        EndCause::Timeout => ("timeout", None),
        EndCause::Cancelled => ("cancelled", None),
        EndCause::OwnerLost => ("owner_lost", None),
        EndCause::ClientLost => ("client_lost", None),
        EndCause::RunEnded => ("run_ended", None),
        EndCause::Approver => ("approver", None),
        EndCause::Admission => ("admission", None),
        EndCause::Ledger => ("ledger", None),
        EndCause::DryRun => ("dry_run", None),
        EndCause::ApprovalExpired => ("approval_expired", None),
        EndCause::Replayed => ("replayed", None),
    }
}

impl From<&ConsensusDecided> for Consensus {
    fn from(e: &ConsensusDecided) -> Self {
        let ConsensusDecided { run: _, step: _, round, n: _, rule, k, tally, cancelled, result } = e;
        Self {
            round: *round,
            n: e.electorate(),
            rule: *rule,
            k: *k,
            widened: None,
            groups: tally.groups.clone(),
            unreadable: tally.unreadable.clone(),
            cancelled: cancelled.clone(),
            result: *result,
        }
    }
}
