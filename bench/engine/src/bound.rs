//! Figures beside their bounds, as they are printed last. What is not here: how they are measured.

use std::fmt;
use std::process::ExitCode;

/// What must hold of a figure.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    pub(crate) fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(least) => figure >= least,
            Self::AtMost(most) => figure <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtLeast(least) => write!(f, "at least {least}"),
            Self::AtMost(most) => write!(f, "at most {most}"),
        }
    }
}

/// The figures of one run.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    lines: Vec<(String, f64, Option<Bound>)>,
}

impl Figures {
    /// A figure that must hold.
    pub(crate) fn bounded(&mut self, what: impl Into<String>, figure: f64, bound: Bound) {
        self.lines.push((what.into(), figure, Some(bound)));
    }

    /// A figure that is only shown.
    pub(crate) fn shown(&mut self, what: impl Into<String>, figure: f64) {
        self.lines.push((what.into(), figure, None));
    }

    /// Prints all; success only if all bounds hold. A figure that could not be measured holds nothing.
    pub(crate) fn finish(&self) -> ExitCode {
        println!();
        for (what, figure, bound) in &self.lines {
            match bound {
                Some(bound) if bound.holds(*figure) => println!("{what}: {figure:.3} ({bound}) holds"),
                Some(bound) => println!("{what}: {figure:.3} ({bound}) DOES NOT HOLD"),
                None => println!("{what}: {figure:.3} (no bound)"),
            }
        }
        let holds = self.lines.iter().all(|(_, figure, bound)| bound.is_none_or(|bound| bound.holds(*figure)));
        if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// The middle one; not a number without any.
pub(crate) fn median(all: impl Iterator<Item = f64>) -> f64 {
    share(all, 50)
}

/// The figure below which so many of a hundred lie; not a number without any.
pub(crate) fn share(all: impl Iterator<Item = f64>, percent: usize) -> f64 {
    let mut all: Vec<f64> = all.collect();
    all.sort_unstable_by(f64::total_cmp);
    all.get((all.len() * percent / 100).min(all.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}
