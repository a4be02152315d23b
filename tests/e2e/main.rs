//! End-to-end tests in one binary: one file per user-visible area, each through the public interfaces of a real server.

mod approvals;
mod channel;
mod client_venue;
mod docs;
mod field_cases;
mod lifecycle;
mod loops;
mod openapi;
mod server_venue;
