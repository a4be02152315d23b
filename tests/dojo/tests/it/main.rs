//! The harness tried on a small suite made for it (`fixture/office.json`), without network. What is not here: AgentDojo,
//! which `scripts/show decisions-agentdojo` plays.

#![expect(clippy::unwrap_used, reason = "tests fail loudly")]

mod figures;
mod reading;
mod sessions;

use std::path::{Path, PathBuf};

use toolgate_dojo::suite::Suite;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixture")
}

fn office() -> Suite {
    Suite::read(&folder().join("office.json")).unwrap()
}
