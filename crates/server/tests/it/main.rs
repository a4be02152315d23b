//! Tests of the server's parts and of its HTTP side, in one binary.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

mod http;
mod nodes;
mod sessions;
