//! What can go wrong, typed by the server's own codes.

use std::time::Duration;

use serde::Deserialize;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address or key cannot be used.
    #[error("the settings cannot be used: {0}")]
    Settings(String),
    /// The server said no.
    #[error("{0}")]
    Api(Box<ApiFailure>),
    /// No answer came. Whether the request had an effect is unknown; requests of [`crate::Client`] may be sent again.
    #[error("no answer from the server")]
    Transport(#[source] reqwest::Error),
    /// An answer came that this client cannot read.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
    /// The executor has ended.
    #[error("the executor has ended")]
    Ended,
}

impl ClientError {
    /// The server's code, if it answered with one.
    #[must_use]
    pub fn code(&self) -> Option<&str> {
        match self {
            Self::Api(failure) => Some(&failure.code),
            Self::Settings(_) | Self::Transport(_) | Self::Answer(_) | Self::Ended => None,
        }
    }
}

/// A problem document of the server.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, thiserror::Error)]
#[error("{code}: {detail}")]
pub struct ApiFailure {
    /// The stable code; decide by it.
    pub code: String,
    /// The HTTP status, or the one that REST would have answered.
    pub status: u16,
    /// One line for people.
    #[serde(default)]
    pub title: String,
    /// What happened this time.
    #[serde(default)]
    pub detail: String,
    /// The id to quote when asking for help.
    #[serde(default)]
    pub request_id: Option<String>,
    /// How long the server asks to wait before the same request is sent again.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
}
