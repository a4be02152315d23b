//! What can go wrong with the harness itself. What is not here: what the policy says about a call (`stage::Ruling`).

use std::path::PathBuf;

use toolgate_core::Divergence;

/// Why a measurement did not come about.
#[derive(Debug, thiserror::Error)]
pub enum DojoError {
    /// A file or folder cannot be read.
    #[error("{}: {source}; `scripts/dojo/export` writes the data", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no suite.
    #[error("{}: {source}", path.display())]
    Shape {
        /// Which.
        path: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// A file has a format that this harness does not know.
    #[error("{}: format {found}; this harness reads format 1", path.display())]
    Format {
        /// Which.
        path: PathBuf,
        /// The format it says it has.
        found: u32,
    },
    /// A folder without suites.
    #[error("{}: no suite in it; `scripts/dojo/export` writes them", path.display())]
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// The bundle made of a suite does not load.
    #[error("the bundle of `{suite}` for {tier} does not load: {faults}")]
    Bundle {
        /// The suite.
        suite: String,
        /// The tier.
        tier: &'static str,
        /// Every fault, with its place.
        faults: String,
    },
    /// A name of the data is no name in a bundle.
    #[error(transparent)]
    Name(#[from] toolgate_core::id::InvalidName),
    /// A session did not do what the harness waits for.
    #[error("the session is not where it should be: {0}")]
    Stuck(String),
    /// A log does not verify.
    #[error("a log does not verify: {0}")]
    Diverged(#[from] Divergence),
    /// A log verifies to another state than the live one.
    #[error("a log folds to another state than the session's own")]
    Drifted,
}
