//! The kill matrix: for every point of the step at which a process can die, every class of tool, both venues and both
//! databases, the real program is made to abort at that point (`toolgate_store::crash`), is started again, and must end
//! everything as `docs/CONTRIBUTING.md` says. A cell whose point is not reached has failed.
//!
//! `TOOLGATE_KILL_SEEDS` is the number of seeds for each cell (normally 1), `TOOLGATE_KILL_CELLS` runs only cells whose name
//! begins with it, for example `K6/once` or the whole name that a failure printed.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};

mod cell;
mod check;
mod database;
mod outside;
mod play;
mod process;
mod stubs;

use cell::{BACKENDS, CLASSES, Cell, POINTS, VENUES, backend_name};
use database::Cluster;

/// The longest that anything in a cell may take.
const WAIT: Duration = Duration::from_secs(60);
/// Cells played at the same time.
const AT_ONCE: usize = 6;
/// Fewer cells are no matrix.
const LEAST: usize = 150;

#[tokio::test(flavor = "multi_thread")]
async fn every_cell() {
    let seeds = std::env::var("TOOLGATE_KILL_SEEDS").map_or(1, |seeds| seeds.parse().unwrap());
    let only = std::env::var("TOOLGATE_KILL_CELLS").unwrap_or_default();
    let cells = match only.parse::<Cell>() {
        Ok(cell) => vec![cell],
        Err(_) => (1..=seeds).flat_map(Cell::all).filter(|cell| cell.to_string().starts_with(&only)).collect(),
    };
    assert!(!cells.is_empty(), "no cell begins with `{only}`");
    let begun = std::time::Instant::now();
    let cluster = Arc::new(Cluster::durable().await);
    let played = stream::iter(cells.iter().copied().enumerate())
        .map(|(place, cell)| {
            let cluster = Arc::clone(&cluster);
            tokio::spawn(async move {
                let database = format!("kill_{}_{place}", std::process::id());
                AssertUnwindSafe(play::play(cell, &cluster, &database)).catch_unwind().await.is_ok()
            })
            .map(move |ended| (cell, ended.unwrap_or(false)))
        })
        .buffer_unordered(AT_ONCE)
        .inspect(|(cell, good)| {
            if !good {
                println!("FAILED {cell}; again: TOOLGATE_KILL_CELLS={cell} scripts/show engine-kill-matrix");
            }
        })
        .collect::<Vec<_>>()
        .await;
    let bad = table(&played);
    let kinds =
        played.iter().map(|(cell, _)| Cell { seed: 0, ..*cell }.to_string()).collect::<std::collections::BTreeSet<_>>();
    println!(
        "{} cells, {} runs, {} failed, {:.0} s",
        kinds.len(),
        played.len(),
        bad.len(),
        begun.elapsed().as_secs_f64()
    );
    assert!(!only.is_empty() || kinds.len() >= LEAST, "{} cells are no matrix", kinds.len());
    assert!(bad.is_empty(), "{bad:#?}");
}

/// A program that is built without tests has no points: nothing but the feature itself and the tests' own dependency names it.
#[test]
fn only_tests_ask_for_the_points() {
    for package in ["store", "server", "cli"] {
        let manifest = format!("{}/../{package}/Cargo.toml", env!("CARGO_MANIFEST_DIR"));
        let manifest = std::fs::read_to_string(manifest).unwrap();
        let shipped = manifest.split("[dev-dependencies]").next().unwrap();
        let named: Vec<&str> =
            shipped.lines().filter(|line| line.contains("failpoints") && !line.starts_with('#')).collect();
        assert!(named.len() == 1 && named[0].starts_with("failpoints = ["), "{package}: {named:?}");
        assert!(!shipped.contains("default = ["), "{package} has default features");
    }
}

/// Prints good and played runs of each cell; the bad ones.
fn table(played: &[(Cell, bool)]) -> Vec<String> {
    let mut cells: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    for (cell, good) in played {
        let (passed, all) = cells.entry(Cell { seed: 0, ..*cell }.to_string()).or_default();
        *passed += u32::from(*good);
        *all += 1;
    }
    let columns: Vec<(&str, &str, _)> = VENUES
        .into_iter()
        .flat_map(|venue| {
            CLASSES.into_iter().flat_map(move |class| BACKENDS.map(move |backend| (venue, class, backend)))
        })
        .collect();
    print!("{:5}", "");
    for (venue, class, backend) in &columns {
        print!(" {:>15}", format!("{}/{class:.4}/{:.2}", &venue[..3], backend_name(*backend)));
    }
    println!();
    for point in POINTS {
        print!("{point:5}");
        for (venue, class, backend) in &columns {
            let cell = Cell { point, class, venue, backend: *backend, seed: 0 };
            let shown = cells.get(&cell.to_string()).map_or("-".to_owned(), |(good, all)| format!("{good}/{all}"));
            print!(" {shown:>15}");
        }
        println!();
    }
    println!("K12   later: an input in the inbox of a dead owner needs a second node");
    println!("K15   not applicable: there are no signed checkpoints");
    played.iter().filter(|(_, good)| !good).map(|(cell, _)| cell.to_string()).collect()
}
