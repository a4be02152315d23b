//! Calls of a step: all are decided before any is sent, counting in proposed order (ruling 14).

use std::collections::BTreeMap;

use super::{Draft, approval_digest, redact};
use crate::event::{ApprovalOpened, CallContent, CallDecided, Event};
use crate::id::{ApprovalId, CallId};
use crate::pipeline::{Decision, Situation, Verdict, judge};
use crate::profile::ApprovalMode;
use crate::proposal::ProposedCall;
use crate::reason::RejectReason;
use crate::session::CallState;

impl Draft<'_> {
    /// Decides every call of a ballot, then sends what may be sent.
    pub(super) fn decide_calls(&mut self, calls: &[ProposedCall], escalate: Option<RejectReason>) {
        let mut scratch = self.clone();
        let mut decided = Vec::new();
        for (index, call) in (0_u32..).zip(calls) {
            let Some(event) = scratch.decided(index, call, escalate, None) else { return };
            scratch.push(Event::CallDecided(Box::new(event.clone())));
            decided.push(event);
        }
        let fatal = decided.iter().find_map(|event| {
            let reason = event.reason.filter(|_| event.ends_run)?;
            Some((reason, event.content.detail.clone()))
        });
        if fatal.is_none() {
            self.give_leave(&mut decided);
        }
        for event in decided {
            self.push(Event::CallDecided(Box::new(event)));
        }
        match fatal {
            Some((reason, detail)) => self.end_run(reason.into(), None, detail),
            None => self.advance(),
        }
    }

    /// Whether a rejected call ends the run.
    pub(super) fn is_fatal(&self, reason: RejectReason) -> bool {
        let asks_nobody = self.profile().is_some_and(|profile| profile.approval.mode == ApprovalMode::End);
        self.ends_run(reason) || (reason == RejectReason::NeedsHumanApproval && asks_nobody)
    }

    /// Writes the dispatch into the decision of the calls whose turn it is at once: one row, one append.
    fn give_leave(&self, decided: &mut [CallDecided]) {
        let mut scratch = self.clone();
        for event in decided.iter() {
            scratch.push(Event::CallDecided(Box::new(event.clone())));
        }
        let before = scratch.events.len();
        scratch.advance();
        for event in scratch.events.iter().skip(before) {
            // Only the first leaves count: once a call is closed without being sent, what follows is later history.
            let Event::CallDispatched(sent) = event else { break };
            if let Some(decision) = decided.iter_mut().find(|decision| decision.call == sent.call) {
                decision.dispatch = Some(sent.dispatch.clone());
            }
        }
    }

    /// Judges one call and makes its record. `edited` names the call that an approver edited into this one.
    pub(super) fn decided(
        &self,
        index: u32,
        call: &ProposedCall,
        escalate: Option<RejectReason>,
        edited: Option<&CallId>,
    ) -> Option<CallDecided> {
        let profile = self.profile()?;
        let run = self.session.active_run()?;
        let (run_no, step) = self.step()?;
        let verdict = judge(
            &Situation {
                bundle: self.bundle,
                profile,
                capabilities: &self.session.capabilities,
                limits: &run.limits,
                tool_calls: run.tool_calls,
                repeats: &run.repeats,
                idempotency: &self.session.idempotency,
                session: Some(&self.session),
                at: self.at,
                escalate,
                approved_by_edit: edited.is_some(),
            },
            call,
        );
        let id = CallId::at(self.session.id, run_no, step, index);
        let approval = (verdict.decision == Decision::Escalate).then(|| {
            self.ask_human(ApprovalId::at(self.session.id, run_no, step, index), &verdict, profile.approval.expires_ms)
        });
        let pointers = redact::pointers(self.bundle, &call.tool);
        let shown = verdict.args.as_ref().and_then(|args| redact::cut(args, pointers));
        let redacted = shown.is_some();
        let mut sealed = BTreeMap::new();
        if let Some(full) = verdict.args.as_ref().filter(|_| redacted && verdict.decision != Decision::Reject) {
            sealed.insert(id.clone(), full.clone());
        }
        let tool = verdict.tool;
        let rejected = verdict.reason.filter(|_| verdict.decision == Decision::Reject);
        let ends_run = rejected.is_some_and(|reason| verdict.ends_run || self.is_fatal(reason));
        Some(CallDecided {
            call: id,
            run: run_no,
            step,
            index,
            decided_at: self.at,
            edited_from: edited.cloned(),
            tool: tool.map(|tool| tool.id.clone()),
            tool_version: tool.map(|tool| tool.version),
            venue: tool.map(|tool| tool.def.venue),
            class: tool.map(|tool| tool.def.class),
            tags: tool.map(|tool| tool.def.tags.clone()).unwrap_or_default(),
            decision: verdict.decision,
            reason: verdict.reason,
            layer: verdict.layer,
            rules: verdict.rules,
            replay_of: verdict.replay_of,
            dispatch: None,
            approval: approval.flatten(),
            policy: verdict.policy,
            ends_run,
            args_bytes: verdict.args.as_ref().map_or(0, |args| args.as_str().len() as u64),
            content: CallContent {
                tool: call.tool.clone(),
                args_hash: verdict.args.as_ref().map(crate::json::Json::hash),
                args: shown.or(verdict.args),
                redacted,
                derived: verdict.derived,
                idempotency_key: verdict.idempotency_key,
                detail: verdict.detail,
            },
            sealed,
        })
    }

    fn ask_human(&self, id: ApprovalId, verdict: &Verdict<'_>, expires_ms: u64) -> Option<ApprovalOpened> {
        let tool = verdict.tool?;
        let args = verdict.args.as_ref()?;
        let digest = approval_digest(self.session.id, self.bundle.digest(), &tool.id, tool.def.venue, args);
        Some(ApprovalOpened { id, requested_at: self.at, expires_at: self.at.plus_ms(expires_ms), digest })
    }

    /// The calls that are still open, in order.
    pub(super) fn open_calls(&self) -> Vec<crate::session::Call> {
        self.session.calls().iter().filter(|call| !matches!(call.state, CallState::Ended(_))).cloned().collect()
    }
}
