//! What sessions and connections cost in memory of the server: the slope between two numbers of them. What is not here: the
//! connections themselves (`sockets`).

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bound::{Bound, Figures};
use crate::server::{Server, Setup};
use crate::stub::{Plan, Stub};
use crate::{bundle, open};

mod sockets;

/// Setting: milliseconds until a session that waits for nothing leaves memory.
const IDLE: &str = "TOOLGATE__SESSIONS__IDLE_AFTER_MS";
/// An hour: nothing leaves memory while it is measured.
const LONG: u64 = 3_600_000;
/// Samples of resident memory that must agree.
const SAMPLES: usize = 8;
/// Time between them.
const BETWEEN: Duration = Duration::from_millis(500);
/// By how many MiB they may differ.
const AGREE_MIB: f64 = 0.3;
/// Longest wait until they agree.
const SETTLES: Duration = Duration::from_secs(30);

pub(crate) async fn run(program: &Path, cluster: &str) -> ExitCode {
    let mut figures = Figures::default();
    let unloaded = ended(program, cluster, 100, [100_000, 200_000]).await;
    figures.bounded("bytes for a session that has left memory", unloaded, Bound::AtMost(600.0));
    let parked = ended(program, cluster, LONG, [5_000, 20_000]).await;
    figures.bounded("KiB for an idle session in memory", parked / 1_024.0, Bound::AtMost(6.0));
    let active = active(program, cluster, [500, 3_000]).await;
    figures.shown("KiB for a session that waits for its model", active / 1_024.0);
    let socket = sockets::measured(program, cluster, [500, 3_000]).await;
    figures.bounded("KiB for an idle WebSocket", socket / 1_024.0, Bound::AtMost(32.0));
    figures.finish()
}

/// Bytes of a session whose run has ended.
async fn ended(program: &Path, cluster: &str, idle_ms: u64, at: [usize; 2]) -> f64 {
    let server = start(program, cluster, bundle::over_at_once(), idle_ms).await;
    let what = if idle_ms == LONG { "idle, in memory" } else { "ended, left memory" };
    let empty = settled(&server).await;
    println!("{what}: 0 sessions, {empty:.1} MiB");
    let mut seen = Vec::new();
    let mut opened = 0;
    for count in at {
        let began = Instant::now();
        open::sessions(&server, count - opened).await;
        opened = count;
        open::at_rest(&server).await;
        // The last of them leave memory.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let resident = settled(&server).await;
        println!("{what}: {count} sessions, {resident:.1} MiB; {:.0} s", began.elapsed().as_secs_f64());
        seen.push(resident);
    }
    server.stop().await;
    slope(&seen, at)
}

/// Bytes of a session whose question a slow model has.
async fn active(program: &Path, cluster: &str, at: [usize; 2]) -> f64 {
    let model = Stub::start(|_| Plan { thinks: Duration::from_secs(600), ..Plan::default() }).await;
    let server = start(program, cluster, bundle::long_runs(&model.base_url, 10_000), LONG).await;
    let mut seen = Vec::new();
    let mut opened = 0;
    for count in at {
        open::sessions(&server, count - opened).await;
        opened = count;
        open::until("every session asks", || model.asked() >= count as u64).await;
        let resident = settled(&server).await;
        println!("waiting for a slow model: {count} sessions, {resident:.1} MiB");
        seen.push(resident);
    }
    server.stop().await;
    slope(&seen, at)
}

async fn start(program: &Path, cluster: &str, bundle: Value, idle_ms: u64) -> Server {
    Server::start(Setup::postgres(program, cluster, bundle).with(IDLE, idle_ms)).await
}

/// Resident memory in MiB once it stays the same.
async fn settled(server: &Server) -> f64 {
    let since = Instant::now();
    let mut samples = Vec::new();
    loop {
        samples.push(server.resident_mib());
        let last = samples.iter().rev().take(SAMPLES);
        let (least, most) = last.fold((f64::MAX, f64::MIN), |(least, most), mib| (least.min(*mib), most.max(*mib)));
        let enough = samples.len() >= SAMPLES;
        if enough && most - least < AGREE_MIB {
            return most;
        }
        if enough && since.elapsed() > SETTLES {
            println!("resident memory did not settle: {least:.1} to {most:.1} MiB");
            return most;
        }
        tokio::time::sleep(BETWEEN).await;
    }
}

/// Bytes of one more.
fn slope(mib: &[f64], at: [usize; 2]) -> f64 {
    let [few, many] = at;
    (mib[1] - mib[0]) * 1_024.0 * 1_024.0 / (many - few) as f64
}
