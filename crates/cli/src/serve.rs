//! `toolgate serve`: a server until a signal ends it. What is not here: the server (`toolgate-server`).

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use secrecy::ExposeSecret;
use toolgate_server::config::Settings;
use toolgate_server::node::Node;
use tracing_subscriber::EnvFilter;

use crate::failure::CommandError;
use crate::output;

/// Where a database and its keys are; shared by the commands that open it.
#[derive(Debug, Clone, Args)]
pub(crate) struct StorageArguments {
    /// A settings file; `config/default.toml` lists every setting.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// The node's directory: SQLite file, node name, master key.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,
    /// A PostgreSQL URL instead of SQLite.
    #[arg(long, value_name = "URL", env = "TOOLGATE_DATABASE_URL", hide_env_values = true)]
    database_url: Option<String>,
}

impl StorageArguments {
    /// The settings under these flags and further ones.
    pub(crate) fn settings(&self, more: Vec<(&str, String)>) -> Result<Settings, CommandError> {
        let mut overrides = more;
        overrides.extend(self.data_dir.clone().map(|dir| ("storage.data_dir", dir)));
        overrides.extend(self.database_url.clone().map(|url| ("storage.database_url", url)));
        Ok(Settings::load(self.config.as_deref(), &overrides)?)
    }
}

/// Run the server.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    #[command(flatten)]
    storage: StorageArguments,
    /// Where to listen, for example `127.0.0.1:0` for a free port.
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<String>,
    /// Start although acknowledged rows may be lost under the database's settings.
    #[arg(long)]
    allow_unsafe_durability: bool,
    /// Let HTTP tools reach loopback and private addresses.
    #[arg(long)]
    allow_private_tools: bool,
    /// Log lines as JSON.
    #[arg(long)]
    log_json: bool,
}

impl Serve {
    pub(crate) async fn run(self) -> Result<ExitCode, CommandError> {
        start_logging(self.log_json);
        let mut flags = Vec::new();
        flags.extend(self.bind.map(|bind| ("server.bind", bind)));
        if self.allow_unsafe_durability {
            flags.push(("storage.allow_unsafe_durability", "true".to_owned()));
        }
        if self.allow_private_tools {
            flags.push(("tools.addresses", "private".to_owned()));
        }
        let settings = self.storage.settings(flags)?;
        let drain = Duration::from_millis(settings.server.drain_ms);
        let node = Node::start(&settings).await?;
        output::line(&format!("listening on http://{}", node.addr));
        if let Some(addr) = node.metrics_addr {
            output::line(&format!("metrics on http://{addr}/metrics"));
        }
        if let Some(key) = &node.first_key {
            output::line(&format!("first API key (tenant `default`, shown only now): {}", key.expose_secret()));
        }
        if node.resumed > 0 {
            output::line(&format!("resumed {} open sessions", node.resumed));
        }
        signalled().await?;
        tracing::info!("stopping; running tools may report for {} ms", settings.server.drain_ms);
        tokio::select! {
            () = node.stop() => {}
            () = tokio::time::sleep(drain) => tracing::warn!("the drain time is over; open calls are settled at the next start"),
            again = signalled() => again?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn start_logging(json: bool) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    // A log that cannot be written, because its disk is full or its reader is gone, must not stop what it tells of: the
    // library would complain with `eprintln!`, which then panics.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .log_internal_errors(false)
        // Colour codes are for people; a file or a collector would keep them.
        .with_ansi(std::io::stderr().is_terminal());
    if json {
        builder.json().init();
    } else {
        builder.init();
    }
}

/// Resolves at SIGINT or SIGTERM.
async fn signalled() -> Result<(), CommandError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
