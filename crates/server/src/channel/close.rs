//! Why a connection ends, and how everything in it learns of that. What is not here: writing the close frame (`outbox`).

use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Why a connection ends; the first reason counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed it, or it broke.
    Gone,
    /// Nothing was heard for two heartbeats.
    Silent,
    /// The server restarts.
    Restart,
    /// A frame could not be read, or the first one was no usable `Hello`.
    BadFrame,
    /// The credential is missing, unknown, expired or revoked.
    Credentials,
    /// The credential has none of the channel's scopes.
    Scope,
    /// No `Hello` came in time.
    NoHello,
    /// A newer connection has the same client id.
    Replaced,
    /// A frame was too long.
    TooBig,
    /// The client takes nothing.
    TooSlow,
    /// The client sends too much.
    TooFast,
    /// The tenant has too many connections.
    TooMany,
}

impl CloseReason {
    /// The code of the close frame.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Gone => 1000,
            Self::Silent => 1001,
            Self::Restart => 1012,
            Self::BadFrame => 4400,
            Self::Credentials => 4401,
            Self::Scope => 4403,
            Self::NoHello => 4408,
            Self::Replaced => 4409,
            Self::TooBig => 4413,
            Self::TooSlow | Self::TooFast | Self::TooMany => 4429,
        }
    }

    /// The words of the close frame; at most 123 bytes.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Gone => "",
            Self::Silent => "nothing heard for two heartbeats",
            Self::Restart => "restarting; connect again",
            Self::BadFrame => "a frame could not be read",
            Self::Credentials => "the credential is missing, unknown, expired or revoked",
            Self::Scope => "the credential has none of the channel's scopes",
            Self::NoHello => "no Hello in time",
            Self::Replaced => "a newer connection has the same client_id",
            Self::TooBig => "a frame was too long",
            Self::TooSlow => "nothing was read for too long; resume by last_seq",
            Self::TooFast => "too many frames",
            Self::TooMany => "too many connections",
        }
    }
}

/// The end of a connection: set once, seen by all of its parts.
#[derive(Debug, Clone, Default)]
pub(super) struct Exit {
    token: CancellationToken,
    reason: Arc<OnceLock<CloseReason>>,
}

impl Exit {
    /// Ends the connection, unless it is ending already.
    pub(super) fn close(&self, reason: CloseReason) {
        // An earlier reason stands.
        let _ = self.reason.set(reason);
        self.token.cancel();
    }

    /// Resolves once the connection is ending.
    pub(super) async fn closing(&self) {
        self.token.cancelled().await;
    }

    /// The reason, once there is one.
    pub(super) fn reason(&self) -> Option<CloseReason> {
        self.reason.get().copied()
    }
}
