//! The policy engine of Toolgate: may this call run, must a human be asked, or is it refused, and by which rule.
//! What is not here: reading a log, bundles, schema checks, approvals, anything with a clock, I/O or randomness.
//!
//! Everything enters as plain values ([`Facts`], [`ToolFacts`]) and leaves as plain values ([`Judgement`]), so that the
//! caller can log both and judge the same again. A rule that cannot look at what it must look at denies.
//!
//! ```
//! use std::collections::{BTreeMap, BTreeSet};
//! use serde_json::json;
//! use toolgate_policy::{Class, Decision, Facts, Policy, PolicyForm, Principal, Risk, SessionFacts, ToolFacts, Venue};
//!
//! let tool = ToolFacts {
//!     id: "read_file".to_owned(),
//!     venue: Venue::Server,
//!     class: Class::Read,
//!     risk: Risk::Low,
//!     tags: BTreeSet::new(),
//!     parameters: json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}),
//!     derived: Vec::new(),
//!     secret: Vec::new(),
//! };
//! let form = PolicyForm::read(&json!({
//!     "arguments": {"inside": {"on": {"tools": ["read_file"]}, "argument": "/path", "path": {"root": "/w"}}},
//!     "examples": [{"tool": "read_file", "args": {"path": "../etc/passwd"}, "expect": "deny:inside"}]
//! }))?;
//! let profiles = BTreeMap::from([("reader".to_owned(), BTreeSet::from(["read_file".to_owned()]))]);
//! let policy = Policy::compile(&form, &[tool], &profiles).map_err(|faults| format!("{faults:?}"))?;
//! let judgement = policy.judge(&Facts {
//!     tool: "read_file",
//!     args: &json!({"path": "notes/../todo.md"}),
//!     profile: "reader",
//!     principal: Principal { tenant: "acme", id: "alice", roles: &[] },
//!     session: SessionFacts { id: "s1", run: 1, step: 1, ..SessionFacts::default() },
//!     at_micros: 1_790_000_000_000_000,
//!     earlier: &[],
//!     user_words: &["What is on my list?"],
//!     resolved_paths: None,
//! });
//! assert_eq!(judgement.decision, Decision::Allow);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod args;
mod cedar;
mod checklist;
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
pub mod written;

/// Version of how rules decide: raised whenever the same policy and facts may be judged differently. The policy files'
/// own engine names its version in [`CedarAnswer`].
pub const RULES_VERSION: u32 = 1;

pub use cedar::{CedarAnswer, CedarForm};
pub use checklist::unguarded_without_rules;
pub use engine::{Policy, Reach};
pub use facts::{CallStatus, Class, EarlierCall, Facts, Principal, Risk, SessionFacts, ToolFacts, Venue};
pub use fault::Fault;
pub use finding::{Code, Decision, Finding, First, Judgement, Layer, Outcome};
pub use form::{ExampleCall, LintMode, ListRule, PolicyExample, PolicyForm};
pub use rule::{Absent, Effect, InvalidRuleId, Mode, RuleId, Scope, Selector};
