//! Reads what others wrote with Toolgate's adapters, prints the figures, and exits 0 only if they hold. What is not here:
//! how the data is fetched (`scripts/models`), the shows (`scripts/show models-…`).

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

mod bfcl;
mod fuzz;
mod lines;
mod recorded;
mod report;

use report::Report;

#[derive(Parser)]
enum Command {
    /// Recorded traffic of real providers, against what OpenAI's SDK makes of it.
    Recorded {
        /// The exchanges, one JSON object a line.
        #[arg(long, default_value = ".rig/models/vcr.jsonl")]
        traffic: PathBuf,
        /// What the SDK makes of the chat completions among them.
        #[arg(long, default_value = ".rig/models/oracle.jsonl")]
        oracle: PathBuf,
    },
    /// The schemas and calls of the Berkeley Function Calling Leaderboard.
    Bfcl {
        /// The tests, one JSON object a line.
        #[arg(long, default_value = ".rig/models/bfcl.jsonl")]
        cases: PathBuf,
        /// Calls that are wrong in the data itself.
        #[arg(long, default_value = "scripts/models/bfcl_known_invalid.tsv")]
        known: PathBuf,
    },
    /// Generated input for the envelope, streams and arguments.
    Fuzz {
        /// Seconds for each of the three; they run side by side.
        #[arg(long, default_value_t = 600)]
        seconds: u64,
        /// Where inputs are kept that gave a result of a new kind.
        #[arg(long, default_value = "tests/models/corpus")]
        corpus: PathBuf,
        /// The seed; drawn anew where none is given.
        #[arg(long)]
        seed: Option<u64>,
    },
}

/// Why no figures could be made.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error("{0}, line {1}: {2}")]
    Line(PathBuf, usize, serde_json::Error),
    #[error("{0}")]
    Io(#[from] io::Error),
}

fn run() -> Result<Report, Error> {
    match Command::parse() {
        Command::Recorded { traffic, oracle } => recorded::run(&traffic, &oracle),
        Command::Bfcl { cases, known } => bfcl::run(&cases, &known),
        Command::Fuzz { seconds, corpus, seed } => fuzz::run(seconds, &corpus, seed),
    }
}

fn main() -> ExitCode {
    let outcome = run().and_then(|report| {
        report.write(&mut io::stdout().lock())?;
        Ok(report.holds())
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            drop(writeln!(io::stderr(), "{error}"));
            ExitCode::from(2)
        }
    }
}
