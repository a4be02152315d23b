//! What callers are told when a request fails: one closed set of codes, a public sentence, a private cause. What is not
//! here: how a problem document is written (`error::problem`), and which code each failure of the sessions has
//! (`error::mapping`).

use std::fmt;

use toolgate_core::reason::RefusalCode;

mod mapping;
pub mod problem;

pub use problem::{FieldFault, Problem};

/// Declares the codes that the HTTP side adds to the refusals of the core, each with its status and title.
macro_rules! codes {
    ($($(#[$meta:meta])* $variant:ident => $code:literal, $status:literal, $title:literal;)*) => {
        /// Why a request failed. Closed: `docs/ERRORS.md` has one row for each, and a test compares the two.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum ErrorCode {
            $($(#[$meta])* $variant,)*
            /// The input does not fit the session now; the core's own code.
            Refused(RefusalCode),
        }

        impl ErrorCode {
            const OWN: &'static [Self] = &[$(Self::$variant,)*];

            /// The code as callers see it.
            #[must_use]
            pub const fn code(self) -> &'static str {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Refused(code) => code.code(),
                }
            }

            /// The HTTP status.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self {
                    $(Self::$variant => $status,)*
                    Self::Refused(code) => refusal_status(code),
                }
            }

            /// One line for people, the same for every occurrence.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self {
                    $(Self::$variant => $title,)*
                    Self::Refused(_) => "the request does not fit the state of the session",
                }
            }
        }
    };
}

codes! {
    /// The body is not JSON, or a header cannot be read.
    Malformed => "malformed", 400, "the request cannot be read";
    /// A query parameter is unknown or has no valid value.
    InvalidParameter => "invalid_parameter", 400, "a parameter is not valid";
    /// The cursor was not made by this server for this caller.
    CursorInvalid => "cursor_invalid", 400, "the cursor is not valid";
    /// The cursor was made with other filters.
    CursorMismatch => "cursor_mismatch", 400, "the cursor belongs to other filters";
    /// No credential, or none that is known.
    Unauthenticated => "unauthenticated", 401, "a valid API key is needed";
    /// The credential is past its end.
    CredentialExpired => "credential_expired", 401, "the API key has expired";
    /// The credential was revoked.
    CredentialRevoked => "credential_revoked", 401, "the API key was revoked";
    /// The credential lacks the scope.
    InsufficientScope => "insufficient_scope", 403, "the API key may not do this";
    /// A web page of an origin that is not listed asks for the channel.
    OriginRefused => "origin_refused", 403, "web pages of this origin may not connect";
    /// It does not exist for this tenant.
    NotFound => "not_found", 404, "not found";
    /// The path exists, but not with this method.
    MethodNotAllowed => "method_not_allowed", 405, "the method is not allowed here";
    /// None of the accepted media types can be given.
    NotAcceptable => "not_acceptable", 406, "none of the accepted media types is available";
    /// The caller's own id names a session that was created with another body.
    AliasConflict => "alias_conflict", 409, "the id is taken by a session with another body";
    /// A request with the same idempotency key is under way.
    IdempotencyInProgress => "idempotency_in_progress", 409, "a request with this idempotency key is under way";
    /// The tenant has no bundle.
    NoBundle => "no_bundle", 409, "the tenant has no bundle yet";
    /// The content of the session was erased.
    Erased => "erased", 410, "the content was erased";
    /// The bundle changed since it was read.
    PreconditionFailed => "precondition_failed", 412, "the resource has changed";
    /// The body or a part of it is over its limit.
    PayloadTooLarge => "payload_too_large", 413, "the body is too large";
    /// The body is no JSON by its media type.
    UnsupportedMediaType => "unsupported_media_type", 415, "the media type is not supported";
    /// The body is JSON, but not of the documented shape or meaning.
    InvalidRequest => "invalid_request", 422, "the body is not valid";
    /// The bundle has faults; all are listed.
    BundleInvalid => "bundle_invalid", 422, "the bundle is not valid";
    /// The idempotency key was used with another body.
    IdempotencyKeyReused => "idempotency_key_reused", 422, "the idempotency key was used with another body";
    /// A write needs `If-Match`.
    PreconditionRequired => "precondition_required", 428, "the write needs a precondition";
    /// Too many streams are open.
    TooManyStreams => "too_many_streams", 429, "too many streams are open";
    /// A defect of the server.
    Internal => "internal", 500, "internal error";
    /// The log of the session does not check; nothing runs on it.
    LogBroken => "log_broken", 500, "the session's log does not check";
    /// The bundle that the session pinned does not load any more.
    BundleBroken => "bundle_broken", 500, "the session's bundle does not load";
    /// The session failed several times in a row and is set aside.
    Quarantined => "quarantined", 500, "the session is set aside";
    /// The session's mailbox is full, or the server is stopping.
    Busy => "busy", 503, "busy; try again";
    /// Another node owns the session.
    OwnedElsewhere => "owned_elsewhere", 503, "another node owns the session";
    /// The request took too long; whether it had an effect is unknown.
    RequestTimedOut => "request_timed_out", 503, "the request took too long";
    /// The database is unavailable.
    StoreUnavailable => "store_unavailable", 503, "the database is unavailable";
    /// The database has no space left.
    StorageFull => "storage_full", 503, "the database's storage is full";
    /// The server is starting or stopping.
    NotReady => "not_ready", 503, "the server is not ready";
}

