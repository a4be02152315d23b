//! One call's life: decided (I4, I5, I8), sent (I4, I5, I9, I13, I14), over (I6). What is not here: approvals (`approval`),
//! and what calls count for (`run`).

use super::approval::Question;
use super::{Holds, Invariant, Pass};
use crate::bundle::Tool;
use crate::event::{
    AdmissionAnswered, AdmissionVerb, CallAcknowledged, CallDecided, CallEnd, CallEnded, Dispatch, EndCause,
    OutcomeRefused,
};
use crate::id::{CallId, ClientInstance, Sha256Digest};
use crate::input::Reporter;
use crate::json::Json;
use crate::output::OutcomeStatus;
use crate::pipeline::Decision;
use crate::reason::RefusalCode;
use crate::tool::{ToolClass, Venue};
use toolgate_policy::RuleId;

/// Times that a call may be sent.
const ATTEMPTS: u32 = 5;

/// A call, as the events so far tell it.
pub(super) struct Life<'a> {
    pub(super) decided: &'a CallDecided,
    /// Hooks that have yet to let it pass, in their order.
    hooks: Vec<&'a RuleId>,
    /// The ledger has yet to grant it.
    pub(super) uncharged: bool,
    pub(super) question: Option<Question<'a>>,
    /// A human, a hook or the ledger said no, or wrote other arguments.
    pub(super) refused: bool,
    /// What an approver or a hook wrote instead.
    pub(super) written: Option<&'a Json>,
    pub(super) dispatches: u32,
    /// The last leave to send it, and its seq.
    sent: Option<(&'a Dispatch, u64)>,
    pub(super) end: Option<CallEnd>,
    replaced_by: Option<&'a CallId>,
}

impl<'a> Life<'a> {
    fn new(e: &'a CallDecided) -> Self {
        let rejected = e.decision == Decision::Reject;
        Self {
            decided: e,
            hooks: e.admission.iter().flat_map(|open| &open.hooks).collect(),
            uncharged: !rejected && !e.content.charges.is_empty(),
            question: e.approval.as_ref().map(Question::new),
            refused: rejected,
            written: None,
            dispatches: 0,
            sent: None,
            end: None,
            replaced_by: None,
        }
    }

    /// A rejection is its own terminal record.
    pub(super) fn is_over(&self) -> bool {
        self.end.is_some() || self.decided.decision == Decision::Reject
    }

    fn unknown_once(&self) -> bool {
        let unknown = [OutcomeStatus::Indeterminate, OutcomeStatus::TimedOut].map(CallEnd::Outcome);
        self.decided.class == Some(ToolClass::Once) && self.end.is_some_and(|end| unknown.contains(&end))
    }

    fn instance(&self) -> Option<&'a ClientInstance> {
        self.sent.and_then(|(dispatch, _)| dispatch.instance.as_ref())
    }
}

