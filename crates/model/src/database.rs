//! The database: appends in the order in which they reach it, take-overs, the inbox, its own crash; and the tool, which
//! like it only gets requests.

use crate::row::{Call, Fact, Row, chained};
use crate::rule::{Fence, judge};
use crate::state::{Answer, Append, Owned, State, World};
use crate::step::Step;

impl World {
    pub(crate) fn database_steps(&self, state: &State, steps: &mut Vec<Step>) {
        steps.extend(state.wire.iter().cloned().map(Step::Apply));
        steps.extend((0..state.requests.len()).map(Step::Arrive));
        if state.left.take_overs > 0 {
            if state.database.lease {
                steps.push(Step::Lapse);
            } else {
                steps.extend((0..self.bounds.nodes).map(Step::TakeOver));
            }
        }
        if state.left.puts > 0 {
            steps.push(Step::Put);
        }
        if state.left.database_crashes > 0 {
            steps.push(Step::CrashDatabase);
        }
    }

    /// One commit: the next epoch, the owner's row, and what the node then reads.
    pub(crate) fn take_over(&self, state: &mut State, node: u8) -> Option<()> {
        let database = &mut state.database;
        if database.lease {
            return None;
        }
        state.left.take_overs = state.left.take_overs.checked_sub(1)?;
        let at = database.standing();
        database.epoch += 1;
        database.lease = true;
        if self.rules.own_event {
            let (epoch, fact) = (database.epoch, Fact::Owner(node));
            database.log.push(Row { seq: at.head_seq + 1, epoch, prev: at.head_hash, fact });
        }
        database.flushed = u8::try_from(database.log.len()).ok()?;
        let owned = Owned::loaded(database.epoch, database.log.clone());
        // What the node reads it may tell at once.
        state.seen.acked |= (1 << database.log.len()) - 1;
        *state.nodes.get_mut(usize::from(node))? = Some(owned);
        Some(())
    }

    /// The append function of the database, in one commit.
    pub(crate) fn apply(&self, state: &mut State, append: &Append) -> Option<()> {
        let place = state.wire.iter().position(|other| other == append)?;
        state.wire.remove(place);
        let answer = self.judged(state, append);
        if let Some(owned) = state.nodes.get_mut(usize::from(append.node))?.as_mut() {
            // A node that has taken the session over again no longer waits for it.
            if owned.pending.as_ref() == Some(append) {
                owned.reply = Some(answer);
            }
        }
        Some(())
    }

    fn judged(&self, state: &mut State, append: &Append) -> Answer {
        let database = &mut state.database;
        match judge(&self.rules, &database.standing(), &append.claim) {
            Fence::Fenced => return Answer::Fenced,
            Fence::Moved => {
                let from = usize::from(append.claim.expected_head);
                let stands = !append.rows.is_empty()
                    && database.log.get(from..).is_some_and(|rest| rest.starts_with(&append.rows));
                return if stands { Answer::Already } else { Answer::Stale };
            }
            Fence::Open => {}
        }
        let recorded =
            |row: &Row| matches!(row.fact, Fact::Input(_)) && database.log.iter().any(|r| r.fact == row.fact);
        if append.rows.iter().any(recorded) {
            return Answer::Duplicate;
        }
        state.seen.deposed |= append.claim.epoch != database.epoch;
        database.log.extend_from_slice(&append.rows);
        if self.rules.durable_before_reply {
            database.flushed = u8::try_from(database.log.len()).unwrap_or(u8::MAX);
        }
        if let Some(input) = append.consumes.filter(|_| self.rules.consume_with_append) {
            database.inbox &= !(1 << input);
        }
        Answer::Ok
    }

    /// Any node takes the caller's one input, and says so once its row is durable.
    pub(crate) fn put(&self, state: &mut State) -> Option<()> {
        state.left.puts = state.left.puts.checked_sub(1)?;
        let input = 0;
        state.database.inbox |= 1 << input;
        state.seen.taken |= 1 << input;
        Some(())
    }

    /// What was not flushed is gone, and so is all that was on its way to the database or back.
    pub(crate) fn crash_database(&self, state: &mut State) -> Option<()> {
        state.left.database_crashes = state.left.database_crashes.checked_sub(1)?;
        let flushed = usize::from(state.database.flushed);
        let told = state.seen.acked >> flushed != 0;
        state.seen.lost |= told && state.database.log.len() > flushed;
        state.database.log.truncate(flushed);
        state.wire.clear();
        for owned in state.nodes.iter_mut().flatten() {
            owned.reply = None;
            // The connection is gone: the node sends the same bytes again.
            state.wire.extend(owned.pending.clone());
        }
        Some(())
    }

    /// The tool gets a request: too late, or it takes effect.
    pub(crate) fn arrive(&self, state: &mut State, place: usize) -> Option<()> {
        let request = *state.requests.get(place)?;
        state.requests.remove(place);
        let database = &state.database;
        let lapsed = request.overdue || request.epoch < database.epoch || !database.lease;
        if self.rules.tool_honours_not_after && lapsed {
            state.seen.refused = true;
            return Some(());
        }
        let (call, attempt) = request.leave;
        let durable = database.log.get(..usize::from(database.flushed)).unwrap_or_default();
        let founded = durable.iter().any(|row| row.fact == Fact::Dispatch(call, attempt));
        state.seen.unfounded |= !founded;
        if call == Call::Once {
            state.seen.once += 1;
            state.seen.late |= database.log.iter().any(|row| row.fact == Fact::Unknown(Call::Once));
        }
        if let Some(owned) = state.nodes.get_mut(usize::from(request.node))?.as_mut()
            && owned.epoch == request.epoch
        {
            owned.answered |= 1 << (call as u8);
        }
        Some(())
    }
}

/// The head of a log as its reader knows it.
pub(crate) fn head(view: &[Row]) -> (u8, u32) {
    (view.last().map_or(0, |row| row.seq), chained(view.last()))
}
