//! Approvals as approvers see and decide them. What is not here: what a decision leads to (the core).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_core::event::ApprovalVerb;
use toolgate_core::explain::Consensus;
use toolgate_core::id::Sha256Digest;
use toolgate_core::input::{ApprovalDecision, GrantAsked};
use toolgate_core::json::Json;
use toolgate_core::revocable;
use toolgate_core::session::{Phase, Session};
use toolgate_store::{ApprovalBody, ApprovalRow, ApprovalStatus};
use utoipa::ToSchema;

use super::event::venue_word;
use super::explain::ConsensusView;
use super::{RawJson, time_text};
use crate::error::ApiError;
use crate::sessions::Snapshot;

/// Characters of an approver's message, at most.
const MAX_MESSAGE: usize = 2_000;

/// An approval in a list: safe to show.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ApprovalSummary {
    /// Its id.
    pub id: String,
    /// The session.
    pub session_id: String,
    /// The call that waits.
    pub call_id: String,
    /// `pending`, `approved`, `denied`, `edited`, `expired`, `cancelled` or `revoked`.
    pub status: &'static str,
    /// When it was asked for.
    pub requested_at: String,
    /// When it lapses.
    pub expires_at: Option<String>,
    /// When it was settled.
    pub settled_at: Option<String>,
    /// Who settled it.
    pub settled_by: Option<String>,
    /// What may be decided now: `approve`, `deny` and `edit` while it is pending, `revoke` as long as an approved call is
    /// not sent yet, or further calls are covered. Lists leave `revoke` out; ask for the approval.
    pub allowed_decisions: &'static [&'static str],
}

impl From<&ApprovalRow> for ApprovalSummary {
    fn from(row: &ApprovalRow) -> Self {
        Self {
            id: row.id.to_string(),
            session_id: row.session.to_string(),
            call_id: row.call.to_string(),
            status: row.status.as_str(),
            requested_at: time_text(row.requested_at),
            expires_at: row.expires_at.map(time_text),
            settled_at: row.settled_at.map(time_text),
            settled_by: row.settled_by.as_ref().map(ToString::to_string),
            allowed_decisions: match row.status {
                ApprovalStatus::Pending => &["approve", "deny", "edit"],
                // Whether it can be taken back stands in the session, which is not loaded for each row of a list.
                ApprovalStatus::Approved
                | ApprovalStatus::Revoked
                | ApprovalStatus::Denied
                | ApprovalStatus::Edited
                | ApprovalStatus::Expired
                | ApprovalStatus::Cancelled => &[],
            },
        }
    }
}

impl ApprovalSummary {
    /// An approval and whether it can be taken back, from its session as it stands.
    #[must_use]
    pub fn of(row: &ApprovalRow, session: &Session) -> Self {
        let summary = Self::from(row);
        if row.status == ApprovalStatus::Approved && revocable(session, &row.id) {
            return Self { allowed_decisions: &["revoke"], ..summary };
        }
        summary
    }
}

/// An approval with exactly what is approved.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ApprovalView {
    /// What lists show.
    #[serde(flatten)]
    pub summary: ApprovalSummary,
    /// The run.
    pub run: u32,
    /// The step.
    pub step: u32,
    /// The tool.
    pub tool: String,
    /// What the tool does, from the session's bundle.
    pub tool_description: Option<String>,
    /// How much harm a wrong call can do: `low`, `medium` or `high`.
    pub risk: Option<&'static str>,
    /// Who would execute: `server` or `client`.
    pub venue: &'static str,
    /// Why a human must decide.
    pub reason: String,
    /// The canonical arguments: in full, the very bytes that would run, while it is pending and the key may decide it;
    /// otherwise redacted where the tool says so.
    pub args: RawJson,
    /// The same with every control, invisible and direction-changing character escaped; present only where `args` has
    /// such characters, which could make it look like something else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub args_escaped: Option<String>,
    /// Hash of the full canonical arguments.
    pub args_hash: String,
    /// Whether `args` differs from what was hashed.
    pub redacted: bool,
    /// Digest over tool, arguments, venue, session and bundle; the decision repeats it.
    pub digest: String,
    /// The answer: `approve`, `deny` or `edit`; null until there is one.
    pub decision: Option<&'static str>,
    /// The approver's words.
    pub message: Option<String>,
    /// How the ballots of the step added up, while the step goes on; absent where there was no vote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vote: Option<ConsensusView>,
    /// Different people that must approve.
    pub approvers: u32,
    /// Who has approved so far.
    pub approved_by: Vec<String>,
    /// What is approved besides the bytes shown: nothing. A command or path in the arguments is approved as text; what a
    /// file of that name holds when the call runs is not covered.
    pub covers: &'static str,
}

