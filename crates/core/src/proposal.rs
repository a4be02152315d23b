//! What models answer: ballots and the proposals in them. What is not here: how a provider's text becomes a ballot
//! (`toolgate-proposers`), and what is decided about it (`decide`).

use serde::{Deserialize, Serialize};

use crate::json::Json;
use crate::window::Cut;

/// One model's answer in a round.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ballot {
    /// What the answer amounts to.
    pub verdict: BallotVerdict,
    /// The assistant text as the model wrote it, think blocks included. Empty when the provider gave none.
    pub text: String,
    /// Every deviation that the decoder put right, by name, for example `args_object`.
    pub normalised: Vec<String>,
    /// Provider fields that must go back unchanged to the same provider (reasoning, signatures), as JSON text.
    pub opaque: Option<Json>,
    /// What the provider said it spent.
    pub usage: Usage,
    /// The model id the provider reported.
    pub model: Option<String>,
    /// The provider's fingerprint of the system that answered.
    pub fingerprint: Option<String>,
    /// What of the conversation the model that answered was not shown, since it did not fit. The log keeps it beside the
    /// answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cut: Option<Cut>,
}

/// What a ballot amounts to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BallotVerdict {
    /// Readable: the model asks for calls, or says it is done.
    Proposal(Proposal),
    /// The answer came but cannot be read; costs a step and is fed back.
    Malformed {
        /// The closed reason.
        reason: MalformedReason,
        /// A sentence the model can act on; quotes the offending text, at most 400 characters.
        detail: String,
    },
    /// No complete answer came.
    Failed {
        /// The closed reason.
        reason: ProviderFailure,
        /// What happened, without secrets; at most 400 characters.
        detail: String,
    },
}

/// What a readable answer asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proposal {
    /// One or more tool invocations, in the model's order.
    Calls(Vec<ProposedCall>),
    /// The model considers the run finished.
    Done {
        /// The final output: any JSON; plain text is a JSON string.
        output: Json,
    },
}

/// One tool invocation as the model asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposedCall {
    /// The tool's name as the model wrote it, after the wire-name mapping; it may name no tool at all.
    pub tool: String,
    /// The id the provider gave; kept for the transcript, never used as identity.
    pub provider_id: Option<String>,
    /// The arguments, canonical, or why they cannot be read.
    pub args: ProposedArgs,
    /// The exact text of the arguments as sent.
    pub raw_args: String,
}

/// Arguments of a proposed call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposedArgs {
    /// A JSON object in canonical form.
    Readable(Json),
    /// Not a JSON object that may be run; never replaced by `{}`.
    Malformed {
        /// The closed reason.
        reason: MalformedReason,
        /// A sentence the model can act on; at most 400 characters.
        detail: String,
    },
}

/// Why an answer, or the arguments of one call in it, cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MalformedReason {
    /// Neither text nor calls.
    Empty,
    /// Text where an envelope was required.
    NoEnvelope,
    /// More than one envelope, or an envelope that contradicts the prose around it.
    AmbiguousEnvelope,
    /// JSON that is no valid envelope (unknown `type`, empty `calls`, wrong kinds).
    InvalidEnvelope,
    /// Not JSON.
    Syntax,
    /// The same key twice in one object.
    DuplicateKey,
    /// Nested deeper than 64.
    TooDeep,
    /// A number that fits neither 64 bits nor a finite double.
    NumberOutOfRange,
    /// A surrogate without its pair.
    LoneSurrogate,
    /// Larger than the limit.
    TooLarge,
    /// Arguments that are JSON, but no object.
    NotAnObject,
    /// Arguments absent or empty for a tool that has parameters.
    MissingArguments,
    /// Cut off by the output limit; never repaired.
    Truncated,
    /// The same call id twice with different content.
    DuplicateCallId,
    /// `finish_reason` announces calls, but there is none.
    CallsAnnouncedButAbsent,
    /// A call written as plain text by a model that has native calls.
    CallAsText,
    /// The provider reported that the model's output was invalid.
    ProviderRejected,
    /// Stopped by the provider's content filter.
    ContentFiltered,
}

/// Why no complete answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderFailure {
    /// Connection refused, reset, or lost before the answer was complete.
    Transport,
    /// No answer within the time allowed.
    TimedOut,
    /// The provider asked to slow down, and the retries were used up.
    RateLimited,
    /// 5xx.
    ServerError,
    /// 401 or 403.
    Unauthorized,
    /// Another 4xx: the request itself was refused.
    RequestRefused,
    /// A body that is no chat completion (HTML, wrong content type, invalid JSON).
    NotACompletion,
    /// A body over the size limit.
    TooLarge,
    /// The scripted model has no answer left.
    ScriptExhausted,
    /// The model's configuration does not work (missing secret, invalid URL).
    Misconfigured,
}

/// What a provider says it spent on one answer; absent figures are unknown, not zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    pub input_tokens: Option<u64>,
    /// Tokens of the answer.
    pub output_tokens: Option<u64>,
}
