//! The cells of the matrix, and what a seed makes of one: which time the point is reached at that aborts, how many steps
//! and calls there are, whether the client dies too. What is not here: playing a cell (`play`).

use std::fmt;
use std::str::FromStr;

use toolgate_tests::Backend;

/// Where the process dies; the numbers are those of the crash matrix. K12 (an input in the inbox of a dead owner) needs a
/// second node, K15 (a checkpoint signed, not published) needs signed checkpoints: neither is here.
pub(super) const POINTS: [&str; 15] =
    ["K0", "K1", "K2", "K3", "K4", "K5", "K6", "K7", "K8", "K9", "K10", "K11", "K13", "K14", "K16"];
pub(super) const CLASSES: [&str; 3] = ["read", "idempotent", "once"];
pub(super) const VENUES: [&str; 2] = ["server", "client"];
pub(super) const BACKENDS: [Backend; 2] = [Backend::Sqlite, Backend::Postgres];

/// One cell under one seed. Its text repeats it: `K6/once/server/sqlite/3`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) point: &'static str,
    pub(super) class: &'static str,
    pub(super) venue: &'static str,
    pub(super) backend: Backend,
    pub(super) seed: u64,
}

impl Cell {
    /// Every cell that there is, under one seed.
    pub(super) fn all(seed: u64) -> Vec<Self> {
        let mut all = Vec::new();
        for point in POINTS {
            for class in CLASSES {
                for venue in VENUES {
                    all.extend(BACKENDS.map(|backend| Self { point, class, venue, backend, seed }));
                }
            }
        }
        all
    }

    pub(super) fn at_client(&self) -> bool {
        self.venue == "client"
    }

    pub(super) fn is_once(&self) -> bool {
        self.class == "once"
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { point, class, venue, backend, seed } = self;
        write!(f, "{point}/{class}/{venue}/{}/{seed}", backend_name(*backend))
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (cell, seed) = text.rsplit_once('/').ok_or("point/class/venue/database/seed")?;
        let seed = seed.parse().map_err(|error| format!("the seed: {error}"))?;
        let found = Self::all(seed).into_iter().find(|known| known.to_string() == text);
        found.ok_or_else(|| format!("no cell `{cell}`"))
    }
}

pub(super) const fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::Sqlite => "sqlite",
        Backend::Postgres => "postgres",
    }
}

/// What a seed makes of a cell.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    /// The time at which reaching the point aborts, from 1.
    pub(super) hit: u64,
    /// Steps of the first run; the second has one.
    pub(super) steps: u64,
    /// Calls of each step of the first run.
    pub(super) calls: u64,
    /// Calls under way at once.
    pub(super) parallel: u64,
    /// The client instance dies with the server.
    pub(super) client_dies: bool,
    /// The run goes on after a call whose fate is unknown.
    pub(super) goes_on: bool,
    /// A human approves each call.
    pub(super) approval: bool,
    /// Where the arguments of the calls begin, so that their order is another one under another seed.
    pub(super) first: u64,
}

impl Plan {
    pub(super) fn of(cell: &Cell, migrations: u64) -> Self {
        let mut dice = Dice::new(&cell.to_string());
        let approval = cell.point == "K5" && dice.below(2) == 1;
        let steps = 1 + dice.below(3);
        let calls = if cell.point == "K5" { 2 + dice.below(2) } else { 1 + dice.below(2) };
        // Where a call is held, it must be known which one it is.
        let in_turn = matches!(cell.point, "K5" | "K7" | "K8");
        let reached = match cell.point {
            "K0" | "K1" | "K14" => 2,
            "K2" | "K3" | "K4" => steps + 1,
            "K5" if approval => 1,
            "K5" => steps,
            "K10" => steps + 2,
            "K16" => migrations,
            _ => steps * calls,
        };
        Self {
            hit: 1 + dice.below(reached),
            steps,
            calls,
            parallel: if in_turn { 1 } else { 1 + dice.below(2) },
            client_dies: cell.at_client() && dice.below(2) == 1,
            goes_on: cell.point == "K5" || dice.below(2) == 1,
            approval,
            first: dice.below(1_000),
        }
    }
}

/// Numbers that follow from a text and nothing else (splitmix64 over its FNV hash).
struct Dice(u64);

impl Dice {
    fn new(text: &str) -> Self {
        Self(
            text.bytes()
                .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)),
        )
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end
    }
}
