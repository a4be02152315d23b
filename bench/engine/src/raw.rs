//! The raw append: the very rows that the server wrote, with all their columns, written again by two connections to a table
//! that has nothing but its primary key, many rows a statement, each statement durable by itself. What is not here: the
//! server (`server`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sqlx::postgres::PgRow;
use sqlx::{Connection, Executor, PgConnection, Row};
use uuid::Uuid;

/// Rows that are written again and again.
const ROWS: i64 = 20_000;
/// Rows of one statement.
const BATCH: usize = 128;
/// Connections.
const WRITERS: usize = 2;
/// Single rows of the other measurement.
const SINGLES: usize = 500;

/// What the database allows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw {
    pub(crate) rows_per_s: f64,
    /// Rows that the server writes for one step.
    pub(crate) rows_per_step: f64,
    /// Median time of one durable row by itself.
    pub(crate) single: Duration,
}

impl Raw {
    /// Steps a second if the raw append were all there is.
    pub(crate) fn steps_per_s(&self) -> f64 {
        self.rows_per_s / self.rows_per_step
    }
}

impl fmt::Display for Raw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.0} rows/s, {:.2} rows a step, so {:.0} steps/s; one durable row {:.2} ms",
            self.rows_per_s,
            self.rows_per_step,
            self.steps_per_s(),
            self.single.as_secs_f64() * 1_000.0
        )
    }
}

/// The columns of the log's table behind the key, each with its type.
const COLUMNS: [(&str, &str); 15] = [
    ("epoch", "bigint"),
    ("kind", "text"),
    ("run", "bigint"),
    ("step", "bigint"),
    ("call", "text"),
    ("decision", "boolean"),
    ("allow", "boolean"),
    ("dispatch_attempt", "bigint"),
    ("terminal", "boolean"),
    ("input_id", "text"),
    ("recorded_at", "bigint"),
    ("header", "bytea"),
    ("payload", "bytea"),
    ("prev_hash", "bytea"),
    ("hash", "bytea"),
];

/// Rows as the server wrote them, column by column.
#[derive(Debug, Default)]
struct Columns {
    tenant: Vec<String>,
    numbers: [Vec<Option<i64>>; 5],
    texts: [Vec<Option<String>>; 3],
    flags: [Vec<bool>; 3],
    bytes: [Vec<Vec<u8>>; 4],
}

impl Columns {
    const NUMBERS: [&str; 5] = ["epoch", "run", "step", "dispatch_attempt", "recorded_at"];
    const TEXTS: [&str; 3] = ["kind", "call", "input_id"];
    const FLAGS: [&str; 3] = ["decision", "allow", "terminal"];
    const BYTES: [&str; 4] = ["header", "payload", "prev_hash", "hash"];

    fn of(rows: &[PgRow]) -> Self {
        let mut columns = Self::default();
        for row in rows {
            columns.tenant.push(row.get("tenant"));
            Self::NUMBERS.iter().zip(&mut columns.numbers).for_each(|(name, column)| column.push(row.get(name)));
            Self::TEXTS.iter().zip(&mut columns.texts).for_each(|(name, column)| column.push(row.get(name)));
            Self::FLAGS.iter().zip(&mut columns.flags).for_each(|(name, column)| column.push(row.get(name)));
            Self::BYTES.iter().zip(&mut columns.bytes).for_each(|(name, column)| column.push(row.get(name)));
        }
        columns
    }

    fn len(&self) -> usize {
        self.tenant.len()
    }

