//! One call of the current step, and where it stands. What is not here: calls of completed steps (`PastCall`).

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use toolgate_policy::RuleId;

use crate::event::{ApprovalOpened, CallEnd, Charge};
use crate::id::{ActorId, ApprovalId, CallId, ClientInstance, Sha256Digest, Tag, ToolId};
use crate::json::Json;
use crate::reason::RejectReason;
use crate::time::Timestamp;
use crate::tool::{ToolClass, Venue};

/// A call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    /// Its id.
    pub id: CallId,
    /// Its place in the step, from 0.
    pub index: u32,
    /// The tool, if it exists.
    pub tool: Option<ToolId>,
    /// The name as the model wrote it.
    pub tool_text: String,
    /// The arguments in full, until the call has ended; then gone if redacted.
    pub args: Option<Json>,
    /// The arguments as the log shows them, redacted where the tool says so.
    pub shown_args: Option<Json>,
    /// Hash of the full arguments.
    pub args_hash: Option<Sha256Digest>,
    /// Why the call was rejected or escalated.
    pub reason: Option<RejectReason>,
    /// Who executes.
    pub venue: Option<Venue>,
    /// What may happen after an unknown outcome.
    pub class: Option<ToolClass>,
    /// Evidence that a success counts for.
    pub tags: BTreeSet<Tag>,
    /// The caller's idempotency key.
    pub idempotency_key: Option<String>,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// What the model is told although the call was allowed: it begins to go round in circles.
    pub warning: Option<String>,
    /// The call it was edited from.
    pub edited_from: Option<CallId>,
    /// The admission hook that wrote its arguments.
    pub rewritten_by: Option<RuleId>,
    /// The approver who wrote its arguments.
    pub edited_by: Option<ActorId>,
    /// The approval it waits or waited for.
    pub approval: Option<ApprovalId>,
    /// A human must approve it, or had to.
    pub escalated: bool,
    /// What the tenant's ledger must grant before it may be sent.
    pub charges: Vec<Charge>,
    /// Where it stands.
    pub state: CallState,
}

/// Where a call stands. Dispatch, execution and success are different things.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallState {
    /// Its decision waits for an answer from outside (ruling 3).
    Waiting(Awaited),
    /// Allowed; its turn has not come, or no client is there.
    Queued,
    /// Sent, or about to be.
    Dispatched(DispatchedCall),
    /// Over.
    Ended(EndedState),
}

/// The answer that a call waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Awaited {
    /// An admission hook's.
    Admission(AwaitedAdmission),
    /// A human's.
    Approval(AwaitedApproval),
    /// The tenant's ledger's.
    Reservation,
}

/// An open question to an admission hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedAdmission {
    /// The hooks that have yet to answer; the first is asked now.
    pub hooks: Vec<RuleId>,
    /// 1, and one more after each take-over.
    pub attempt: u32,
    /// When the first must have answered.
    pub answer_by: Timestamp,
    /// Digest of what a human must approve afterwards; absent when none must.
    pub digest: Option<Sha256Digest>,
}

/// An open question to humans.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedApproval {
    /// The question.
    pub opened: ApprovalOpened,
    /// Who has approved so far.
    pub approved_by: BTreeSet<ActorId>,
    /// Reminders so far.
    pub reminders: u32,
}

impl AwaitedApproval {
    /// A question that nobody has answered.
    #[must_use]
    pub fn new(opened: ApprovalOpened) -> Self {
        let approved_by = opened.approved_by.clone();
        Self { opened, approved_by, reminders: 0 }
    }

    /// When the log reminds of it next; never at or after its end.
    #[must_use]
    pub fn remind_at(&self) -> Option<Timestamp> {
        let every = self.opened.remind_ms?;
        let at = self.opened.requested_at.plus_ms(every.saturating_mul(u64::from(self.reminders) + 1));
        (at < self.opened.expires_at).then_some(at)
    }
}

/// A dispatched call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DispatchedCall {
    /// The attempt.
    pub attempt: u32,
    /// The sequence number of the dispatch; reports repeat it.
    pub fence: u64,
    /// When the outcome is overdue.
    pub deadline_at: Timestamp,
    /// The client instance it is for.
    pub instance: Option<ClientInstance>,
    /// A client said that it has started.
    pub acknowledged: bool,
}

/// An ended call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedState {
    /// How.
    pub end: CallEnd,
    /// What the model is told besides the output.
    pub reason: Option<String>,
    /// What came back, as the model is shown it.
    pub shown: String,
    /// The edited call that takes its place.
    pub replaced_by: Option<CallId>,
    /// It is answered with the outcome of an earlier equal call.
    pub replayed: bool,
}
