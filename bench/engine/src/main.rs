//! Sessions of ten steps through the public API of a real server, at several concurrencies, on each database, and what the
//! machine allows beside it: a server whose log is memory, and the raw append of the same rows. What is not here: the
//! parts (one module each), the reading of the figures (`bench/README.md`).
#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a benchmark reads the clock, prints, and fails loudly"
)]

mod bound;
mod bundle;
mod database;
mod failover;
mod fanout;
mod flight;
mod growth;
mod load;
mod memory;
mod model;
mod open;
mod process;
mod raw;
mod report;
mod resume;
mod server;
mod socket;
mod stub;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};

use crate::model::Model;
use crate::report::{Point, Report};
use crate::server::{Database, Server, Setup};

/// Load on a real server.
#[derive(Debug, Parser)]
struct Arguments {
    /// The program to measure.
    #[arg(long, default_value = "target/release/toolgate")]
    program: PathBuf,
    /// A PostgreSQL cluster with fsync on; each round makes a database of its own there.
    #[arg(long, env = "TOOLGATE_BENCH_POSTGRES_URL", default_value = "postgres://postgres@127.0.0.1:5432/postgres")]
    postgres: String,
    /// Measure how sessions move between two servers instead.
    #[arg(long)]
    failover: bool,
    /// Measure this instead.
    #[arg(long)]
    measure: Option<Measure>,
    /// Sessions at once.
    #[arg(long, value_delimiter = ',', default_value = "1,16,128,1024")]
    concurrency: Vec<usize>,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 3)]
    seconds: u64,
}

/// What else can be measured.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Measure {
    /// Memory for a session and for a connection.
    Memory,
    /// A step's cost in a full database and late in a long log.
    Growth,
    /// One event to a thousand readers.
    Fanout,
    /// Ten thousand sessions after a kill, and reading logs back.
    Resume,
    /// Nine thousand sessions whose model takes a second.
    Flight,
    /// Serves bare frames to the fan-out's readers.
    #[value(hide = true)]
    Bare,
}

/// The databases, in the order of each round.
const DATABASES: [Database; 3] = [Database::Memory, Database::Sqlite, Database::Postgres];

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let _ = rustls::crypto::ring::default_provider().install_default();
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime").block_on(run(arguments))
}

async fn run(arguments: Arguments) -> ExitCode {
    if arguments.failover {
        return failover::run(&arguments.program, &arguments.postgres).await;
    }
    let (program, cluster) = (arguments.program.as_path(), arguments.postgres.as_str());
    match arguments.measure {
        Some(Measure::Memory) => return memory::run(program, cluster).await,
        Some(Measure::Growth) => return growth::run(program, cluster).await,
        Some(Measure::Fanout) => return fanout::run(program, cluster).await,
        Some(Measure::Resume) => return resume::run(program, cluster).await,
        Some(Measure::Flight) => return flight::run(program, cluster).await,
        Some(Measure::Bare) => return fanout::bare::serve().await,
        None => {}
    }
    let model = Model::start().await;
    let time = Duration::from_secs(arguments.seconds);
    let mut report = Report::default();
    for round in 1..=arguments.rounds {
        for database in DATABASES {
            let setup = Setup { database, ..Setup::postgres(program, cluster, bundle::ten_steps(&model)) };
            let server = Server::start(setup).await;
            for concurrency in &arguments.concurrency {
                load::warm(&server, &model, *concurrency, time).await;
                let before = server.spent();
                let flushes = process::flushes();
                let run = load::run(&server, &model, *concurrency, time).await;
                let point = Point {
                    steps_per_s: run.steps_per_s(),
                    overhead_p50: run.overhead(50),
                    overhead_p99: run.overhead(99),
                    cpu_per_1000: (server.spent() - before).as_secs_f64() * 1_000.0 / run.steps(),
                    flushes_per_step: process::flushes().saturating_sub(flushes) as f64 / run.steps(),
                    resident_mib: server.resident_mib(),
                };
                println!("round {round} {database:?} {concurrency}: {point}");
                report.add(database, *concurrency, point);
            }
            if database == Database::Postgres {
                let raw = raw::append(&server.database_url, time).await;
                println!("round {round} raw append: {raw}");
                report.add_raw(raw);
            }
            server.stop().await;
        }
    }
    report.print();
    if report.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
