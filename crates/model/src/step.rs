//! What can happen in a state, and what it leads to.

use std::fmt;

use stateright::{Model, Property};

use crate::promises;
use crate::row::{Call, Fact};
use crate::state::{Append, State, World};

/// One thing that happens.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// A node takes the session over; the lease of the owner has lapsed.
    TakeOver(u8),
    /// The owner's lease lapses.
    Lapse,
    /// A node decides what comes next and sends the append.
    Decide(u8, Fact),
    /// A mutant takes an input from the inbox in a statement of its own.
    Take(u8),
    /// The database gets an append.
    Apply(Append),
    /// A node gets its reply.
    Reply(u8),
    /// A node's reply is lost; it sends again.
    Lose(u8),
    /// A node sends again before it has a reply.
    Resend(u8),
    /// A node is about to send a call; its lease held.
    Arm(u8, Call, u8),
    /// A node sends the call that it is about to send.
    Send(u8),
    /// The tool gets a request.
    Arrive(usize),
    /// A node gives a call up that has not answered in time.
    GiveUp(u8, Call),
    /// The caller's input reaches some node, which puts it into the inbox.
    Put,
    /// A node dies.
    Crash(u8),
    /// The database dies and comes back; what was on its way is lost.
    CrashDatabase,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TakeOver(node) => write!(f, "node {node} takes the session over"),
            Self::Lapse => f.write_str("the owner's lease lapses"),
            Self::Decide(node, fact) => write!(f, "node {node} sends an append: {fact:?}"),
            Self::Take(node) => write!(f, "node {node} removes the input from the inbox"),
            Self::Apply(append) => {
                let facts: Vec<Fact> = append.rows.iter().map(|row| row.fact).collect();
                let claim = append.claim;
                write!(
                    f,
                    "the database gets node {}'s append {facts:?} (epoch {}, head {})",
                    append.node, claim.epoch, claim.expected_head
                )
            }
            Self::Reply(node) => write!(f, "node {node} gets the reply"),
            Self::Lose(node) => write!(f, "node {node}'s reply is lost; it sends again"),
            Self::Resend(node) => write!(f, "node {node} is impatient and sends again"),
            Self::Arm(node, call, attempt) => write!(f, "node {node} is about to send {call:?}, attempt {attempt}"),
            Self::Send(node) => write!(f, "node {node} sends it"),
            Self::Arrive(place) => write!(f, "request {place} reaches the tool"),
            Self::GiveUp(node, call) => write!(f, "node {node} gives {call:?} up as unknown"),
            Self::Put => f.write_str("an input is put into the inbox"),
            Self::Crash(node) => write!(f, "node {node} dies"),
            Self::CrashDatabase => f.write_str("the database dies and comes back"),
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.begin()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for node in 0..self.bounds.nodes {
            self.owner_steps(state, node, steps);
        }
        self.database_steps(state, steps);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        self.happen(&mut state, &step)?;
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        promises::all(self)
    }
}

impl World {
    /// None where the step cannot happen.
    fn happen(&self, state: &mut State, step: &Step) -> Option<()> {
        match step {
            Step::TakeOver(node) => self.take_over(state, *node),
            Step::Lapse => {
                state.database.lease = false;
                Some(())
            }
            Step::Decide(node, fact) => self.decide(state, *node, *fact),
            Step::Take(node) => self.take(state, *node),
            Step::Apply(append) => self.apply(state, append),
            Step::Reply(node) => self.reply(state, *node),
            Step::Lose(node) => self.lose(state, *node),
            Step::Resend(node) => self.resend(state, *node),
            Step::Arm(node, call, attempt) => self.arm(state, *node, (*call, *attempt)),
            Step::Send(node) => self.send(state, *node),
            Step::Arrive(place) => self.arrive(state, *place),
            Step::GiveUp(node, call) => self.give_up(state, *node, *call),
            Step::Put => self.put(state),
            Step::Crash(node) => self.crash(state, *node),
            Step::CrashDatabase => self.crash_database(state),
        }
    }
}
