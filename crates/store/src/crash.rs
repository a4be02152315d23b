//! Points of crash tests: places at which a program built with the feature `failpoints` aborts when the environment says so
//! (`FAILPOINTS="K6=2*off->return"` aborts at the third time that K6 is reached). Without the feature each is nothing at all.
//! What is not here: what must hold after an abort (`crates/cli/tests/it/kill`).

/// What the environment asks for, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Armed {
    #[cfg(feature = "failpoints")]
    _scenario: fail::FailScenario<'static>,
}

/// Reads from the environment which points abort. The program's first line; without the feature it does nothing.
pub fn arm() -> Armed {
    Armed {
        #[cfg(feature = "failpoints")]
        _scenario: fail::FailScenario::setup(),
    }
}

/// Aborts the process here if the environment says so, as `kill -9` would: no destructor runs, nothing is flushed.
#[inline]
pub fn point(name: &'static str) {
    if hit(name) {
        tracing::error!(point = name, "aborting, as FAILPOINTS says");
        std::process::abort();
    }
}

/// Whether the environment says that something must go wrong here.
#[cfg(feature = "failpoints")]
pub(crate) fn hit(name: &'static str) -> bool {
    fail::fail_point!(name, |_| true);
    false
}

/// Never: this program has no such points.
#[cfg(not(feature = "failpoints"))]
#[inline]
pub(crate) const fn hit(_: &'static str) -> bool {
    false
}

/// K10: the write is durable, and the process dies or the reply is lost before anybody has heard of it.
#[inline]
pub(crate) fn reply<T>(answers: Vec<T>) -> Vec<T> {
    point("K10");
    if hit("K10-lost") { Vec::new() } else { answers }
}

/// K16: dies in the middle of a migration: what comes before it stands, and its own statements are run but not committed.
#[cfg(feature = "failpoints")]
pub(crate) async fn in_migration<DB>(
    migrator: &sqlx::migrate::Migrator,
    pool: &sqlx::Pool<DB>,
) -> Result<(), sqlx::migrate::MigrateError>
where
    DB: sqlx::Database,
    DB::Connection: sqlx::migrate::Migrate,
    for<'c> &'c mut DB::Connection: sqlx::Executor<'c, Database = DB>,
{
    let mut before = 0;
    for migration in migrator.iter() {
        if hit("K16") {
            migrator.run_to(before, pool).await?;
            let mut tx = pool.begin().await?;
            sqlx::raw_sql(migration.sql.clone()).execute(&mut *tx).await?;
            tracing::error!(version = migration.version, "aborting within a migration, as FAILPOINTS says");
            std::process::abort();
        }
        before = migration.version;
    }
    Ok(())
}

/// Nothing: this program has no such points.
#[cfg(not(feature = "failpoints"))]
pub(crate) async fn in_migration<DB: sqlx::Database>(
    _: &sqlx::migrate::Migrator,
    _: &sqlx::Pool<DB>,
) -> Result<(), sqlx::migrate::MigrateError> {
    Ok(())
}
