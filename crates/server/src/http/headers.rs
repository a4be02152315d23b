//! Reads the request headers that operations obey: `Idempotency-Key`, `Prefer`, `If-Match`, `Last-Event-ID`, `Accept`,
//! `traceparent`. What is not here: what follows from them.

use axum::http::{HeaderMap, HeaderName, header};
use toolgate_core::id::Sha256Digest;

use crate::error::{ApiError, ErrorCode};

/// Characters of an idempotency key, at most.
const MAX_KEY: usize = 255;

fn malformed(header: &str, detail: &str) -> ApiError {
    let shown = format!("`{header}`: {detail}");
    ApiError::new(ErrorCode::Malformed, shown).at(header, "header", detail)
}

/// The only value of a header; none when it is absent.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ApiError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(malformed(name.as_str(), "must stand at most once"));
    }
    value.to_str().map(|text| Some(text.trim())).map_err(|_| malformed(name.as_str(), "must be visible ASCII"))
}

/// `Idempotency-Key`: a structured-field string (`"…"`, RFC 9651) or the bare text; 1 to 255 visible ASCII characters.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    const NAME: HeaderName = HeaderName::from_static("idempotency-key");
    let Some(text) = single(headers, &NAME)? else { return Ok(None) };
    let key = match text.strip_prefix('"') {
        None => text.to_owned(),
        Some(quoted) => {
            unquote(quoted).ok_or_else(|| malformed("idempotency-key", "the quoted string does not end"))?
        }
    };
    if !(1..=MAX_KEY).contains(&key.len()) || key.bytes().any(|b| !(0x20..0x7f).contains(&b)) {
        return Err(malformed("idempotency-key", "must have 1 to 255 visible ASCII characters"));
    }
    Ok(Some(key))
}

/// The rest of a quoted string after its first quote.
fn unquote(quoted: &str) -> Option<String> {
    let mut text = String::new();
    let mut chars = quoted.chars();
    loop {
        match chars.next()? {
            '"' => return chars.as_str().is_empty().then_some(text),
            '\\' => text.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            c => text.push(c),
        }
    }
}

/// `Prefer: wait=N` in seconds, cut to `max`. Other preferences are ignored, as RFC 7240 says.
#[must_use]
pub fn prefer_wait(headers: &HeaderMap, max: u64) -> Option<u64> {
    let values = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut waits = values
        .flat_map(|value| value.split(','))
        .filter_map(|preference| preference.trim().split(';').next())
        .filter_map(|preference| preference.trim().split_once('='))
        .filter(|(name, _)| name.trim().eq_ignore_ascii_case("wait"))
        .filter_map(|(_, seconds)| seconds.trim().trim_matches('"').parse::<u64>().ok());
    waits.next().map(|seconds| seconds.min(max))
}

/// `Last-Event-ID`: the sequence number a stream was read up to.
pub fn last_event_id(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    const NAME: HeaderName = HeaderName::from_static("last-event-id");
    match single(headers, &NAME)? {
        None | Some("") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| malformed("last-event-id", "must be a sequence number")),
    }
}

/// What a conditional write expects to find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// No condition was given.
    Unsaid,
    /// `If-None-Match: *`: nothing.
    Nothing,
    /// `If-Match: *`: anything.
    Anything,
    /// `If-Match: "sha256:…"`: this version.
    Version(Sha256Digest),
}

/// The condition of a write.
pub fn expected(headers: &HeaderMap) -> Result<Expected, ApiError> {
    if let Some(text) = single(headers, &header::IF_NONE_MATCH)? {
        let clear = text == "*" && !headers.contains_key(header::IF_MATCH);
        return if clear { Ok(Expected::Nothing) } else { Err(malformed("if-none-match", "only `*` fits a write")) };
    }
    match single(headers, &header::IF_MATCH)? {
        None => Ok(Expected::Unsaid),
        Some("*") => Ok(Expected::Anything),
        Some(text) => etag(text)
            .map(Expected::Version)
            .ok_or_else(|| malformed("if-match", "must be `*` or one strong tag like `\"sha256:…\"`")),
    }
}

