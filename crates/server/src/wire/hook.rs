//! What admission hooks are asked and may answer, and what observers are told. What is not here: sending it (`hooks`).

use serde::{Deserialize, Serialize};
use toolgate_core::input::AdmissionVerdict;
use toolgate_core::json::{Json, read_typed};

use super::RawJson;
use super::event::{class_word, venue_word};
use crate::hooks::HookQuestion;

/// Characters of a hook's reason that are kept.
const MAX_REASON: usize = 2_000;

/// A question to an admission hook.
#[derive(Debug, Serialize)]
pub struct AdmissionReview<'a> {
    /// Version of this form; 1.
    version: u32,
    /// The hook's name.
    hook: &'a str,
    /// Owner of the session; from the credential.
    tenant: &'a str,
    /// Who started the session; from the credential.
    actor: &'a str,
    session_id: String,
    run: u32,
    profile: &'a str,
    /// Digest of the pinned bundle.
    bundle: String,
    /// Also the idempotency key of the question.
    call_id: &'a str,
    /// Grows when the question is asked again after a take-over.
    attempt: u32,
    tool: ToolReview<'a>,
    /// `allow`, or `escalate` when a human is asked once every hook has let the call pass.
    decision: &'static str,
    /// The canonical arguments: the bytes that would run.
    arguments: RawJson,
}

/// The tool of a question.
#[derive(Debug, Serialize)]
struct ToolReview<'a> {
    id: &'a str,
    version: String,
    venue: &'static str,
    class: &'static str,
    risk: &'static str,
    tags: Vec<&'a str>,
}

impl<'a> From<&'a HookQuestion> for AdmissionReview<'a> {
    fn from(question: &'a HookQuestion) -> Self {
        Self {
            version: 1,
            hook: question.hook.name.as_str(),
            tenant: question.tenant.as_str(),
            actor: question.actor.as_str(),
            session_id: question.session.to_string(),
            run: question.run,
            profile: question.profile.as_str(),
            bundle: question.bundle.to_string(),
            call_id: question.call.as_str(),
            attempt: question.attempt,
            tool: ToolReview {
                id: question.tool.as_str(),
                version: question.version.to_string(),
                venue: venue_word(question.contract.venue),
                class: class_word(question.contract.class),
                risk: question.contract.risk.code(),
                tags: question.contract.tags.iter().map(toolgate_core::id::Tag::as_str).collect(),
            },
            decision: if question.escalated { "escalate" } else { "allow" },
            arguments: (&question.args).into(),
        }
    }
}

/// A hook's answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AdmissionAnswer {
    decision: AdmissionWord,
    #[serde(default)]
    reason: Option<String>,
    #[serde(default)]
    arguments: Option<serde_json::Value>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AdmissionWord {
    Allow,
    Deny,
    Rewrite,
}

/// Reads a hook's answer strictly; whatever is not exactly an answer is a failure that says so.
#[must_use]
pub fn verdict(body: &[u8]) -> AdmissionVerdict {
    let failed = |detail: &str| AdmissionVerdict::Failed { detail: detail.to_owned() };
    let Ok(text) = std::str::from_utf8(body) else { return failed("the answer is no UTF-8") };
    // Duplicate keys and numbers that would change their value are refused here, as for every other input.
    let json = match Json::parse(text) {
        Ok(json) => json,
        Err(fault) => return failed(&short(&format!("the answer is no JSON: {fault}"))),
    };
    let answer: AdmissionAnswer = match read_typed(&json.value()) {
        Ok(answer) => answer,
        Err(misfit) => return failed(&short(&format!("the answer has another form: {misfit}"))),
    };
    let reason = answer.reason.map(|reason| reason.chars().take(MAX_REASON).collect());
    match (answer.decision, answer.arguments) {
        (AdmissionWord::Allow, None) => AdmissionVerdict::Allow { reason },
        (AdmissionWord::Deny, None) => AdmissionVerdict::Deny { reason },
        (AdmissionWord::Rewrite, Some(args)) if args.is_object() => {
            AdmissionVerdict::Rewrite { reason, args: Json::from_value(&args) }
        }
        (AdmissionWord::Rewrite, _) => failed("`rewrite` needs `arguments`, a JSON object"),
        (AdmissionWord::Allow | AdmissionWord::Deny, Some(_)) => failed("`arguments` go with `rewrite` only"),
    }
}

fn short(text: &str) -> String {
    text.chars().take(400).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_exact_answer_is_an_answer() {
        let allow = AdmissionVerdict::Allow { reason: Some("fine".to_owned()) };
        assert_eq!(verdict(br#"{"decision":"allow","reason":"fine"}"#), allow);
        assert_eq!(verdict(br#"{"decision":"deny"}"#), AdmissionVerdict::Deny { reason: None });
        let rewritten = verdict(br#"{"decision":"rewrite","arguments":{"a":1.0}}"#);
        let args = Json::from_value(&serde_json::json!({"a": 1}));
        assert_eq!(rewritten, AdmissionVerdict::Rewrite { reason: None, args });
        for odd in [
            &b"\xff"[..],
            b"",
            b"[]",
            b"true",
            b"{}",
            br#"["allow"]"#,
            br#"["allow",null,null]"#,
            br#"{"decision":{"allow":null}}"#,
            br#"{"decision":["allow"]}"#,
            br#"{"decision":"ALLOW"}"#,
            br#"{"decision":"allow","decision":"deny"}"#,
            br#"{"decision":"allow","allow":true}"#,
            br#"{"decision":"allow","arguments":{}}"#,
            br#"{"decision":"rewrite"}"#,
            br#"{"decision":"rewrite","arguments":[1]}"#,
            br#"{"decision":"allow"} {"decision":"deny"}"#,
        ] {
            assert!(matches!(verdict(odd), AdmissionVerdict::Failed { .. }), "{}", String::from_utf8_lossy(odd));
        }
    }
}
