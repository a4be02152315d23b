//! The policy engine of Toolgate: may this call run, must a human be asked, or is it refused, and by which rule.
//! What is not here: reading a log, bundles, schema checks, approvals, anything with a clock, I/O or randomness.
//!
//! Everything enters as plain values ([`Facts`], [`ToolFacts`]) and leaves as plain values ([`Judgement`]), so that the
//! caller can log both and judge the same again. A rule that cannot look at what it must look at denies.

pub mod args;
mod cedar;
pub mod derive;
mod exact;
mod facts;
mod fault;
mod finding;
mod place;
mod rule;
pub mod shown;
pub use facts::*;
