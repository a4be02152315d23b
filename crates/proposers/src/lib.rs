//! Model adapters: how an `Ask` becomes a request, and how whatever comes back becomes a ballot.
//!
//! Encoding and decoding are pure functions; only `http` and `exchange` touch the network. A proposer never fails: what
//! goes wrong is a ballot with a typed reason, so that every path ends in something the log can hold. What is not here:
//! what is decided about a proposal (`toolgate-core`) and when a model is asked (`toolgate-server`).
//!
//! Reading order: [`Proposer`], [`encode`] and [`decode`] (`wire`), the formats (`openai`, `responses`, `anthropic`,
//! `envelope`), `judge`, [`scripted`], [`classifier`].

mod answer;
mod anthropic;
mod breaker;
pub mod classifier;
mod delta;
pub mod envelope;
mod exchange;
mod failure;
mod gate;
mod http;
mod judge;
mod model;
mod names;
mod openai;
mod proposer;
mod quote;
mod reasoning;
mod responses;
mod schema;
pub mod scripted;
mod secret;
mod sse;
mod stream;
#[cfg(feature = "testing")]
pub mod testing;
pub mod tokens;
mod turns;
mod wire;

pub use answer::Reply;
pub use breaker::BreakerStates;
pub use delta::{Delta, DeltaSink};
pub use proposer::{Proposer, Proposers, Seat, SetupError};
pub use secret::{EnvSecrets, SecretSource};
pub use wire::{StreamDecoder, decode, encode};
