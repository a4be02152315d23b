//! A whole server: opens the store, puts the parts together, resumes what was under way, listens, stops. What is not
//! here: the parts.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use toolgate_core::id::{ActorId, TenantId};
use toolgate_proposers::{EnvSecrets, Proposers, SetupError};
use toolgate_store::{
    Lanes, MAX_PAGE, MasterKey, MemoryStore, NodeId, NodeIdentity, NodeStart, PostgresOptions, PostgresStore,
    SqliteStore, Store, StoreError, Unsafe,
};

use crate::app::{App, HttpLimits};
use crate::auth::{KeyRequest, MintError, Pepper, mint};
use crate::caller::Scope;
use crate::channel::{Channel, ChannelSettings};
use crate::clock::{SharedClock, SystemClock};
use crate::config::{Settings, StorageSettings};
use crate::failure::Failure;
use crate::hooks::HttpHooks;
use crate::http::{ServeOptions, serve};
use crate::local::{Local, LocalError};
use crate::metrics::Metrics;
use crate::protocol::{PROTOCOL, are_compatible};
use crate::sessions::{Bundles, Deltas, Deps, Nodes, Sessions};
use crate::sweep::Sweeper;
use crate::tools::{HttpRunner, Tools};

/// The tenant of a server that was never told of another.
pub const FIRST_TENANT: &str = "default";
/// The SQLite file within the node's directory.
const SQLITE_FILE: &str = "toolgate.sqlite";
/// Connections of those who collect the figures.
const COLLECTORS: usize = 32;
/// The principal of the first key.
const FIRST_ACTOR: &str = "admin";

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The node's directory.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The database.
    #[error("the database cannot be used: {0}")]
    Store(#[source] StoreError),
    /// The model adapters.
    #[error("the model adapters cannot be set up: {0}")]
    Models(#[from] SetupError),
    /// The tool runners.
    #[error("the tool runners cannot be set up: {0}")]
    Tools(String),
    /// The first key.
    #[error("a first API key cannot be made: {0}")]
    Key(#[from] MintError),
    /// The address.
    #[error("cannot listen on {bind}")]
    Listen {
        /// The address.
        bind: SocketAddr,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A node of another build is at work.
    #[error("node `{node}` speaks protocol {protocol}, this build speaks {PROTOCOL}: upgrade one release at a time")]
    Protocol {
        /// The other node.
        node: String,
        /// Its protocol.
        protocol: u32,
    },
    /// Open runs.
    #[error("open runs cannot be resumed: {0}")]
    Resume(#[from] Failure),
}

/// A running server.
#[derive(Debug)]
pub struct Node {
    /// Where it listens.
    pub addr: SocketAddr,
    /// Where operators read the figures.
    pub metrics_addr: Option<SocketAddr>,
    /// The first API key, when this start made one. Shown once.
    pub first_key: Option<SecretString>,
    /// Sessions that were under way and go on.
    pub resumed: u64,
    app: App,
    channel: Channel,
    sweeper: Sweeper,
    drain: Duration,
    stop: CancellationToken,
    observers: JoinHandle<()>,
    listener: JoinHandle<io::Result<()>>,
    /// Holds the lock of the directory.
    _local: Local,
}

impl Node {
    /// Starts a server; it serves once this returns.
    pub async fn start(settings: &Settings) -> Result<Self, StartError> {
        let local = Local::open(&settings.storage)?;
        let clock: SharedClock = Arc::new(SystemClock);
        let store = open_database(&settings.storage).await.map_err(StartError::Store)?;
        store.check_master(&local.master).await.map_err(StartError::Store)?;
        let node = start_node(&*store, &local.node, settings).await?;
        let pepper = Pepper::new(&local.master.derive("api-key pepper"))?;
        let first_key = first_key(&*store, &pepper, &clock).await?;
        let stop = CancellationToken::new();
        let runner = HttpRunner::new(settings.address_policy(), Arc::new(EnvSecrets), Arc::clone(&clock))
            .map_err(|error| StartError::Tools(error.to_string()))?;
        let hooks = HttpHooks::new(settings.address_policy(), Arc::new(EnvSecrets))
            .map_err(|error| StartError::Tools(error.to_string()))?;
        let sessions = Sessions::new(Deps {
            store: Arc::clone(&store),
            lanes: Lanes::start(Arc::clone(&store), settings.storage.lanes()),
            clock: Arc::clone(&clock),
            node,
            master: local.master.clone(),
            models: Proposers::new()?,
            deltas: Deltas::default(),
            metrics: Metrics::default(),
            tools: Arc::new(Tools::new(runner)),
            hooks: Arc::new(hooks),
            bundles: Bundles::default(),
            nodes: Nodes::default(),
            settings: settings.session_settings(),
            stopping: CancellationToken::new(),
        });
        let app = App::new(sessions.clone(), store, clock, pepper, HttpLimits::default());
        let bind = settings.server.bind;
        let (socket, addr) = listen(bind).await?;
        let figures = match settings.server.metrics_bind {
            Some(bind) => Some(listen(bind).await?),
            None => None,
        };
        let metrics_addr = figures.as_ref().map(|(_, addr)| *addr);
        let resumed = sessions.start().await?;
        let channel = Channel::new(ChannelSettings {
            origins: settings.channel.allowed_origins.clone(),
            ..ChannelSettings::default()
        });
        if let Some((socket, _)) = figures {
            let options =
                ServeOptions { max_connections: COLLECTORS, drain: Duration::ZERO, ..ServeOptions::default() };
            let router = crate::metrics::routes(app.clone(), channel.clone());
            tokio::spawn(serve(socket, router, options, stop.clone()));
        }
        let router = crate::router::router(app.clone(), crate::channel::routes(channel.clone()));
        let drain = Duration::from_millis(settings.server.drain_ms);
        let options =
            ServeOptions { max_connections: settings.server.max_connections, drain, ..ServeOptions::default() };
        let listener = tokio::spawn(serve(socket, router, options, stop.clone()));
        let observers =
            tokio::spawn(crate::observers::deliver(Arc::clone(app.sessions().deps()), app.stopping().clone()));
        let deps = app.sessions().deps();
        let sweeper = Sweeper::start(Arc::clone(&deps.store), Arc::clone(&deps.clock));
        app.set_ready(true);
        tokio::spawn(drain_when_told(app.clone()));
        Ok(Self {
            addr,
            metrics_addr,
            first_key,
            resumed,
            app,
            channel,
            drain,
            stop,
            listener,
            observers,
            sweeper,
            _local: local,
        })
    }

    /// The shared handles.
    #[must_use]
    pub const fn app(&self) -> &App {
        &self.app
    }

    /// Stops: not ready, streams and clients are told, running tools report, then the listener closes.
    pub async fn stop(self) {
        self.app.stopping().cancel();
        self.app.sessions().stop().await;
        self.channel.drained(self.drain).await;
        self.sweeper.stop().await;
        self.stop.cancel();
        if let Err(error) = self.observers.await {
            tracing::warn!(%error, "the delivery to observers did not end well");
        }
        match self.listener.await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the listener failed"),
            Err(error) => tracing::warn!(%error, "the listener did not end well"),
        }
    }
}

async fn listen(bind: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let failed = |source| StartError::Listen { bind, source };
    let socket = TcpListener::bind(bind).await.map_err(failed)?;
    let addr = socket.local_addr().map_err(failed)?;
    Ok((socket, addr))
}

/// The database URL of a log that is gone when the server ends: what a benchmark compares a real one with.
const MEMORY: &str = "memory:";

/// Opens the configured database and brings its schema up to date.
pub async fn open_database(settings: &StorageSettings) -> Result<Arc<dyn Store>, StoreError> {
    if settings.database_url == MEMORY {
        if !settings.allow_unsafe_durability {
            return Err(StoreError::UnsafeSetting {
                setting: "storage.database_url",
                value: MEMORY.to_owned(),
                remedy: "name a database, or allow unsafe durability to lose everything at the end",
            });
        }
        return Ok(Arc::new(MemoryStore::new()));
    }
    if settings.database_url.is_empty() {
        return Ok(Arc::new(SqliteStore::open(&settings.data_dir.join(SQLITE_FILE)).await?));
    }
    let unsafe_settings = if settings.allow_unsafe_durability { Unsafe::Accept } else { Unsafe::Refuse };
    let options = PostgresOptions {
        max_connections: settings.database_connections,
        unsafe_settings,
        ..PostgresOptions::default()
    };
    Ok(Arc::new(PostgresStore::open(&settings.database_url, &options).await?))
}

/// Registers this start, unless a node of a build that this one does not understand is at work.
async fn start_node(store: &dyn Store, node: &NodeId, settings: &Settings) -> Result<NodeIdentity, StartError> {
    let rows = store.nodes(MAX_PAGE).await.map_err(StartError::Store)?;
    let live = rows.iter().filter(|row| row.is_alive() && row.identity.node != *node);
    if let Some(other) = live.clone().find(|row| !are_compatible(PROTOCOL, row.protocol)) {
        let (node, protocol) = (other.identity.node.to_string(), other.protocol);
        return Err(StartError::Protocol { node, protocol });
    }
    let start = NodeStart {
        node: node.clone(),
        ttl: Duration::from_millis(settings.sessions.lease_ms),
        protocol: PROTOCOL,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    store.node_start(&start).await.map_err(StartError::Store)
}

/// Once the node is drained it is not ready, and tells clients and streams to connect elsewhere.
async fn drain_when_told(app: App) {
    let draining = app.sessions().nodes().draining().clone();
    tokio::select! {
        () = draining.cancelled() => {
            app.set_ready(false);
            app.stopping().cancel();
        }
        () = app.stopping().cancelled() => {}
    }
}

/// Makes a key with every scope for the first tenant, if that tenant has none.
async fn first_key(
    store: &dyn Store,
    pepper: &Pepper,
    clock: &SharedClock,
) -> Result<Option<SecretString>, StartError> {
    let (Ok(tenant), Ok(actor)) = (TenantId::new(FIRST_TENANT), ActorId::new(FIRST_ACTOR)) else { return Ok(None) };
    let keys = store.api_key_list(&tenant, None, 1).await.map_err(StartError::Store)?;
    if !keys.items.is_empty() {
        return Ok(None);
    }
    let request = KeyRequest {
        tenant,
        actor,
        scopes: Scope::ALL.into_iter().collect(),
        ceiling: None,
        label: "first key".to_owned(),
        expires_at: None,
    };
    let (row, printed) = mint(pepper, request, clock.now())?;
    let stored = store.api_key_put(&row).await.map_err(StartError::Store)?;
    Ok(stored.then_some(printed))
}

/// The pepper of API keys that belongs to a master key.
pub fn pepper(master: &MasterKey) -> Result<Pepper, MintError> {
    Pepper::new(&master.derive("api-key pepper"))
}
