//! The rows of approvals that a batch opens, answers or ends. What is not here: other rows beside the log (`beside`).

use std::collections::BTreeSet;

use toolgate_core::event::{
    AdmissionAnswered, ApprovalDecided, ApprovalOpened, ApprovalVerb, CallDecided, CallEnd, CallEnded, Event, RunEnded,
    RunPaused,
};
use toolgate_core::id::{ActorId, CallId, Sha256Digest, ToolId};
use toolgate_core::json::Json;
use toolgate_core::output::NotExecuted;
use toolgate_core::reason::{Ending, RejectReason};
use toolgate_core::session::{Awaited, AwaitedApproval, Call, CallState, Pause, Phase};
use toolgate_core::tool::Venue;
use toolgate_core::{BUDGET_REASON, RAISE_TOOL};
use toolgate_store::{ApprovalBody, ApprovalRow, ApprovalStatus, Codec, CodecError};

use super::Batch;

/// What a human is asked about, before it is a row.
struct Question {
    run: u32,
    step: u32,
    call: CallId,
    tool: ToolId,
    venue: Venue,
    reason: String,
    args: Json,
    args_hash: Sha256Digest,
    opened: ApprovalOpened,
    approved_by: BTreeSet<ActorId>,
}

/// Approvals that the batch opens or settles, the last state of each.
pub(in crate::sessions) fn approvals(codec: &Codec, batch: &Batch<'_>) -> Result<Vec<ApprovalRow>, CodecError> {
    let mut rows = Rows { codec, batch, open: pending_before(batch), rows: Vec::new() };
    for event in batch.events {
        match event {
            Event::CallDecided(decided) => rows.ask(of_decided(decided))?,
            Event::AdmissionAnswered(answer) => rows.ask(of_admitted(batch, answer))?,
            Event::RunPaused(paused) => rows.ask(of_paused(paused))?,
            Event::ApprovalDecided(answer) => rows.answer(answer)?,
            Event::CallEnded(ended) => rows.end_call(ended)?,
            Event::RunEnded(ended) => rows.end_run(ended)?,
            _ => {}
        }
    }
    Ok(rows.rows)
}

struct Rows<'a, 'b> {
    codec: &'a Codec,
    batch: &'a Batch<'b>,
    open: Vec<Question>,
    rows: Vec<ApprovalRow>,
}

impl Rows<'_, '_> {
    fn ask(&mut self, question: Option<Question>) -> Result<(), CodecError> {
        let Some(question) = question else { return Ok(()) };
        self.put(&question, ApprovalStatus::Pending, None, (None, None))?;
        self.open.push(question);
        Ok(())
    }

    fn answer(&mut self, answer: &ApprovalDecided) -> Result<(), CodecError> {
        if answer.decision == ApprovalVerb::Revoke {
            return self.revoke(answer);
        }
        let Some(place) = self.open.iter().position(|question| question.opened.id == answer.approval) else {
            return Ok(());
        };
        let mut question = self.open.swap_remove(place);
        if answer.decision == ApprovalVerb::Approve {
            question.approved_by.insert(answer.by.clone());
        }
        if answer.missing > 0 {
            self.put(&question, ApprovalStatus::Pending, None, (None, None))?;
            self.open.push(question);
            return Ok(());
        }
        let status = match answer.decision {
            ApprovalVerb::Approve => ApprovalStatus::Approved,
            ApprovalVerb::Deny => ApprovalStatus::Denied,
            ApprovalVerb::Edit => ApprovalStatus::Edited,
            ApprovalVerb::Revoke => ApprovalStatus::Revoked,
        };
        let words = (Some(answer.decision), answer.content.message.clone());
        self.put(&question, status, Some(answer.by.clone()), words)
    }

    /// An approval that was used stays approved, whatever becomes of the grant it gave.
    fn revoke(&mut self, answer: &ApprovalDecided) -> Result<(), CodecError> {
        let unsent = |call: &&Call| {
            call.approval.as_ref() == Some(&answer.approval)
                && matches!(call.state, CallState::Queued | CallState::Waiting(Awaited::Reservation))
        };
        let Some(call) = self.batch.before.calls().iter().find(unsent) else { return Ok(()) };
        let opened = ApprovalOpened {
            id: answer.approval.clone(),
            requested_at: call.decided_at,
            expires_at: self.batch.at,
            digest: answer.digest,
            remind_ms: None,
            approvers: 1,
            approved_by: BTreeSet::new(),
        };
        let Some(question) = of_call(self.batch, call, &AwaitedApproval::new(opened)) else { return Ok(()) };
        let words = (Some(ApprovalVerb::Revoke), None);
        self.put(&question, ApprovalStatus::Revoked, Some(answer.by.clone()), words)
    }

