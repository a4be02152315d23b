//! Why the server could not do what was asked, apart from HTTP. `error` maps each to a status and a problem document.

use toolgate_core::bundle::BundleFault;
use toolgate_core::id::SessionId;
use toolgate_core::reason::Refusal;
use toolgate_store::StoreError;

/// A failed request to the sessions.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The tenant has no such session (also when another tenant has it).
    #[error("no such session")]
    NoSuchSession,
    /// The tenant has put no bundle yet.
    #[error("the tenant has no bundle yet")]
    NoBundle,
    /// The input does not fit the state of the session now.
    #[error("{}", .0.detail)]
    Refused(Refusal),
    /// The caller's own id is taken by a session that was created with another body.
    #[error("the id is taken by a session with another body")]
    AliasTaken {
        /// The session that has it.
        session: SessionId,
    },
    /// The idempotency key was used with another body.
    #[error("the idempotency key was used with another body")]
    IdempotencyReused,
    /// The same input is in the log already.
    #[error("the same input is in the log already")]
    Repeated {
        /// Where its record stands.
        seq: u64,
    },
    /// A request with this idempotency key is under way.
    #[error("a request with this idempotency key is under way")]
    IdempotencyInProgress,
    /// The session's mailbox is full, or the server is stopping; try again.
    #[error("the session is busy; try again")]
    Busy,
    /// Another node owns the session and is alive; try again there or later.
    #[error("another node owns the session")]
    OwnedElsewhere,
    /// The log of the session does not check; nothing runs on it until a person has looked.
    #[error("the session's log does not check at sequence {seq}: {detail}")]
    LogBroken {
        /// The first sequence number that does not fit.
        seq: u64,
        /// What is wrong.
        detail: String,
    },
    /// The session's content was erased.
    #[error("the session's content was erased")]
    Erased,
    /// The session failed several times in a row and is set aside.
    #[error("the session is set aside after repeated internal failures")]
    Quarantined,
    /// A stored bundle does not load any more.
    #[error("the pinned bundle does not load")]
    BundleBroken(Vec<BundleFault>),
    /// The store failed.
    #[error("the store failed")]
    Store(#[source] StoreError),
    /// A defect of the server.
    #[error("internal error: {0}")]
    Internal(String),
}

impl Failure {
    /// The same failure for somebody else who waited for the same thing. Causes that cannot be copied become their words.
    #[must_use]
    pub fn once_more(&self) -> Self {
        match self {
            Self::NoSuchSession => Self::NoSuchSession,
            Self::NoBundle => Self::NoBundle,
            Self::Refused(refusal) => Self::Refused(refusal.clone()),
            Self::AliasTaken { session } => Self::AliasTaken { session: *session },
            Self::IdempotencyReused => Self::IdempotencyReused,
            Self::Repeated { seq } => Self::Repeated { seq: *seq },
            Self::IdempotencyInProgress => Self::IdempotencyInProgress,
            Self::Busy => Self::Busy,
            Self::OwnedElsewhere => Self::OwnedElsewhere,
            Self::LogBroken { seq, detail } => Self::LogBroken { seq: *seq, detail: detail.clone() },
            Self::Erased => Self::Erased,
            Self::Quarantined => Self::Quarantined,
            Self::BundleBroken(faults) => Self::BundleBroken(faults.clone()),
            Self::Store(StoreError::Unavailable(cause)) => {
                Self::Store(StoreError::Unavailable(cause.to_string().into()))
            }
            Self::Store(StoreError::StorageFull(cause)) => {
                Self::Store(StoreError::StorageFull(cause.to_string().into()))
            }
            Self::Store(other) => Self::Internal(other.to_string()),
            Self::Internal(detail) => Self::Internal(detail.clone()),
        }
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NoSuchSession => Self::NoSuchSession,
            other => Self::Store(other),
        }
    }
}
