//! `toolgate verify`: one session's log, from the database itself. What is not here: the checks (`toolgate-server`,
//! `toolgate-core`, the store's chain).

use std::process::ExitCode;

use clap::Args;
use toolgate_core::id::{SessionId, TenantId};
use toolgate_server::local::master_key;
use toolgate_server::node::{FIRST_TENANT, open_database};
use toolgate_server::sessions::{VerifyFault, VerifyReport, verify_stored};

use crate::failure::CommandError;
use crate::output;
use crate::serve::StorageArguments;

/// Verify one session's log.
#[derive(Debug, Args)]
pub(crate) struct Verify {
    #[command(flatten)]
    storage: StorageArguments,
    /// The session, `ses_…`.
    #[arg(long)]
    session: SessionId,
    /// The tenant that owns it.
    #[arg(long, default_value = FIRST_TENANT)]
    tenant: TenantId,
}

impl Verify {
    pub(crate) async fn run(self) -> Result<ExitCode, CommandError> {
        let settings = self.storage.settings(Vec::new())?;
        let master = master_key(&settings.storage)?;
        let store = open_database(&settings.storage).await?;
        let report = verify_stored(&*store, &master, &self.tenant, self.session).await?;
        let (text, good) = describe(&report);
        output::line(&format!("{} {text}", self.session));
        Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

/// One line, and whether the log is good.
fn describe(report: &VerifyReport) -> (String, bool) {
    match &report.fault {
        None if report.redacted.is_empty() => (
            format!(
                "ok: {} events, {} inputs decided again, all alike, every invariant holds",
                report.events, report.redecided
            ),
            true,
        ),
        None => {
            let text = format!(
                "redacted: {} events, {} inputs decided again, {} rest on redacted content that is destroyed (first at sequence {})",
                report.events,
                report.redecided,
                report.redacted.len(),
                report.redacted.first().copied().unwrap_or_default(),
            );
            (text, true)
        }
        Some(VerifyFault::Chain { seq, detail }) => (format!("BROKEN at sequence {seq}: {detail}"), false),
        Some(VerifyFault::Decision(divergence)) => {
            (format!("DIVERGED at sequence {}: {divergence}", divergence.seq()), false)
        }
        Some(VerifyFault::Invariant(broken)) => (format!("BROKEN at sequence {}: {broken}", broken.seq), false),
        Some(VerifyFault::Erased { seq }) => {
            (format!("erased: the chain is whole, the content from sequence {seq} on is destroyed"), true)
        }
    }
}
