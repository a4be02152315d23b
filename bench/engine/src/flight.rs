//! Nine thousand sessions in flight, whose model takes a second: how much of the rate that the model allows is reached, and
//! in how much memory. Where the machine cannot do that rate even with few sessions, the model thinks as long as makes the
//! ideal what the machine can. What is not here: few sessions (`load`).

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::bound::{Bound, Figures};
use crate::model::Model;
use crate::server::{Server, Setup};
use crate::stub::{Plan, Question, Stub};
use crate::{bundle, load, open};

/// Sessions in flight.
const SESSIONS: usize = 9_000;
/// What the model takes.
const SECOND: Duration = Duration::from_secs(1);
/// Sessions at once when it is measured what the machine can.
const FEW: usize = 128;
/// Time of each measurement.
const TIME: Duration = Duration::from_secs(20);

pub(crate) async fn run(program: &Path, cluster: &str) -> ExitCode {
    let mut figures = Figures::default();
    let can = few(program, cluster).await;
    println!("{FEW} sessions, whose model answers at once: {can:.0} steps/s");

    // What the machine can, or a second where it can more.
    let own = Duration::from_secs_f64((SESSIONS as f64 / can).max(SECOND.as_secs_f64()));
    let thinking = Arc::new(Thinking { ms: AtomicU64::new(ms(own)), begun: AtomicU64::new(0) });
    let (free, held) = watch::channel(false);
    let plans = Arc::clone(&thinking);
    let model = Stub::start(move |question: Question| plans.plan(question, &held)).await;
    let server = Server::start(Setup::postgres(program, cluster, bundle::long_runs(&model.base_url, 10_000))).await;
    let began = Instant::now();
    open::sessions(&server, SESSIONS).await;
    open::until("every session asks", || model.asked() >= SESSIONS as u64).await;
    println!("{SESSIONS} sessions are in flight; {:.0} s", began.elapsed().as_secs_f64());
    free.send(true).expect("the model waits for it");
    // Every session has been answered once by then.
    tokio::time::sleep(own + SECOND).await;

    let (reached, mut mib) = rate(&server, &model, own).await;
    let (seconds, ideal) = (own.as_secs_f64(), SESSIONS as f64 / own.as_secs_f64());
    figures.shown(format!("a model of {seconds:.1} s: ideal steps/s"), ideal);
    figures.shown(format!("a model of {seconds:.1} s: reached steps/s"), reached);
    if own > SECOND {
        thinking.ms.store(ms(SECOND), Ordering::Relaxed);
        // The answers that were under way with the old time.
        tokio::time::sleep(own).await;
        let (most, more) = rate(&server, &model, SECOND).await;
        mib = mib.max(more);
        figures.shown("a model of 1 s: ideal steps/s, more than this machine does with few sessions", SESSIONS as f64);
        figures.shown("a model of 1 s: reached steps/s", most);
        figures.shown("a model of 1 s: share of the ideal", most / SESSIONS as f64);
    }
    figures.bounded(format!("a model of {seconds:.1} s: share of the ideal"), reached / ideal, Bound::AtLeast(0.70));
    figures.bounded("MiB resident", mib, Bound::AtMost(900.0));
    server.stop().await;
    figures.finish()
}

/// How long the model takes.
struct Thinking {
    ms: AtomicU64,
    /// Sessions that have asked for the first time.
    begun: AtomicU64,
}

impl Thinking {
    /// First questions wait until all are there, and are answered one after the other, so that the sessions do not march in
    /// step.
    fn plan(&self, question: Question, held: &watch::Receiver<bool>) -> Plan {
        let thinks = Duration::from_millis(self.ms.load(Ordering::Relaxed));
        if question.steps > 0 {
            return Plan { thinks, ..Plan::default() };
        }
        let turn = self.begun.fetch_add(1, Ordering::Relaxed) as f64 / SESSIONS as f64;
        Plan { thinks: thinks.mul_f64(turn), held: Some(held.clone()), ..Plan::default() }
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Steps a second with few sessions and a model that answers at once.
async fn few(program: &Path, cluster: &str) -> f64 {
    let model = Model::start().await;
    let server = Server::start(Setup::postgres(program, cluster, bundle::ten_steps_at_once(&model))).await;
    load::warm(&server, &model, FEW, TIME).await;
    let run = load::run(&server, &model, FEW, TIME / 2).await;
    server.stop().await;
    run.steps_per_s()
}

/// Steps a second, and resident memory after that.
async fn rate(server: &Server, model: &Stub, thinks: Duration) -> (f64, f64) {
    let (asked, spent, began) = (model.asked(), server.spent(), Instant::now());
    tokio::time::sleep(TIME).await;
    let steps = (model.asked() - asked) as f64;
    let cpu = (server.spent() - spent).as_secs_f64();
    let rate = steps / began.elapsed().as_secs_f64();
    let mib = server.resident_mib();
    println!(
        "a model of {:.1} s: {rate:.0} steps/s, {:.3} ms of CPU a step, {mib:.0} MiB, {:.0} KiB a session",
        thinks.as_secs_f64(),
        cpu * 1_000.0 / steps,
        mib * 1_024.0 / SESSIONS as f64
    );
    (rate, mib)
}
