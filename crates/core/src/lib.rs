//! The decision core of Toolgate: pure, synchronous, without clock, randomness or I/O.
//!
//! ```text
//! input ──decide──▶ events ──(append, durable)──▶ apply ──▶ state ──outstanding──▶ effects
//!                                   │
//!                                   ├──▶ verify: decide every recorded input again and compare
//!                                   └──▶ invariants: what every log promises, looked at without decide and apply
//! ```
//!
//! Read in this order: `input`, `event`, `session`, then `decide` with one file per input, `apply`, `outstanding`,
//! `verify`. `pipeline` holds the fixed order in which one call is judged; `bundle` the configuration it is judged by.
//!
//! What holds here: `decide` reads only its arguments, time is `Stamped::at`, maps are ordered, ids derive from position.
//! Nothing in this crate may learn of tokio, sockets, databases, clocks or random numbers (a test reads the manifest).

#![warn(clippy::wildcard_enum_match_arm)]

pub mod ask;
pub mod bundle;
pub mod consensus;
pub mod digest;
pub mod event;
pub mod evidence;
pub mod explain;
pub mod id;
pub mod input;
pub mod invariants;
pub mod json;
pub mod output;
pub mod pipeline;
pub mod profile;
pub mod proposal;
pub mod reason;
pub mod schema;
pub mod session;
pub mod shadow;
pub mod time;
pub mod tool;
pub mod transcript;
pub mod window;

mod apply;
mod decide;
mod outstanding;
mod verify;

pub use apply::{apply, fold, place};
pub use decide::budget::{BUDGET_REASON, RAISE_TOOL};
pub use decide::{
    Decided, MAX_ATTEMPTS, MAX_CALLS_PER_STEP, MAX_REFUSALS_RECORDED, Reply, approval_digest, decide, decide_and_apply,
    revocable,
};
pub use outstanding::{Effect, Order, SERVER_GRACE_MS, next_wake, outstanding};
pub use verify::{Divergence, Verified, verify};
