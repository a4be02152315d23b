//! A server in memory and a client over plain channels.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::Message;
use futures_util::{Stream, stream};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, PollSender};
use toolgate_core::bundle::Bundle;
use toolgate_core::id::{ActorId, TenantId};
use toolgate_proposers::{EnvSecrets, Proposers};
use toolgate_store::{BundleRow, Cluster, MasterKey, MemoryStore, NodeId, NodeStart, Registry};

use crate::app::{App, HttpLimits};
use crate::auth::{KeyRequest, Pepper, mint};
use crate::caller::Scope;
use crate::channel::{Channel, ChannelSettings, pump};
use crate::clock::{Clock, SystemClock};
use crate::metrics::Metrics;
use crate::sessions::{Bundles, Deltas, Deps, Nodes, SessionSettings, Sessions};
use crate::tools::{AddressPolicy, HttpRunner, Tools};

/// Everything that is waited for comes within this time, or the test fails.
pub(super) const WAIT: Duration = Duration::from_secs(20);

fn bundle() -> Value {
    json!({
        "version": 1,
        "tools": {
            "terminal": {"description": "Runs.", "parameters": {"properties": {"n": {"type": "integer"}}, "required": ["n"]},
                         "venue": "client", "class": "once", "max_output_bytes": 64},
            "careful": {"description": "Runs after a look.", "parameters": {"properties": {}}, "venue": "client",
                        "requires_approval": true}
        },
        "models": {
            "client": {"provider": "scripted", "script": [
                {"calls": [{"tool": "terminal", "args": {"n": 9007199254740993_u64}}]},
                {"done": {"built": 9007199254740993_u64}}
            ]},
            "careful": {"provider": "scripted", "script": [{"calls": [{"tool": "careful", "args": {}}]}, {"done": "ok"}]},
            "talk": {"provider": "scripted", "script": [{"done": "hi"}], "repeat_last": true}
        },
        "default_harness": {"max_steps": 5, "max_tool_calls": 5, "deadline_ms": 60000},
        "profiles": {
            "client": {"tools": ["terminal"], "model": "client"},
            "careful": {"tools": ["careful"], "model": "careful", "approval": {"self_approval": true}},
            "talk": {"tools": ["terminal"], "model": "talk"}
        }
    })
}

pub(super) struct World {
    pub(super) app: App,
    pub(super) channel: Channel,
    store: Arc<MemoryStore>,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(ChannelSettings::default()).await
    }

    pub(super) async fn with(settings: ChannelSettings) -> Self {
        Self::over(settings, bundle()).await
    }

    /// A server with one more profile, `streamed`, whose model is at this address.
    pub(super) async fn streaming(settings: ChannelSettings, base_url: &str) -> Self {
        let mut bundle = bundle();
        bundle["models"]["streamed"] =
            json!({"provider": "openai", "base_url": base_url, "model": "fake", "stream": true});
        bundle["profiles"]["streamed"] = json!({"tools": ["terminal"], "model": "streamed"});
        Self::over(settings, bundle).await
    }

    async fn over(settings: ChannelSettings, bundle: Value) -> Self {
        let store = Arc::new(MemoryStore::new());
        for tenant in ["acme", "other"] {
            let tenant = TenantId::new(tenant).unwrap();
            let source = Bundle::load(&bundle.to_string()).unwrap();
            let row = BundleRow {
                digest: source.digest(),
                body: source.source().as_str().as_bytes().to_vec(),
                created_by: ActorId::new("ops").unwrap(),
                created_at: SystemClock.now(),
            };
            store.bundle_put(&tenant, &row).await.unwrap();
            store.bundle_set_current(&tenant, None, &row.digest).await.unwrap();
        }
        let node = store
            .node_start(&NodeStart {
                node: NodeId::new("n1").unwrap(),
                ttl: std::time::Duration::from_secs(10),
                protocol: 1,
                version: String::new(),
            })
            .await
            .unwrap();
        let clock = Arc::new(SystemClock);
        let http = HttpRunner::new(AddressPolicy::Public, Arc::new(EnvSecrets), Arc::new(SystemClock)).unwrap();
        let deps = Deps {
            lanes: toolgate_store::Lanes::start(store.clone(), std::num::NonZeroUsize::MIN),
            store: store.clone(),
            clock: clock.clone(),
            node,
            master: MasterKey::from_bytes([7; 32]),
            hooks: Arc::new(
                crate::hooks::HttpHooks::new(
                    crate::tools::AddressPolicy::Private,
                    Arc::new(toolgate_proposers::EnvSecrets),
                )
                .unwrap(),
            ),
            models: Proposers::new().unwrap(),
            deltas: Deltas::default(),
            metrics: Metrics::default(),
            tools: Arc::new(Tools::new(http)),
            bundles: Bundles::default(),
            nodes: Nodes::default(),
            settings: SessionSettings::default(),
            stopping: CancellationToken::new(),
        };
        let sessions = Sessions::new(deps);
        sessions.start().await.unwrap();
        let pepper = Pepper::new(&[1; 32]).unwrap();
        let app = App::new(sessions, store.clone(), clock, pepper, HttpLimits::default());
        Self { app, channel: Channel::new(settings), store }
    }

    /// A fresh key of a tenant with these scopes.
    pub(super) async fn key(&self, tenant: &str, scopes: &[Scope]) -> String {
        let request = KeyRequest {
            tenant: TenantId::new(tenant).unwrap(),
            actor: ActorId::new("alice").unwrap(),
            scopes: scopes.iter().copied().collect::<BTreeSet<_>>(),
            ceiling: None,
            label: "test".to_owned(),
            expires_at: None,
        };
        let (row, printed) = mint(self.app.auth().pepper(), request, SystemClock.now()).unwrap();
        self.store.api_key_put(&row).await.unwrap();
        printed.expose_secret().to_owned()
    }

    /// Revokes a key, and lets this node know at once.
    pub(super) async fn revoke(&self, printed: &str) {
        let caller = self.app.auth().authenticate(printed).await.unwrap();
        self.store.api_key_revoke(&caller.tenant, &caller.credential, SystemClock.now()).await.unwrap();
        self.app.auth().forget(&caller.credential);
    }

    /// A connection whose client takes at most `room` messages before it reads.
    pub(super) fn connect(&self, room: usize) -> Socket {
        let (to, from_client) = mpsc::channel(256);
        let (to_client, from) = mpsc::channel(room);
        let run = pump(self.app.clone(), self.channel.clone(), None, incoming(from_client), PollSender::new(to_client));
        Socket { to: Some(to), from, pump: tokio::spawn(run) }
    }

    /// A connection that has said hello.
    pub(super) async fn hello(&self, key: &str, client: &str, sessions: &Value) -> (Socket, Value) {
        let mut socket = self.connect(64);
        socket.hello(key, client, sessions).await;
        let welcome = socket.next().await;
        assert_eq!(welcome["type"], "Welcome", "{welcome}");
        (socket, welcome)
    }
}

