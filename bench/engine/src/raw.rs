//! The raw append: the very rows that the server wrote, written again to a plain table by two connections, many rows a
//! statement, each statement durable by itself. What is not here: the server (`server`).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use sqlx::{Connection, Executor, PgConnection, Row};

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

#[derive(Debug, Default)]
struct Columns {
    header: Vec<Vec<u8>>,
    payload: Vec<Vec<u8>>,
    prev_hash: Vec<Vec<u8>>,
    hash: Vec<Vec<u8>>,
}

pub(crate) async fn append(url: &str, time: Duration) -> Raw {
    let mut connection = PgConnection::connect(url).await.expect("the database answers");
    let counts = "SELECT count(*)::float8, count(*) FILTER (WHERE kind = 'call_ended')::float8 FROM toolgate.event";
    let counted = connection.fetch_one(counts).await.expect("the rows are counted");
    let rows_per_step = counted.get::<f64, _>(0) / counted.get::<f64, _>(1);
    let sql = format!("SELECT header, payload, prev_hash, hash FROM toolgate.event LIMIT {ROWS}");
    let rows = connection.fetch_all(sqlx::AssertSqlSafe(sql)).await.expect("the rows are read");
    let batches: Vec<Columns> = rows
        .chunks(BATCH)
        .map(|rows| {
            let mut columns = Columns::default();
            for row in rows {
                columns.header.push(row.get(0));
                columns.payload.push(row.get(1));
                columns.prev_hash.push(row.get(2));
                columns.hash.push(row.get(3));
            }
            columns
        })
        .collect();
    let table = "CREATE TABLE raw (session bigint, seq bigint, header bytea, payload bytea, prev_hash bytea, hash bytea, \
                 PRIMARY KEY (session, seq))";
    connection.execute(table).await.expect("a table is made");
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

const INSERT: &str =
    "INSERT INTO raw SELECT $1, * FROM unnest($2::bigint[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[])";

async fn write(url: String, batches: Arc<Vec<Columns>>, next: Arc<AtomicUsize>, until: Instant) -> usize {
    let mut connection = PgConnection::connect(&url).await.expect("the database answers");
    let mut written = 0;
    while Instant::now() < until {
        let no = next.fetch_add(1, Ordering::Relaxed);
        let Some(batch) = batches.get(no % batches.len()) else { continue };
        let seqs: Vec<i64> = (0..).take(batch.hash.len()).collect();
        let query = sqlx::query(INSERT).bind(i64::try_from(no).unwrap_or(i64::MAX)).bind(&seqs).bind(&batch.header);
        let query = query.bind(&batch.payload).bind(&batch.prev_hash).bind(&batch.hash);
        query.execute(&mut connection).await.expect("rows are written");
        written += batch.hash.len();
    }
    written
}

/// The median of durable rows one by one.
async fn single(connection: &mut PgConnection, batches: &[Columns]) -> Duration {
    let mut times = Vec::with_capacity(SINGLES);
    let rows = batches.iter().flat_map(|b| b.header.iter().zip(&b.payload).zip(b.prev_hash.iter().zip(&b.hash)));
    for (seq, ((header, payload), (prev_hash, hash))) in (0_i64..).zip(rows).take(SINGLES) {
        let started = Instant::now();
        let query = sqlx::query("INSERT INTO raw VALUES (0, $1, $2, $3, $4, $5)").bind(seq).bind(header);
        let query = query.bind(payload).bind(prev_hash).bind(hash);
        query.execute(&mut *connection).await.expect("a row is written");
        times.push(started.elapsed());
    }
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
