//! The one binary `toolgate`: reads the command line and runs one command. What is not here: what the commands do.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod apply;
mod bundle_file;
mod demo;
mod explain;
mod export_file;
mod failure;
mod health;
mod key;
mod lint;
mod node;
mod openapi;
mod output;
mod policy;
mod serve;
mod verify;

use failure::CommandError;

/// Toolgate: models propose, Toolgate decides what runs and where, and records every decision and outcome.
#[derive(Debug, Parser)]
#[command(version, about, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server.
    Serve(serve::Serve),
    /// Run governed sessions on a fresh server and verify their logs; needs nothing but this program.
    Demo(demo::Demo),
    /// Check a bundle and put it as the tenant's current one.
    Apply(apply::Apply),
    /// Verify one session's log: the chain, every decision again, and the invariants.
    Verify(verify::Verify),
    /// Say why a call was decided as it was, and what became of it.
    Explain(explain::Explain),
    /// Say what a bundle leaves open.
    Lint(lint::Lint),
    /// Test a bundle's policies without a server.
    #[command(subcommand)]
    Policy(policy::Policy),
    /// Make API keys.
    #[command(subcommand)]
    Key(key::Key),
    /// Look at the nodes of a database, and drain one.
    #[command(subcommand)]
    Node(node::Node),
    /// Ask whether a server takes requests.
    Health(health::Health),
    /// Print the REST contract (OpenAPI 3.1, YAML).
    Openapi,
}

/// A decision makes some hundred small values: with the system's allocator, making and dropping them is a third of it
/// (`bench/README.md`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The first line of any program that speaks TLS: one crypto library for database, models and tools.
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        output::error("a crypto provider was installed before this program's own");
        return ExitCode::FAILURE;
    }
    let _armed = toolgate_server::crash::arm();
    let arguments = Arguments::parse();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            output::error(&format!("the runtime cannot be started: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(run(arguments.command)) {
        Ok(code) => code,
        Err(error) => {
            output::error(&error.to_string());
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<ExitCode, CommandError> {
    match command {
        Command::Serve(serve) => serve.run().await,
        Command::Demo(demo) => demo.run().await,
        Command::Apply(apply) => apply.run().await,
        Command::Verify(verify) => verify.run().await,
        Command::Explain(explain) => explain.run().await,
        Command::Lint(lint) => lint.run(),
        Command::Policy(policy) => policy.run(),
        Command::Key(key) => key.run().await,
        Command::Node(node) => node.run().await,
        Command::Health(health) => health.run().await,
        Command::Openapi => openapi::run(),
    }
}
