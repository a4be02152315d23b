//! The closed sets of codes: why a call or answer was rejected, why a run ended, why an input was refused.
//! What is not here: HTTP statuses (the server maps codes to them).

use serde::{Deserialize, Serialize};

/// Declares a closed set of codes with their text, an `ALL` list and serde by code.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident => $code:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vmeta])* #[serde(rename = $code)] $variant,)*
        }

        impl $name {
            /// Every member, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The code used in log, API and transcript.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self { $(Self::$variant => $code,)* }
            }
        }
    };
}

codes! {
    /// Why a call, a final answer or a whole step was rejected. Those of the pipeline stand in its fixed order.
    RejectReason {
        /// The arguments or the answer cannot be read.
        Malformed => "malformed",
        /// No tool of this name exists.
        UnknownTool => "unknown_tool",
        /// The tool exists, but not for this profile.
        ToolNotAllowlisted => "tool_not_allowlisted",
        /// An identity key stands in the arguments; always ends the run.
        CrossTenantDenied => "cross_tenant_denied",
        /// The arguments do not match the tool's schema.
        SchemaInvalid => "schema_invalid",
        /// The client lacks the capability that the tool needs.
        VenueUnavailable => "venue_unavailable",
        /// A list of the policies names the call.
        Denylisted => "denylisted",
        /// A policy rule on an argument does not hold.
        ArgumentRule => "argument_rule",
        /// The call came after one that forbids it, or before one that it needs.
        SequenceRule => "sequence_rule",
        /// Too many calls in a window of time.
        RateLimited => "rate_limited",
        /// A count or sum would pass its limit.
        CumulativeLimit => "cumulative_limit",
        /// An argument stands neither in the user's words nor in a trusted result.
        OriginUnknown => "origin_unknown",
        /// A policy file forbids the call, permits it not, or cannot judge it.
        PolicyDenied => "policy_denied",
        /// The same key and arguments succeeded before; the recorded outcome is returned.
        IdempotentReplay => "idempotent_replay",
        /// The same key came with other arguments.
        IdempotencyConflict => "idempotency_conflict",
        /// The same canonical call was proposed too often in this run.
        RepeatedCall => "repeated_call",
        /// The run's tool calls are used up.
        BudgetExhausted => "budget_exhausted",
        /// An admission hook denied the call, or gave no usable answer.
        AdmissionDenied => "admission_denied",
        /// A human must approve, and the profile ends the run instead of waiting.
        NeedsHumanApproval => "needs_human_approval",
        /// An approver said no.
        ApprovalDenied => "approval_denied",
        /// Nobody approved in time.
        ApprovalExpired => "approval_expired",
        /// `done` came before the evidence was there.
        TraceRequirementsNotMet => "trace_requirements_not_met",
        /// The final output does not match the output schema.
        OutputSchemaInvalid => "output_schema_invalid",
        /// The ballots do not agree.
        NoConsensus => "no_consensus",
    }
}

