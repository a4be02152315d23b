//! Measures Toolgate's decisions against recorded tasks and attacks: AgentDojo's, exported by `scripts/dojo/export`, or
//! any data of the same form. The core alone is driven, by scripted answers and recorded outputs; there is no server.
//! What is not here: models. Each attack is taken to persuade the model at once, so the figures are those of the policy.

pub mod configuration;
pub mod disguise;
pub mod error;
pub mod play;
pub mod rules;
pub mod score;
pub mod stage;
pub mod suite;
pub mod tier;
