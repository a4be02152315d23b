//! Rows of the log and of the security log are never changed or removed: by trigger for everybody, by rights for the server.

use std::sync::Arc;

use sqlx::{Connection as _, PgConnection};
use toolgate_core::time::Timestamp;
use toolgate_store::{Appended, Header, PostgresStore, SecurityRow, SqliteStore, Store, StoreError};

use crate::backend::{Backend, Raw, at_cluster, empty_database, options};
use crate::sample::{Log, all_rows, tenant};

async fn filled(backend: &Backend) -> Log {
    let log = Log::started(&backend.store, "acme").await;
    let row = SecurityRow {
        id: "s".to_owned(),
        at: Timestamp(1),
        code: "c".to_owned(),
        actor: None,
        session: None,
        detail: Vec::new(),
    };
    backend.store.security_append(&tenant("acme"), &row).await.unwrap();
    log
}

const CHANGES: [&str; 5] = [
    "UPDATE event SET kind = 'other'",
    "DELETE FROM event",
    "UPDATE security_log SET code = 'other'",
    "DELETE FROM security_log",
    "UPDATE event SET seq = seq + 1",
];

fn message(error: &sqlx::Error) -> String {
    error.as_database_error().map(|error| error.message().to_owned()).unwrap_or_default()
}

#[tokio::test]
async fn sqlite_triggers_refuse_the_operator() {
    let backend = Backend::sqlite().await;
    let log = filled(&backend).await;
    let replace = "INSERT OR REPLACE INTO event SELECT tenant, session, seq, epoch, 'forged', run, step, call, decision, \
         allow, dispatch_attempt, terminal, input_id, recorded_at, header, payload, prev_hash, hash FROM event";
    let changes = CHANGES.into_iter().map(|change| (change, "guard:append_only"));
    for (change, guard) in changes.chain([(replace, "guard:taken")]) {
        let error = backend.operator(change).await.expect_err(change);
        assert_eq!(message(&error), guard, "{change}");
    }
    assert_eq!(all_rows(&backend.store, &log.tenant, log.session).await, log.rows);
}

#[tokio::test]
async fn postgres_triggers_refuse_the_superuser() {
    let backend = Backend::postgres().await;
    let log = filled(&backend).await;
    for change in CHANGES.into_iter().chain(["TRUNCATE event", "TRUNCATE security_log", "TRUNCATE event CASCADE"]) {
        let error = backend.operator(change).await.expect_err(change);
        assert!(message(&error).contains("never changed or removed"), "{change}: {error}");
    }
    assert_eq!(all_rows(&backend.store, &log.tenant, log.session).await, log.rows);
}

#[tokio::test]
async fn the_role_of_the_server_may_not_write_the_log_directly() {
    let backend = Backend::postgres().await;
    filled(&backend).await;
    let insert = "INSERT INTO event SELECT tenant, session, seq + 1, epoch, 'forged', run, step, call, decision, allow, \
         dispatch_attempt, terminal, input_id, recorded_at, header, payload, prev_hash, hash FROM event";
    let others = [
        insert,
        "TRUNCATE event",
        "UPDATE session SET head_seq = 0",
        "UPDATE session SET epoch = 9",
        "INSERT INTO content_key SELECT tenant, session, 'k', '\\x00' FROM session",
        "UPDATE ledger_counter SET used = 0",
        "INSERT INTO ledger_counter VALUES ('acme', 'c', 0, 0)",
        "UPDATE ledger_reservation SET settled_at = 1",
        "DELETE FROM ledger_charge",
        "UPDATE bundle SET body = ''",
        "ALTER TABLE event DISABLE TRIGGER ALL",
        "DROP TABLE event",
        "SET session_replication_role = replica",
    ];
    let Raw::Postgres(url) = &backend.raw else { panic!("not PostgreSQL") };
    let mut conn = PgConnection::connect(url).await.unwrap();
    sqlx::raw_sql("SET search_path = toolgate; SET ROLE toolgate_app").execute(&mut conn).await.unwrap();
    for change in CHANGES.into_iter().chain(others) {
        let error = sqlx::raw_sql(change).execute(&mut conn).await.expect_err(change);
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
        assert_eq!(code, "42501", "{change}: {error}");
    }
}