codes! {
    /// Why a run ended; exactly one, always recorded. A rejection that ends the run has that rejection's code.
    Ending {
        /// The model was done and every gate was passed.
        Done => "done",
        /// The steps are used up.
        MaxStepsExceeded => "max_steps_exceeded",
        /// The model calls are used up.
        MaxModelCallsExceeded => "max_model_calls_exceeded",
        /// The wall-clock bound has passed.
        DeadlineExceeded => "deadline_exceeded",
        /// Too many unreadable answers in a row.
        MaxParseFailuresExceeded => "max_parse_failures_exceeded",
        /// Too many final answers in a row that do not match the output schema.
        MaxOutputSchemaFailuresExceeded => "max_output_schema_failures_exceeded",
        /// Too many rejected steps in a row.
        MaxConsecutiveRejectionsExceeded => "max_consecutive_rejections_exceeded",
        /// The model could not be reached, after the adapter's own retries.
        ProviderFailed => "provider_failed",
        /// No label could be found, and there is no default rule.
        ClassificationFailed => "classification_failed",
        /// Somebody cancelled it.
        Cancelled => "cancelled",
        /// A termination rule of the profile holds.
        TerminationRule => "termination_rule",
        /// A call may or may not have happened, and the profile does not go on in doubt.
        IndeterminateOutcome => "indeterminate_outcome",
        /// A rejection whose profile setting is `end`: the answer or arguments cannot be read.
        Malformed => "malformed",
        /// As the rejection of the same code.
        UnknownTool => "unknown_tool",
        /// As the rejection of the same code.
        ToolNotAllowlisted => "tool_not_allowlisted",
        /// As the rejection of the same code.
        CrossTenantDenied => "cross_tenant_denied",
        /// As the rejection of the same code.
        SchemaInvalid => "schema_invalid",
        /// As the rejection of the same code.
        VenueUnavailable => "venue_unavailable",
        /// As the rejection of the same code.
        Denylisted => "denylisted",
        /// As the rejection of the same code.
        ArgumentRule => "argument_rule",
        /// As the rejection of the same code.
        SequenceRule => "sequence_rule",
        /// As the rejection of the same code.
        RateLimited => "rate_limited",
        /// As the rejection of the same code.
        CumulativeLimit => "cumulative_limit",
        /// As the rejection of the same code.
        OriginUnknown => "origin_unknown",
        /// As the rejection of the same code.
        PolicyDenied => "policy_denied",
        /// As the rejection of the same code.
        IdempotentReplay => "idempotent_replay",
        /// As the rejection of the same code.
        IdempotencyConflict => "idempotency_conflict",
        /// As the rejection of the same code.
        RepeatedCall => "repeated_call",
        /// As the rejection of the same code.
        BudgetExhausted => "budget_exhausted",
        /// As the rejection of the same code.
        AdmissionDenied => "admission_denied",
        /// As the rejection of the same code.
        NeedsHumanApproval => "needs_human_approval",
        /// As the rejection of the same code.
        ApprovalDenied => "approval_denied",
        /// As the rejection of the same code.
        ApprovalExpired => "approval_expired",
        /// As the rejection of the same code.
        TraceRequirementsNotMet => "trace_requirements_not_met",
        /// As the rejection of the same code.
        OutputSchemaInvalid => "output_schema_invalid",
        /// As the rejection of the same code.
        NoConsensus => "no_consensus",
    }
}

impl From<RejectReason> for Ending {
    fn from(reason: RejectReason) -> Self {
        match reason {
            RejectReason::Malformed => Self::Malformed,
            RejectReason::UnknownTool => Self::UnknownTool,
            RejectReason::ToolNotAllowlisted => Self::ToolNotAllowlisted,
            RejectReason::CrossTenantDenied => Self::CrossTenantDenied,
            RejectReason::SchemaInvalid => Self::SchemaInvalid,
            RejectReason::VenueUnavailable => Self::VenueUnavailable,
            RejectReason::Denylisted => Self::Denylisted,
            RejectReason::ArgumentRule => Self::ArgumentRule,
            RejectReason::SequenceRule => Self::SequenceRule,
            RejectReason::RateLimited => Self::RateLimited,
            RejectReason::CumulativeLimit => Self::CumulativeLimit,
            RejectReason::OriginUnknown => Self::OriginUnknown,
            RejectReason::PolicyDenied => Self::PolicyDenied,
            RejectReason::IdempotentReplay => Self::IdempotentReplay,
            RejectReason::IdempotencyConflict => Self::IdempotencyConflict,
            RejectReason::RepeatedCall => Self::RepeatedCall,
            RejectReason::BudgetExhausted => Self::BudgetExhausted,
            RejectReason::AdmissionDenied => Self::AdmissionDenied,
            RejectReason::NeedsHumanApproval => Self::NeedsHumanApproval,
            RejectReason::ApprovalDenied => Self::ApprovalDenied,
            RejectReason::ApprovalExpired => Self::ApprovalExpired,
            RejectReason::TraceRequirementsNotMet => Self::TraceRequirementsNotMet,
            RejectReason::OutputSchemaInvalid => Self::OutputSchemaInvalid,
            RejectReason::NoConsensus => Self::NoConsensus,
        }
    }
}

