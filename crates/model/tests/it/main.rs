//! The model's tests: small bounds are clean, every mutant is found, and the append rule is the store's. The wide bounds are
//! `scripts/show engine-model`, in a release build.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail loudly and show the shortest way to each fault"
)]

mod mutants;
mod store;
