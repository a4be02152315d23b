//! `toolgate-model`: explores more than a million states with all rules, then each mutant until its promise breaks, and
//! prints both. Exits 0 only if the first are clean and the others are not.
#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::collections::BTreeSet;
use std::process::ExitCode;

use toolgate_model::promises::{LATE_EFFECT, NOT_LATE, ONCE, PROMISES, REACHED};
use toolgate_model::{Bounds, Explored, Mutant, Rules, explore};

/// States that must be clean.
const STATES: usize = 1_000_000;

fn main() -> ExitCode {
    let mut good = true;
    let mut states = 0;
    println!("{:<44} {:>10} {:>6} {:>8}  found", "rules", "states", "depth", "seconds");
    let mut unreached: BTreeSet<&str> = REACHED.into();
    for (name, bounds) in Bounds::WIDE {
        let found = explore(Rules::default(), bounds, None);
        good &= clean(&found);
        states += found.states;
        unreached.retain(|what| found.unreached.contains(what));
        line(name, &found, &summary(&found));
    }
    good &= states >= STATES && unreached.is_empty();
    let lenient = Rules { tool_honours_not_after: false, ..Rules::default() };
    let found = explore(lenient, Bounds::NARROW, None);
    good &= clean(&found) && found.unreached.is_empty();
    line("all, a tool that ignores `not_after`", &found, &format!("{}; reached: {LATE_EFFECT}", summary(&found)));
    let belt = Rules { compare_epoch: false, ..Rules::default() };
    let found = explore(belt, Bounds::NARROW, None);
    // The owner's row moves the head, so that the expected head keeps deposed owners out as well.
    good &= found.broken.is_empty();
    line("no epoch compare, take-overs write a row", &found, &summary(&found));
    let mut traces = String::new();
    for mutant in Mutant::ALL {
        let found = explore(mutant.rules(), Bounds::NARROW, Some(mutant.breaks()));
        let broken = found.broken.iter().find(|(promise, _)| *promise == mutant.breaks());
        good &= broken.is_some();
        let told = broken.map_or("NOT CAUGHT".to_owned(), |(promise, trace)| {
            traces.push_str(&format!("\n{}\n{trace}  broken: {promise}\n", mutant.name()));
            format!("caught in {} steps", trace.0.len())
        });
        line(mutant.name(), &found, &told);
    }
    println!("{traces}");
    for what in &unreached {
        println!("NEVER REACHED: {what}");
    }
    println!("promises asked in every state: {}", PROMISES.len());
    println!("of `once`: {ONCE}; {NOT_LATE}");
    println!("{states} states with all rules (at least {STATES}): {}", if good { "all hold" } else { "FAILED" });
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn clean(found: &Explored) -> bool {
    for (promise, trace) in &found.broken {
        println!("BROKEN: {promise}\n{trace}");
    }
    found.broken.is_empty()
}

fn summary(found: &Explored) -> String {
    found.broken.first().map_or_else(|| "clean".to_owned(), |(promise, _)| format!("BROKEN: {promise}"))
}

fn line(name: &str, found: &Explored, told: &str) {
    println!("{name:<44} {:>10} {:>6} {:>8.1}  {told}", found.states, found.depth, found.took.as_secs_f64());
}