    /// What nobody answered ends with its call.
    fn end_call(&mut self, ended: &CallEnded) -> Result<(), CodecError> {
        let Some(place) = self.open.iter().position(|question| question.call == ended.call) else { return Ok(()) };
        let question = self.open.swap_remove(place);
        let status = match ended.end {
            CallEnd::NotExecuted(NotExecuted::Expired) => ApprovalStatus::Expired,
            CallEnd::NotExecuted(_) | CallEnd::Outcome(_) => ApprovalStatus::Cancelled,
        };
        self.put(&question, status, None, (None, None))
    }

    /// What a paused run asked for ends with the run.
    fn end_run(&mut self, ended: &RunEnded) -> Result<(), CodecError> {
        for question in std::mem::take(&mut self.open) {
            let lapsed = ended.ending == Ending::ApprovalExpired && question.tool.as_str() == RAISE_TOOL;
            let status = if lapsed { ApprovalStatus::Expired } else { ApprovalStatus::Cancelled };
            self.put(&question, status, None, (None, None))?;
        }
        Ok(())
    }

    fn put(
        &mut self,
        question: &Question,
        status: ApprovalStatus,
        by: Option<ActorId>,
        (answer, message): (Option<ApprovalVerb>, Option<String>),
    ) -> Result<(), CodecError> {
        let body = ApprovalBody {
            run: question.run,
            step: question.step,
            tool: question.tool.clone(),
            venue: question.venue,
            reason: question.reason.clone(),
            args: question.args.clone(),
            args_hash: question.args_hash,
            digest: question.opened.digest,
            answer,
            message,
            approvers: question.opened.approvers,
            approved_by: question.approved_by.clone(),
        };
        let row = ApprovalRow {
            session: self.batch.before.id,
            id: question.opened.id.clone(),
            call: question.call.clone(),
            status,
            requested_at: question.opened.requested_at,
            expires_at: Some(question.opened.expires_at),
            settled_at: (status != ApprovalStatus::Pending).then_some(self.batch.at),
            settled_by: by,
            body: self.codec.seal_approval(&body)?,
        };
        self.rows.retain(|known| known.id != row.id);
        self.rows.push(row);
        Ok(())
    }
}

/// What waited for a human before the batch.
fn pending_before(batch: &Batch<'_>) -> Vec<Question> {
    let calls = batch.before.calls().iter().filter_map(|call| match &call.state {
        CallState::Waiting(Awaited::Approval(awaited)) => of_call(batch, call, awaited),
        CallState::Waiting(Awaited::Admission(_) | Awaited::Reservation)
        | CallState::Queued
        | CallState::Dispatched(_)
        | CallState::Ended(_) => None,
    });
    calls.chain(batch.before.pause().and_then(|pause| of_pause(batch, pause))).collect()
}

fn of_call(batch: &Batch<'_>, call: &Call, awaited: &AwaitedApproval) -> Option<Question> {
    let run = batch.before.run.as_ref()?;
    let Phase::Acting(step) = &run.phase else { return None };
    Some(Question {
        run: run.no,
        step: step.no,
        call: call.id.clone(),
        tool: call.tool.clone()?,
        venue: call.venue?,
        reason: reason(call.reason),
        args: call.shown_args.clone().unwrap_or_else(Json::empty_object),
        args_hash: call.args_hash?,
        opened: awaited.opened.clone(),
        approved_by: awaited.approved_by.clone(),
    })
}

fn of_pause(batch: &Batch<'_>, pause: &Pause) -> Option<Question> {
    let run = batch.before.run.as_ref()?;
    let Phase::Asking(round) = &run.phase else { return None };
    raise((run.no, round.step), &pause.call, &pause.args, &pause.approval)
}

fn of_paused(e: &RunPaused) -> Option<Question> {
    raise((e.run, e.step), &e.call, &e.content.args, &AwaitedApproval::new(e.approval.clone()))
}

fn raise((run, step): (u32, u32), call: &CallId, args: &Json, awaited: &AwaitedApproval) -> Option<Question> {
    Some(Question {
        run,
        step,
        call: call.clone(),
        tool: ToolId::new(RAISE_TOOL).ok()?,
        venue: Venue::Server,
        reason: BUDGET_REASON.code().to_owned(),
        args_hash: args.hash(),
        args: args.clone(),
        opened: awaited.opened.clone(),
        approved_by: awaited.approved_by.clone(),
    })
}

fn of_decided(e: &CallDecided) -> Option<Question> {
    let opened = e.approval.clone()?;
    Some(Question {
        run: e.run,
        step: e.step,
        call: e.call.clone(),
        tool: e.tool.clone()?,
        venue: e.venue?,
        reason: reason(e.reason),
        args: e.content.args.clone()?,
        args_hash: e.content.args_hash?,
        approved_by: opened.approved_by.clone(),
        opened,
    })
}

fn of_admitted(batch: &Batch<'_>, e: &AdmissionAnswered) -> Option<Question> {
    let opened = e.approval.clone()?;
    of_call(batch, batch.before.call(&e.call)?, &AwaitedApproval::new(opened))
}

fn reason(reason: Option<RejectReason>) -> String {
    reason.unwrap_or(RejectReason::NeedsHumanApproval).code().to_owned()
}