fn incoming(
    from: mpsc::Receiver<Result<Message, String>>,
) -> impl Stream<Item = Result<Message, String>> + Unpin + Send {
    Box::pin(stream::unfold(from, async |mut from| from.recv().await.map(|message| (message, from))))
}

/// The client's side of a connection.
pub(super) struct Socket {
    to: Option<mpsc::Sender<Result<Message, String>>>,
    from: mpsc::Receiver<Message>,
    pub(super) pump: JoinHandle<()>,
}

impl Socket {
    pub(super) async fn raw(&self, message: Result<Message, String>) {
        // The server may have ended the connection; then the test looks at how.
        let _ = self.to.as_ref().unwrap().send(message).await;
    }

    pub(super) async fn text(&self, text: &str) {
        self.raw(Ok(Message::Text(text.into()))).await;
    }

    pub(super) async fn send(&self, frame: Value) {
        self.text(&frame.to_string()).await;
    }

    pub(super) async fn hello(&self, key: &str, client: &str, sessions: &Value) {
        self.send(json!({"type": "Hello", "protocol": 1, "client_id": client, "token": key, "sessions": sessions}))
            .await;
    }

    async fn message(&mut self) -> Message {
        tokio::time::timeout(WAIT, self.from.recv())
            .await
            .expect("a message comes in time")
            .expect("the connection lives")
    }

    /// Waits for a ping and answers it.
    pub(super) async fn pinged(&mut self) {
        match self.message().await {
            Message::Ping(bytes) => self.raw(Ok(Message::Pong(bytes))).await,
            other => panic!("{other:?}"),
        }
    }

    /// The next frame.
    pub(super) async fn next(&mut self) -> Value {
        loop {
            match self.message().await {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next frame of a type; others are passed over.
    pub(super) async fn until(&mut self, kind: &str) -> Value {
        loop {
            let frame = self.next().await;
            if frame["type"] == kind {
                return frame;
            }
        }
    }

    /// The next frame, which must be an `Error`: its code and what it is about.
    pub(super) async fn error(&mut self) -> (String, Value) {
        let frame = self.until("Error").await;
        assert_eq!(frame["code"], frame["problem"]["code"]);
        (frame["code"].as_str().unwrap().to_owned(), frame["re"].clone())
    }

    /// The code that the server closes with; frames before it are passed over.
    pub(super) async fn closed(&mut self) -> u16 {
        loop {
            match self.message().await {
                Message::Close(Some(frame)) => {
                    self.to = None;
                    return frame.code;
                }
                Message::Text(_) | Message::Ping(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// Breaks the connection off and waits until the server has noticed.
    pub(super) async fn cut(mut self) {
        self.to = None;
        drop(self.from);
        tokio::time::timeout(WAIT, self.pump).await.expect("the pump ends in time").unwrap();
    }
}
