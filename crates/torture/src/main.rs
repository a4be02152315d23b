//! `toolgate-torture`: several nodes over PostgreSQL, then over one with a synchronous copy, then one over SQLite, all under
//! faults; prints what was done and found, the seed, and last the verdict. What is not here: the run (the library).
#![expect(clippy::print_stdout, reason = "a driver prints its table")]

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use tokio::signal::unix::{SignalKind, signal};
use toolgate_torture::nemesis::{Deck, Fault};
use toolgate_torture::report::table;
use toolgate_torture::stage::{Base, Run, run};

/// Real servers under kills, pauses and database crashes.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100, args_override_self = true)]
struct Arguments {
    /// The program to torture.
    #[arg(long, default_value = "target/release/toolgate")]
    program: PathBuf,
    /// The folder with `postgres`, which makes the throw-away cluster.
    #[arg(long, default_value = "scripts")]
    scripts: PathBuf,
    /// SIGKILLs over PostgreSQL; SQLite gets a quarter as many.
    #[arg(long, default_value_t = 100)]
    kills: u64,
    /// Pauses longer than the lease over PostgreSQL; SQLite gets a tenth as many.
    #[arg(long, default_value_t = 100)]
    pauses: u64,
    /// Times that PostgreSQL stops as in a power cut.
    #[arg(long, default_value_t = 10)]
    db_crashes: u64,
    /// Times that a primary of PostgreSQL is lost and its synchronous copy takes its place; none when 0.
    #[arg(long, default_value_t = 2)]
    failovers: u64,
    /// Draws sessions and faults; drawn itself when absent. When what happens is up to the machine.
    #[arg(long)]
    seed: Option<u64>,
    /// Nodes over PostgreSQL, at least 2.
    #[arg(long, default_value_t = 4)]
    nodes: usize,
    /// Sessions under way at once.
    #[arg(long, default_value_t = 20)]
    callers: usize,
    /// The lease of a node in milliseconds, 1,000 or more.
    #[arg(long, default_value_t = 2_000)]
    lease_ms: u64,
    /// Mean time between two faults in milliseconds.
    #[arg(long, default_value_t = 400)]
    pace_ms: u64,
    /// Only this part.
    #[arg(long)]
    only: Option<Only>,
    /// Keep the nodes' logs in this folder.
    #[arg(long)]
    keep: Option<PathBuf>,
}

/// One of the two databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Only {
    /// Nodes over a cluster.
    Postgres,
    /// Nodes over a cluster with a synchronous copy.
    Standby,
    /// One node over a file.
    Sqlite,
}

impl Arguments {
    fn run_of(&self, only: Only, seed: u64) -> Run {
        let (base, faults) = match only {
            Only::Postgres => {
                let faults = vec![
                    (Fault::Kill, self.kills),
                    (Fault::Pause, self.pauses),
                    (Fault::Terminate, self.kills / 10),
                    (Fault::Drain, self.kills / 10),
                    (Fault::Crash, self.db_crashes),
                    (Fault::Cut, self.db_crashes * 2),
                ];
                (Base::Postgres, faults)
            }
            Only::Standby => {
                // A commit that waits for the copy when its connection is cut, or its primary starts again, is shown before
                // the copy has it: PostgreSQL promises only what it has acknowledged.
                let faults = vec![
                    (Fault::FailOver, self.failovers),
                    (Fault::Kill, self.failovers * 3),
                    (Fault::Pause, self.failovers * 3),
                ];
                (Base::Copied, faults)
            }
            Only::Sqlite => {
                (Base::Sqlite, vec![(Fault::Kill, self.kills.div_ceil(4)), (Fault::Pause, self.pauses.div_ceil(10))])
            }
        };
        Run {
            program: self.program.clone(),
            scripts: self.scripts.clone(),
            seed,
            base,
            nodes: if base == Base::Sqlite { 1 } else { self.nodes.max(2) },
            callers: self.callers.max(1),
            lease: Duration::from_millis(self.lease_ms),
            pace: Duration::from_millis(self.pace_ms),
            deck: Deck(faults.into_iter().collect::<BTreeMap<_, _>>()),
            keep: self.keep.clone(),
        }
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    // Whoever stops the driver leaves no server and no cluster behind: all of them end with their owners.
    tokio::select! {
        holds = all(&arguments) => if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE },
        () = signalled() => {
            println!("stopped before its end");
            ExitCode::FAILURE
        }
    }
}

/// Resolves at SIGINT or SIGTERM; never where signals cannot be heard.
async fn signalled() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Both databases; whether everything holds.
async fn all(arguments: &Arguments) -> bool {
    let seed = arguments.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    println!("seed {seed}");
    if let Some(Err(error)) = arguments.keep.as_ref().map(std::fs::create_dir_all) {
        println!("the folder for logs: {error}");
        return false;
    }
    let mut holds = true;
    for (name, part) in [("postgres", Only::Postgres), ("standby", Only::Standby), ("sqlite", Only::Sqlite)] {
        if arguments.only.is_some_and(|only| only != part) || part == Only::Standby && arguments.failovers == 0 {
            continue;
        }
        let wanted = arguments.run_of(part, seed);
        println!("{name}: {} nodes, {} sessions at once, lease {:?}", wanted.nodes, wanted.callers, wanted.lease);
        holds &= match run(&wanted).await {
            Ok(outcome) => {
                print!("{}", table(&outcome));
                let too_little = outcome.too_little(&wanted.deck);
                if let Some(too_little) = &too_little {
                    println!("  this run says nothing: {too_little}");
                }
                outcome.findings.holds() && too_little.is_none()
            }
            Err(why) => {
                println!("{name}: {why}");
                false
            }
        };
    }
    println!("seed {seed}: {}", if holds { "everything holds" } else { "something does not hold" });
    holds
}