#[tokio::test]
async fn the_connections_of_the_store_work_as_that_role() {
    let backend = Backend::postgres().await;
    filled(&backend).await;
    let role = backend
        .operator(
            "DO $$ BEGIN IF (SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND application_name = 'toolgate') = 0 THEN RAISE 'no connection'; END IF; END $$",
        )
        .await;
    role.unwrap();
    let Raw::Postgres(url) = &backend.raw else { panic!("not PostgreSQL") };
    let store = PostgresStore::open(url, &options()).await.unwrap();
    assert_eq!(store.connection_role().await.unwrap(), "toolgate_app");
}

#[tokio::test]
async fn a_file_of_another_kind_is_refused() {
    let dir = tempfile::TempDir::new().unwrap();
    let path = dir.path().join("log.sqlite");
    std::fs::write(&path, b"this is no database, but long enough to be looked at as one by everybody".repeat(20))
        .unwrap();
    let error = SqliteStore::open(&path).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}

/// A database owner that may create no roles: the store works as that user, and says so.
#[tokio::test]
async fn an_owner_without_the_right_to_create_roles_works_as_itself() {
    let url = empty_database().await;
    let database = url.rsplit_once('/').unwrap().1.to_owned();
    let user = format!("owner_{database}");
    at_cluster(format!("CREATE ROLE {user} LOGIN; ALTER DATABASE {database} OWNER TO {user}")).await;
    let url = url.replace("postgres@", &format!("{user}@"));
    let store = PostgresStore::open(&url, &options()).await.unwrap();
    assert_eq!(store.connection_role().await.unwrap(), user);
    let store: Arc<dyn Store> = Arc::new(store);
    let mut log = Log::started(&store, "acme").await;
    assert_eq!(store.append(Arc::new(log.plain(b"x"))).await.unwrap(), Appended::Ok { head: 2 });
    let mut conn = PgConnection::connect(&url).await.unwrap();
    let error = sqlx::raw_sql("DELETE FROM toolgate.event").execute(&mut conn).await.unwrap_err();
    assert!(message(&error).contains("never changed or removed"), "{error}");
}

/// On SQLite the rules stand in the schema too, so that another program cannot write past them by accident.
#[tokio::test]
async fn sqlite_keeps_its_rules_against_other_writers() {
    let backend = Backend::sqlite().await;
    let mut log = Log::started(&backend.store, "acme").await;
    backend.store.append(Arc::new(log.push(Header::new("session_closed"), b""))).await.unwrap();
    let insert = |kind: &str, call: &str, marks: &str| {
        format!(
            "INSERT INTO event SELECT tenant, session, 3, epoch, '{kind}', run, step, {call}, {marks}, input_id, \
             recorded_at, header, payload, prev_hash, hash FROM event WHERE seq = 2"
        )
    };
    let closed = backend.operator(&insert("noted", "NULL", "0, 0, NULL, 0")).await.unwrap_err();
    assert_eq!(message(&closed), "guard:session_closed");
    let dispatch = backend.operator(&insert("late_outcome", "'c'", "0, 0, 1, 0")).await.unwrap_err();
    assert_eq!(message(&dispatch), "guard:dispatch_without_allow");
    let unnamed = backend.operator(&insert("late_outcome", "NULL", "1, 0, NULL, 0")).await.unwrap_err();
    assert!(message(&unnamed).contains("CHECK constraint failed"), "{unnamed}");
    assert_eq!(backend.operator(&insert("late_outcome", "NULL", "0, 0, NULL, 0")).await.unwrap(), 1);
}
