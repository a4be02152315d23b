//! Further tenants and keys for one test. What is not here: the first tenant's key (`server`).

use secrecy::ExposeSecret;
use serde_json::json;
use toolgate_core::id::{ActorId, TenantId};
use toolgate_server::auth::{KeyRequest, mint};
use toolgate_server::caller::Scope;

use crate::caller::Caller;
use crate::server::TestServer;

impl TestServer {
    /// A caller of another tenant, with every scope.
    pub async fn tenant(&self, name: &str) -> Caller {
        let app = self.node().app();
        let request = KeyRequest {
            tenant: TenantId::new(name).expect("a tenant id"),
            actor: ActorId::new(format!("admin-of-{name}")).expect("an actor id"),
            scopes: Scope::ALL.into_iter().collect(),
            ceiling: None,
            label: String::new(),
            expires_at: None,
        };
        let (row, printed) = mint(app.auth().pepper(), request, app.clock().now()).expect("a key");
        assert!(app.store().api_key_put(&row).await.expect("the key is stored"));
        Caller::new(self.url(), printed.expose_secret().to_owned())
    }
}

impl Caller {
    /// A caller of the same tenant: another principal with only these scopes. Needs `keys:admin`.
    pub async fn with_scopes(&self, actor: &str, scopes: &[&str]) -> Self {
        self.made(&json!({"actor": actor, "scopes": scopes})).await.1
    }

    /// Makes a key with this body; its id and a caller that uses it.
    pub async fn made(&self, body: &serde_json::Value) -> (String, Self) {
        let made = self.post("/v1/api-keys", body).await.expect(201).json();
        let text = |field: &str| made[field].as_str().expect("text").to_owned();
        (text("id"), Self::new(self.url().to_owned(), text("key")))
    }
}
