//! Calls of a step: all are decided before any is sent, counting in proposed order (ruling 14).

use std::collections::BTreeMap;

use toolgate_policy::RuleId;

use super::{Draft, approval_digest, redact};
use crate::event::{ApprovalOpened, CallContent, CallDecided, Event};
use crate::id::{ActorId, ApprovalId, CallId, Sha256Digest};
use crate::pipeline::{Decision, Situation, judge};
use crate::profile::{ApprovalMode, ControlMode, Profile};
use crate::proposal::ProposedCall;
use crate::reason::RejectReason;
use crate::session::{Call, CallState};

/// Where a call comes from.
#[derive(Debug, Clone, Copy)]
pub(super) enum Origin<'a> {
    /// A model proposed it.
    Proposed,
    /// An approver wrote its arguments, which is an approval.
    Edited { from: &'a CallId, by: &'a ActorId },
    /// An admission hook wrote its arguments.
    Rewritten { from: &'a CallId, hook: &'a RuleId },
}

impl<'a> Origin<'a> {
    const fn from(&self) -> Option<&'a CallId> {
        match self {
            Self::Proposed => None,
            Self::Edited { from, .. } | Self::Rewritten { from, .. } => Some(from),
        }
    }

    const fn hook(&self) -> Option<&'a RuleId> {
        match self {
            Self::Rewritten { hook, .. } => Some(hook),
            Self::Proposed | Self::Edited { .. } => None,
        }
    }

    const fn author(&self) -> Option<&'a ActorId> {
        match self {
            Self::Edited { by, .. } => Some(by),
            Self::Proposed | Self::Rewritten { .. } => None,
        }
    }
}

impl Draft<'_> {
    /// Decides every call of a ballot, then sends what may be sent.
    pub(super) fn decide_calls(&mut self, calls: &[ProposedCall], escalate: Option<RejectReason>) {
        let mut scratch = self.clone();
        let mut decided = Vec::new();
        for (index, call) in (0_u32..).zip(calls) {
            let Some(event) = scratch.decided(index, call, escalate, &Origin::Proposed) else { return };
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

    /// Judges one call and makes its record.
    pub(super) fn decided(
        &self,
        index: u32,
        call: &ProposedCall,
        escalate: Option<RejectReason>,
        origin: &Origin<'_>,
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
                control: self.control(profile),
                escalate,
                approved_by_edit: matches!(origin, Origin::Edited { .. }) && profile.approval.approvers <= 1,
            },
            call,
        );
        let id = CallId::at(self.session.id, run_no, step, index);
        let asks = verdict.decision == Decision::Escalate;
        let subject = verdict.tool.zip(verdict.args.as_ref()).filter(|_| asks);
        let digest = subject
            .map(|(tool, args)| approval_digest(self.session.id, self.bundle.digest(), &tool.id, tool.def.venue, args));
        let passes = verdict.tool.filter(|_| verdict.decision != Decision::Reject);
        let admission = passes.and_then(|tool| self.admission(tool, origin, digest));
        let approval = digest.filter(|_| admission.is_none()).and_then(|digest| {
            self.ask_human(ApprovalId::at(self.session.id, run_no, step, index), digest, origin.author())
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
            edited_from: origin.from().cloned(),
            edited_by: origin.author().cloned(),
            rewritten_by: origin.hook().cloned(),
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
            approval,
            admission,
            granted_by: verdict.granted_by,
            policy: verdict.policy,
            ends_run,
            args_bytes: verdict.args.as_ref().map_or(0, |args| args.as_str().len() as u64),
            content: CallContent {
                tool: call.tool.clone(),
                args_hash: verdict.args.as_ref().map(crate::json::Json::hash),
                args: shown.or(verdict.args),
                redacted,
                derived: verdict.derived,
                charges: verdict.charges,
                idempotency_key: verdict.idempotency_key,
                detail: verdict.detail,
            },
            sealed,
        })
    }

    /// More control is the session's own wish, never less than the profile's.
    fn control(&self, profile: &Profile) -> ControlMode {
        let own = self.session.opened.as_ref().and_then(|opened| opened.control);
        own.map_or(profile.control, |own| own.max(profile.control))
    }

    fn ask_human(&self, id: ApprovalId, digest: Sha256Digest, author: Option<&ActorId>) -> Option<ApprovalOpened> {
        let rules = &self.profile()?.approval;
        Some(ApprovalOpened {
            id,
            requested_at: self.at,
            expires_at: self.at.plus_ms(rules.expires_ms),
            digest,
            remind_ms: rules.remind_ms,
            approvers: rules.approvers,
            approved_by: author.cloned().into_iter().collect(),
        })
    }

    /// The question to humans about a call that every hook has let pass.
    pub(super) fn ask_about(&self, call: &Call, digest: Sha256Digest) -> Option<ApprovalOpened> {
        let (run, step) = self.step()?;
        self.ask_human(ApprovalId::at(self.session.id, run, step, call.index), digest, call.edited_by.as_ref())
    }

    /// The calls that are still open, in order.
    pub(super) fn open_calls(&self) -> Vec<crate::session::Call> {
        self.session.calls().iter().filter(|call| !matches!(call.state, CallState::Ended(_))).cloned().collect()
    }
}
