//! What a provider's error means: status codes, error objects, and errors dressed as answers. What is not here: whether
//! the request is made again (`exchange`).

use serde_json::{Value, json};
use toolgate_core::proposal::{BallotVerdict, MalformedReason, ProviderFailure};

use crate::quote::{clip, failed, malformed};

/// The verdict on an answer with a status that is no success.
pub(crate) fn status_verdict(status: u16, body: &Value, text: &str) -> BallotVerdict {
    let said = error_text(body).unwrap_or_else(|| clip(text.trim(), 200));
    let code = error_code(body);
    if [400, 422].contains(&status) && mentions(body, &["tool_use_failed", "failed_generation"]) {
        return malformed(MalformedReason::ProviderRejected, &format!("the provider refused the model's call: {said}"));
    }
    if status == 400 && mentions(body, &["content_filter", "ResponsibleAIPolicyViolation", "content_policy_violation"])
    {
        return malformed(
            MalformedReason::ContentFiltered,
            &format!("the provider's content filter refused the request: {said}"),
        );
    }
    let reason = match status {
        401 | 403 => ProviderFailure::Unauthorized,
        408 => ProviderFailure::TimedOut,
        429 => ProviderFailure::RateLimited,
        400..=499 => ProviderFailure::RequestRefused,
        500..=599 => ProviderFailure::ServerError,
        _ => ProviderFailure::NotACompletion,
    };
    let code = code.map(|code| format!(" ({code})")).unwrap_or_default();
    failed(reason, &format!("HTTP {status}{code}: {said}"))
}

fn mentions(body: &Value, words: &[&str]) -> bool {
    let error = body.get("error").unwrap_or(body);
    let inner = error.get("innererror").and_then(|inner| inner.get("code"));
    let named = [error.get("code"), error.get("type"), inner].into_iter().flatten().filter_map(Value::as_str);
    named.into_iter().any(|name| words.contains(&name)) || words.iter().any(|word| error.get(*word).is_some())
}

fn error_text(body: &Value) -> Option<String> {
    let error = body.get("error").unwrap_or(body);
    let text = error
        .as_str()
        .or_else(|| ["message", "detail", "error_msg"].iter().find_map(|key| error.get(*key)?.as_str()))?;
    Some(clip(text, 300))
}

fn error_code(body: &Value) -> Option<String> {
    let error = body.get("error").unwrap_or(body);
    ["code", "type"].iter().find_map(|key| match error.get(*key)? {
        Value::String(code) => Some(clip(code, 40)),
        Value::Number(code) => Some(code.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    })
}

/// The verdict on an error object where an answer should be, whatever the status says.
pub(crate) fn error_in_body(body: &Value) -> Option<BallotVerdict> {
    let has_error = body.get("error").is_some_and(|error| !error.is_null() && error != &json!(false));
    let has_type = body.get("error_type").is_some_and(|kind| !kind.is_null());
    if !has_error && !has_type {
        return None;
    }
    let code = error_code(body).or_else(|| body.get("error_type").and_then(Value::as_str).map(str::to_owned));
    let status = match code.as_deref() {
        Some(code) if code.parse::<u16>().is_ok_and(|n| (400..=599).contains(&n)) => code.parse().unwrap_or(500),
        Some(code) if code.contains("rate_limit") || code.contains("quota") || code == "RESOURCE_EXHAUSTED" => 429,
        Some(code) if code.contains("api_key") || code.contains("auth") || code.contains("permission") => 401,
        Some(code)
            if code.contains("invalid_request") || code.contains("context_length") || code.contains("not_found") =>
        {
            400
        }
        Some("tool_use_failed" | "content_filter") => 400,
        _ => 500,
    };
    match status_verdict(status, body, "") {
        BallotVerdict::Failed { reason, .. } => {
            let code = code.map(|code| format!(" ({})", clip(&code, 40))).unwrap_or_default();
            let said = error_text(body).unwrap_or_default();
            Some(failed(reason, &format!("an error in place of an answer{code}: {said}")))
        }
        verdict => Some(verdict),
    }
}
