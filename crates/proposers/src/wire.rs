//! The formats that providers speak, behind one door: an ask becomes a body, a reply becomes an answer. Pure. What is not
//! here: the formats themselves (`openai`, `responses`, `anthropic`, `envelope`), sending (`exchange`).

use serde_json::Value;
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::{CallForm, ModelDef, Provider, Reasoning};
use toolgate_core::id::Sha256Digest;
use toolgate_core::json::{Json, JsonFaultKind, read_strict};
use toolgate_core::proposal::{Ballot, BallotVerdict, ProviderFailure};

use crate::answer::{Answer, Reply, Unread};
use crate::envelope::{JsonEnvelope, ToolProtocol};
use crate::failure::status_verdict;
use crate::quote::{bare, clip, failed, malformed, reason_of};
use crate::stream::Stream;
use crate::{anthropic, envelope, judge, openai, responses};

/// In which form calls were asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    Native,
    Envelope,
}

impl Asked {
    /// The form that a model is asked in first.
    pub(crate) const fn first(form: CallForm) -> Self {
        match form {
            CallForm::Native | CallForm::Auto => Self::Native,
            CallForm::Envelope => Self::Envelope,
        }
    }
}

/// A provider's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wire {
    Chat,
    Responses,
    Messages,
}

impl Wire {
    /// The format of a model; scripted models have none and are read as chat.
    pub(crate) const fn of(provider: Provider) -> Self {
        match provider {
            Provider::Openai | Provider::Scripted => Self::Chat,
            Provider::OpenaiResponses => Self::Responses,
            Provider::Anthropic => Self::Messages,
        }
    }

    /// The end of the address.
    pub(crate) const fn path(self) -> &'static [&'static str] {
        match self {
            Self::Chat => &["chat", "completions"],
            Self::Responses => &["responses"],
            Self::Messages => &["messages"],
        }
    }
}

/// The request body. `salt` makes the frames around tool results in an envelope unpredictable; the same ask and salt give
/// the same bytes.
#[must_use]
pub fn encode(ask: &Ask, def: &ModelDef, salt: &[u8; 32]) -> Value {
    encode_as(ask, def, salt, (Asked::first(def.calls), &JsonEnvelope))
}

pub(crate) fn encode_as(ask: &Ask, def: &ModelDef, salt: &[u8; 32], form: (Asked, &dyn ToolProtocol)) -> Value {
    let (asked, protocol) = form;
    match (asked, Wire::of(def.provider)) {
        (Asked::Native, Wire::Chat) => openai::request::encode(ask, def),
        (Asked::Native, Wire::Responses) => responses::request::encode(ask, def),
        (Asked::Native, Wire::Messages) => anthropic::request::encode(ask, def),
        (Asked::Envelope, Wire::Chat) => openai::request::of_messages(&envelope::messages(ask, salt, protocol), def),
        (Asked::Envelope, Wire::Responses) => {
            responses::request::of_messages(&envelope::messages(ask, salt, protocol), def)
        }
        (Asked::Envelope, Wire::Messages) => {
            anthropic::request::of_messages(&envelope::messages(ask, salt, protocol), def)
        }
    }
}

/// What a reply amounts to, whole or streamed. `ask` and `def` are those the request was made from.
#[must_use]
pub fn decode(reply: Reply<'_>, ask: &Ask, def: &ModelDef) -> Ballot {
    judged(read(reply, Wire::of(def.provider)), ask, def, (Asked::first(def.calls), &JsonEnvelope))
}

/// Decodes a streamed answer piece by piece; the pieces may be cut anywhere.
#[derive(Debug)]
pub struct StreamDecoder {
    stream: Stream,
}

impl StreamDecoder {
    /// A decoder for the format of this model.
    #[must_use]
    pub fn new(def: &ModelDef) -> Self {
        Self { stream: Stream::new(Wire::of(def.provider)) }
    }

    /// Takes the next bytes; `false` once no further bytes matter.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        self.stream.push(bytes, &mut Vec::new())
    }

    /// What the stream amounts to, as far as it came.
    #[must_use]
    pub fn finish(self, ask: &Ask, def: &ModelDef) -> Ballot {
        judged(self.stream.finish(), ask, def, (Asked::first(def.calls), &JsonEnvelope))
    }
}

