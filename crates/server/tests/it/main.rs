//! Tests of the server's parts below HTTP, in one binary.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests fail loudly")]

mod sessions;
