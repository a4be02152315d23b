//! End-to-end tests in one binary: one file per user-visible area, each through the public interfaces of a real server.

mod approvals;
mod audit;
mod bad_input;
mod budgets;
mod channel;
mod client_venue;
mod control;
mod deltas;
mod docs;
mod explain;
mod field_cases;
mod figures;
mod hooks;
mod hostile;
mod isolation;
mod lifecycle;
mod limits;
mod listing;
mod loops;
mod metrics;
mod models;
mod observers;
mod openapi;
mod outputs;
mod server_venue;
