//! How a run moves on: the next calls are sent, or the bounds are checked before the model is asked again.

use super::{Close, Draft};
use crate::event::{Bound, CallEnd, Dispatch, EndCause};
use crate::output::NotExecuted;
use crate::reason::{Ending, RejectReason};
use crate::session::{Call, CallState, Phase, Step};
use crate::tool::Venue;

/// What an allowed call may do now.
enum Turn {
    /// It may be sent.
    Send(Dispatch),
    /// It holds its place until a client comes.
    NeedsClient,
    /// An equal keyed call of this step is still open; it waits for that one.
    HeldByKey,
}

impl Draft<'_> {
    /// Sends what may be sent, answers what an equal call has answered, and checks the bounds between steps.
    pub(super) fn advance(&mut self) {
        loop {
            if self.ended_by_deadline() || self.ended_by_rule() {
                return;
            }
            let Some(run) = self.session.active_run() else { return };
            let Phase::Acting(step) = &run.phase else { return self.check_bounds() };
            let limit = usize::try_from(run.limits.max_parallel_calls).unwrap_or(usize::MAX);
            let running = step.calls.iter().filter(|call| matches!(call.state, CallState::Dispatched(_))).count();
            match self.next_move(step, limit.saturating_sub(running)) {
                Some(Move::Send(call, dispatch)) => self.dispatch(&call.id, dispatch),
                Some(Move::DryRun(call)) => {
                    let detail = "dry run: it was allowed, and is not executed";
                    self.end_call(&call.id, Close::not_executed(NotExecuted::DryRun, EndCause::DryRun, detail));
                }
                Some(Move::Replay(call)) => {
                    if let Some((reason, detail)) = self.replay(&call).filter(|(reason, _)| self.ends_run(*reason)) {
                        return self.end_run(reason.into(), None, Some(detail));
                    }
                }
                None => return,
            }
        }
    }

    /// The first thing that may happen now, in proposed order.
    fn next_move(&self, step: &Step, mut slots: usize) -> Option<Move> {
        for call in step.calls.iter().filter(|call| matches!(call.state, CallState::Queued)) {
            if self.recorded_success(call) {
                return Some(Move::Replay(Box::new(call.clone())));
            }
            if self.is_dry_run() {
                return Some(Move::DryRun(Box::new(call.clone())));
            }
            if slots == 0 {
                return None;
            }
            match self.turn(&step.calls, call) {
                Turn::Send(dispatch) => return Some(Move::Send(Box::new(call.clone()), dispatch)),
                Turn::NeedsClient => slots -= 1,
                Turn::HeldByKey => {}
            }
        }
        None
    }

    /// Whether nothing is executed: the profile or the session says so.
    fn is_dry_run(&self) -> bool {
        self.profile().is_some_and(|profile| profile.dry_run)
            || self.session.opened.as_ref().is_some_and(|opened| opened.dry_run)
    }

    fn turn(&self, calls: &[Call], call: &Call) -> Turn {
        let held = call.idempotency_key.is_some()
            && calls.iter().take_while(|other| other.id != call.id).any(|other| {
                other.tool == call.tool
                    && other.idempotency_key == call.idempotency_key
                    && !matches!(other.state, CallState::Ended(_))
            });
        if held {
            return Turn::HeldByKey;
        }
        match self.leave_to_send(call, 1) {
            Some(dispatch) => Turn::Send(dispatch),
            None => Turn::NeedsClient,
        }
    }

    /// The leave to send a call now; none when it needs a client and none has come that can execute it.
    pub(super) fn leave_to_send(&self, call: &Call, attempt: u32) -> Option<Dispatch> {
        let tool = &self.bundle.tool(call.tool.as_ref()?)?.def;
        let instance = match tool.venue {
            Venue::Client => {
                let able = tool.capability.as_ref().is_none_or(|needed| self.session.capabilities.contains(needed));
                Some(self.session.executor.clone().filter(|_| able)?)
            }
            Venue::Server => None,
        };
        Some(Dispatch { attempt, deadline_at: self.at.plus_ms(tool.timeout_ms), instance })
    }

    fn recorded_success(&self, call: &Call) -> bool {
        let Some((tool, key)) = call.tool.as_ref().zip(call.idempotency_key.as_ref()) else { return false };
        self.session.idempotency.get(tool).is_some_and(|keys| keys.contains_key(key))
    }

    /// Closes a call whose key has succeeded since it was allowed: the same arguments get that outcome, others a refusal.
    fn replay(&mut self, call: &Call) -> Option<(RejectReason, String)> {
        let (tool, key) = call.tool.as_ref().zip(call.idempotency_key.as_ref())?;
        let earlier = self.session.idempotency.get(tool)?.get(key)?.clone();
        let same = call.args_hash == Some(earlier.args_hash);
        let (reason, detail) = if same {
            (RejectReason::IdempotentReplay, "an equal call of this step succeeded first; its outcome is returned")
        } else {
            (RejectReason::IdempotencyConflict, "this key succeeded first with other arguments; use a fresh key")
        };
        let detail = format!("{}: {detail}", reason.code());
        self.end_call(
            &call.id,
            Close {
                end: CallEnd::NotExecuted(NotExecuted::Rejected),
                cause: EndCause::Replayed,
                outcome: same.then_some(earlier.outcome),
                detail: Some(detail.clone()),
                reason: Some(reason),
                replaced_by: None,
            },
        );
        Some((reason, detail))
    }

    /// Ends the run if its wall-clock bound has passed, and says whether it did.
    pub(super) fn ended_by_deadline(&mut self) -> bool {
        let over = self.session.active_run().is_some_and(|run| self.at >= run.deadline_at);
        if over {
            self.end_run(Ending::DeadlineExceeded, None, None);
        }
        over
    }

    /// Ends the run if it may not ask the model again.
    pub(super) fn check_bounds(&mut self) {
        let Some(run) = self.session.active_run() else { return };
        let Phase::Asking(round) = &run.phase else { return };
        if !round.ballots.is_empty() || round.paused.is_some() {
            return;
        }
        let limits = &run.limits;
        let ending = if self.at >= run.deadline_at {
            Ending::DeadlineExceeded
        } else if run.parse_failures >= limits.max_parse_failures {
            Ending::MaxParseFailuresExceeded
        } else if limits.max_output_schema_failures.is_some_and(|most| run.schema_failures >= most) {
            Ending::MaxOutputSchemaFailuresExceeded
        } else if run.rejections >= limits.max_consecutive_rejections {
            Ending::MaxConsecutiveRejectionsExceeded
        } else {
            if !self.ended_by_rule() {
                self.check_counts();
            }
            return;
        };
        self.end_run(ending, None, None);
    }

    /// The bounds that a human may raise; within them, what the round may cost is set aside.
    pub(super) fn check_counts(&mut self) {
        let Some(run) = self.session.active_run() else { return };
        let Phase::Asking(round) = &run.phase else { return };
        let limits = &run.limits;
        let (steps, max_steps, calls, max_calls) =
            (run.steps, run.most_steps(), run.model_calls, limits.max_model_calls);
        let missing = round.missing_count();
        if steps >= max_steps {
            self.at_count(Bound::MaxSteps, steps, max_steps, 1);
        } else if calls.saturating_add(missing) > max_calls {
            self.at_count(Bound::MaxModelCalls, calls, max_calls, missing);
        } else if !self.sums_up() {
            self.reserve_round();
        }
    }
}

enum Move {
    Send(Box<Call>, Dispatch),
    DryRun(Box<Call>),
    Replay(Box<Call>),
}
