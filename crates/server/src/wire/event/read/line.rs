//! The lines of an export as they are read, each with the fields that an explanation needs. What is not here: putting
//! them together (`read`).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use toolgate_core::consensus::{Electorate, Rule};
use toolgate_core::event::{
    AdmissionVerb, ApprovalVerb, CedarRecord, Charge, Dispatch, FindingRecord, Limits, OpenedContent, PolicyRecord,
    ProfileChosen, SessionOpened, WidenedBy,
};
use toolgate_core::id::{
    ActorId, ApprovalId, CallId, ClientInstance, Label, ProfileName, Sha256Digest, Tag, TenantId, ToolId,
};
use toolgate_core::input::{Narrowed, Reporter};
use toolgate_core::json::Json;
use toolgate_core::output::OutcomeStatus;
use toolgate_core::pipeline::{Decision, Layer};
use toolgate_core::profile::ControlMode;
use toolgate_core::reason::{Ending, RefusalCode, RejectReason};
use toolgate_core::time::Timestamp;
use toolgate_core::tool::{ToolClass, Venue};

/// RFC 3339, as the wire writes it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Time(pub(super) Timestamp);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let time = OffsetDateTime::parse(&text, &Rfc3339).map_err(serde::de::Error::custom)?;
        let micros = i64::try_from(time.unix_timestamp_nanos() / 1_000).map_err(serde::de::Error::custom)?;
        Ok(Self(Timestamp(micros)))
    }
}

/// JSON with every digit as it was written.
#[derive(Debug)]
pub(super) struct Exact(pub(super) Json);

impl<'de> Deserialize<'de> for Exact {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Json::parse(raw.get()).map(Self).map_err(serde::de::Error::custom)
    }
}

impl Exact {
    pub(super) fn json(this: Option<Self>) -> Option<Json> {
        this.map(|exact| exact.0)
    }
}

#[derive(Deserialize)]
pub(super) struct Opened {
    pub(super) by: ActorId,
    pub(super) bundle: Sha256Digest,
    pub(super) rules_version: u32,
    control: Option<ControlMode>,
    #[serde(default)]
    dry_run: bool,
}

pub(super) fn opened(opened: Opened) -> Result<SessionOpened, serde_json::Error> {
    Ok(SessionOpened {
        // An export is read under the credential of its tenant, and names it nowhere.
        tenant: TenantId::new("unnamed").map_err(serde::de::Error::custom)?,
        by: opened.by,
        alias: None,
        bundle: opened.bundle,
        profile: None,
        label: None,
        ceiling: None,
        capabilities: BTreeSet::new(),
        limits: Narrowed::default(),
        control: opened.control,
        dry_run: opened.dry_run,
        classify_by: None,
        rules_version: opened.rules_version,
        trace: None,
        agent: None,
        parent: None,
        forked_from: None,
        content: OpenedContent { prompt: String::new(), output_schema: None, metadata: BTreeMap::new() },
    })
}

#[derive(Deserialize)]
pub(super) struct Profile {
    pub(super) profile: ProfileName,
    pub(super) label: Option<Label>,
    pub(super) trace_requirements: BTreeMap<Tag, u32>,
}

impl From<Profile> for ProfileChosen {
    fn from(read: Profile) -> Self {
        Self { profile: read.profile, label: read.label, trace_requirements: read.trace_requirements }
    }
}

#[derive(Deserialize)]
pub(super) struct Run {
    pub(super) rules_version: u32,
    pub(super) schema_engine: String,
    pub(super) limits: Limits,
    pub(super) deadline_at: Time,
}

#[derive(Deserialize)]
pub(super) struct Count {
    pub(super) round: u32,
    /// Exports of earlier versions lack it, the rule, and what was given up.
    #[serde(default)]
    pub(super) n: u32,
    #[serde(default)]
    pub(super) rule: Rule,
    pub(super) k: u32,
    pub(super) groups: Vec<Vec<u32>>,
    pub(super) unreadable: Vec<u32>,
    #[serde(default)]
    pub(super) cancelled: Vec<u32>,
    pub(super) result: String,
    pub(super) ballot: Option<u32>,
}

#[derive(Deserialize)]
pub(super) struct Widening {
    pub(super) round: u32,
    pub(super) from: Electorate,
    pub(super) to: Electorate,
    pub(super) tool: ToolId,
    pub(super) why: WidenedBy,
}

#[derive(Deserialize)]
pub(super) struct DecidedLine {
    pub(super) index: u32,
    pub(super) edited_from: Option<CallId>,
    pub(super) edited_by: Option<ActorId>,
    pub(super) rewritten_by: Option<String>,
    pub(super) granted_by: Option<ApprovalId>,
    pub(super) admission: Option<Hooks>,
    pub(super) tool: Option<ToolId>,
    pub(super) tool_version: Option<Sha256Digest>,
    pub(super) venue: Option<Venue>,
    pub(super) class: Option<ToolClass>,
    pub(super) tags: BTreeSet<Tag>,
    pub(super) decision: Decision,
    pub(super) reason: Option<RejectReason>,
    pub(super) layer: Layer,
    pub(super) rules: Vec<String>,
    pub(super) replay_of: Option<CallId>,
    pub(super) dispatch: Option<Leave>,
    pub(super) approval: Option<Asked>,
    pub(super) policy: Option<Policy>,
    pub(super) ends_run: bool,
    pub(super) args_bytes: u64,
    pub(super) content: AskedContent,
}

