//! The owner: what a node does that believes to own the session. It never acts on what it does not know to be durable.

use crate::database::head;
use crate::row::{Call, Fact, Row};
use crate::rule::Claim;
use crate::state::{Answer, Append, Leave, Owned, Request, State, World};
use crate::step::Step;

/// Times that the `read` call is sent.
const ATTEMPTS: u8 = 2;

impl Owned {
    fn has(&self, fact: Fact) -> bool {
        self.view.iter().any(|row| row.fact == fact)
    }

    fn is_over(&self, call: Call) -> bool {
        self.has(Fact::Outcome(call)) || self.has(Fact::Unknown(call))
    }

    /// The last leave to send a call, and the epoch that gave it.
    fn leave(&self, call: Call) -> Option<(u8, u8)> {
        self.view.iter().rev().find_map(|row| match row.fact {
            Fact::Dispatch(of, attempt) if of == call => Some((attempt, row.epoch)),
            _ => None,
        })
    }
}

impl World {
    fn calls(&self) -> &'static [Call] {
        if self.bounds.read { &[Call::Once, Call::Read] } else { &[Call::Once] }
    }

    pub(crate) fn owner_steps(&self, state: &State, node: u8, steps: &mut Vec<Step>) {
        let Some(Some(owned)) = state.nodes.get(usize::from(node)) else { return };
        if state.left.crashes > 0 {
            steps.push(Step::Crash(node));
        }
        if owned.reply.is_some() {
            steps.push(Step::Reply(node));
            if state.left.losses > 0 {
                steps.push(Step::Lose(node));
            }
        }
        if let Some(pending) = &owned.pending {
            if owned.reply.is_none() && state.left.losses > 0 && state.wire.contains(pending) {
                steps.push(Step::Resend(node));
            }
        } else {
            self.next_facts(state, node, owned, steps);
        }
        if owned.armed.is_some() {
            steps.push(Step::Send(node));
        } else {
            self.arms(state, node, owned, steps);
        }
    }

    /// What may be appended next: first what the last owner left open is settled by class, then the rest in any order.
    fn next_facts(&self, state: &State, node: u8, owned: &Owned, steps: &mut Vec<Step>) {
        let inherited = self.calls().iter().find_map(|call| {
            let (attempt, epoch) = owned.leave(*call).filter(|_| !owned.is_over(*call))?;
            (epoch < owned.epoch).then_some((*call, attempt))
        });
        if let Some((call, attempt)) = inherited {
            let once_again = call == Call::Once && !self.rules.unknown_stays_unknown;
            let again = (call == Call::Read || once_again) && attempt < ATTEMPTS;
            let fact = if again { Fact::Dispatch(call, attempt + 1) } else { Fact::Unknown(call) };
            return steps.push(Step::Decide(node, fact));
        }
        for call in self.calls().iter().copied() {
            match owned.leave(call) {
                None => steps.push(Step::Decide(node, Fact::Dispatch(call, 1))),
                Some(_) if owned.is_over(call) => {}
                Some(_) if owned.answered & (1 << (call as u8)) != 0 => {
                    steps.push(Step::Decide(node, Fact::Outcome(call)));
                }
                Some((attempt, _)) if owned.sent.contains(&(call, attempt)) => steps.push(Step::GiveUp(node, call)),
                Some(_) => {}
            }
        }
        if self.rules.consume_with_append {
            if state.database.inbox & 1 != 0 {
                steps.push(Step::Decide(node, Fact::Input(0)));
            }
        } else if let Some(input) = owned.taken {
            steps.push(Step::Decide(node, Fact::Input(input)));
        } else if state.database.inbox & 1 != 0 {
            steps.push(Step::Take(node));
        }
    }

    /// Calls that may be sent: their row is known to be durable, they were not sent, and the lease holds.
    fn arms(&self, state: &State, node: u8, owned: &Owned, steps: &mut Vec<Step>) {
        let holds = state.database.lease && state.database.epoch == owned.epoch;
        if !holds {
            return;
        }
        let hasty = owned.pending.iter().flat_map(|append| &append.rows).filter(|_| !self.rules.append_before_effect);
        for row in owned.view.iter().chain(hasty) {
            let Fact::Dispatch(call, attempt) = row.fact else { continue };
            let latest = owned.leave(call).is_none_or(|(last, _)| last <= attempt);
            if row.epoch == owned.epoch && latest && !owned.is_over(call) && !owned.sent.contains(&(call, attempt)) {
                steps.push(Step::Arm(node, call, attempt));
            }
        }
    }

    /// Makes the append for a fact, for the head as the node knows it.
    pub(crate) fn decide(&self, state: &mut State, node: u8, fact: Fact) -> Option<()> {
        let owned = owned(state, node)?;
        let (seq, prev) = head(&owned.view);
        let row = Row { seq: seq + 1, epoch: owned.epoch, prev, fact };
        let claim = Claim { epoch: owned.epoch, expected_head: seq, prev_hash: Some(prev) };
        let consumes = if let Fact::Input(input) = fact { Some(input) } else { None };
        let append = Append { node, claim, rows: vec![row], consumes };
        owned.pending = Some(append.clone());
        owned.taken = owned.taken.filter(|input| consumes != Some(*input));
        state.wire.push(append);
        state.wire.sort_by_key(|append| append.node);
        Some(())
    }

    /// The time for an answer is over, and with it that of the request: `not_after` is the same moment.
    pub(crate) fn give_up(&self, state: &mut State, node: u8, call: Call) -> Option<()> {
        for request in state.requests.iter_mut().filter(|request| request.leave.0 == call && request.node == node) {
            request.overdue = true;
        }
        self.decide(state, node, Fact::Unknown(call))
    }

    pub(crate) fn take(&self, state: &mut State, node: u8) -> Option<()> {
        state.database.inbox &= !1;
        owned(state, node)?.taken = Some(0);
        Some(())
    }

    /// The reply comes: the rows are durable, or the node forgets the session.
    pub(crate) fn reply(&self, state: &mut State, node: u8) -> Option<()> {
        let slot = state.nodes.get_mut(usize::from(node))?;
        let owned = slot.as_mut()?;
        let answer = owned.reply.take()?;
        let append = owned.pending.take()?;
        match answer {
            Answer::Ok | Answer::Already => {
                state.seen.settled |= answer == Answer::Already;
                owned.view.extend_from_slice(&append.rows);
                for row in &append.rows {
                    let there = state.database.log.get(usize::from(row.seq).wrapping_sub(1)) == Some(row);
                    state.seen.lost |= !there;
                    state.seen.acked |= 1 << (row.seq - 1).min(31);
                }
            }
            Answer::Duplicate => {
                // The log has it: only the inbox row is in the way.
                state.database.inbox &= !append.consumes.map_or(0, |input| 1 << input);
            }
            Answer::Stale | Answer::Fenced => {
                state.seen.fenced |= answer == Answer::Fenced;
                *slot = None;
            }
        }
        Some(())
    }

    /// The reply is lost: the very same bytes again. A mutant reads the head anew instead.
    pub(crate) fn lose(&self, state: &mut State, node: u8) -> Option<()> {
        state.left.losses = state.left.losses.checked_sub(1)?;
        let standing = state.database.standing();
        let same = self.rules.resend_same_bytes;
        let owned = owned(state, node)?;
        owned.reply = None;
        let pending = owned.pending.as_mut()?;
        if !same {
            pending.claim.expected_head = standing.head_seq;
            pending.claim.prev_hash = Some(standing.head_hash);
            for row in &mut pending.rows {
                (row.seq, row.prev) = (standing.head_seq + 1, standing.head_hash);
            }
        }
        let again = pending.clone();
        state.wire.push(again);
        state.wire.sort_by_key(|append| append.node);
        Some(())
    }

    pub(crate) fn resend(&self, state: &mut State, node: u8) -> Option<()> {
        state.left.losses = state.left.losses.checked_sub(1)?;
        let again = owned(state, node)?.pending.clone()?;
        state.wire.push(again);
        state.wire.sort_by_key(|append| append.node);
        Some(())
    }

    pub(crate) fn arm(&self, state: &mut State, node: u8, leave: Leave) -> Option<()> {
        owned(state, node)?.armed = Some(leave);
        Some(())
    }

    pub(crate) fn send(&self, state: &mut State, node: u8) -> Option<()> {
        let owned = owned(state, node)?;
        let leave = owned.armed.take()?;
        owned.sent.push(leave);
        owned.sent.sort_unstable();
        let epoch = owned.epoch;
        state.requests.push(Request { leave, epoch, node, overdue: false });
        state.requests.sort_unstable();
        Some(())
    }

    /// A node dies; what it sent is still on its way.
    pub(crate) fn crash(&self, state: &mut State, node: u8) -> Option<()> {
        state.left.crashes = state.left.crashes.checked_sub(1)?;
        *state.nodes.get_mut(usize::from(node))? = None;
        Some(())
    }
}

fn owned(state: &mut State, node: u8) -> Option<&mut Owned> {
    state.nodes.get_mut(usize::from(node))?.as_mut()
}
