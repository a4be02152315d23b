//! Approvals (I12): which calls need one, and what makes it valid: asked, for these arguments, in time, by enough
//! different people, none of whom asked for the work, and not taken back.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::{Holds, Invariant, Pass};
use crate::bundle::Tool;
use crate::event::{ApprovalDecided, ApprovalOpened, ApprovalVerb, CallDecided, GrantGiven};
use crate::id::{ActorId, ApprovalId, CallId, Sha256Digest};
use crate::json::Json;
use crate::pipeline::Decision;
use crate::profile::ControlMode;
use crate::tool::{Risk, Venue};

/// A question to humans.
pub(super) struct Question<'a> {
    pub(super) opened: &'a ApprovalOpened,
    by: BTreeSet<&'a ActorId>,
    /// Enough people approved.
    pub(super) settled: bool,
}

impl<'a> Question<'a> {
    pub(super) fn new(opened: &'a ApprovalOpened) -> Self {
        Self { opened, by: opened.approved_by.iter().collect(), settled: false }
    }

    fn missing_after_one(&self) -> u32 {
        let have = u32::try_from(self.by.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.opened.approvers.saturating_sub(have)
    }
}

/// Leave for equal calls that an approval gave.
pub(super) struct Given<'a> {
    approval: &'a ApprovalId,
    call: &'a CallId,
    grant: &'a GrantGiven,
    taken_back: bool,
}

impl<'a> Pass<'a> {
    /// A call that needs a human is not allowed without one.
    pub(super) fn needs_approval(&self, e: &CallDecided, tool: &Tool) -> Holds {
        let needs = e.decision == Decision::Escalate;
        let later = e.admission.as_ref().is_some_and(|open| open.digest.is_some());
        self.must(!needs || later || e.approval.is_some(), Invariant::I12, "a human must decide, and none is asked")?;
        if let Some(opened) = &e.approval {
            self.must(
                needs && e.admission.is_none(),
                Invariant::I12,
                "a human is asked who need not be, or too early",
            )?;
            self.question(e, opened)?;
        }
        if needs {
            return Ok(());
        }
        if let Some(approval) = &e.granted_by {
            return self.covered(e, approval);
        }
        let control = self.profile.map(|profile| profile.control).max(self.opened.and_then(|opened| opened.control));
        let asked_always = match control.unwrap_or_default() {
            ControlMode::All => true,
            ControlMode::Risky => tool.def.risk == Risk::High,
            ControlMode::None => false,
        };
        let one_is_enough = self.profile.is_some_and(|profile| profile.approval.approvers <= 1);
        let by_edit = e.edited_by.is_some() && one_is_enough;
        let free = !tool.def.requires_approval && !asked_always;
        self.must(free || by_edit, Invariant::I12, "it is allowed although a human must approve it")
    }

    /// What a human is asked is about this very call, and as the profile says.
    pub(super) fn question(&self, e: &CallDecided, opened: &ApprovalOpened) -> Holds {
        let own = opened.id == ApprovalId::at(self.id, e.run, e.step, e.index);
        self.must(own, Invariant::I12, "the approval's id is not that of its call")?;
        let full = e.sealed.get(&e.call).or_else(|| e.content.args.as_ref().filter(|_| !e.content.redacted));
        let tool = e.tool.as_ref().map(crate::id::ToolId::as_str);
        if let (Some(tool), Some(venue), Some(args)) = (tool, e.venue, full) {
            let same = opened.digest == self.digest(tool, venue, args);
            self.must(same, Invariant::I12, "what is to be approved is not what was decided on")?;
        }
        let rules = self.profile.map(|profile| &profile.approval);
        let as_said = rules.is_some_and(|rules| {
            opened.approvers == rules.approvers
                && opened.requested_at == self.at
                && opened.expires_at == self.at.plus_ms(rules.expires_ms)
        });
        self.must(as_said, Invariant::I12, "it asks fewer people, or for longer, than the profile says")?;
        let author = opened.approved_by.iter().all(|by| e.edited_by.as_ref() == Some(by));
        self.must(author, Invariant::I12, "somebody counts as approver who wrote nothing")
    }

    /// SHA-256 over length-framed tool, arguments, venue, session and bundle.
    pub(super) fn digest(&self, tool: &str, venue: Venue, args: &Json) -> Sha256Digest {
        let venue = match venue {
            Venue::Server => "server",
            Venue::Client => "client",
        };
        let (session, bundle) = (self.id.to_string(), self.bundle.digest());
        let mut hash = Sha256::new();
        let texts = ["toolgate.approval.v1", tool, args.as_str(), venue, &session];
        for part in texts.map(str::as_bytes).into_iter().chain([bundle.as_bytes().as_slice()]) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Sha256Digest::from_bytes(hash.finalize().into())
    }

