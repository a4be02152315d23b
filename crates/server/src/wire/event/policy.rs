//! The wire's view of what the policies found. What is not here: its form (`fact`).

use toolgate_core::event::{CedarRecord, FindingRecord, PolicyRecord};

use super::fact::{CedarView, FindingView, PolicyView};

impl From<&PolicyRecord> for PolicyView {
    fn from(record: &PolicyRecord) -> Self {
        Self {
            decision: record.decision.to_string(),
            rule: record.rule.as_deref().map(ToOwned::to_owned),
            code: record.code.as_deref().map(ToOwned::to_owned),
            findings: record.findings.iter().map(FindingView::from).collect(),
            cedar: record.cedar.as_ref().map(CedarView::from),
        }
    }
}

impl From<&FindingRecord> for FindingView {
    fn from(finding: &FindingRecord) -> Self {
        Self {
            rule: finding.rule.to_string(),
            outcome: finding.outcome.to_string(),
            code: finding.code.as_deref().map(ToOwned::to_owned),
            shadow: finding.shadow,
            detail: finding.detail.clone(),
            looked_at: finding.looked_at.to_vec(),
        }
    }
}

impl From<&CedarRecord> for CedarView {
    fn from(record: &CedarRecord) -> Self {
        Self {
            deciding: record.deciding.clone(),
            failed: record.failed.clone(),
            policy_hash: record.policy_hash.to_string(),
            schema_hash: record.schema_hash.to_string(),
            engine: record.engine.to_string(),
        }
    }
}
