//! Ten thousand sessions under way, a kill, a new start: the time until all of them are at work again, beside the time of
//! reading their rows and nothing else. Before the kill their logs are read back through the API (`replay`). What is not
//! here: a second server that takes over (`failover`).

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use sqlx::{PgConnection, Row};

use crate::bound::{Bound, Figures, median};
use crate::server::{Server, Setup};
use crate::stub::{Plan, Question, Stub};
use crate::{bundle, database, open};

mod replay;

/// Sessions under way.
const SESSIONS: usize = 10_000;
/// Sessions that take their steps at once.
const OPENED: usize = 500;
/// Steps of each before its model begins to think: some twenty rows.
const STEPS: usize = 6;
/// Times that all rows are read.
const READS: usize = 3;
/// Longest wait until all sessions are resumed.
const PATIENCE: Duration = Duration::from_secs(180);

pub(crate) async fn run(program: &Path, cluster: &str) -> ExitCode {
    let mut figures = Figures::default();
    let model = Stub::start(|question: Question| Plan {
        thinks: if question.steps < STEPS { Duration::ZERO } else { Duration::from_secs(600) },
        ..Plan::default()
    })
    .await;
    let mut server = Server::start(Setup::postgres(program, cluster, bundle::long_runs(&model.base_url, 10_000))).await;
    let began = Instant::now();
    let mut ids = Vec::with_capacity(SESSIONS);
    while ids.len() < SESSIONS {
        ids.append(&mut open::sessions(&server, OPENED).await);
        let asked = (ids.len() * (STEPS + 1)) as u64;
        open::until("every session has taken its steps", || model.asked() >= asked).await;
    }
    let mut connection = database::connect(&server.database_url).await;
    sqlx::query("VACUUM (ANALYZE) toolgate.event").execute(&mut connection).await.expect("the rows are tidied");
    sqlx::query("CHECKPOINT").execute(&mut connection).await.expect("a checkpoint");
    println!(
        "{SESSIONS} sessions are under way; {:.0} s, {:.0} MiB",
        began.elapsed().as_secs_f64(),
        server.resident_mib()
    );

    replay::run(&server, &ids, &mut figures).await;

    let read = median(all_rows(&mut connection).await.into_iter());
    let before = (model.asked(), model.asked() + SESSIONS as u64);
    server.kill().await;
    // What the killed one had sent to the database may still be committed.
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (epochs, spent) = (epochs(&mut connection).await, server.spent_by_database());
    let start = server.start_again();
    let mut taken = None;
    let asked = loop {
        assert!(start.elapsed() < PATIENCE, "all sessions are resumed; {} asked", model.asked() - before.0);
        if taken.is_none() && self::epochs(&mut connection).await >= epochs + SESSIONS as i64 {
            taken = Some(start.elapsed());
        }
        if taken.is_some() && model.asked() >= before.1 {
            break start.elapsed();
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    let taken = taken.unwrap_or(asked).as_secs_f64();
    println!(
        "from start to all taken over {taken:.2} s, to all at work {:.2} s; CPU of the server {:.2} s, of the database {:.2} s",
        asked.as_secs_f64(),
        server.spent_alone().as_secs_f64(),
        (server.spent_by_database() - spent).as_secs_f64()
    );
    server.listens().await;
    drop(connection);
    server.stop().await;
    figures.shown("seconds of the bare read of all rows", read);
    figures.shown("all sessions taken over, over the bare read", taken / read);
    figures.bounded("all sessions at work again, over the bare read", asked.as_secs_f64() / read, Bound::AtMost(3.0));
    figures.finish()
}

/// Take-overs that have been.
async fn epochs(connection: &mut PgConnection) -> i64 {
    database::number(connection, "SELECT sum(epoch)::bigint FROM toolgate.session").await
}

/// Seconds of reading all rows of all sessions in their order, each time.
async fn all_rows(connection: &mut PgConnection) -> Vec<f64> {
    let mut times = Vec::new();
    for _ in 0..READS {
        let began = Instant::now();
        let mut rows =
            sqlx::query("SELECT * FROM toolgate.event ORDER BY tenant, session, seq").fetch(&mut *connection);
        let (mut count, mut bytes) = (0, 0);
        while let Some(row) = rows.try_next().await.expect("rows are read") {
            count += 1;
            bytes += row.get::<&[u8], _>("header").len() + row.get::<&[u8], _>("payload").len();
        }
        let took = began.elapsed().as_secs_f64();
        println!("bare read: {count} rows, {:.0} MiB in {took:.2} s", bytes as f64 / 1_048_576.0);
        times.push(took);
    }
    times
}
