//! A deterministic world around the pure core of Toolgate: nodes that decide, append, fold and act as the server does, the
//! real memory store behind a network that fails, tools and clients with journals of their own, people, and virtual time.
//! One seed is one world, on every machine.
//!
//! What is not here: the server itself. Its actor, journal and recovery have a twin without runtime in `node`, `actor` and
//! `effects`; what the twins do in another order than the server, this crate cannot find.

mod actor;
mod bundle;
mod client;
mod database;
mod effects;
mod errand;
mod faults;
mod figures;
mod model;
mod node;
mod oracle;
mod said;
mod subject;
mod sweep;
mod tool;
mod trace;
mod wire;
mod world;

pub use figures::Figures;
pub use sweep::{Failure, Sweep, sweep};

/// A deliberate defect: what finds none of these finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The store takes an append of an earlier owner.
    NoEpochCheck,
    /// The store takes an append that was made for another head.
    NoHeadCheck,
    /// A node sends the same events again for whatever the head is by then, instead of the same bytes.
    FreshHead,
    /// A node starts effects before what they follow from is durable.
    SentBeforeDurable,
    /// A new owner does not settle what was under way.
    NoRecovery,
    /// An input leaves the inbox without being applied.
    InboxForgotten,
    /// A call whose outcome is unknown is sent again, whatever its class.
    SentAgain,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::NoEpochCheck,
        Self::NoHeadCheck,
        Self::FreshHead,
        Self::SentBeforeDurable,
        Self::NoRecovery,
        Self::InboxForgotten,
        Self::SentAgain,
    ];
}

/// What to play.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The world.
    pub seed: u64,
    /// A deliberate defect in it.
    pub mutant: Option<Mutant>,
    /// Keep its course as text.
    pub verbose: bool,
}

/// How a world went.
#[derive(Debug, Clone, Default)]
pub struct Played {
    /// What was wrong, if anything.
    pub fault: Option<String>,
    /// What it went through.
    pub figures: Figures,
    /// A hash of its whole course.
    pub digest: u64,
    /// Its course as text, if wanted.
    pub lines: Vec<String>,
}

/// Plays one world.
#[must_use]
pub fn play(plan: &Plan) -> Played {
    world::play(plan, bundle::draw(plan.seed / world::WORLDS_PER_BUNDLE))
}
