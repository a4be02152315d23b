//! The adapters from outside: golden files, public failure reports, recorded answers of real models, a server that
//! misbehaves.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests fail loudly")]

mod bad_input;
mod classifier;
mod envelope;
mod field_cases;
mod formats;
mod given;
mod golden;
mod properties;
mod recorded;
mod resilience;
mod scripted;
mod streams;
mod tokens;
mod wire;
