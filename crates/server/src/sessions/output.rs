//! Turns what an executor returned into an outcome: text or base64 inline, larger bytes as a sealed blob (ruling 17).
//! What is not here: the cap on the bytes, which executors keep while reading.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use toolgate_core::output::{Body, INLINE_OUTPUT_BYTES, Outcome, OutcomeStatus, Output};
use toolgate_store::{Blob, Codec};

use crate::tools::{RawOutcome, RawOutput};

/// Characters of a blob that the model is shown.
const PREVIEW_CHARS: usize = 16 * 1024;
/// Characters of a detail that are kept.
const DETAIL_CHARS: usize = 2_000;

/// The outcome and the blobs that belong to it.
pub(super) fn outcome(codec: &Codec, raw: RawOutcome) -> (Outcome, Vec<Blob>) {
    let detail = raw.detail.map(|detail| detail.chars().take(DETAIL_CHARS).collect());
    let Some(raw_output) = raw.output else {
        return (Outcome { status: raw.status, output: None, detail }, Vec::new());
    };
    let bytes = raw_output.bytes;
    let (body, blobs) = if bytes.len() <= INLINE_OUTPUT_BYTES {
        (inline(bytes), Vec::new())
    } else {
        match codec.seal_blob(&bytes) {
            Ok((digest, content)) => {
                let preview = String::from_utf8_lossy(&bytes).chars().take(PREVIEW_CHARS).collect();
                let body = Body::Blob { digest, size: bytes.len() as u64, preview };
                (body, vec![Blob { digest, content }])
            }
            Err(error) => {
                let detail = Some(format!("the output could not be kept: {error}"));
                return (Outcome { status: OutcomeStatus::Failed, output: None, detail }, Vec::new());
            }
        }
    };
    let output = Output { media_type: raw_output.media_type, body, truncated_from: raw_output.truncated_from };
    (Outcome { status: raw.status, output: Some(output), detail }, blobs)
}

/// Moves an output that a client reported inline, but that is too large for a row, into a blob.
pub(super) fn spill(codec: &Codec, reported: Outcome) -> (Outcome, Vec<Blob>) {
    let Some(Output { media_type, body, truncated_from }) = reported.output else { return (reported, Vec::new()) };
    let bytes = match body {
        Body::Text(text) if text.len() > INLINE_OUTPUT_BYTES => text.into_bytes(),
        Body::Base64(text) if text.len() / 4 * 3 > INLINE_OUTPUT_BYTES => STANDARD.decode(&text).unwrap_or_default(),
        body @ (Body::Text(_) | Body::Base64(_) | Body::Blob { .. }) => {
            let output = Some(Output { media_type, body, truncated_from });
            return (Outcome { output, ..reported }, Vec::new());
        }
    };
    let output = Some(RawOutput { media_type, bytes, truncated_from });
    outcome(codec, RawOutcome { status: reported.status, output, detail: reported.detail })
}

fn inline(bytes: Vec<u8>) -> Body {
    match String::from_utf8(bytes) {
        Ok(text) => Body::Text(text),
        Err(error) => Body::Base64(STANDARD.encode(error.as_bytes())),
    }
}