impl<'a> Pass<'a> {
    pub(super) fn life(&self, call: &CallId, invariant: Invariant) -> Result<&Life<'a>, super::Broken> {
        let missing = super::Broken { invariant, seq: self.seq, what: "the call was never decided" };
        self.lives.get(call).ok_or(missing)
    }

    pub(super) fn decided(&mut self, e: &'a CallDecided) -> Holds {
        self.must(!self.lives.contains_key(&e.call), Invariant::I5, "the call is decided twice")?;
        let own = CallId::at(self.id, e.run, e.step, e.index);
        self.must(e.call == own, Invariant::I5, "the call's id is not that of its place")?;
        let rejected = e.decision == Decision::Reject;
        self.must(!rejected || e.dispatch.is_none(), Invariant::I13, "a rejected call is sent")?;
        self.must(e.reason.is_none() == (e.decision == Decision::Allow), Invariant::I5, "not allowed, and no reason")?;
        self.hashed(e)?;
        self.replaces(e)?;
        if !rejected {
            let tool = self.contract(e)?;
            self.asked(e, tool)?;
            self.needs_approval(e, tool)?;
        }
        self.counted(e)?;
        self.checked.calls += 1;
        self.lives.insert(&e.call, Life::new(e));
        if !rejected {
            self.open.insert(&e.call);
        }
        e.dispatch.as_ref().map_or(Ok(()), |dispatch| self.dispatched(&e.call, dispatch))
    }

    /// The hash is that of the arguments that were decided on.
    fn hashed(&self, e: &CallDecided) -> Holds {
        let full = e.sealed.get(&e.call).or_else(|| e.content.args.as_ref().filter(|_| !e.content.redacted));
        let fits = full.is_none_or(|args| Some(args.hash()) == e.content.args_hash);
        self.must(fits, Invariant::I4, "the hash is not that of the arguments")?;
        let named = e.decision == Decision::Reject || e.content.args_hash.is_some();
        self.must(named, Invariant::I4, "allowed without readable arguments")
    }

    /// A call that takes the place of another one has the arguments that were written for it.
    fn replaces(&self, e: &CallDecided) -> Holds {
        let Some(from) = &e.edited_from else {
            let alone = e.edited_by.is_none() && e.rewritten_by.is_none();
            return self.must(alone, Invariant::I12, "arguments written by somebody, and no call that they replace");
        };
        let original = self.life(from, Invariant::I12)?;
        let linked = original.replaced_by == Some(&e.call);
        self.must(linked, Invariant::I12, "it replaces a call that was not closed for it")?;
        let same = original.written.is_none_or(|args| e.content.args.as_ref() == Some(args));
        self.must(same, Invariant::I12, "its arguments are not those that were written for it")
    }

    /// The tool is one of the profile's, and the record repeats its contract.
    fn contract(&self, e: &CallDecided) -> Result<&'a Tool, super::Broken> {
        let known = e.tool.as_ref().and_then(|id| self.bundle.tool(id));
        let listed = known.filter(|tool| self.profile.is_some_and(|profile| profile.tools.contains(&tool.id)));
        let no_tool = super::Broken { invariant: Invariant::I8, seq: self.seq, what: "the profile has no such tool" };
        let tool = listed.ok_or(no_tool)?;
        let same = e.tool_version == Some(tool.version)
            && e.class == Some(tool.def.class)
            && e.tags == tool.def.tags
            && e.content.tool == tool.id.as_str();
        self.must(same, Invariant::I8, "the record is not that of the tool's contract")?;
        self.must(e.venue == Some(tool.def.venue), Invariant::I9, "the venue is not that of the tool")?;
        Ok(tool)
    }

    /// Every hook of the bundle is asked; of a rewritten call those after its author.
    fn asked(&self, e: &CallDecided, tool: &'a Tool) -> Holds {
        let names = self.bundle.hooks_on(tool).map(|hook| &hook.name);
        let expected: Vec<&RuleId> = match &e.rewritten_by {
            Some(author) => names.skip_while(|name| *name != author).skip(1).collect(),
            None => names.collect(),
        };
        let asked: Vec<&RuleId> = e.admission.iter().flat_map(|open| &open.hooks).collect();
        self.must(asked == expected, Invariant::I4, "not every admission hook is asked")
    }

    pub(super) fn dispatched(&mut self, call: &'a CallId, dispatch: &'a Dispatch) -> Holds {
        let life = self.life(call, Invariant::I4)?;
        self.must(!life.unknown_once(), Invariant::I14, "a `once` call is sent although it may have happened")?;
        self.must(!life.refused, Invariant::I13, "a denied call is sent")?;
        self.must(!life.is_over(), Invariant::I6, "a call is sent after its end")?;
        self.must(life.hooks.is_empty(), Invariant::I4, "it is sent before every hook let it pass")?;
        let asked = life.question.is_some() || life.decided.decision == Decision::Escalate;
        let approved = life.question.as_ref().is_some_and(|question| question.settled);
        self.must(!asked || approved, Invariant::I12, "it is sent before it was approved")?;
        self.must(!life.uncharged, Invariant::I11, "it is sent before the ledger granted it")?;
        self.must(!self.is_dry_run(), Invariant::I4, "it is sent in a dry run")?;
        self.must(dispatch.attempt == life.dispatches + 1, Invariant::I5, "attempts count from 1 without gaps")?;
        let again = dispatch.attempt == 1 || life.decided.class != Some(ToolClass::Once);
        self.must(again && dispatch.attempt <= ATTEMPTS, Invariant::I5, "it is sent more often than its class allows")?;
        self.place(life.decided, dispatch)?;
        self.room_for(dispatch)?;
        self.run.in_flight += u32::from(dispatch.attempt == 1);
        self.checked.dispatches += 1;
        let seq = self.seq;
        if let Some(life) = self.lives.get_mut(call) {
            life.dispatches += 1;
            life.sent = Some((dispatch, seq));
        }
        Ok(())
    }

    fn is_dry_run(&self) -> bool {
        self.profile.is_some_and(|profile| profile.dry_run) || self.opened.is_some_and(|opened| opened.dry_run)
    }

    /// To the server, or to the client that is there and able.
    fn place(&self, e: &CallDecided, dispatch: &Dispatch) -> Holds {
        let at_client = e.venue == Some(Venue::Client);
        self.must(dispatch.instance.is_some() == at_client, Invariant::I9, "it is sent to the other venue")?;
        let there = !at_client || dispatch.instance.as_ref() == self.executor;
        self.must(there, Invariant::I9, "it is sent to a client that is not there")?;
        let needed = e.tool.as_ref().and_then(|id| self.bundle.tool(id)?.def.capability.as_ref());
        let able = needed.is_none_or(|needed| self.capabilities.contains(needed));
        self.must(able, Invariant::I9, "it is sent to a client that cannot run it")
    }

    pub(super) fn acknowledged(&self, e: &CallAcknowledged) -> Holds {
        let life = self.life(&e.call, Invariant::I6)?;
        let open = !life.is_over() && life.dispatches == e.attempt && e.attempt > 0;
        self.must(open, Invariant::I6, "a call is acknowledged that is not under way")?;
        self.must(life.instance() == Some(&e.instance), Invariant::I9, "another client acknowledges it")
    }

    pub(super) fn admission(&mut self, e: &'a AdmissionAnswered) -> Holds {
        let life = self.life(&e.call, Invariant::I4)?;
        self.must(!life.is_over(), Invariant::I6, "a hook answers after the call's end")?;
        self.must(life.hooks.first() == Some(&&e.hook), Invariant::I4, "a hook answers that was not asked")?;
        let passes = e.verdict == AdmissionVerb::Allow;
        let last = passes && life.hooks.len() == 1;
        let digest = life.decided.admission.as_ref().and_then(|open| open.digest);
        let asked = e.approval.as_ref().map(|opened| opened.digest);
        self.must(asked == digest.filter(|_| last), Invariant::I12, "the approval asked for is not the one needed")?;
        let decided = life.decided;
        e.approval.as_ref().map_or(Ok(()), |opened| self.question(decided, opened))?;
        let Some(life) = self.lives.get_mut(&e.call) else { return Ok(()) };
        if passes {
            life.hooks.remove(0);
        } else {
            life.refused = true;
        }
        life.question = e.approval.as_ref().map(Question::new);
        life.written = e.content.args.as_ref();
        Ok(())
    }

    pub(super) fn ended(&mut self, e: &'a CallEnded) -> Holds {
        let life = self.life(&e.call, Invariant::I6)?;
        self.must(!life.is_over(), Invariant::I6, "a call ends twice")?;
        self.must(e.attempt == life.dispatches, Invariant::I6, "another attempt ends than was sent last")?;
        match e.end {
            CallEnd::Outcome(status) => {
                self.must(life.dispatches > 0, Invariant::I6, "an outcome of a call that was never sent")?;
                let same = e.content.outcome.as_ref().is_some_and(|outcome| outcome.status == status);
                self.must(same, Invariant::I6, "the outcome kept is another one")?;
            }
            CallEnd::NotExecuted(_) => {
                self.must(life.dispatches == 0, Invariant::I6, "a call that was sent is recorded as not executed")?;
            }
        }
        let reported = matches!(e.cause, EndCause::Reported(_));
        self.must(!reported || life.dispatches > 0, Invariant::I6, "a report about a call that was never sent")?;
        if let EndCause::Reported(reporter) = &e.cause {
            self.reporter(life, reporter)?;
        }
        let (decided, in_flight) = (life.decided, life.dispatches > 0);
        if let Some(life) = self.lives.get_mut(&e.call) {
            life.end = Some(e.end);
            life.replaced_by = e.replaced_by.as_ref();
        }
        self.open.remove(&e.call);
        self.run.in_flight -= u32::from(in_flight).min(self.run.in_flight);
        self.weighed(decided, e.end);
        Ok(())
    }

    /// Who was sent the call reports it, and repeats what was sent.
    fn reporter(&self, life: &Life<'_>, reporter: &Reporter) -> Holds {
        let at_client = life.decided.venue == Some(Venue::Client);
        let Reporter::Client { instance, fence, args_hash, .. } = reporter else {
            return self.must(!at_client, Invariant::I9, "the server reports a client's call");
        };
        let it = at_client && life.instance() == Some(instance);
        self.must(it, Invariant::I9, "a client reports a call that was not sent to it")?;
        let sent: Option<Sha256Digest> = life.decided.content.args_hash;
        self.must(sent == Some(*args_hash), Invariant::I4, "other arguments were run than were decided on")?;
        let last = life.sent.is_some_and(|(_, seq)| seq == *fence);
        self.must(last, Invariant::I4, "the report is about another dispatch")
    }

    /// A late report is late only after the end of its call.
    pub(super) fn report_refused(&mut self, e: &OutcomeRefused) -> Holds {
        if matches!(e.code, RefusalCode::LateOutcome | RefusalCode::OutcomeConflict) {
            let life = self.life(&e.call, Invariant::I6)?;
            self.must(life.is_over(), Invariant::I6, "a report is called late before the call's end")?;
        }
        self.refusals()
    }
}