    /// An earlier approval covers this call: given, not over, not taken back, for the same tool and arguments.
    fn covered(&self, e: &CallDecided, approval: &ApprovalId) -> Holds {
        let given = self.grants.iter().find(|given| given.approval == approval);
        let none = super::Broken { invariant: Invariant::I12, seq: self.seq, what: "it rests on leave nobody gave" };
        let given = given.ok_or(none)?;
        let holds = !given.taken_back && self.at < given.grant.expires_at;
        self.must(holds, Invariant::I12, "it rests on leave that is over")?;
        let first = self.life(given.call, Invariant::I12)?.decided;
        let closed = |call: &CallDecided| {
            let mut args = call.content.args.as_ref().map(Json::value).unwrap_or_default();
            if let Some(args) = args.as_object_mut() {
                args.retain(|name, _| !given.grant.open.contains(name));
            }
            args
        };
        let same = first.tool == e.tool && closed(first) == closed(e);
        self.must(same, Invariant::I12, "it rests on leave for other calls")
    }

    pub(super) fn approval(&mut self, e: &'a ApprovalDecided) -> Holds {
        if let Some(pause) = self.pauses.get(&e.call) {
            self.answered(&pause.question, e)?;
            return self.pause_answered(e);
        }
        if e.decision == ApprovalVerb::Revoke {
            return self.taken_back(e);
        }
        let life = self.life(&e.call, Invariant::I12)?;
        self.must(!life.is_over() && !life.refused, Invariant::I12, "an answer about a call that is over")?;
        let none = super::Broken { invariant: Invariant::I12, seq: self.seq, what: "an answer to no question" };
        let question = life.question.as_ref().ok_or(none)?;
        self.answered(question, e)?;
        self.must(e.raises.is_empty(), Invariant::I11, "an answer about a call raises a bound")?;
        let approves = e.decision == ApprovalVerb::Approve;
        let Some(life) = self.lives.get_mut(&e.call) else { return Ok(()) };
        if approves {
            life.question.iter_mut().for_each(|question| question.take(e));
        } else {
            life.refused = true;
            life.written = e.content.args.as_ref();
        }
        if let Some(grant) = e.grant.as_ref().filter(|_| approves && e.missing == 0) {
            self.grants.push(Given { approval: &e.approval, call: &e.call, grant, taken_back: false });
        }
        Ok(())
    }

    /// Whether an answer fits its question.
    fn answered(&self, question: &Question<'_>, e: &ApprovalDecided) -> Holds {
        let opened = question.opened;
        self.must(e.approval == opened.id && !question.settled, Invariant::I12, "an approval is used twice")?;
        self.must(e.digest == opened.digest, Invariant::I12, "something else was shown than waits")?;
        self.must(self.at < opened.expires_at, Invariant::I12, "the answer comes after the approval has lapsed")?;
        if e.decision == ApprovalVerb::Deny {
            return Ok(());
        }
        let own = self.profile.is_some_and(|profile| profile.approval.self_approval);
        let other = own || !self.speakers.contains(&e.by);
        self.must(other, Invariant::I12, "somebody approves who asked for the work")?;
        self.must(!question.by.contains(&e.by), Invariant::I12, "one person approves twice")?;
        let counted = e.decision != ApprovalVerb::Approve || e.missing == question.missing_after_one();
        self.must(counted, Invariant::I12, "the approvals are miscounted")
    }

    fn taken_back(&mut self, e: &ApprovalDecided) -> Holds {
        let life = self.life(&e.call, Invariant::I12)?;
        let given = life.question.as_ref().is_some_and(|question| {
            question.settled && question.opened.id == e.approval && question.opened.digest == e.digest
        });
        self.must(given, Invariant::I12, "what was never given is taken back")?;
        for grant in self.grants.iter_mut().filter(|grant| *grant.approval == e.approval) {
            grant.taken_back = true;
        }
        if let Some(life) = self.lives.get_mut(&e.call).filter(|life| life.dispatches == 0 && !life.is_over()) {
            life.refused = true;
        }
        Ok(())
    }
}

impl<'a> Question<'a> {
    /// One more person has approved.
    pub(super) fn take(&mut self, e: &'a ApprovalDecided) {
        self.by.insert(&e.by);
        self.settled = e.missing == 0;
    }
}
