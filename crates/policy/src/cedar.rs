//! Policy files in Cedar: parsed and strictly validated against a schema made from the tools, sliced per tool, evaluated
//! with default deny. What is not here: counting over time, origin and sequence rules, which Cedar cannot see.
//!
//! Four rules make it safe. Arguments never pass through Cedar's own JSON reader, which would read `__entity` and
//! `__extn` inside them. Every request is checked against the schema, and one that does not fit is denied. A policy that
//! fails while it is evaluated denies: Cedar itself would skip it, a `forbid` too. A set that does not validate strictly
//! never becomes active.
//!
//! A policy reads `principal` (`Agent` with `tenant`, `id`, `roles`; in `Role`s), `action` (`Action::"<tool id>"`, in the
//! groups `class:…`, `venue:…`, `risk:…`, `tag:…`), `resource` (`Session`), and `context`:
//!
//! | field | meaning |
//! |---|---|
//! | `input` | the arguments, as far as their schema can be said in Cedar: texts, flags, 64-bit integers, `decimal` for numbers, sets, records; what may be missing or null is optional, and null is absent |
//! | `unseen` | pointers of arguments that were given and that `input` cannot show |
//! | `derived` | the fields that the tool's contract derives, each optional |
//! | `tool` | `class`, `venue`, `risk`, `tags` |
//! | `session` | `profile`, `label` (optional), `run`, `step`, `tool_calls`, `spent`, `limit` (optional; both micro-units), `ballots`, `agreed` |
//! | `evidence` | successes per tag in the run, server venue only, for each tag that a policy reads |
//! | `counts` | calls per tool in the session that may have an effect, for each tool that a policy reads |

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::rule::Mode;

mod compile;
mod context;
mod convert;
mod extent;
mod judge;
mod read;
mod review;
mod schema;
mod shape;
mod slice;

pub(crate) use compile::Cedar;

/// A set of policies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CedarForm {
    /// The policies: at most 65,536 bytes and 200 policies. `@id("…")` names one, `@effect("escalate")` on a `permit`
    /// asks a human, `@doc("…")` is for people; no other annotations.
    pub text: String,
    /// Whether it counts. A set in shadow is judged together with all enforced sets, as if it were one of them.
    #[serde(default)]
    pub mode: Mode,
}

/// What the policy files answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CedarAnswer {
    /// The policies that made the answer, by id (`<set>/<policy>`).
    pub deciding: Vec<String>,
    /// Policies that failed while they were evaluated.
    pub failed: Vec<String>,
    /// SHA-256 over the enforced sets, hex.
    pub policy_hash: Arc<str>,
    /// SHA-256 of the schema, hex.
    pub schema_hash: Arc<str>,
    /// Version of the engine and of the language.
    pub engine: Arc<str>,
}

/// Bytes of one set.
const MAX_TEXT: usize = 64 * 1024;
/// Bytes of all sets of one policy section.
const MAX_TEXTS: usize = 256 * 1024;
/// Policies of one set.
const MAX_POLICIES: usize = 200;
/// Sets of one policy section, and how many of them may be in shadow.
const MAX_SETS: usize = 16;
const MAX_SHADOW_SETS: usize = 4;
/// Levels of one policy's tree. Reading, validating and evaluating recurse over it; at some 15 KiB of stack a level, this
/// stays well inside the 2 MiB that a thread has, so that no policy ever depends on how much of it is left.
const MAX_DEPTH: usize = 40;
/// Words and signs of one policy.
const MAX_TOKENS: usize = 8_000;
/// Policies times the tools that each can concern: validating and slicing cost that much.
const MAX_PAIRS: usize = 20_000;
