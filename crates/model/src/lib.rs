//! A model of how nodes share one session: take-over, append, dispatch, report, lost replies, the inbox. Every order in
//! which these can happen is explored within bounds, and in each state the promises of `promises` are asked.
//!
//! ```text
//! node ──append──▶ wire ──▶ database (rule::judge) ──reply──▶ node ──request──▶ tool ──▶ node
//!                   │                                  │                 │
//!                   └ any later time, twice, never     └ may be lost     └ after any pause
//! ```
//!
//! A pause needs no step of its own: whoever is not chosen for a while is paused. A lease may lapse at any moment.
//!
//! | file | what |
//! |---|---|
//! | `rule` | the comparison that decides about an append, as `crates/store/src/fence.rs` makes it |
//! | `rules` | the rules of the protocol that a mutant leaves out, and the bounds of an exploration |
//! | `state`, `row` | what there is: database, nodes, wire, tool, outside observer |
//! | `database`, `owner`, `step` | what can happen |
//! | `promises` | what must hold in each state, and what must be reached at all |
//! | `explore` | runs the checker |
//!
//! What keeps it in step with the program: `tests/it/store.rs` puts every small standing before `rule::judge` and before the
//! store in memory, whose answers `toolgate-store` shares among all databases by one set of tests. What is not here: the
//! core's decisions (`toolgate-core` explores them with random sessions), several sessions (they share nothing but a
//! database), clocks.

mod database;
pub mod explore;
mod owner;
pub mod promises;
mod row;
pub mod rule;
pub mod rules;
pub mod state;
mod step;

pub use explore::{Explored, explore};
pub use row::{Call, Fact, Row, chained};
pub use rules::{Bounds, Mutant, Rules};
pub use state::{State, World};
pub use step::Step;
