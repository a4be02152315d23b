//! The program itself, as a user starts it: what it prints, how it ends, what survives when it is killed.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests fail loudly, and print the figures that `scripts/show` shows"
)]

mod apply;
mod crash;
mod demo;
mod explain;
mod faults;
mod health;
mod kill;
mod lint;
mod logs;
mod nodes;
mod policy;
mod program;
mod shadow;
mod tamper;