codes! {
    /// Why an input cannot be taken now. It changes nothing, except that one claiming an effect is recorded.
    RefusalCode {
        /// The session is open already.
        AlreadyOpen => "already_open",
        /// The session is not open.
        NotOpen => "not_open",
        /// The session is closed.
        SessionClosed => "session_closed",
        /// A run is under way; the message would start another.
        RunActive => "run_active",
        /// No run is under way.
        NoActiveRun => "no_active_run",
        /// The bundle has no such profile.
        UnknownProfile => "unknown_profile",
        /// The bundle has no such label, and no default rule.
        UnknownLabel => "unknown_label",
        /// Neither profile nor label was given, and the bundle has no classification.
        ProfileRequired => "profile_required",
        /// The credential may not use this profile.
        ProfileNotPermitted => "profile_not_permitted",
        /// A limit of the request is zero or wider than the profile's.
        LimitNotNarrower => "limit_not_narrower",
        /// The request's output schema does not compile.
        OutputSchemaInvalid => "output_schema_unusable",
        /// The answer belongs to an earlier question.
        StaleAnswer => "stale_answer",
        /// The session has no such call.
        UnknownCall => "unknown_call",
        /// The call was never dispatched to the sender.
        CallNotDispatched => "call_not_dispatched",
        /// The call has another outcome already.
        OutcomeConflict => "outcome_conflict",
        /// The call was closed without this outcome before it arrived.
        LateOutcome => "late_outcome",
        /// The outcome names another attempt or fence than the open one.
        StaleAttempt => "stale_attempt",
        /// The outcome names other arguments than those approved.
        ArgsHashMismatch => "args_hash_mismatch",
        /// Another client holds the session's executor place.
        ExecutorTaken => "executor_taken",
        /// The session has no such approval.
        UnknownApproval => "unknown_approval",
        /// The call is over, so that its approval cannot be answered any more.
        ApprovalClosed => "approval_closed",
        /// The approval has another answer already.
        ApprovalUsed => "approval_used",
        /// The time to answer has passed.
        ApprovalExpired => "approval_expired",
        /// The approval was taken back.
        ApprovalRevoked => "approval_revoked",
        /// There is no approval that could be taken back: none was given, or the call was sent on it.
        ApprovalNotRevocable => "approval_not_revocable",
        /// Whoever asked for a call may not approve it.
        SelfApproval => "self_approval",
        /// A grant names arguments that the call does not have, has no valid length, or the tool redacts its arguments.
        GrantInvalid => "grant_invalid",
        /// The answer belongs to another question to the hook, or the call does not wait for one.
        StaleAdmission => "stale_admission",
        /// The answer belongs to a reservation that nothing waits for.
        StaleReservation => "stale_reservation",
        /// The session asks for less control than its profile.
        ControlNotStricter => "control_not_stricter",
        /// The approver saw other bytes than those waiting.
        ApprovalDigestMismatch => "approval_digest_mismatch",
        /// The approver looked under another bundle than the session's.
        ApprovalBundleMismatch => "approval_bundle_mismatch",
        /// The edited arguments are no JSON object.
        EditInvalid => "edit_invalid",
    }
}

/// A refused input: the code and what would have fitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The closed code.
    pub code: RefusalCode,
    /// A sentence that names the state that was met; public, no content.
    pub detail: String,
}

impl Refusal {
    /// Makes a refusal.
    #[must_use]
    pub fn new(code: RefusalCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into() }
    }
}
