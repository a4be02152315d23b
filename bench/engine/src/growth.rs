//! Whether a step costs more when there is more: in a database with a million sessions beside one with a thousand, and late
//! in a session's log beside early in it. What is not here: the filling (`bulk`), the long logs (`long`).

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use crate::bound::{Bound, Figures, median};
use crate::model::Model;
use crate::server::{Server, Setup};
use crate::{bundle, load};

mod bulk;
mod long;

/// One part of what a step costs: the server's, or the database's.
type Pick = fn(&(f64, f64)) -> f64;

/// Sessions in the small database and in the large one.
const SESSIONS: [i64; 2] = [1_000, 1_000_000];
/// Sessions at once while it is measured.
const AT_ONCE: usize = 64;
/// Rounds, each with both databases in turn.
const ROUNDS: usize = 5;
/// Time of one measurement.
const TIME: Duration = Duration::from_secs(4);
/// Time for which an idle server is looked at.
const IDLE: Duration = Duration::from_secs(5);

pub(crate) async fn run(program: &Path, cluster: &str) -> ExitCode {
    let mut figures = Figures::default();
    let early_and_late = long::run(program, cluster).await;
    tables(program, cluster, &mut figures).await;
    early_and_late.report(&mut figures);
    figures.finish()
}

async fn tables(program: &Path, cluster: &str, figures: &mut Figures) {
    let model = Model::start().await;
    let mut servers = Vec::new();
    for sessions in SESSIONS {
        let server = Server::start(Setup::postgres(program, cluster, bundle::ten_steps(&model))).await;
        // The pattern of which the others are copies is a session of this server.
        load::warm(&server, &model, 1, TIME).await;
        let filled = bulk::fill(&server.database_url, sessions).await;
        println!("{sessions} sessions in the tables: {filled}");
        servers.push(server);
    }
    for (server, sessions) in servers.iter().zip(SESSIONS) {
        let before = server.spent();
        tokio::time::sleep(IDLE).await;
        let idle = (server.spent() - before).as_secs_f64() * 1_000.0 / IDLE.as_secs_f64();
        println!(
            "both servers idle for {} s, seen from that with {sessions} sessions: {idle:.1} ms a second",
            IDLE.as_secs()
        );
    }
    let mut costs = [Vec::new(), Vec::new()];
    for round in 1..=ROUNDS {
        for (no, server) in servers.iter().enumerate() {
            load::warm(server, &model, AT_ONCE, TIME).await;
            let (alone, database) = (server.spent_alone(), server.spent_by_database());
            let run = load::run(server, &model, AT_ONCE, TIME).await;
            let per_step = |spent: Duration| spent.as_secs_f64() * 1_000.0 / run.steps();
            let alone = per_step(server.spent_alone() - alone);
            let database = per_step(server.spent_by_database() - database);
            println!(
                "round {round}, {} sessions: {:.0} steps/s, {:.3} ms of CPU a step (server {alone:.3}, database {database:.3})",
                SESSIONS[no],
                run.steps_per_s(),
                alone + database
            );
            costs[no].push((alone, database));
        }
    }
    for server in servers {
        server.stop().await;
    }
    let of = |no: usize, pick: Pick| median(costs[no].iter().map(pick));
    let parts: [(&str, Pick); 2] = [("the server's", |cost| cost.0), ("the database's", |cost| cost.1)];
    for (whose, pick) in parts {
        figures.shown(format!("{whose} CPU of a step, 1,000,000 sessions over 1,000"), of(1, pick) / of(0, pick));
    }
    let both = |cost: &(f64, f64)| cost.0 + cost.1;
    figures.bounded("CPU of a step, 1,000,000 sessions over 1,000", of(1, both) / of(0, both), Bound::AtMost(1.25));
}
