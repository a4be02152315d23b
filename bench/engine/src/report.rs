//! The figures of all rounds: medians, and the ratios that must hold. What is not here: how they are measured.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::bound::{Bound, median};
use crate::raw::Raw;
use crate::server::Database;

/// What one measurement found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Point {
    pub(crate) steps_per_s: f64,
    pub(crate) overhead_p50: Duration,
    pub(crate) overhead_p99: Duration,
    /// CPU seconds of server and database.
    pub(crate) cpu_per_1000: f64,
    pub(crate) flushes_per_step: f64,
    pub(crate) resident_mib: f64,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
        write!(
            f,
            "{:>7.0} steps/s, overhead p50 {:>7.2} ms, p99 {:>8.2} ms, {:.3} CPU s per 1,000, {:.3} flushes a step, {:.0} MiB",
            self.steps_per_s,
            ms(self.overhead_p50),
            ms(self.overhead_p99),
            self.cpu_per_1000,
            self.flushes_per_step,
            self.resident_mib
        )
    }
}

/// All rounds.
#[derive(Debug, Default)]
pub(crate) struct Report {
    points: BTreeMap<(Database, usize), Vec<Point>>,
    raw: Vec<Raw>,
}

/// The concurrency of the bounds.
const MANY: usize = 128;

impl Report {
    pub(crate) fn add(&mut self, database: Database, concurrency: usize, point: Point) {
        self.points.entry((database, concurrency)).or_default().push(point);
    }

    pub(crate) fn add_raw(&mut self, raw: Raw) {
        self.raw.push(raw);
    }

    pub(crate) fn print(&self) {
        println!("\nmedians of {} rounds", self.raw.len());
        for ((database, concurrency), points) in &self.points {
            let middle = Point {
                steps_per_s: median(points.iter().map(|p| p.steps_per_s)),
                overhead_p50: Duration::from_secs_f64(median(points.iter().map(|p| p.overhead_p50.as_secs_f64()))),
                overhead_p99: Duration::from_secs_f64(median(points.iter().map(|p| p.overhead_p99.as_secs_f64()))),
                cpu_per_1000: median(points.iter().map(|p| p.cpu_per_1000)),
                flushes_per_step: median(points.iter().map(|p| p.flushes_per_step)),
                resident_mib: median(points.iter().map(|p| p.resident_mib)),
            };
            println!("{:<9} {concurrency:>5}: {middle}", format!("{database:?}"));
        }
        println!(
            "raw append: {:.0} rows/s, so {:.0} steps/s; one durable row {:.2} ms",
            median(self.raw.iter().map(|raw| raw.rows_per_s)),
            median(self.raw.iter().map(Raw::steps_per_s)),
            median(self.raw.iter().map(|raw| raw.single.as_secs_f64())) * 1_000.0
        );
        for (what, figure, bound) in self.bounds() {
            let holds = if bound.holds(figure) { "holds" } else { "DOES NOT HOLD" };
            println!("{what}: {figure:.3} ({bound}) {holds}");
        }
    }

    pub(crate) fn holds(&self) -> bool {
        self.bounds().into_iter().all(|(_, figure, bound)| bound.holds(figure))
    }

    fn of(&self, database: Database, concurrency: usize, figure: impl Fn(&Point) -> f64) -> f64 {
        median(self.points.get(&(database, concurrency)).into_iter().flatten().map(figure))
    }

    fn bounds(&self) -> Vec<(&'static str, f64, Bound)> {
        let steps = |database| self.of(database, MANY, |p| p.steps_per_s);
        let (memory, sqlite, postgres) = (steps(Database::Memory), steps(Database::Sqlite), steps(Database::Postgres));
        let raw = median(self.raw.iter().map(Raw::steps_per_s));
        let single = median(self.raw.iter().map(|raw| raw.single.as_secs_f64()));
        let alone = self.of(Database::Postgres, 1, |p| p.overhead_p50.as_secs_f64());
        vec![
            ("PostgreSQL at 128 / raw append", postgres / raw, Bound::AtLeast(0.30)),
            ("PostgreSQL at 128 / log in memory", postgres / memory, Bound::AtLeast(0.45)),
            ("SQLite at 128 / PostgreSQL at 128", sqlite / postgres, Bound::AtLeast(0.60)),
            ("overhead p50 alone / one durable row", alone / single, Bound::AtMost(4.0)),
            (
                "CPU seconds per 1,000 steps at 128",
                self.of(Database::Postgres, MANY, |p| p.cpu_per_1000),
                Bound::AtMost(0.20),
            ),
            ("flushes a step at 128", self.of(Database::Postgres, MANY, |p| p.flushes_per_step), Bound::AtMost(0.15)),
            ("flushes a step alone", self.of(Database::Postgres, 1, |p| p.flushes_per_step), Bound::AtLeast(1.0)),
            (
                "overhead p99 at 128 in ms",
                self.of(Database::Postgres, MANY, |p| p.overhead_p99.as_secs_f64() * 1_000.0),
                Bound::AtMost(35.0),
            ),
        ]
    }
}
