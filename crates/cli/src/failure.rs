//! Why a command failed, with the whole chain of causes in its text. What is not here: the causes themselves.

use std::error::Error;

/// A failed command.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct CommandError(String);

impl CommandError {
    /// A failure in words.
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// A failure with everything that led to it.
    pub(crate) fn of(error: &dyn Error) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            // Some errors repeat their cause in their own words.
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        Self(text)
    }
}

/// Errors of libraries become command errors by their chain of causes.
macro_rules! from_errors {
    ($($error:ty),+ $(,)?) => {
        $(impl From<$error> for CommandError {
            fn from(error: $error) -> Self {
                Self::of(&error)
            }
        })+
    };
}

from_errors!(
    std::io::Error,
    toolgate_server::config::SettingsError,
    toolgate_server::local::LocalError,
    toolgate_server::node::StartError,
    toolgate_server::auth::MintError,
    toolgate_core::id::InvalidName,
    toolgate_server::failure::Failure,
    toolgate_store::StoreError,
    toolgate_client::ClientError,
);
