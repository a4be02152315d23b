//! What verification found, as callers see it. What is not here: verifying (`sessions`).

use serde::Serialize;
use toolgate_core::Divergence;
use utoipa::ToSchema;

use crate::sessions::{VerifyFault, VerifyReport};

/// The result of checking a session's chain, deciding every recorded input again, and checking the log's invariants.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct VerifyView {
    /// Whether the log is whole and every decision that could be decided again came out the same.
    pub verified: bool,
    /// `ok`; `redacted` (whole, but some inputs are destroyed as their tools demand); or `erased`, `chain_broken`,
    /// `diverged`, `unknown_rules`, `invariant_broken` (every decision comes out the same, and yet a promise that all logs
    /// keep does not hold).
    pub code: &'static str,
    /// Rows checked.
    pub events: u64,
    /// Inputs that were decided again.
    pub redecided: u64,
    /// Sequence numbers of inputs whose content was redacted and is destroyed.
    pub redacted: Vec<u64>,
    /// The first sequence number that does not fit.
    pub first_bad_seq: Option<u64>,
    /// What does not fit.
    pub detail: Option<String>,
}

impl From<VerifyReport> for VerifyView {
    fn from(report: VerifyReport) -> Self {
        let (code, first_bad_seq, detail) = match &report.fault {
            None if report.redacted.is_empty() => ("ok", None, None),
            None => ("redacted", None, None),
            Some(VerifyFault::Chain { seq, detail }) => ("chain_broken", Some(*seq), Some(detail.clone())),
            Some(VerifyFault::Erased { seq }) => {
                ("erased", Some(*seq), Some("the content was erased; only the chain can be checked".to_owned()))
            }
            Some(VerifyFault::Invariant(broken)) => ("invariant_broken", Some(broken.seq), Some(broken.to_string())),
            Some(VerifyFault::Decision(divergence)) => {
                let code = match divergence {
                    Divergence::UnknownRules { .. } => "unknown_rules",
                    Divergence::Gap { .. } | Divergence::Epoch { .. } => "chain_broken",
                    Divergence::Unfounded { .. }
                    | Divergence::Different { .. }
                    | Divergence::Missing { .. }
                    | Divergence::WrongBundle => "diverged",
                };
                (code, Some(divergence.seq()), Some(divergence.to_string()))
            }
        };
        Self {
            verified: report.fault.is_none(),
            code,
            events: report.events,
            redecided: report.redecided,
            redacted: report.redacted,
            first_bad_seq,
            detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use toolgate_core::invariants::{Broken, Invariant};

    use super::*;

    #[test]
    fn a_broken_invariant_is_named_with_its_place() {
        let broken = Broken { invariant: Invariant::I14, seq: 9, what: "it is sent again" };
        let fault = Some(VerifyFault::Invariant(broken));
        let view = VerifyView::from(VerifyReport { events: 12, redecided: 4, redacted: Vec::new(), fault });
        assert_eq!((view.verified, view.code, view.first_bad_seq), (false, "invariant_broken", Some(9)));
        assert_eq!(view.detail.as_deref(), Some("I14 does not hold at sequence 9: it is sent again"));
    }
}
