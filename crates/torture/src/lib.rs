//! Real servers over one database, sessions through their public interfaces, and a nemesis that kills, pauses, drains and
//! cuts off whatever it can; then a checker that holds every log against what outsiders were told and what tools were asked.
//!
//! `check` is pure and tested with broken evidence; everything else makes that evidence. What is not here: crashes at named
//! points (the kill matrix of `crates/cli`), simulated worlds (`crates/sim`).
#![expect(
    clippy::expect_used,
    clippy::print_stdout,
    clippy::missing_panics_doc,
    reason = "a driver of faults fails loudly where its own set-up does, and prints what it does"
)]

pub mod callers;
pub mod check;
pub mod database;
pub mod dice;
pub mod evidence;
pub mod front;
pub mod journal;
pub mod nemesis;
pub mod node;
pub mod outside;
pub mod report;
pub mod road;
pub mod stage;
pub mod stubs;
