//! Every column of a log altered by hand, in both databases: `toolgate verify` says no and names the first bad sequence
//! number.

use std::path::Path;

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection, Executor};
use toolgate_tests::server::copy_database;
use toolgate_tests::{Backend, TestServer};

use crate::program::verify;

/// A change by hand: its name, the statement for SQLite, the statement for PostgreSQL. `{seq}` is the row.
struct Edit {
    name: &'static str,
    sqlite: &'static str,
    postgres: &'static str,
}

const fn both(name: &'static str, statement: &'static str) -> Edit {
    Edit { name, sqlite: statement, postgres: statement }
}

/// One edit per column, and rows removed, doubled, exchanged.
fn edits() -> Vec<Edit> {
    vec![
        both("epoch", "UPDATE event SET epoch = epoch + 7 WHERE seq = {seq}"),
        both("kind", "UPDATE event SET kind = 'ticked' WHERE seq = {seq}"),
        both("run", "UPDATE event SET run = 9 WHERE seq = {seq}"),
        both("step", "UPDATE event SET step = 9 WHERE seq = {seq}"),
        both("call", "UPDATE event SET call = 'call_00000000000000000000000000000000' WHERE seq = {seq}"),
        both("input_id", "UPDATE event SET input_id = 'forged' WHERE seq = {seq}"),
        both("recorded_at", "UPDATE event SET recorded_at = recorded_at - 1 WHERE seq = {seq}"),
        Edit {
            name: "header",
            sqlite: "UPDATE event SET header = CAST(replace(CAST(header AS TEXT), '\"v\":1', '\"v\":2') AS BLOB) WHERE seq = {seq}",
            postgres: "UPDATE event SET header = set_byte(header, 2, 120) WHERE seq = {seq}",
        },
        Edit {
            name: "payload",
            sqlite: "UPDATE event SET payload = CAST(x'00' || payload AS BLOB) WHERE seq = {seq}",
            postgres: "UPDATE event SET payload = '\\x00'::bytea || payload WHERE seq = {seq}",
        },
        Edit {
            name: "prev_hash",
            sqlite: "UPDATE event SET prev_hash = CAST(substr(prev_hash, 2) || x'01' AS BLOB) WHERE seq = {seq}",
            postgres: "UPDATE event SET prev_hash = set_byte(prev_hash, 0, 255 - get_byte(prev_hash, 0)) WHERE seq = {seq}",
        },
        Edit {
            name: "hash",
            sqlite: "UPDATE event SET hash = CAST(substr(hash, 2) || x'01' AS BLOB) WHERE seq = {seq}",
            postgres: "UPDATE event SET hash = set_byte(hash, 0, 255 - get_byte(hash, 0)) WHERE seq = {seq}",
        },
        both("row removed", "DELETE FROM event WHERE seq = {seq}"),
    ]
}

/// A finished session in a stopped server's database.
async fn finished(backend: Backend) -> (TestServer, String, u64) {
    let mut server = TestServer::start(backend).await;
    let caller = server.caller();
    caller
        .put_bundle(&json!({
            "version": 1,
            "models": {"m": {"provider": "scripted", "script": [
                {"calls": [{"tool": "add", "args": {"a": 1, "b": 2}}]}, {"done": "3"}]}},
            "default_model": "m",
            "default_harness": {"max_steps": 4, "max_tool_calls": 4, "deadline_ms": 60000},
            "tools": {"add": {"description": "Adds.", "venue": "server", "class": "read", "executor": {"builtin": "add"},
                "parameters": {"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}}},
            "profiles": {"p": ["add"]}
        }))
        .await;
    let id = caller.open("p", "add").await;
    let session = caller.until_ended(&id, 1).await;
    assert_eq!(session["run"]["ending"], "done");
    caller.verified(&id).await;
    server.halt().await;
    (server, id, session["head_seq"].as_u64().unwrap())
}

async fn every_edit_is_named(backend: Backend) {
    let (server, id, head) = finished(backend).await;
    let (good, text) = verify(&server.data_dir(), server.database_url(), &id);
    assert!(good && text.contains("ok"), "{text}");
    let mut found = 0;
    for edit in edits() {
        for seq in 1..=head {
            let copy = copy_database(&server).await;
            let statement = match backend {
                Backend::Sqlite => edit.sqlite,
                Backend::Postgres => edit.postgres,
            };
            let changed = alter(backend, &copy, &statement.replace("{seq}", &seq.to_string())).await;
            assert_eq!(changed, 1, "{} at {seq}", edit.name);
            let (good, text) = verify(copy.data_dir(), copy.database_url(), &id);
            assert!(!good, "{} at {seq} went unnoticed: {text}", edit.name);
            assert!(text.contains(&format!("at sequence {seq}")), "{} at {seq}: {text}", edit.name);
            found += 1;
        }
    }
    println!("{backend:?}: {found} of {found} edits by hand found, each with its sequence number");
}

/// Runs a statement as an operator who means harm: triggers do not stop them.
async fn alter(backend: Backend, copy: &toolgate_tests::server::DatabaseCopy, statement: &str) -> u64 {
    match backend {
        Backend::Sqlite => {
            let path = copy.data_dir().join("toolgate.sqlite");
            alter_sqlite(&path, statement).await
        }
        Backend::Postgres => {
            let mut connection = sqlx::PgConnection::connect(copy.database_url()).await.unwrap();
            connection.execute("SET session_replication_role = replica").await.unwrap();
            connection.execute("SET search_path = toolgate").await.unwrap();
            connection.execute(AssertSqlSafe(statement.to_owned())).await.unwrap().rows_affected()
        }
    }
}

async fn alter_sqlite(path: &Path, statement: &str) -> u64 {
    let url = format!("sqlite://{}", path.display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    for trigger in ["event_no_update", "event_no_delete"] {
        connection.execute(AssertSqlSafe(format!("DROP TRIGGER {trigger}"))).await.unwrap();
    }
    connection.execute("PRAGMA ignore_check_constraints = ON").await.unwrap();
    let changed = connection.execute(AssertSqlSafe(statement.to_owned())).await.unwrap().rows_affected();
    connection.close().await.unwrap();
    changed
}

#[tokio::test]
async fn every_column_on_sqlite() {
    every_edit_is_named(Backend::Sqlite).await;
}

#[tokio::test]
async fn every_column_on_postgres() {
    every_edit_is_named(Backend::Postgres).await;
}
