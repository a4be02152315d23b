//! `dojo DIR`: plays every suite of a folder under every tier, prints the table, and fails unless the promises hold.
//! What is not here: everything else (the library).

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use toolgate_dojo::error::DojoError;
use toolgate_dojo::score::{self, Score};
use toolgate_dojo::suite::Suite;
use toolgate_dojo::tier::Tier;

/// Plays recorded tasks and attacks through Toolgate's core and prints what was stopped, kept and asked.
#[derive(Debug, Parser)]
#[command(about)]
struct Arguments {
    /// The folder that `scripts/dojo/export` wrote.
    #[arg(default_value = ".rig/dojo/data")]
    data: PathBuf,
    /// Also print what humans were asked about and which attacks got through.
    #[arg(long)]
    why: bool,
    /// Play this tier only, without the promises: `generic`, `ruled`, `scoped`, `strict`, `strictest`.
    #[arg(long)]
    tier: Option<String>,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(broken) if broken.is_empty() => ExitCode::SUCCESS,
        Ok(broken) => {
            broken.iter().for_each(|line| say(&format!("not kept: {line}")));
            ExitCode::FAILURE
        }
        Err(error) => {
            // Whoever closed the pipe does not want to read more.
            let _ = writeln!(io::stderr().lock(), "dojo: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<Vec<String>, DojoError> {
    let suites = Suite::read_all(&arguments.data)?;
    let mut scores = Vec::new();
    let mut totals: BTreeMap<Tier, Score> = BTreeMap::new();
    for tier in Tier::ALL {
        if arguments.tier.as_ref().is_some_and(|only| only != tier.name()) {
            continue;
        }
        for suite in &suites {
            let score = score::measure(suite, tier)?;
            totals.entry(tier).or_default().add(&score);
            scores.push((suite.suite.clone(), tier, score));
        }
    }
    if arguments.why {
        for (tier, score) in &totals {
            score.reasons.iter().for_each(|(reason, count)| say(&format!("{tier} {count} x {reason}")));
            score.survivors.iter().for_each(|survivor| say(&format!("{tier} through: {survivor}")));
        }
    }
    say(score::table(&scores, &totals).trim_end());
    Ok(if arguments.tier.is_some() { Vec::new() } else { score::broken(&totals) })
}

fn say(line: &str) {
    // As above.
    let _ = writeln!(io::stdout().lock(), "{line}");
}
