//! Between nodes and the database: latency, and everything that can become of a statement and its reply. What is not
//! here: what a statement does (`database`).

use std::sync::Arc;

use crate::database::{Answer, Op, is_race};
use crate::faults::Fault;
use crate::node::ToNode;
use crate::world::{Happening, World};

/// How long a node waits for a reply before it takes the outcome for unknown.
const GIVEN_UP_MS: u64 = 3_000;

/// A statement under way.
#[derive(Debug)]
pub(crate) struct Letter {
    pub(crate) node: usize,
    pub(crate) life: u64,
    /// The node knows by it what it asked.
    pub(crate) id: u64,
    pub(crate) op: Arc<Op>,
    /// It was sent before.
    pub(crate) again: bool,
    /// Nobody waits for the reply any more.
    pub(crate) mute: bool,
}

impl World {
    /// Something leaves a node, once it runs; it does not leave a node that has died before.
    pub(crate) fn depart(&mut self, node: usize, latency_ms: u64, happening: Happening) {
        let Some((paused_until, life)) = self.nodes.get(node).map(|node| (node.paused_until, node.life)) else {
            return;
        };
        if paused_until > self.now {
            let what = ToNode::Depart(Box::new(happening), latency_ms);
            self.at(paused_until, Happening::Node { node, life, what });
        } else {
            self.at_ms(latency_ms, happening);
        }
    }

    pub(crate) fn post(&mut self, node: usize, id: u64, op: Arc<Op>, again: bool) {
        let Some(life) = self.nodes.get(node).map(|node| node.life) else { return };
        let latency = self.rng.u64(0..4);
        let letter = Letter { node, life, id, op, again, mute: false };
        self.depart(node, latency, Happening::Database(Box::new(letter)));
    }

    pub(crate) fn database_receives(&mut self, letter: Letter) {
        self.note(letter.op.word(), letter.node as u64, u64::from(letter.mute));
        if letter.mute {
            // A connection that nobody reads any more: the statement runs once the database can.
            if self.now < self.away_until {
                return self.at(self.away_until.plus_ms(1), Happening::Database(Box::new(letter)));
            }
            self.late_letters = self.late_letters.saturating_sub(1);
            self.database.apply(&letter.op, letter.again);
            return;
        }
        let writes = letter.op.writes();
        if self.now < self.away_until {
            // Dying, a database may still commit what it has.
            if writes && self.one_in(2) {
                self.database.apply(&letter.op, letter.again);
            }
            return self.reply(&letter, Answer::Unavailable, 30);
        }
        if self.strikes(Fault::NeverApplied) {
            return self.reply(&letter, Answer::Unavailable, GIVEN_UP_MS);
        }
        if writes && self.strikes(Fault::Delayed) {
            self.reply(&letter, Answer::Unavailable, GIVEN_UP_MS);
            self.late_letters += 1;
            let wait = self.rng.u64(100..45_000);
            return self.at_ms(wait, Happening::Database(Box::new(Letter { mute: true, ..letter })));
        }
        let answer = self.database.apply(&letter.op, letter.again);
        if let Answer::Refused(error) = &answer
            && !is_race(&letter.op, error)
            && self.mutant.is_none()
        {
            let why = format!("the store refused `{}` of node {}: {error}", letter.op.word(), letter.node);
            return self.fail(why);
        }
        if writes && self.strikes(Fault::ReplyLost) {
            return self.reply(&letter, Answer::Unavailable, GIVEN_UP_MS);
        }
        let latency = if self.strikes(Fault::Slow) { self.rng.u64(500..9_000) } else { self.rng.u64(0..5) };
        self.reply(&letter, answer, latency);
    }

    fn reply(&mut self, letter: &Letter, answer: Answer, latency_ms: u64) {
        let what = ToNode::Answer { id: letter.id, answer, crashes: self.crashes };
        self.at_ms(latency_ms, Happening::Node { node: letter.node, life: letter.life, what });
    }
}
