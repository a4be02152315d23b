//! Server-venue execution: who runs an approved call, what it is given, what comes back. What is not here: when a call
//! may run (the core), keeping large outputs as blobs (the session's actor), how each executor works (`http`, `builtin`).

use std::fmt::Debug;
use std::sync::Arc;

use async_trait::async_trait;
use toolgate_core::Order;
use toolgate_core::id::{ActorId, SessionId, TenantId};
use toolgate_core::output::OutcomeStatus;
use toolgate_core::tool::{Executor, ToolDef};

pub mod address;
pub mod builtin;
pub mod http;
mod scrub;

pub use address::AddressPolicy;
pub use http::HttpRunner;

/// A call that was allowed and dispatched to the server.
#[derive(Debug, Clone)]
pub struct ToolOrder {
    /// Owner of the session.
    pub tenant: TenantId,
    /// Who started it; from the credential, as the tenant is.
    pub actor: ActorId,
    /// The session.
    pub session: SessionId,
    /// The call: exact arguments, attempt, fence, deadline.
    pub order: Order,
    /// The contract it was decided under.
    pub tool: Arc<ToolDef>,
}

/// What came back, before it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawOutcome {
    /// The closed status.
    pub status: OutcomeStatus,
    /// The bytes, if any came.
    pub output: Option<RawOutput>,
    /// What went wrong, in a sentence without secrets; at most 2,000 characters.
    pub detail: Option<String>,
}

/// Bytes of a tool, cut at its `max_output_bytes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawOutput {
    /// Media type as the executor stated it.
    pub media_type: String,
    /// The bytes, at most `max_output_bytes`.
    pub bytes: Vec<u8>,
    /// Size in bytes before the cut, as far as it is known: the tool may have had more to say. Absent when nothing was cut.
    pub truncated_from: Option<u64>,
}

/// Longest detail, in characters.
const MAX_DETAIL: usize = 2_000;

impl RawOutcome {
    /// A success.
    #[must_use]
    pub const fn ok(output: RawOutput) -> Self {
        Self { status: OutcomeStatus::Ok, output: Some(output), detail: None }
    }

    /// An outcome without output.
    #[must_use]
    pub fn bare(status: OutcomeStatus, detail: &str) -> Self {
        Self { status, output: None, detail: Some(detail.chars().take(MAX_DETAIL).collect()) }
    }
}

impl RawOutput {
    /// Keeps at most `cap` bytes.
    #[must_use]
    pub fn capped(media_type: &str, mut bytes: Vec<u8>, cap: u64) -> Self {
        let size = bytes.len() as u64;
        let over = size > cap;
        if over {
            bytes.truncate(usize::try_from(cap).unwrap_or(usize::MAX));
        }
        Self { media_type: media_type.to_owned(), bytes, truncated_from: over.then_some(size) }
    }
}

/// Runs calls at the server. One call of `run` is one attempt: an implementation never tries again by itself.
#[async_trait]
pub trait ToolRunner: Send + Sync + Debug {
    /// Runs the call to its outcome. Whatever goes wrong is an outcome too; `failed` only where the effect cannot have
    /// happened or the tool itself said so, otherwise `timed_out` or `indeterminate`.
    async fn run(&self, order: &ToolOrder) -> RawOutcome;
}

/// The executors of this server.
#[derive(Debug, Clone)]
pub struct Tools {
    http: HttpRunner,
}

impl Tools {
    /// Every executor that a bundle may name.
    #[must_use]
    pub const fn new(http: HttpRunner) -> Self {
        Self { http }
    }
}

#[async_trait]
impl ToolRunner for Tools {
    async fn run(&self, order: &ToolOrder) -> RawOutcome {
        match &order.tool.executor {
            Some(Executor::Http(executor)) => self.http.run(order, executor).await,
            Some(Executor::Builtin(name)) => builtin::run(name, &order.order.args, order.tool.max_output_bytes),
            None => RawOutcome::bare(OutcomeStatus::Failed, "the tool has no server executor"),
        }
    }
}