const fn refusal_status(code: RefusalCode) -> u16 {
    match code {
        RefusalCode::AlreadyOpen
        | RefusalCode::NotOpen
        | RefusalCode::SessionClosed
        | RefusalCode::RunActive
        | RefusalCode::NoActiveRun
        | RefusalCode::StaleAnswer
        | RefusalCode::CallNotDispatched
        | RefusalCode::OutcomeConflict
        | RefusalCode::LateOutcome
        | RefusalCode::StaleAttempt
        | RefusalCode::ArgsHashMismatch
        | RefusalCode::ExecutorTaken
        | RefusalCode::ApprovalClosed
        | RefusalCode::ApprovalUsed
        | RefusalCode::ApprovalRevoked
        | RefusalCode::ApprovalNotRevocable
        | RefusalCode::ApprovalDigestMismatch
        | RefusalCode::ApprovalBundleMismatch
        | RefusalCode::StaleAdmission
        | RefusalCode::StaleReservation => 409,
        RefusalCode::UnknownCall | RefusalCode::UnknownApproval => 404,
        RefusalCode::ApprovalExpired => 410,
        RefusalCode::ProfileNotPermitted | RefusalCode::SelfApproval => 403,
        RefusalCode::UnknownProfile
        | RefusalCode::UnknownLabel
        | RefusalCode::ProfileRequired
        | RefusalCode::LimitNotNarrower
        | RefusalCode::OutputSchemaInvalid
        | RefusalCode::ControlNotStricter
        | RefusalCode::GrantInvalid
        | RefusalCode::EditInvalid => 422,
    }
}

impl ErrorCode {
    /// Every code: those of HTTP, then the refusals of the core.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::OWN.iter().copied().chain(RefusalCode::ALL.iter().copied().map(Self::Refused))
    }

    /// Seconds after which the same request may succeed, for those codes where time alone helps.
    #[must_use]
    pub const fn retry_after_s(self) -> Option<u32> {
        match self {
            Self::IdempotencyInProgress | Self::Busy | Self::OwnedElsewhere | Self::RequestTimedOut => Some(1),
            Self::StoreUnavailable | Self::NotReady => Some(2),
            Self::TooManyStreams => Some(5),
            Self::StorageFull => Some(30),
            _ => None,
        }
    }
}

/// A failed request: what the caller is told, and a cause that never leaves the process.
#[derive(Debug)]
pub struct ApiError {
    code: ErrorCode,
    detail: String,
    errors: Vec<FieldFault>,
    cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl ApiError {
    /// A failure with a public sentence about this occurrence: lower case, no content, no full stop.
    #[must_use]
    pub fn new(code: ErrorCode, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), errors: Vec::new(), cause: None }
    }

    /// The one answer for what does not exist and for what another tenant has.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(ErrorCode::NotFound, "no such resource")
    }

    /// A body whose field at `pointer` has the right form but no valid meaning.
    #[must_use]
    pub fn invalid(pointer: &str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        let shown = if pointer.is_empty() { detail.clone() } else { format!("`{pointer}`: {detail}") };
        Self::new(ErrorCode::InvalidRequest, shown).at(pointer, "value", detail)
    }

    /// Names a place that is wrong.
    #[must_use]
    pub fn at(mut self, pointer: impl Into<String>, code: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(FieldFault { pointer: pointer.into(), code: code.into(), detail: detail.into() });
        self
    }

    /// Adds the private cause.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// The code.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        self.code
    }

    /// The problem document, without what only the request knows.
    #[must_use]
    pub fn problem(&self) -> Problem {
        Problem::new(self.code, self.detail.clone(), self.errors.clone())
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.code(), self.detail)
    }
}

impl std::error::Error for ApiError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(|cause| cause.as_ref() as _)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_have_error_statuses() {
        let codes: Vec<&str> = ErrorCode::all().map(ErrorCode::code).collect();
        let unique: BTreeSet<&str> = codes.iter().copied().collect();
        assert_eq!(codes.len(), unique.len());
        for code in ErrorCode::all() {
            assert!((400..600).contains(&code.status()), "{code:?}");
            assert_eq!(
                code.status() == 503 || code.status() == 429,
                code.retry_after_s().is_some_and(|_| code.status() != 409)
            );
        }
    }

    #[test]
    fn the_table_has_one_row_per_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/ERRORS.md");
        let text = std::fs::read_to_string(path).unwrap();
        let rows: Vec<(String, String)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("| `"))
            .map(|line| {
                let (code, rest) = line.split_once('`').unwrap();
                let status = rest.split('|').nth(1).unwrap().trim().to_owned();
                assert_eq!(
                    rest.split('|').filter(|cell| !cell.trim().is_empty()).count(),
                    4,
                    "`{code}` has an empty cell"
                );
                (code.to_owned(), status)
            })
            .collect();
        let expected: Vec<(String, String)> =
            ErrorCode::all().map(|code| (code.code().to_owned(), code.status().to_string())).collect();
        let documented: BTreeSet<_> = rows.iter().cloned().collect();
        assert_eq!(documented, expected.into_iter().collect(), "docs/ERRORS.md and `ErrorCode` differ");
        assert_eq!(rows.len(), documented.len(), "a code stands twice in docs/ERRORS.md");
    }
}
