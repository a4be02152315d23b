//! `toolgate node`: the nodes that share a database, with the database in hand. What is not here: what a drained node does
//! (`toolgate-server`).

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use toolgate_server::node::open_database;
use toolgate_store::{MAX_PAGE, NodeId, NodeRow};

use crate::failure::CommandError;
use crate::output;
use crate::serve::StorageArguments;

/// Look at the nodes of a database, and drain one.
#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// List all nodes ever seen, by name.
    List(List),
    /// Let a node give its sessions to the others; within a second it takes no more. Its next start ends this.
    Drain(Drain),
}

/// List all nodes ever seen, by name.
#[derive(Debug, Args)]
pub(crate) struct List {
    #[command(flatten)]
    storage: StorageArguments,
}

/// Let a node give its sessions to the others.
#[derive(Debug, Args)]
pub(crate) struct Drain {
    #[command(flatten)]
    storage: StorageArguments,
    /// The node's name, as `toolgate node list` shows it.
    name: String,
}

impl Node {
    pub(crate) async fn run(self) -> Result<ExitCode, CommandError> {
        match self {
            Self::List(list) => list.run().await,
            Self::Drain(drain) => drain.run().await,
        }
    }
}

impl List {
    async fn run(self) -> Result<ExitCode, CommandError> {
        let store = open_database(&self.storage.settings(Vec::new())?.storage).await?;
        let owned: BTreeMap<_, _> = store.sessions_owned().await?.into_iter().collect();
        output::line("NAME\tINCARNATION\tPROTOCOL\tVERSION\tLEASE\tSTATE\tSESSIONS");
        for row in store.nodes(MAX_PAGE).await? {
            output::line(&line(&row, owned.get(&row.identity).copied().unwrap_or_default()));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// One node: what is left of its lease, or for how long it has been over.
fn line(row: &NodeRow, sessions: u64) -> String {
    let ms = row.lease_left_us / 1_000;
    let state = match (row.is_alive(), row.draining) {
        (true, false) => "alive",
        (true, true) => "draining",
        (false, _) => "gone",
    };
    let (node, incarnation) = (&row.identity.node, row.identity.incarnation);
    format!("{node}\t{incarnation}\t{}\t{}\t{ms} ms\t{state}\t{sessions}", row.protocol, row.version)
}

impl Drain {
    async fn run(self) -> Result<ExitCode, CommandError> {
        let node = NodeId::new(&self.name).map_err(|error| CommandError::of(&error))?;
        let store = open_database(&self.storage.settings(Vec::new())?.storage).await?;
        if !store.node_drain(&node, true).await? {
            return Err(CommandError::new(format!("there is no node `{node}`; `toolgate node list` shows all")));
        }
        output::line(&format!("{node} gives its sessions away"));
        Ok(ExitCode::SUCCESS)
    }
}