pub(crate) fn judged(
    read: Result<Answer, Unread>,
    ask: &Ask,
    def: &ModelDef,
    form: (Asked, &dyn ToolProtocol),
) -> Ballot {
    match read {
        Ok(answer) => judge::ballot(answer, ask, def, form.0, form.1),
        Err(unread) => Ballot { usage: unread.usage, ..bare(unread.verdict) },
    }
}

/// Takes a reply apart, or says why it holds no answer.
pub(crate) fn read(reply: Reply<'_>, wire: Wire) -> Result<Answer, Unread> {
    if is_success(reply.status) && is_stream(reply.content_type, reply.body) {
        let mut stream = Stream::new(wire);
        stream.push(reply.body, &mut Vec::new());
        return stream.finish();
    }
    let (text, body) = read_body(reply)?;
    let answer = match wire {
        Wire::Chat => openai::completion::read(&body),
        Wire::Responses => responses::response::read(&body),
        Wire::Messages => anthropic::message::read(&body, text),
    };
    answer.map_err(Unread::from)
}

pub(crate) fn is_success(status: u16) -> bool {
    (200..=299).contains(&status)
}

/// Whether a body is an event stream: by its type, or where the type says nothing true, by its first letters.
pub(crate) fn is_stream(content_type: Option<&str>, body: &[u8]) -> bool {
    if content_type.is_some_and(|kind| media(kind) == "text/event-stream") {
        return true;
    }
    let body = body.strip_prefix("\u{feff}".as_bytes()).unwrap_or(body).trim_ascii_start();
    ["data:", "event:"].iter().any(|mark| body.starts_with(mark.as_bytes()))
}

fn read_body(reply: Reply<'_>) -> Result<(&str, Value), BallotVerdict> {
    let text = std::str::from_utf8(reply.body).map_err(|_| {
        if is_success(reply.status) {
            not_a_completion("the body is not UTF-8 text")
        } else {
            status_verdict(reply.status, &Value::Null, "")
        }
    })?;
    if !is_success(reply.status) {
        let body = serde_json::from_str(text).unwrap_or(Value::Null);
        return Err(status_verdict(reply.status, &body, text));
    }
    if let Some(kind) = reply.content_type.filter(|kind| !is_json_type(kind)) {
        return Err(not_a_completion(&format!("the server answered `{}`, not JSON", clip(kind, 60))));
    }
    Ok((text, read_frame(text)?))
}

/// Reads the JSON around an answer.
pub(crate) fn read_frame(text: &str) -> Result<Value, BallotVerdict> {
    read_strict(text).map_err(|fault| match fault.kind {
        JsonFaultKind::Syntax => not_a_completion(&format!("the body is no JSON: {fault}")),
        // The frame is JSON; what breaks the rules is content that two readers would read differently.
        kind => malformed(reason_of(kind), &format!("the answer cannot be read without doubt: {fault}")),
    })
}

fn media(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

fn is_json_type(content_type: &str) -> bool {
    let media = media(content_type);
    media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"))
}

pub(crate) fn not_a_completion(text: &str) -> BallotVerdict {
    failed(ProviderFailure::NotACompletion, text)
}

/// A short name in an object, such as the model that answered.
pub(crate) fn name_in(body: &Value, key: &str) -> Option<String> {
    body.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(|text| clip(text, 200))
}

/// Names the provider and model that opaque fields belong to, without naming the address.
pub(crate) fn origin(def: &ModelDef) -> String {
    let name = format!("{}\n{}", def.base_url.as_deref().unwrap_or_default(), def.model.as_deref().unwrap_or_default());
    Sha256Digest::of(name.as_bytes()).to_string()
}

/// The kept fields of an earlier answer, if they may go back to this model.
pub(crate) fn kept(opaque: Option<&Json>, def: &ModelDef) -> Option<Value> {
    let kept = opaque.filter(|_| def.reasoning != Reasoning::Drop).map(Json::value)?;
    (kept.get("origin").and_then(Value::as_str) == Some(origin(def).as_str())).then_some(kept)
}
