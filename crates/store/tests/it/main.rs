//! The contract of the store, run over every backend, in one binary. PostgreSQL tests need a throw-away cluster:
//! `scripts/postgres start DIR PORT`, and its URL in `TOOLGATE_TEST_POSTGRES_URL`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail loudly"
)]

/// Runs each contract test over memory, SQLite and PostgreSQL.
macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::backend::Backend::memory()).await;
            })*
        }
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::backend::Backend::sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test]
            async fn $name() {
                super::$name(crate::backend::Backend::postgres().await).await;
            })*
        }
    };
}

mod append;
mod append_only;
mod backend;
mod chain;
mod codec;
mod concurrency;
mod creations;
mod field_cases;
mod field_tampering;
mod golden;
mod guards;
mod keys;
mod lanes;
mod ledger;
mod ledger_input;
mod master;
mod nodes;
mod ownership;
mod reading;
mod records;
mod rights;
mod sample;
mod settings;
mod snapshots;
mod tenancy;
