//! Tests of the policy engine as its callers see it: policies as JSON text, facts as plain values. One binary, so that it
//! links once.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "tests fail loudly, read their cases, measure time and show figures; the engine itself does not"
)]

mod arguments;
mod attacks;
mod cedar;
mod evidence;
mod field_cases;
mod history;
mod hostile;
mod loads;
mod origins;
mod properties;
mod purity;
mod world;