/// What an approval binds, for people.
const COVERS: &str = "exactly these arguments; not the content of files or addresses that they name";

impl ApprovalView {
    /// The approval with its content. `full` are the arguments as long as the session still holds them.
    #[must_use]
    pub fn of(row: &ApprovalRow, body: &ApprovalBody, snapshot: &Snapshot, full: Option<&Json>) -> Self {
        let args = full.unwrap_or(&body.args);
        let tool = snapshot.bundle.tool(&body.tool);
        Self {
            summary: ApprovalSummary::of(row, &snapshot.state),
            run: body.run,
            step: body.step,
            tool: body.tool.to_string(),
            tool_description: tool.map(|tool| tool.def.description.clone()),
            risk: tool.map(|tool| tool.def.risk.code()),
            venue: venue_word(body.venue),
            reason: body.reason.clone(),
            args: args.into(),
            args_escaped: escaped(args.as_str()),
            args_hash: body.args_hash.to_string(),
            redacted: args.hash() != body.args_hash,
            digest: body.digest.to_string(),
            decision: body.answer.map(ApprovalVerb::code),
            message: body.message.clone(),
            vote: vote(row, &snapshot.state),
            approvers: body.approvers,
            approved_by: body.approved_by.iter().map(ToString::to_string).collect(),
            covers: COVERS,
        }
    }
}

/// The vote that led to the call.
fn vote(row: &ApprovalRow, session: &Session) -> Option<ConsensusView> {
    let Phase::Acting(step) = &session.active_run()?.phase else { return None };
    let vote = step.vote.as_ref().filter(|_| session.call(&row.call).is_some())?;
    Some(ConsensusView::from(&Consensus::from(&**vote)))
}

/// What was decided: safe to keep and to show.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct DecisionView {
    /// The approval.
    #[serde(flatten)]
    pub summary: ApprovalSummary,
    /// The recorded answer: `approve`, `deny`, `edit` or `revoke`; null while others must approve as well.
    pub decision: Option<&'static str>,
}

impl DecisionView {
    /// The recorded answer of a settled approval.
    #[must_use]
    pub fn of(row: &ApprovalRow, session: &Session) -> Self {
        let decision = match row.status {
            ApprovalStatus::Approved => Some("approve"),
            ApprovalStatus::Denied => Some("deny"),
            ApprovalStatus::Edited => Some("edit"),
            ApprovalStatus::Revoked => Some("revoke"),
            ApprovalStatus::Pending | ApprovalStatus::Expired | ApprovalStatus::Cancelled => None,
        };
        Self { summary: ApprovalSummary::of(row, session), decision }
    }
}

/// Decides an approval.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DecideApproval {
    /// The answer.
    pub decision: Verdict,
    /// The `digest` of what was shown.
    #[schema(value_type = String, pattern = "^sha256:[0-9a-f]{64}$")]
    pub digest: Sha256Digest,
    /// The bundle under which it was looked at; another one than the session's is refused.
    #[serde(default)]
    #[schema(value_type = Option<String>, pattern = "^sha256:[0-9a-f]{64}$")]
    pub bundle: Option<Sha256Digest>,
    /// With `approve`: leave for further calls of the session as well.
    #[serde(default)]
    pub grant: Option<GrantRequest>,
    /// With `deny`: words for the model and the record; at most 2,000 characters.
    #[serde(default)]
    #[schema(max_length = 2000)]
    pub message: Option<String>,
    /// With `edit`: the arguments to run instead. They make a new call that is judged again.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Value>,
}