    /// `INSERT` of all rows as those of one new session.
    async fn insert(&self, connection: &mut PgConnection, statement: &str, rows: std::ops::Range<usize>) {
        let seqs: Vec<i64> = (1..).take(rows.len()).collect();
        let mut query = sqlx::query(sqlx::AssertSqlSafe(statement.to_owned())).bind(Uuid::now_v7());
        query = query.bind(&self.tenant[rows.clone()]).bind(seqs);
        for (name, _) in COLUMNS {
            let place = |names: &[&str]| names.iter().position(|known| *known == name);
            query = match (place(&Self::NUMBERS), place(&Self::TEXTS), place(&Self::FLAGS), place(&Self::BYTES)) {
                (Some(no), ..) => query.bind(&self.numbers[no][rows.clone()]),
                (_, Some(no), ..) => query.bind(&self.texts[no][rows.clone()]),
                (_, _, Some(no), _) => query.bind(&self.flags[no][rows.clone()]),
                (_, _, _, Some(no)) => query.bind(&self.bytes[no][rows.clone()]),
                _ => query,
            };
        }
        query.execute(connection).await.expect("rows are written");
    }
}

fn table() -> String {
    let columns: String = COLUMNS.iter().map(|(name, of)| format!(", {name} {of}")).collect();
    format!(
        "CREATE TABLE raw (tenant text COLLATE \"C\", session uuid, seq bigint{columns}, PRIMARY KEY (tenant, session, seq))"
    )
}

fn insert() -> String {
    let columns: String = (4..).zip(COLUMNS).map(|(no, (_, of))| format!(", ${no}::{of}[]")).collect();
    let names: String = COLUMNS.iter().map(|(name, _)| format!(", {name}")).collect();
    format!(
        "INSERT INTO raw (tenant, session, seq{names}) SELECT r.tenant, $1, r.seq{} FROM unnest($2::text[], $3::bigint[]{columns}) \
         AS r (tenant, seq{names})",
        names.replace(", ", ", r.")
    )
}

pub(crate) async fn append(url: &str, time: Duration) -> Raw {
    let mut connection = PgConnection::connect(url).await.expect("the database answers");
    let counts = "SELECT count(*)::float8, count(*) FILTER (WHERE kind = 'call_ended')::float8 FROM toolgate.event";
    let counted = connection.fetch_one(counts).await.expect("the rows are counted");
    let rows_per_step = counted.get::<f64, _>(0) / counted.get::<f64, _>(1);
    let sql = format!("SELECT * FROM toolgate.event LIMIT {ROWS}");
    let rows = connection.fetch_all(sqlx::AssertSqlSafe(sql)).await.expect("the rows are read");
    let batches: Vec<Columns> = rows.chunks(BATCH).map(Columns::of).collect();
    connection.execute(sqlx::AssertSqlSafe(table())).await.expect("a table is made");
    let single = single(&mut connection, &batches).await;
    let (batches, next) = (Arc::new(batches), Arc::new(AtomicUsize::new(1)));
    let started = Instant::now();
    let writers: Vec<_> = (0..WRITERS)
        .map(|_| tokio::spawn(write(url.to_owned(), Arc::clone(&batches), Arc::clone(&next), started + time)))
        .collect();
    let mut written = 0;
    for writer in writers {
        written += writer.await.expect("a writer ends");
    }
    Raw { rows_per_s: written as f64 / started.elapsed().as_secs_f64(), rows_per_step, single }
}

async fn write(url: String, batches: Arc<Vec<Columns>>, next: Arc<AtomicUsize>, until: Instant) -> usize {
    let mut connection = PgConnection::connect(&url).await.expect("the database answers");
    let statement = insert();
    let mut written = 0;
    while Instant::now() < until {
        let no = next.fetch_add(1, Ordering::Relaxed);
        let Some(batch) = batches.get(no % batches.len()) else { continue };
        batch.insert(&mut connection, &statement, 0..batch.len()).await;
        written += batch.len();
    }
    written
}

/// The median of durable rows one by one.
async fn single(connection: &mut PgConnection, batches: &[Columns]) -> Duration {
    let mut times = Vec::with_capacity(SINGLES);
    let statement = insert();
    let rows = batches.iter().flat_map(|batch| (0..batch.len()).map(move |row| (batch, row)));
    for (batch, row) in rows.take(SINGLES) {
        let started = Instant::now();
        batch.insert(connection, &statement, row..row + 1).await;
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