fn etag(text: &str) -> Option<Sha256Digest> {
    text.strip_prefix('"')?.strip_suffix('"')?.parse().ok()
}

/// Whether a reader has this version already (`If-None-Match`).
#[must_use]
pub fn has_version(headers: &HeaderMap, version: &Sha256Digest) -> bool {
    let values = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    values
        .flat_map(|value| value.split(','))
        .map(|tag| tag.trim())
        .any(|tag| tag == "*" || etag(tag.strip_prefix("W/").unwrap_or(tag)) == Some(*version))
}

/// The forms in which events are given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventForm {
    /// One page of JSON.
    Page,
    /// One line of JSON per event, going on.
    Lines,
    /// Server-sent events, going on.
    Sse,
}

/// Chooses by `Accept`: the acceptable form with the highest weight, among equals the one named first.
pub fn event_form(headers: &HeaderMap) -> Result<EventForm, ApiError> {
    let form = |range: &str| match range {
        "application/json" | "application/*" | "*/*" => Some(EventForm::Page),
        "application/x-ndjson" => Some(EventForm::Lines),
        "text/event-stream" | "text/*" => Some(EventForm::Sse),
        _ => None,
    };
    let given = "events are given as application/json, application/x-ndjson or text/event-stream";
    accepted(headers, form, EventForm::Page, given)
}

/// The forms in which an explanation is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExplanationForm {
    /// JSON for programs.
    Json,
    /// Lines for people.
    Text,
}

/// Chooses by `Accept` as for events.
pub fn explanation_form(headers: &HeaderMap) -> Result<ExplanationForm, ApiError> {
    let form = |range: &str| match range {
        "application/json" | "application/*" | "*/*" => Some(ExplanationForm::Json),
        "text/plain" | "text/*" => Some(ExplanationForm::Text),
        _ => None,
    };
    accepted(headers, form, ExplanationForm::Json, "an explanation is given as application/json or text/plain")
}

/// The best of the forms that `Accept` names; the usual one where it names nothing, refused where it names none of them.
fn accepted<T: Copy>(
    headers: &HeaderMap,
    form: impl Fn(&str) -> Option<T>,
    usual: T,
    given: &str,
) -> Result<T, ApiError> {
    let mut best: Option<(u32, T)> = None;
    let mut named = false;
    for value in headers.get_all(header::ACCEPT) {
        let text = value.to_str().map_err(|_| malformed("accept", "must be visible ASCII"))?;
        for range in text.split(',').map(str::trim).filter(|range| !range.is_empty()) {
            named = true;
            let mut parts = range.split(';').map(str::trim);
            let Some(form) = form(&parts.next().unwrap_or_default().to_ascii_lowercase()) else { continue };
            let weight = parts.find_map(|part| part.strip_prefix("q=")).map_or(1_000, milli);
            if weight > 0 && best.is_none_or(|(best, _)| weight > best) {
                best = Some((weight, form));
            }
        }
    }
    match best {
        Some((_, form)) => Ok(form),
        None if named => Err(ApiError::new(ErrorCode::NotAcceptable, given)),
        None => Ok(usual),
    }
}

/// A weight between 0 and 1 in thousandths; what cannot be read counts nothing.
fn milli(weight: &str) -> u32 {
    let (whole, fraction) = weight.split_once('.').unwrap_or((weight, ""));
    let digits: String = fraction.chars().chain("000".chars()).take(3).collect();
    match (whole, digits.parse::<u32>()) {
        ("1", _) => 1_000,
        ("0", Ok(fraction)) => fraction,
        _ => 0,
    }
}

/// `traceparent` (W3C), when it has the right form; anything else is as if it were absent.
#[must_use]
pub fn trace_parent(headers: &HeaderMap) -> Option<String> {
    let text = headers.get("traceparent")?.to_str().ok()?;
    let parts: Vec<&str> = text.split('-').collect();
    let hex = |part: &str, len: usize| {
        part.len() == len && part.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    match parts.as_slice() {
        [version, trace, parent, flags]
            if hex(version, 2) && hex(trace, 32) && hex(parent, 16) && hex(flags, 2) && *version != "ff" =>
        {
            Some(text.to_owned())
        }
        _ => None,
    }
}
