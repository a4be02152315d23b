//! Many worlds, over as many threads as there are cores. One in a hundred is played twice: both must take the same course.
//! What is not here: a single world (`world`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use toolgate_core::bundle::Bundle;

use crate::world::{self, WORLDS_PER_BUNDLE};
use crate::{Figures, Mutant, Plan, bundle};

/// One in so many seeds is played twice.
const TWICE: u64 = 100;

/// A world that went wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The world.
    pub seed: u64,
    /// What was wrong.
    pub why: String,
}

/// What a sweep found.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// What all worlds together went through.
    pub figures: Figures,
    /// Worlds that went wrong, by seed.
    pub failures: Vec<Failure>,
}

/// Plays the worlds `from..from + seeds`; stops early once `most` of them have gone wrong.
#[must_use]
pub fn sweep(from: u64, seeds: u64, mutant: Option<Mutant>, most: usize) -> Sweep {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let end = from.saturating_add(seeds);
    // Neighbours share a bundle, so a thread takes them together.
    let next = AtomicU64::new(from - from % WORLDS_PER_BUNDLE);
    let found = Mutex::new(Sweep::default());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let first = next.fetch_add(WORLDS_PER_BUNDLE, Ordering::Relaxed);
                    let worlds = first.max(from)..first.saturating_add(WORLDS_PER_BUNDLE).min(end);
                    if worlds.is_empty() {
                        return;
                    }
                    let bundle = bundle::draw(first / WORLDS_PER_BUNDLE);
                    for seed in worlds {
                        let (figures, failure) = one(seed, mutant, bundle.as_ref());
                        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
                        found.figures.take_in(&figures);
                        found.failures.extend(failure);
                        if found.failures.len() >= most {
                            return;
                        }
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    found.failures.sort_by_key(|failure| failure.seed);
    found
}

fn one(seed: u64, mutant: Option<Mutant>, bundle: Option<&Arc<Bundle>>) -> (Figures, Option<Failure>) {
    let plan = Plan { seed, mutant, verbose: false };
    let play = || world::play(&plan, bundle.cloned());
    let played = play();
    let mut figures = played.figures;
    let mut why = played.fault;
    if seed.is_multiple_of(TWICE) && mutant.is_none() {
        figures.count("world", "seeds played twice");
        if play().digest != played.digest {
            why.get_or_insert_with(|| "two runs of this seed took different courses".to_owned());
        }
    }
    (figures, why.map(|why| Failure { seed, why }))
}
