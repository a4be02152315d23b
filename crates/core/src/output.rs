//! What a tool gave back: bytes with a media type, and the outcome around them. What is not here: capping and storing
//! the bytes (the server does that before the outcome becomes an input).

use serde::{Deserialize, Serialize};

use crate::id::Sha256Digest;

/// Bytes at most this long are kept inline, in bytes; longer ones are a blob (ruling 17).
pub const INLINE_OUTPUT_BYTES: usize = 64 * 1024;

/// What a tool returned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Media type as the executor stated it, for example `application/json`.
    pub media_type: String,
    /// The bytes.
    pub body: Body,
    /// Size in bytes before the cap cut it; absent when nothing was cut.
    pub truncated_from: Option<u64>,
}

/// The bytes of an output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Body {
    /// Valid UTF-8, inline.
    Text(String),
    /// Other bytes, inline, as standard base64.
    Base64(String),
    /// Stored apart, by the digest of the stored (sealed) bytes.
    Blob {
        /// Digest of the stored bytes.
        digest: Sha256Digest,
        /// Size in bytes of the output itself.
        size: u64,
        /// The beginning as text for the model, at most 16 KiB.
        preview: String,
    },
}

impl Output {
    /// A short piece of text, as the built-in tools return it.
    #[must_use]
    pub fn text(media_type: &str, text: String) -> Self {
        Self { media_type: media_type.to_owned(), body: Body::Text(text), truncated_from: None }
    }

    /// What a model is shown of it.
    #[must_use]
    pub fn shown(&self) -> String {
        let (text, note) = match &self.body {
            Body::Text(text) => (text.clone(), None),
            Body::Base64(text) => (text.clone(), Some("base64".to_owned())),
            Body::Blob { preview, size, .. } => (preview.clone(), Some(format!("beginning of {size} bytes"))),
        };
        let cut = self.truncated_from.map(|size| format!("cut; the tool sent {size} bytes"));
        match (note, cut) {
            (None, None) => text,
            (note, cut) => {
                let notes: Vec<String> = note.into_iter().chain(cut).collect();
                format!("{text}\n[{}]", notes.join("; "))
            }
        }
    }

    /// Size of the kept bytes, for the header of the log.
    #[must_use]
    pub fn size(&self) -> u64 {
        match &self.body {
            Body::Text(text) => text.len() as u64,
            Body::Base64(text) => {
                let padding = text.bytes().rev().take_while(|byte| *byte == b'=').count();
                (text.len() / 4 * 3).saturating_sub(padding) as u64
            }
            Body::Blob { size, .. } => *size,
        }
    }
}

/// How an execution came out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The closed status.
    pub status: OutcomeStatus,
    /// What came back, if anything did.
    pub output: Option<Output>,
    /// What went wrong, in a sentence; at most 2,000 characters.
    pub detail: Option<String>,
}

impl Outcome {
    /// An outcome without output.
    #[must_use]
    pub fn bare(status: OutcomeStatus, detail: &str) -> Self {
        Self { status, output: None, detail: Some(detail.to_owned()) }
    }
}

/// The statuses an execution can end in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeStatus {
    /// The tool reported success.
    Ok,
    /// The tool reported failure.
    Failed,
    /// No report within the time allowed; the effect may have happened.
    TimedOut,
    /// The person or program at the client refused to run it.
    DeniedByClient,
    /// Unknown: the effect may have happened.
    Indeterminate,
}

impl OutcomeStatus {
    /// The code used in log, API and transcript.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Failed => "failed",
            Self::TimedOut => "timed_out",
            Self::DeniedByClient => "denied_by_client",
            Self::Indeterminate => "indeterminate",
        }
    }
}

/// Why a call was not executed at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotExecuted {
    /// Policy said no.
    Rejected,
    /// An approver said no, or replaced it by an edited call.
    Denied,
    /// Nobody decided in time.
    Expired,
    /// The run was cancelled before it was dispatched.
    Cancelled,
    /// The run ended before it was dispatched.
    RunEnded,
    /// The profile or the session decides without executing.
    DryRun,
}

impl NotExecuted {
    /// The code used in log, API and transcript.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Cancelled => "cancelled",
            Self::RunEnded => "run_ended",
            Self::DryRun => "dry_run",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_is_that_of_the_bytes() {
        let size = |body| Output { media_type: "a/b".to_owned(), body, truncated_from: None }.size();
        for (text, bytes) in [("", 0), ("AA==", 1), ("AAA=", 2), ("AAAA", 3), ("AAAAAA==", 4)] {
            assert_eq!(size(Body::Base64(text.to_owned())), bytes, "{text}");
        }
        assert_eq!(size(Body::Text("\u{20ac}".to_owned())), 3);
    }
}
