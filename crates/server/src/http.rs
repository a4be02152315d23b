//! HTTP as such: connections, the frame around every request, reading requests, idempotency, cursors. What is not here:
//! what an operation does (`routes`), and error codes (`error`).

pub mod around;
pub mod cursor;
pub mod extract;
pub mod headers;
pub mod idempotency;
pub mod probe;
mod serve;
mod stall;
pub mod wait;

pub use serve::{ServeOptions, serve};
