//! What there is: a database, nodes, what is on its way, the tool, and what outsiders were told.

use crate::row::{Call, Fact, Row, chained};
use crate::rule::{Claim, Standing};
use crate::rules::{Bounds, Rules};

/// An append on its way, or waiting for its reply.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Append {
    /// Its writer.
    pub node: u8,
    /// What it says of itself.
    pub claim: Claim,
    /// Its rows.
    pub rows: Vec<Row>,
    /// The input that it takes from the inbox.
    pub consumes: Option<u8>,
}

/// The database's answer to an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Applied.
    Ok,
    /// The same bytes stood there already.
    Already,
    /// Another head.
    Stale,
    /// Another owner.
    Fenced,
    /// Its input stands in the log already.
    Duplicate,
}

/// What the database holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Database {
    /// The ownership in force.
    pub epoch: u8,
    /// Whether the owner's lease still holds.
    pub lease: bool,
    /// The log.
    pub log: Vec<Row>,
    /// Rows of it that survive a crash of the database.
    pub flushed: u8,
    /// Inputs that wait, as bits.
    pub inbox: u8,
}

impl Database {
    /// The session row.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let last = self.log.last();
        Standing { epoch: self.epoch, head_seq: last.map_or(0, |row| row.seq), head_hash: chained(last) }
    }
}

/// A call that may be sent: which, which attempt.
pub type Leave = (Call, u8);

/// A node's memory of the session while it believes to own it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owned {
    /// The ownership that it got.
    pub epoch: u8,
    /// The log as it knows it.
    pub view: Vec<Row>,
    /// An append whose reply has not come.
    pub pending: Option<Append>,
    /// The reply, on its way.
    pub reply: Option<Answer>,
    /// A call that it has decided to send: its lease held when it looked.
    pub armed: Option<Leave>,
    /// Calls that it has sent.
    pub sent: Vec<Leave>,
    /// Calls whose answer it has got, as bits.
    pub answered: u8,
    /// An input that it has taken from the inbox before it was applied (a mutant only).
    pub taken: Option<u8>,
}

/// A request on its way to the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Request {
    /// What is asked.
    pub leave: Leave,
    /// The ownership under which it was sent.
    pub epoch: u8,
    /// The node that waits for the answer.
    pub node: u8,
    /// Its time is over: the node has given the call up, which it does only after `not_after`.
    pub overdue: bool,
}

/// How much is left of what is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Left {
    /// Take-overs.
    pub take_overs: u8,
    /// Crashes of nodes.
    pub crashes: u8,
    /// Lost replies and impatient resends.
    pub losses: u8,
    /// Crashes of the database.
    pub database_crashes: u8,
    /// Sendings of the input.
    pub puts: u8,
}

/// What an outside observer has seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Seen {
    /// Rows that somebody was told of, as bits by their place.
    pub acked: u32,
    /// Such a row is gone, or another one stands in its place.
    pub lost: bool,
    /// An append of a deposed owner was applied.
    pub deposed: bool,
    /// Effects of the `once` call.
    pub once: u8,
    /// One of them came after the call was closed as unknown.
    pub late: bool,
    /// A call took effect without a durable row that lets it.
    pub unfounded: bool,
    /// Inputs whose sender was told that they are taken, as bits.
    pub taken: u8,
    /// A reply that was lost was settled by `already`.
    pub settled: bool,
    /// A deposed owner was told so.
    pub fenced: bool,
    /// The tool refused a request that came too late.
    pub refused: bool,
}

/// One state of everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The database.
    pub database: Database,
    /// The nodes; none while a node does not believe to own the session.
    pub nodes: Vec<Option<Owned>>,
    /// Appends on their way.
    pub wire: Vec<Append>,
    /// Requests on their way.
    pub requests: Vec<Request>,
    /// Bounds.
    pub left: Left,
    /// The observer.
    pub seen: Seen,
}

/// What is explored: rules and bounds.
#[derive(Debug, Clone)]
pub struct World {
    /// The rules.
    pub rules: Rules,
    /// The bounds.
    pub bounds: Bounds,
}

impl World {
    /// The session has been opened by node 0, which owns it.
    #[must_use]
    pub fn begin(&self) -> State {
        let opened = Row { seq: 1, epoch: 1, prev: 0, fact: Fact::Opened };
        let mut nodes = vec![None; usize::from(self.bounds.nodes)];
        if let Some(first) = nodes.first_mut() {
            *first = Some(Owned::loaded(1, vec![opened]));
        }
        State {
            database: Database { epoch: 1, lease: true, log: vec![opened], flushed: 1, inbox: 0 },
            nodes,
            wire: Vec::new(),
            requests: Vec::new(),
            left: Left {
                take_overs: self.bounds.take_overs,
                crashes: self.bounds.crashes,
                losses: self.bounds.losses,
                database_crashes: self.bounds.database_crashes,
                puts: self.bounds.puts,
            },
            seen: Seen { acked: 1, ..Seen::default() },
        }
    }
}

impl Owned {
    /// The memory of a node that has just read the log.
    #[must_use]
    pub const fn loaded(epoch: u8, view: Vec<Row>) -> Self {
        Self { epoch, view, pending: None, reply: None, armed: None, sent: Vec::new(), answered: 0, taken: None }
    }
}
