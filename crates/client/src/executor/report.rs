//! The report of a call: outcome, cut to what the server takes. Pure. What is not here: when it is sent (`engine`).

use serde_json::Value;

use super::{Answer, CallFailure};
use crate::frame::{ApprovedToolCall, Outgoing, Text};

/// Longest detail that the server takes, in characters.
const MAX_DETAIL: usize = 2_000;
/// Longest frame that is sent; below the server's limit.
const MAX_FRAME: usize = 250 * 1024;

/// The frame that reports how a call came out.
pub(super) fn frame(offer: &ApprovedToolCall, result: &Result<Answer, CallFailure>) -> String {
    let text = match result {
        Ok(Answer::Json(value)) if fits(offer, json_bytes(value)) => outcome(offer, "ok", Some(value), None, None),
        Ok(Answer::Text { media_type, text }) if fits(offer, text.len()) => {
            outcome(offer, "ok", None, Some(Text { media_type, text }), None)
        }
        Ok(Answer::Json(_) | Answer::Text { .. }) => return too_large(offer),
        Err(CallFailure::Failed(why)) => outcome(offer, "failed", None, None, Some(why)),
        Err(CallFailure::Denied(why)) => outcome(offer, "denied_by_client", None, None, Some(why)),
        Err(CallFailure::TimedOut(why)) => outcome(offer, "timed_out", None, None, Some(why)),
        Err(CallFailure::Unknown(why)) => outcome(offer, "indeterminate", None, None, Some(why)),
    };
    if text.len() > MAX_FRAME { too_large(offer) } else { text }
}

/// The report of a call that ran, but gave back more than the server takes. It is no failure of the call's effect, and
/// says so.
pub(super) fn too_large(offer: &ApprovedToolCall) -> String {
    let detail = "the call was run, but its output is larger than the server takes";
    outcome(offer, "failed", None, None, Some(detail))
}

fn fits(offer: &ApprovedToolCall, bytes: usize) -> bool {
    offer.max_output_bytes.is_none_or(|most| bytes as u64 <= most)
}

fn json_bytes(value: &Value) -> usize {
    value.to_string().len()
}

fn outcome(
    offer: &ApprovedToolCall,
    status: &'static str,
    result: Option<&Value>,
    output: Option<Text<'_>>,
    detail: Option<&str>,
) -> String {
    let detail: Option<String> = detail.map(|detail| detail.chars().take(MAX_DETAIL).collect());
    Outgoing::ToolOutcome {
        session_id: &offer.session_id,
        call_id: &offer.call_id,
        attempt: offer.attempt,
        fence: offer.fence,
        args_hash: &offer.args_hash,
        status,
        result,
        output,
        detail: detail.as_deref(),
    }
    .text()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail loudly")]
mod tests {
    use serde_json::json;

    use super::*;

    fn reported(max: Option<u64>, result: Result<Answer, CallFailure>) -> Value {
        let offer = serde_json::from_value(json!({
            "session_id": "s", "call_id": "c", "attempt": 1, "fence": 1, "tool": "t", "args": {}, "args_hash": "h",
            "expires_in_ms": 1000, "max_output_bytes": max,
        }));
        serde_json::from_str(&frame(&offer.unwrap(), &result)).unwrap()
    }

    #[test]
    fn what_is_too_large_becomes_a_failure_that_says_so() {
        let small = reported(Some(7), Ok(Answer::Json(json!("12345"))));
        assert_eq!((&small["status"], &small["result"]), (&json!("ok"), &json!("12345")));
        for report in [
            reported(Some(6), Ok(Answer::Json(json!("12345")))),
            reported(None, Ok(Answer::Text { media_type: "text/plain".to_owned(), text: "x".repeat(MAX_FRAME) })),
        ] {
            assert_eq!(report["status"], "failed");
            assert!(report.get("result").is_none() && report.get("output").is_none());
        }
        let long = reported(None, Err(CallFailure::Denied("x".repeat(5_000))));
        assert_eq!(long["status"], "denied_by_client");
        assert_eq!(long["detail"].as_str().unwrap().len(), MAX_DETAIL);
    }
}
