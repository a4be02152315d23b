//! A router over a fresh memory store, and callers with keys. What is not here: what is asked (the tests).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use toolgate_core::id::{ActorId, ProfileName, TenantId};
use toolgate_core::time::Timestamp;
use toolgate_proposers::Proposers;
use toolgate_server::app::{App, HttpLimits};
use toolgate_server::auth::{KeyRequest, Pepper, mint};
use toolgate_server::caller::Scope;
use toolgate_server::clock::{Clock, SharedClock, SystemClock};
use toolgate_server::metrics::Metrics;
use toolgate_server::router::router;
use toolgate_server::sessions::{Bundles, Deltas, Deps, Nodes, SessionSettings, Sessions};
use toolgate_server::tools::{AddressPolicy, HttpRunner, Tools};
use toolgate_store::{Cluster as _, MasterKey, MemoryStore, NodeId, NodeStart, Registry as _};
use tower::ServiceExt as _;

pub(super) const WAIT: Duration = Duration::from_secs(20);

/// The machine's time, and what a test adds to it.
#[derive(Debug, Default)]
pub(super) struct TestClock(AtomicI64);

impl TestClock {
    pub(super) fn advance(&self, by: Duration) {
        self.0.fetch_add(i64::try_from(by.as_micros()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn now(&self) -> Timestamp {
        Timestamp(SystemClock.now().0 + self.0.load(Ordering::SeqCst))
    }
}

pub(super) struct World {
    pub(super) app: App,
    pub(super) store: Arc<MemoryStore>,
    pub(super) clock: Arc<TestClock>,
    router: axum::Router,
}

/// A bundle with a server tool, a client tool and one that needs approval; every model is scripted.
pub(super) fn bundle() -> Value {
    let text = json!({"properties": {"cmd": {"type": "string"}}, "required": ["cmd"]});
    let numbers = json!({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]});
    json!({
        "version": 1,
        "tools": {
            "add": {"description": "Adds.", "parameters": numbers, "venue": "server", "class": "read", "executor": {"builtin": "add"}},
            "echo": {"description": "Echoes.", "parameters": {"properties": {"text": {"type": "string"}}, "required": ["text"]},
                     "venue": "server", "requires_approval": true, "risk": "high", "executor": {"builtin": "echo"}},
            "login": {"description": "Signs in.", "parameters": {"properties": {"user": {"type": "string"}, "password": {"type": "string"}}, "required": ["user", "password"]},
                      "venue": "client", "requires_approval": true, "redact": ["/password"]},
            "terminal": {"description": "Runs.", "parameters": text, "venue": "client"}
        },
        "models": {
            "server": {"provider": "scripted", "script": [
                {"calls": [{"tool": "add", "args": {"a": 1, "b": 2}}]}, {"done": "three"}, {"done": "again"}
            ]},
            "approval": {"provider": "scripted", "script": [
                {"calls": [{"tool": "echo", "args": {"text": "one\u{202e}two"}}]}, {"done": "echoed"}
            ]},
            "login": {"provider": "scripted", "script": [
                {"calls": [{"tool": "login", "args": {"user": "bob", "password": "hunter2"}}]}, {"done": "in"}
            ]},
            "client": {"provider": "scripted", "script": [
                {"calls": [{"tool": "terminal", "args": {"cmd": "make"}}]}, {"done": "built"}
            ]}
        },
        "default_harness": {"max_steps": 5, "max_tool_calls": 5, "deadline_ms": 60000},
        "profiles": {
            "server": {"tools": ["add"], "model": "server"},
            "approval": {"tools": ["echo"], "model": "approval", "approval": {"self_approval": true}},
            "login": {"tools": ["login"], "model": "login"},
            "client": {"tools": ["terminal"], "model": "client"}
        }
    })
}

impl World {
    /// A server without any bundle.
    pub(super) async fn bare(limits: HttpLimits) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let store = Arc::new(MemoryStore::new());
        let clock = Arc::new(TestClock::default());
        let shared: SharedClock = Arc::clone(&clock) as SharedClock;
        let node = store
            .node_start(&NodeStart {
                node: NodeId::new("n1").unwrap(),
                ttl: std::time::Duration::from_secs(10),
                protocol: 1,
                version: String::new(),
            })
            .await
            .unwrap();
        let runner =
            HttpRunner::new(AddressPolicy::Private, Arc::new(toolgate_proposers::EnvSecrets), Arc::clone(&shared));
        let sessions = Sessions::new(Deps {
            store: Arc::clone(&store) as _,
            lanes: toolgate_store::Lanes::start(Arc::clone(&store) as _, std::num::NonZeroUsize::MIN),
            clock: Arc::clone(&shared),
            node,
            master: MasterKey::from_bytes([7; 32]),
            hooks: Arc::new(
                toolgate_server::hooks::HttpHooks::new(
                    toolgate_server::tools::AddressPolicy::Private,
                    Arc::new(toolgate_proposers::EnvSecrets),
                )
                .unwrap(),
            ),
            models: Proposers::new().unwrap(),
            deltas: Deltas::default(),
            metrics: Metrics::default(),
            tools: Arc::new(Tools::new(runner.unwrap())),
            bundles: Bundles::default(),
            nodes: Nodes::default(),
            settings: SessionSettings::default(),
            stopping: CancellationToken::new(),
        });
        sessions.start().await.unwrap();
        let pepper = Pepper::new(&[9; 32]).unwrap();
        let app = App::new(sessions, Arc::clone(&store) as _, shared, pepper, limits);
        app.set_ready(true);
        Self { router: router(app.clone(), axum::Router::new()), app, store, clock }
    }

    /// A server and a caller of tenant `acme` with every scope, whose bundle is [`bundle`].
    pub(super) async fn start() -> (Self, Caller) {
        let world = Self::bare(HttpLimits::default()).await;
        let caller = world.caller("acme").await;
        caller.put("/v1/bundle", &bundle()).await.expect(201);
        (world, caller)
    }

    /// A caller with every scope.
    pub(super) async fn caller(&self, tenant: &str) -> Caller {
        self.scoped(tenant, &Scope::ALL, None, None).await
    }

    pub(super) async fn scoped(
        &self,
        tenant: &str,
        scopes: &[Scope],
        ceiling: Option<&[&str]>,
        expires_at: Option<Timestamp>,
    ) -> Caller {
        let request = KeyRequest {
            tenant: TenantId::new(tenant).unwrap(),
            actor: ActorId::new("alice").unwrap(),
            scopes: scopes.iter().copied().collect(),
            ceiling: ceiling
                .map(|names| names.iter().map(|name| ProfileName::new(*name).unwrap()).collect::<BTreeSet<_>>()),
            label: "test".to_owned(),
            expires_at,
        };
        let (row, printed) = mint(self.app.auth().pepper(), request, self.clock.now()).unwrap();
        assert!(self.store.api_key_put(&row).await.unwrap());
        Caller { router: self.router.clone(), key: printed.expose_secret().to_owned(), id: row.key_id }
    }

    pub(super) fn router(&self) -> axum::Router {
        self.router.clone()
    }

    /// The same server with further routes inside the same frame, and a caller of it.
    pub(super) async fn with_routes(&self, more: axum::Router<App>) -> Caller {
        Caller { router: router(self.app.clone(), more), ..self.caller("acme").await }
    }
}

/// Somebody with a key.
#[derive(Clone)]
pub(super) struct Caller {
    router: axum::Router,
    pub(super) key: String,
    pub(super) id: String,
}

/// An answer, read whole.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    #[track_caller]
    pub(super) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }

    /// Fails unless it is a complete problem document of this code; gives the document.
    #[track_caller]
    pub(super) fn problem(self, status: u16, code: &str) -> Value {
        assert_eq!(self.headers["content-type"], "application/problem+json", "{}", self.text);
        let problem = self.json();
        assert_eq!(
            (problem["status"].as_u64(), problem["code"].as_str()),
            (Some(status.into()), Some(code)),
            "{problem:#}"
        );
        assert_eq!(self.status.as_u16(), status);
        assert_eq!(problem["type"], format!("https://toolgate.dev/errors/{code}"));
        assert_eq!(problem["request_id"], self.header("x-request-id"));
        assert!(problem["instance"].is_string() && problem["title"].is_string() && problem["detail"].is_string());
        problem
    }

    #[track_caller]
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no `{name}` in {:?}", self.headers)).to_str().unwrap()
    }
}

