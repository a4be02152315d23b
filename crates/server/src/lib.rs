//! The Toolgate server: REST, SSE, WebSocket, session actors, tool runners. The only crate that knows wire JSON, the
//! clock and the network. What is not here: decisions (`toolgate-core`), stored forms (`toolgate-store`).

pub mod app;
pub mod auth;
pub mod caller;
pub mod channel;
pub mod clock;
pub mod config;
pub mod crash;
pub mod error;
pub mod failure;
pub mod hooks;
pub mod http;
pub mod local;
pub mod metrics;
pub mod node;
pub mod observers;
pub mod openapi;
pub mod protocol;
pub mod router;
pub mod routes;
pub mod sessions;
pub mod sweep;
pub mod tools;
pub mod wire;
