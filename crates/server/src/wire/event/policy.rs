//! The wire's view of what the policies found. What is not here: its form (`fact`).

use toolgate_core::event::{CedarRecord, FindingRecord, PolicyRecord};

use super::fact::{CedarView, FindingView, PolicyView};

impl From<&PolicyRecord> for PolicyView {
    fn from(record: &PolicyRecord) -> Self {
        Self {
            decision: record.decision.clone(),
            rule: record.rule.clone(),
            code: record.code.clone(),
            findings: record.findings.iter().map(FindingView::from).collect(),
            cedar: record.cedar.as_ref().map(CedarView::from),
        }
    }
}

impl From<&FindingRecord> for FindingView {
    fn from(finding: &FindingRecord) -> Self {
        Self {
            rule: finding.rule.clone(),
            outcome: finding.outcome.clone(),
            code: finding.code.clone(),
            shadow: finding.shadow,
            detail: finding.detail.clone(),
            looked_at: finding.looked_at.clone(),
        }
    }
}

impl From<&CedarRecord> for CedarView {
    fn from(record: &CedarRecord) -> Self {
        Self {
            deciding: record.deciding.clone(),
            failed: record.failed.clone(),
            policy_hash: record.policy_hash.clone(),
            schema_hash: record.schema_hash.clone(),
            engine: record.engine.clone(),
        }
    }
}
