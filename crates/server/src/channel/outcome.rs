//! Turns a client's report into an outcome: what it says is checked for form and size, and stays its claim. What is not
//! here: whether the report fits the call (the core).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use toolgate_core::json::Json;
use toolgate_core::output::{Body, Outcome, OutcomeStatus, Output};

use crate::error::{ApiError, ErrorCode};
use crate::wire::frame::{OutcomeBody, ReportedStatus, ToolOutcome};

/// Longest detail, in characters.
const MAX_DETAIL: usize = 2_000;
/// Longest media type, in bytes.
const MAX_MEDIA_TYPE: usize = 128;

/// The outcome that a frame reports; `cap` is the tool's limit for the bytes, where it is known.
pub(super) fn outcome(frame: &ToolOutcome, cap: Option<u64>) -> Result<Outcome, ApiError> {
    if frame.detail.as_ref().is_some_and(|detail| detail.chars().count() > MAX_DETAIL) {
        return Err(ApiError::invalid("/detail", format!("longer than {MAX_DETAIL} characters")));
    }
    let output = match (&frame.result, &frame.output) {
        (None, None) => None,
        (Some(value), None) => Some(Output::text("application/json", Json::from_value(value).as_str().to_owned())),
        (None, Some(body)) => Some(output(body)?),
        (Some(_), Some(_)) => return Err(ApiError::invalid("/output", "give either `result` or `output`")),
    };
    if let (Some(cap), Some(size)) = (cap, output.as_ref().map(Output::size))
        && size > cap
    {
        let detail = format!("the output has {size} bytes, over the tool's limit of {cap}; cut it and report again");
        return Err(ApiError::new(ErrorCode::PayloadTooLarge, detail));
    }
    Ok(Outcome { status: status(frame.status), output, detail: frame.detail.clone() })
}

fn output(body: &OutcomeBody) -> Result<Output, ApiError> {
    let printable = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    if !(1..=MAX_MEDIA_TYPE).contains(&body.media_type.len()) || !body.media_type.bytes().all(printable) {
        return Err(ApiError::invalid("/output/media_type", "1 to 128 printable ASCII characters"));
    }
    let content = match (&body.text, &body.base64) {
        (Some(text), None) => Body::Text(text.clone()),
        (None, Some(text)) => {
            let bytes = STANDARD.decode(text);
            let bytes = bytes.map_err(|_| ApiError::invalid("/output/base64", "not standard base64 with padding"))?;
            // Bytes that are text are kept as text, however they came.
            String::from_utf8(bytes).map_or_else(|_| Body::Base64(text.clone()), Body::Text)
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(ApiError::invalid("/output", "give either `text` or `base64`"));
        }
    };
    Ok(Output { media_type: body.media_type.clone(), body: content, truncated_from: body.truncated_from })
}

const fn status(reported: ReportedStatus) -> OutcomeStatus {
    match reported {
        ReportedStatus::Ok => OutcomeStatus::Ok,
        ReportedStatus::Failed => OutcomeStatus::Failed,
        ReportedStatus::TimedOut => OutcomeStatus::TimedOut,
        ReportedStatus::DeniedByClient => OutcomeStatus::DeniedByClient,
        ReportedStatus::Indeterminate => OutcomeStatus::Indeterminate,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::panic, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::wire::frame::ClientFrame;

    fn report(fields: &str, cap: Option<u64>) -> Result<Outcome, ApiError> {
        let (zeros, digest) = ("0".repeat(32), "0".repeat(64));
        let text = format!(
            r#"{{"type":"ToolOutcome","session_id":"ses_{zeros}","call_id":"call_{zeros}","attempt":1,"fence":2,"args_hash":"sha256:{digest}",{fields}}}"#
        );
        match ClientFrame::parse(&text).unwrap() {
            ClientFrame::ToolOutcome(frame) => outcome(&frame, cap),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn results_become_canonical_json_and_other_media_stay_what_they_are() {
        let of = |fields| report(fields, None).unwrap().output.map(|output| (output.media_type, output.body));
        let json = |text: &str| Some(("application/json".to_owned(), Body::Text(text.to_owned())));
        assert_eq!(
            of(r#""status":"ok","result":{"b":1.0,"a":18446744073709551615}"#),
            json(r#"{"a":18446744073709551615,"b":1}"#)
        );
        assert_eq!(of(r#""status":"ok","result":null"#), json("null"));
        assert_eq!(of(r#""status":"ok""#), None);
        let plain = |body| Some(("text/plain".to_owned(), body));
        assert_eq!(
            of(r#""status":"ok","output":{"media_type":"text/plain","base64":"aGk="}"#),
            plain(Body::Text("hi".to_owned()))
        );
        assert_eq!(
            of(r#""status":"ok","output":{"media_type":"text/plain","base64":"/w=="}"#),
            plain(Body::Base64("/w==".to_owned()))
        );
    }

    #[test]
    fn bad_reports_are_refused_with_the_place() {
        for (fields, pointer) in [
            (r#""status":"ok","result":1,"output":{"media_type":"a/b","text":""}"#, "/output"),
            (r#""status":"ok","output":{"media_type":"a/b"}"#, "/output"),
            (r#""status":"ok","output":{"media_type":"a/b","text":"","base64":""}"#, "/output"),
            (r#""status":"ok","output":{"media_type":"","text":""}"#, "/output/media_type"),
            (r#""status":"ok","output":{"media_type":"a\nb","text":""}"#, "/output/media_type"),
            (r#""status":"ok","output":{"media_type":"a/b","base64":"%"}"#, "/output/base64"),
        ] {
            let error = report(fields, None).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidRequest, "{fields}");
            assert_eq!(error.problem().errors.first().unwrap().pointer, pointer, "{fields}");
        }
        let long = format!(r#""status":"failed","detail":"{}""#, "x".repeat(MAX_DETAIL + 1));
        assert_eq!(report(&long, None).unwrap_err().code(), ErrorCode::InvalidRequest);
        assert_eq!(
            report(r#""status":"ok","result":"12345""#, Some(6)).unwrap_err().code(),
            ErrorCode::PayloadTooLarge
        );
        assert!(report(r#""status":"ok","result":"12345""#, Some(7)).is_ok());
    }
}