/// Leave for further calls of the session: the same tool with the same arguments, but for those left open.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantRequest {
    /// Top-level arguments that may have any value.
    #[serde(default)]
    pub open: BTreeSet<String>,
    /// How long it holds in milliseconds, 1,000 to 2,592,000,000; absent means a day.
    #[serde(default)]
    #[schema(minimum = 1000, maximum = 2592000000u64)]
    pub ttl_ms: Option<u64>,
}

/// The answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Run exactly this.
    Approve,
    /// Do not run it.
    Deny,
    /// Run it with other arguments.
    Edit,
    /// Take an approval back, with what it granted, as far as nothing was sent on it.
    Revoke,
}

impl DecideApproval {
    /// Checks which fields go together.
    pub fn into_decision(self) -> Result<ApprovalDecision, ApiError> {
        if self.message.as_ref().is_some_and(|message| message.chars().count() > MAX_MESSAGE) {
            return Err(ApiError::invalid("/message", format!("must have at most {MAX_MESSAGE} characters")));
        }
        if self.decision != Verdict::Deny && self.message.is_some() {
            return Err(ApiError::invalid("/message", "goes with `deny` only"));
        }
        if self.decision != Verdict::Approve && self.grant.is_some() {
            return Err(ApiError::invalid("/grant", "goes with `approve` only"));
        }
        match (self.decision, self.arguments) {
            (Verdict::Approve, None) => Ok(ApprovalDecision::Approve {
                grant: self.grant.map(|grant| GrantAsked { open: grant.open, ttl_ms: grant.ttl_ms }),
            }),
            (Verdict::Revoke, None) => Ok(ApprovalDecision::Revoke),
            (Verdict::Deny, None) => Ok(ApprovalDecision::Deny { message: self.message }),
            (Verdict::Edit, Some(args)) if args.is_object() => {
                Ok(ApprovalDecision::Edit { args: Json::from_value(&args) })
            }
            (Verdict::Edit, Some(_)) => Err(ApiError::invalid("/arguments", "must be a JSON object")),
            (Verdict::Edit, None) => Err(ApiError::invalid("/arguments", "is needed with `edit`")),
            (Verdict::Approve | Verdict::Deny | Verdict::Revoke, Some(_)) => {
                Err(ApiError::invalid("/arguments", "goes with `edit` only"))
            }
        }
    }
}

/// The canonical text with what cannot be seen, or changes how the rest is seen, written as JSON escapes; none when there
/// is nothing of that kind.
#[must_use]
pub fn escaped(canonical: &str) -> Option<String> {
    if !canonical.chars().any(is_deceptive) {
        return None;
    }
    let mut text = String::with_capacity(canonical.len() + 16);
    let mut units = [0_u16; 2];
    for c in canonical.chars() {
        if is_deceptive(c) {
            for unit in c.encode_utf16(&mut units) {
                text.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            text.push(c);
        }
    }
    Some(text)
}

/// Controls, invisible characters, and those that change the direction of text. Canonical JSON has C0 escaped already.
const fn is_deceptive(c: char) -> bool {
    matches!(c,
        '\u{7f}'..='\u{9f}'
        | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fe00}'..='\u{fe0f}'
        | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_escaped_and_means_the_same() {
        let args = Json::parse("{\"cmd\":\"rm \u{202e}txt.exe\u{200b}\u{e0041}\"}").unwrap();
        let shown = escaped(args.as_str()).unwrap();
        assert_eq!(shown, "{\"cmd\":\"rm \\u202etxt.exe\\u200b\\udb40\\udc41\"}");
        assert_eq!(Json::parse(&shown).unwrap(), args);
        assert_eq!(escaped("{\"cmd\":\"g\u{fc}n\u{4e2d}\"}"), None);
    }
}
