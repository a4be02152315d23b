//! The policy engine of Toolgate: may this call run, must a human be asked, or is it refused, and by which rule.
//! What is not here: reading a log, bundles, schema checks, approvals, anything with a clock, I/O or randomness.
//!
//! Everything enters as plain values ([`Facts`], [`ToolFacts`]) and leaves as plain values ([`Judgement`]), so that the
//! caller can log both and judge the same again. A rule that cannot look at what it must look at denies.

pub mod args;
mod cedar;
pub mod derive;
mod engine;
mod exact;
mod facts;
mod fault;
mod finding;
mod form;
pub mod grant;
pub mod history;
pub mod origin;
mod place;
mod rule;
pub mod semantic;
pub mod shown;

pub use cedar::{CedarAnswer, CedarForm};
pub use engine::Policy;
pub use facts::{CallStatus, Class, EarlierCall, Facts, Principal, Risk, SessionFacts, ToolFacts, Venue};
pub use fault::Fault;
pub use finding::{Code, Decision, Finding, First, Judgement, Layer, Outcome};
pub use form::{ExampleCall, LintMode, ListRule, PolicyExample, PolicyForm};
pub use rule::{Absent, Effect, InvalidRuleId, Mode, RuleId, Scope, Selector};
