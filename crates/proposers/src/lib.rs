//! Model adapters: how an `Ask` becomes a request, and how whatever comes back becomes a ballot.
//!
//! Encoding and decoding are pure functions; only `http` and `exchange` touch the network. A proposer never fails: what
//! goes wrong is a ballot with a typed reason, so that every path ends in something the log can hold. What is not here:
//! what is decided about a proposal (`toolgate-core`) and when a model is asked (`toolgate-server`).
//!
//! Reading order: [`Proposer`], [`openai`], [`envelope`], [`scripted`], [`classifier`].

pub mod classifier;
pub mod envelope;
mod exchange;
mod http;
pub mod openai;
mod proposer;
mod quote;
mod reasoning;
pub mod scripted;
mod secret;
mod turns;

pub use proposer::{Proposer, Proposers, Seat, SetupError};
pub use secret::{EnvSecrets, SecretSource};
