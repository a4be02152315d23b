//! What can go wrong in a store. What is not here: the normal answers of an append (`Appended`), which are no errors.

use std::error::Error;

/// A failure of a store call. Nothing was applied unless [`StoreError::outcome_unknown`] says otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The database cannot be reached or did not answer in time. Whether a write took place is unknown: send the very same bytes again.
    #[error("the database is unavailable")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// No space is left on the database's storage; writes work again once there is some.
    #[error("the database's storage is full")]
    StorageFull(#[source] Box<dyn Error + Send + Sync>),
    /// Stored bytes are not what this store writes.
    #[error("stored data is corrupt at {place}: {detail}")]
    Corrupt {
        /// Table and column, or row, in words.
        place: String,
        /// What is wrong with it.
        detail: String,
    },
    /// A database setting under which acknowledged rows may be lost.
    #[error("unsafe database setting `{setting}` = `{value}`: {remedy}")]
    UnsafeSetting {
        /// The setting's name in the database.
        setting: &'static str,
        /// Its present value.
        value: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The database server is older than this store supports.
    #[error("database server version {version} is too old: at least {minimum} is needed")]
    UnsupportedServer {
        /// The version the server reports.
        version: String,
        /// The lowest supported version.
        minimum: &'static str,
    },
    /// The database was written with another master key.
    #[error(
        "the master key (the variable `TOOLGATE_MASTER_KEY`, or `master.key` in the data directory) is not the one that the \
         database was written with: put the right key back"
    )]
    OtherMasterKey,
    /// The database holds data, and nothing that would tell whether the master key is the right one.
    #[error(
        "the database holds data but no proof of the master key it was written with, so the key (the variable \
         `TOOLGATE_MASTER_KEY`, or `master.key` in the data directory) cannot be checked: restore the whole database, or \
         start with an empty one"
    )]
    UnprovenMasterKey,
    /// The session does not exist for this tenant.
    #[error("no such session")]
    NoSuchSession,
    /// The database refused a row that breaks a rule of the log. Always a defect of the caller.
    #[error("refused by the log: {0}")]
    Guard(Guard),
    /// A value is over a limit of the store.
    #[error("{what} is too large: {size} over the limit of {limit}")]
    TooLarge {
        /// The value, in words.
        what: &'static str,
        /// Its size in bytes or items.
        size: usize,
        /// The limit in the same unit.
        limit: usize,
    },
    /// The request contradicts itself. Always a defect of the caller.
    #[error("invalid request to the store: {0}")]
    Invalid(&'static str),
    /// A field of the request is not what it must be. Always a defect of the caller.
    #[error("invalid request to the store: {place}: {rule}")]
    InvalidAt {
        /// The field, as a path from the request, or the row that would break the rule.
        place: String,
        /// What it must be.
        rule: &'static str,
    },
    /// The schema cannot be brought up to date.
    #[error("the database schema cannot be brought up to date")]
    Migration(#[source] Box<dyn Error + Send + Sync>),
    /// The database answered with an error that has no meaning of its own here.
    #[error("the database refused the statement")]
    Database(#[source] Box<dyn Error + Send + Sync>),
}

impl StoreError {
    /// Whether the same call may succeed later without a change by the caller.
    #[must_use]
    pub const fn is_retryable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::StorageFull(_))
    }

    /// Whether the write may have taken place all the same; resend the same bytes to learn it.
    #[must_use]
    pub const fn outcome_unknown(&self) -> bool {
        matches!(self, Self::Unavailable(_))
    }
}

/// The rules that the database itself keeps on every appended row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Guard {
    /// The call already has its decision.
    #[error("the call already has a decision")]
    SecondDecision,
    /// The call was already allowed.
    #[error("the call was already allowed")]
    SecondAllow,
    /// This attempt of the call was already dispatched.
    #[error("this attempt of the call was already dispatched")]
    SecondDispatch,
    /// The call already has its terminal record.
    #[error("the call already has a terminal record")]
    SecondTerminal,
    /// A dispatch without an allow in the same or an earlier row.
    #[error("a dispatch needs an allow in the same or an earlier row")]
    DispatchWithoutAllow,
    /// A dispatch of a call that has ended.
    #[error("the call has ended and cannot be dispatched")]
    DispatchAfterTerminal,
    /// A later allow of a call that no earlier decision left open.
    #[error("a later allow needs an earlier decision that left the call open")]
    AllowWithoutDecision,
    /// A terminal record without a decision in the same or an earlier row.
    #[error("a terminal record needs a decision in the same or an earlier row")]
    TerminalWithoutDecision,
    /// The session is closed; only late facts may follow.
    #[error("the session is closed")]
    SessionClosed,
    /// Rows of the log are never changed or removed.
    #[error("rows of the log are never changed or removed")]
    AppendOnly,
}
