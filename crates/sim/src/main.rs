//! `toolgate-sim`: plays worlds and prints what they went through; fails with the one command that repeats a failure. What
//! is not here: the worlds (the library).

use std::io::Write;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use toolgate_sim::{Plan, play, sweep};

/// Plays deterministic worlds around the core: nodes, a store with faults, tools, clients, virtual time.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    /// How many worlds.
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Play this one alone.
    #[arg(long)]
    seed: Option<u64>,
    /// Print its course; only with `--seed`.
    #[arg(long, requires = "seed")]
    verbose: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // A reader that is gone does not change what was found.
    match run(&arguments, &mut std::io::stdout().lock()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) | Err(_) => ExitCode::FAILURE,
    }
}

fn run(arguments: &Arguments, out: &mut impl Write) -> std::io::Result<bool> {
    if let Some(seed) = arguments.seed {
        let played = play(&Plan { seed, mutant: None, verbose: arguments.verbose });
        for line in &played.lines {
            writeln!(out, "{line}")?;
        }
        write!(out, "{}", played.figures)?;
        writeln!(out, "trace {:016x}", played.digest)?;
        return verdict(out, played.fault.as_deref());
    }
    let begun = Instant::now();
    let found = sweep(arguments.from, arguments.seeds, None, 20);
    write!(out, "{}", found.figures)?;
    for failure in &found.failures {
        writeln!(out, "seed {}: {}", failure.seed, failure.why)?;
        writeln!(out, "  repeat: cargo run --release -p toolgate-sim -- --seed {} --verbose", failure.seed)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let played = found.figures.of("world", "seeds");
    writeln!(out, "{played} worlds in {seconds:.1} s, {} went wrong", found.failures.len())?;
    Ok(found.failures.is_empty() && played >= arguments.seeds)
}

fn verdict(out: &mut impl Write, fault: Option<&str>) -> std::io::Result<bool> {
    match fault {
        Some(fault) => writeln!(out, "wrong: {fault}")?,
        None => writeln!(out, "clean")?,
    }
    Ok(fault.is_none())
}