impl Caller {
    /// The same router with another text in the `Authorization` header.
    pub(super) fn with_key(&self, key: &str) -> Self {
        Self { key: key.to_owned(), ..self.clone() }
    }

    pub(super) fn request(&self, method: Method, path: &str) -> axum::http::request::Builder {
        Request::builder().method(method).uri(path).header("authorization", format!("Bearer {}", self.key))
    }

    pub(super) async fn send(&self, request: Request<Body>) -> Answer {
        let response = tokio::time::timeout(WAIT, self.router.clone().oneshot(request)).await.unwrap().unwrap();
        let (parts, body) = response.into_parts();
        let bytes = tokio::time::timeout(WAIT, axum::body::to_bytes(body, usize::MAX)).await.unwrap().unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status: parts.status, headers: parts.headers, text }
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(self.request(Method::GET, path).body(Body::empty()).unwrap()).await
    }

    pub(super) async fn text(&self, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let mut request = self.request(method, path).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(body.to_owned())).unwrap()).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.text(Method::POST, path, &[], &body.to_string()).await
    }

    pub(super) async fn post_with(&self, path: &str, headers: &[(&str, &str)], body: &Value) -> Answer {
        self.text(Method::POST, path, headers, &body.to_string()).await
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Answer {
        self.text(Method::PUT, path, &[], &body.to_string()).await
    }

    /// Starts a session, waits until it has settled, and gives it.
    pub(super) async fn settled(&self, profile: &str) -> Value {
        let body = json!({"profile": profile, "prompt": "go"});
        self.post_with("/v1/sessions", &[("prefer", "wait=15")], &body).await.expect(201).json()
    }
}

/// The id of something.
pub(super) fn id(value: &Value) -> String {
    value["id"].as_str().unwrap().to_owned()
}
