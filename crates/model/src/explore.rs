//! Runs the checker and says what it found.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

use crate::promises::{LATE_EFFECT, PROMISES, REACHED};
use crate::rules::{Bounds, Rules};
use crate::state::World;

/// Threads of the checker.
const THREADS: usize = 2;

/// What an exploration found.
#[derive(Debug, Clone)]
pub struct Explored {
    /// Distinct states.
    pub states: usize,
    /// Steps of the longest shortest way.
    pub depth: usize,
    /// Time it took.
    pub took: Duration,
    /// Promises that were broken, each with the steps that lead there.
    pub broken: Vec<(&'static str, Trace)>,
    /// What had to be reached and was not.
    pub unreached: Vec<&'static str>,
}

/// Steps from the beginning to a broken promise; no shorter way leads there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace(pub Vec<String>);

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, step) in (1..).zip(&self.0) {
            writeln!(f, "  {place:>2}. {step}")?;
        }
        Ok(())
    }
}

/// Explores every state, or, with the name of a promise, until it is broken, by the shortest way that there is.
#[must_use]
pub fn explore(rules: Rules, bounds: Bounds, until: Option<&'static str>) -> Explored {
    let started = Instant::now();
    let mut found = within(rules, bounds, until, usize::MAX);
    // The checker keeps the last way that it meets, not the first: ask again for shorter ones until there is none.
    while let Some((name, trace)) = found.broken.iter().find(|(name, _)| until == Some(*name)) {
        let shorter = within(rules, bounds, until, trace.0.len());
        if !shorter.broken.iter().any(|(other, _)| other == name) {
            break;
        }
        found.broken = shorter.broken;
    }
    Explored { took: started.elapsed(), ..found }
}

/// One run of the checker over ways of fewer than so many steps.
fn within(rules: Rules, bounds: Bounds, until: Option<&'static str>, steps: usize) -> Explored {
    let when = until.map_or(HasDiscoveries::AnyFailures, |name| HasDiscoveries::AllOf(BTreeSet::from([name])));
    let mut builder = World { rules, bounds }.checker().threads(THREADS).finish_when(when);
    if let Some(depth) = steps.checked_add(1) {
        builder = builder.target_max_depth(depth);
    }
    let checker = builder.spawn_bfs().join();
    let broken = PROMISES
        .iter()
        .filter_map(|name| {
            let path = checker.discovery(name)?;
            Some((*name, Trace(path.into_actions().iter().map(ToString::to_string).collect())))
        })
        .collect();
    let wanted: &[&'static str] = if rules.tool_honours_not_after { &REACHED } else { &[LATE_EFFECT] };
    let unreached = wanted.iter().copied().filter(|name| checker.discovery(name).is_none()).collect();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    Explored { states, depth, took: Duration::ZERO, broken, unreached }
}
