//! What the end-to-end tests stand on: a real server on a free port over a fresh database, a plain HTTP caller, a stub
//! model that checks every request, a stub tool with a journal. Tests wait on conditions with a bound, never on sleeps.
#![expect(missing_debug_implementations, reason = "test helpers are not printed")]

pub mod caller;
pub mod contract;
pub mod fake_hook;
pub mod fake_model;
pub mod fake_tool;
pub mod server;
pub mod tenants;
pub mod wild_model;
pub mod world;

pub use caller::Caller;
pub use fake_hook::FakeHook;
pub use fake_model::FakeModel;
pub use fake_tool::FakeTool;
pub use server::{Backend, TestServer};
pub use wild_model::{Wild, WildModel};

/// The longest that any awaited condition may take.
pub const WAIT: std::time::Duration = std::time::Duration::from_secs(30);
