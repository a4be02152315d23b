//! What every session of a server shares. What is not here: anything of one session.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use toolgate_proposers::Proposers;
use toolgate_store::{Lanes, MasterKey, NodeIdentity, Store};

use super::bundles::Bundles;
use super::deltas::Deltas;
use super::nodes::Nodes;
use crate::clock::SharedClock;
use crate::hooks::HookCaller;
use crate::metrics::Metrics;
use crate::tools::ToolRunner;

/// What sessions are built on.
#[derive(Debug)]
pub struct Deps {
    /// The log and everything beside it.
    pub store: Arc<dyn Store>,
    /// Through these alone sessions append.
    pub lanes: Lanes,
    /// The time of day.
    pub clock: SharedClock,
    /// This life of this node.
    pub node: NodeIdentity,
    /// Wraps the keys of content.
    pub master: MasterKey,
    /// The model adapters.
    pub models: Proposers,
    /// Who sees pieces of their answers.
    pub deltas: Deltas,
    /// What is counted.
    pub metrics: Metrics,
    /// Runs server tools.
    pub tools: Arc<dyn ToolRunner>,
    /// Asks admission hooks.
    pub hooks: Arc<dyn HookCaller>,
    /// Compiled bundles by digest.
    pub bundles: Bundles,
    /// The nodes that share the store.
    pub nodes: Nodes,
    /// Bounds.
    pub settings: SessionSettings,
    /// Cancelled when the server stops: nothing new is started.
    pub stopping: CancellationToken,
}

/// Bounds of the session machinery.
#[derive(Debug, Clone)]
pub struct SessionSettings {
    /// Inputs that wait for one session; more are answered with `busy`.
    pub mailbox: usize,
    /// Calls offered to one client at once; a client that takes none loses its connection.
    pub offers: usize,
    /// How long a session without work stays in memory.
    pub idle_after: Duration,
    /// How long an append is repeated while the database is away.
    pub append_patience: Duration,
    /// Sessions that are loaded at once.
    pub loads_at_once: usize,
    /// Lease of this node; renewed three times within it, and at least every second.
    pub lease: Duration,
    /// Whether nodes wake each other, or only look for work at intervals.
    pub hints: bool,
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self {
            mailbox: 64,
            offers: 64,
            idle_after: Duration::from_secs(30),
            append_patience: Duration::from_secs(20),
            loads_at_once: 32,
            lease: Duration::from_secs(10),
            hints: true,
        }
    }
}