#[derive(Deserialize)]
pub(super) struct AskedContent {
    pub(super) tool: String,
    pub(super) args: Option<Exact>,
    pub(super) args_hash: Option<Sha256Digest>,
    pub(super) redacted: bool,
    pub(super) derived: Option<Exact>,
    #[serde(default)]
    pub(super) charges: Vec<Charge>,
    pub(super) idempotency_key: Option<String>,
    pub(super) detail: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Asked {
    pub(super) id: ApprovalId,
    pub(super) expires_at: Time,
    pub(super) digest: Sha256Digest,
    pub(super) approvers: u32,
    pub(super) approved_by: BTreeSet<ActorId>,
}

#[derive(Deserialize)]
pub(super) struct Hooks {
    pub(super) hooks: Vec<String>,
    pub(super) answer_by: Time,
}

#[derive(Deserialize)]
pub(super) struct Admission {
    pub(super) hook: String,
    pub(super) attempt: u32,
    pub(super) verdict: AdmissionVerb,
    pub(super) next_by: Option<Time>,
    pub(super) approval: Option<Asked>,
    pub(super) content: AdmissionWords,
}

#[derive(Deserialize)]
pub(super) struct AdmissionWords {
    pub(super) reason: Option<String>,
    pub(super) args: Option<Exact>,
    pub(super) redacted: bool,
}

#[derive(Deserialize)]
pub(super) struct Reminded {
    pub(super) approval_id: ApprovalId,
    pub(super) reminder: u32,
    pub(super) expires_at: Time,
}

#[derive(Deserialize)]
pub(super) struct Reservation {
    pub(super) answer: String,
    pub(super) counter: Option<String>,
    pub(super) used: Option<u64>,
    pub(super) limit: Option<u64>,
    #[serde(default)]
    pub(super) settled: Vec<String>,
}

#[derive(Deserialize)]
pub(super) struct Grant {
    pub(super) open: BTreeSet<String>,
    pub(super) expires_at: Time,
}

#[derive(Deserialize)]
pub(super) struct Leave {
    pub(super) attempt: u32,
    pub(super) deadline_at: Time,
    pub(super) client_id: Option<ClientInstance>,
}

impl From<Leave> for Dispatch {
    fn from(leave: Leave) -> Self {
        Self { attempt: leave.attempt, deadline_at: leave.deadline_at.0, instance: leave.client_id }
    }
}

#[derive(Deserialize)]
pub(super) struct Ack {
    pub(super) attempt: u32,
    pub(super) client_id: ClientInstance,
}

/// The wire's form of findings is the log's own, field by field.
#[derive(Deserialize)]
pub(super) struct Policy {
    pub(super) decision: Cow<'static, str>,
    pub(super) rule: Option<Arc<str>>,
    pub(super) code: Option<Cow<'static, str>>,
    pub(super) findings: Vec<FindingRecord>,
    pub(super) cedar: Option<CedarRecord>,
}

impl From<Policy> for PolicyRecord {
    fn from(read: Policy) -> Self {
        Self { decision: read.decision, rule: read.rule, code: read.code, findings: read.findings, cedar: read.cedar }
    }
}

#[derive(Deserialize)]
pub(super) struct Ended {
    pub(super) attempt: u32,
    pub(super) status: String,
    pub(super) dispatched: bool,
    pub(super) cause: String,
    pub(super) reason: Option<RejectReason>,
    pub(super) reporter: Option<Who>,
    pub(super) replaced_by: Option<CallId>,
    pub(super) output_bytes: u64,
    pub(super) content: EndedWords,
}

#[derive(Deserialize)]
pub(super) struct EndedWords {
    pub(super) outcome_detail: Option<String>,
    pub(super) detail: Option<String>,
}

#[derive(Deserialize)]
pub(super) struct Who {
    pub(super) venue: Venue,
    pub(super) client_id: Option<ClientInstance>,
    pub(super) by: Option<ActorId>,
}

impl Who {
    pub(super) fn read(self) -> Result<Reporter, serde_json::Error> {
        match (self.venue, self.client_id, self.by) {
            (Venue::Server, _, _) => Ok(Reporter::Server),
            (Venue::Client, Some(instance), Some(by)) => {
                Ok(Reporter::Client { instance, by, fence: 0, args_hash: Sha256Digest::from_bytes([0; 32]) })
            }
            (Venue::Client, _, _) => Err(serde::de::Error::missing_field("client_id")),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct AnswerLine {
    pub(super) approval_id: ApprovalId,
    pub(super) by: ActorId,
    pub(super) digest: Sha256Digest,
    pub(super) decision: ApprovalVerb,
    #[serde(default)]
    pub(super) missing: u32,
    pub(super) grant: Option<Grant>,
    pub(super) content: AnswerWords,
}

#[derive(Deserialize)]
pub(super) struct AnswerWords {
    pub(super) message: Option<String>,
    pub(super) args: Option<Exact>,
    pub(super) redacted: bool,
}

#[derive(Deserialize)]
pub(super) struct Refused {
    pub(super) code: RefusalCode,
    pub(super) reporter: Who,
    pub(super) claimed: OutcomeStatus,
}

#[derive(Deserialize)]
pub(super) struct RunEnd {
    pub(super) ending: Ending,
    pub(super) steps: u32,
    pub(super) tool_calls: u32,
    pub(super) model_calls: u32,
    #[serde(default)]
    pub(super) wrapped_up: bool,
    /// Logs of earlier versions have none.
    #[serde(default)]
    pub(super) shadow: Vec<FindingRecord>,
}
