//! What an answer amounts to: calls, a final answer, or a typed reason why it is neither. Pure, and the same for every
//! provider. Every deviation that is put right is named in `normalised`. What is not here: how a provider writes an answer
//! (`openai`, `anthropic`, `responses`), the envelope itself (`envelope`).

use serde_json::{Value, json};
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::{CallForm, ModelDef};
use toolgate_core::json::{Json, read_strict};
use toolgate_core::proposal::{Ballot, BallotVerdict, MalformedReason, Proposal, ProposedArgs, ProposedCall};

use crate::answer::{Answer, Finish, RawCall, cut};
use crate::envelope::{self, ToolProtocol};
use crate::names::WireNames;
use crate::quote::{clip, malformed};
use crate::reasoning;
use crate::wire::{Asked, origin};

mod args;
mod call_text;

pub(crate) use args::read as read_args;

/// Most calls one answer may hold.
pub(crate) const MAX_CALLS: usize = 128;

/// The ballot of an answer to a question that was put in this form.
pub(crate) fn ballot(
    mut answer: Answer,
    ask: &Ask,
    def: &ModelDef,
    asked: Asked,
    protocol: &dyn ToolProtocol,
) -> Ballot {
    let mut extras = Vec::new();
    let verdict = answer.not_whole().unwrap_or_else(|| match (def.calls, asked) {
        (CallForm::Auto, _) => either(&mut answer, ask, def, (asked, protocol), &mut extras),
        (CallForm::Native | CallForm::Envelope, Asked::Native) => native(&mut answer, ask, def, &mut extras),
        (CallForm::Native | CallForm::Envelope, Asked::Envelope) => in_envelope(&mut answer, def, protocol),
    });
    let opaque = opaque(&answer, extras, def);
    answer.ballot(verdict, opaque)
}

fn in_envelope(answer: &mut Answer, def: &ModelDef, protocol: &dyn ToolProtocol) -> BallotVerdict {
    if answer.calls.is_empty() {
        return envelope::judge(protocol, &answer.text, def.lenient, &mut answer.notes);
    }
    // A call beside the text was meant, too: to run the text alone would drop it without a word.
    match envelope::judge(protocol, &answer.text, def.lenient, &mut Vec::new()) {
        BallotVerdict::Proposal(_) => malformed(
            MalformedReason::AmbiguousEnvelope,
            &format!(
                "the answer holds an envelope and a call outside of it, so nothing was run. {}",
                protocol.remedy()
            ),
        ),
        BallotVerdict::Malformed { .. } | BallotVerdict::Failed { .. } => envelope::outside(protocol),
    }
}

/// Reads whichever form came. Calls in both forms run only where they are the very same, and then once.
fn either(
    answer: &mut Answer,
    ask: &Ask,
    def: &ModelDef,
    form: (Asked, &dyn ToolProtocol),
    extras: &mut Vec<Value>,
) -> BallotVerdict {
    let (asked, protocol) = form;
    let mut notes = Vec::new();
    let written =
        (!answer.text.trim().is_empty()).then(|| envelope::judge(protocol, &answer.text, def.lenient, &mut notes));
    if answer.calls.is_empty() {
        return match written.map(|verdict| with_tool_ids(verdict, ask, def)) {
            Some(verdict) if asked == Asked::Envelope || is_meant_as_envelope(&verdict, &answer.text) => {
                answer.notes.append(&mut notes);
                if asked == Asked::Native && matches!(verdict, BallotVerdict::Proposal(_)) {
                    answer.note("envelope_understood");
                }
                verdict
            }
            Some(_) | None => native(answer, ask, def, extras),
        };
    }
    let verdict = native(answer, ask, def, extras);
    match (written.map(|verdict| with_tool_ids(verdict, ask, def)), &verdict) {
        (Some(BallotVerdict::Proposal(written)), BallotVerdict::Proposal(sent)) if same(&written, sent) => {
            answer.note("envelope_repeats_calls");
            verdict
        }
        (Some(BallotVerdict::Proposal(_)), _) => malformed(
            MalformedReason::AmbiguousEnvelope,
            "the answer holds calls and an envelope in its text, and they differ, so nothing was run; send one of them",
        ),
        _ => {
            if asked == Asked::Envelope {
                answer.note("native_call_understood");
            }
            verdict
        }
    }
}

/// An envelope of a model that was offered tools under their wire names may use these.
fn with_tool_ids(verdict: BallotVerdict, ask: &Ask, def: &ModelDef) -> BallotVerdict {
    let BallotVerdict::Proposal(Proposal::Calls(mut calls)) = verdict else { return verdict };
    let names = WireNames::new(&ask.tools);
    for call in &mut calls {
        call.tool = names.resolve(&call.tool, def.lenient, &mut Vec::new());
    }
    BallotVerdict::Proposal(Proposal::Calls(calls))
}

fn same(one: &Proposal, other: &Proposal) -> bool {
    match (one, other) {
        (Proposal::Calls(one), Proposal::Calls(other)) => {
            let key = |call: &ProposedCall| (call.tool.clone(), call.args.clone());
            one.iter().map(key).eq(other.iter().map(key))
        }
        _ => false,
    }
}

/// Whether a text that was not asked for as an envelope is one, or a failed try at one; other text is an answer in words.
fn is_meant_as_envelope(verdict: &BallotVerdict, text: &str) -> bool {
    match verdict {
        BallotVerdict::Proposal(_) => true,
        BallotVerdict::Malformed { reason: MalformedReason::Empty | MalformedReason::NoEnvelope, .. } => false,
        _ => {
            let spaceless: String = text.chars().filter(|c| !c.is_whitespace()).collect();
            ["\"type\":\"tool_call\"", "\"type\":\"final_answer\""].iter().any(|mark| spaceless.contains(mark))
        }
    }
}

fn native(answer: &mut Answer, ask: &Ask, def: &ModelDef, extras: &mut Vec<Value>) -> BallotVerdict {
    let names = WireNames::new(&ask.tools);
    let calls = std::mem::take(&mut answer.calls);
    if !calls.is_empty() {
        return of_calls(answer, &calls, &names, ask, def, extras);
    }
    if answer.finish == Finish::CallsAnnounced {
        return malformed(
            MalformedReason::CallsAnnouncedButAbsent,
            "the answer announces calls but holds none; send the call, or answer in text",
        );
    }
    let (said, had_thoughts) = reasoning::visible(&answer.text);
    if had_thoughts {
        answer.notes.push("think_removed".to_owned());
    }
    if said.trim().is_empty() {
        return malformed(MalformedReason::Empty, empty_detail(answer, had_thoughts));
    }
    let expects_json = ask.output_schema.is_some();
    match call_text::read(&said, expects_json, |name| names.is_offered(name)) {
        None => done(answer, &said, had_thoughts, ask),
        Some(found) => match found.calls {
            Some(calls)
                if def.lenient
                    && calls.iter().all(|call| call.name.as_deref().is_some_and(|n| names.is_offered(n))) =>
            {
                answer.notes.push("call_from_text".to_owned());
                let calls: Vec<_> = calls.into_iter().map(Some).collect();
                of_calls(answer, &calls, &names, ask, def, extras)
            }
            _ => malformed(
                MalformedReason::CallAsText,
                &format!(
                    "a call was written as text and not run: `{}`; use the tool calls of this interface, or answer in words",
                    clip(said.trim(), 120)
                ),
            ),
        },
    }
}

fn empty_detail(answer: &Answer, had_thoughts: bool) -> &'static str {
    let thought_a_call = answer.fields.values().any(|field| {
        let text = field.to_string();
        text.contains("<tool_call>") || text.contains("tool_calls") || text.contains("arguments")
    });
    if thought_a_call {
        "no answer and no call received: the reasoning holds something like a call, but reasoning is never run; send the call \
         itself, or an answer"
    } else if had_thoughts {
        "no answer and no call received, only thoughts; send a call or an answer after them"
    } else {
        "no answer and no call received; send a call or an answer"
    }
}

fn done(answer: &mut Answer, said: &str, had_thoughts: bool, ask: &Ask) -> BallotVerdict {
    if let Some(output) = ask.output_schema.as_ref().and_then(|schema| structured(said, schema)) {
        answer.notes.push("output_from_json_text".to_owned());
        return BallotVerdict::Proposal(Proposal::Done { output });
    }
    let text = if had_thoughts { said.trim() } else { said };
    BallotVerdict::Proposal(Proposal::Done { output: Json::string(text) })
}

/// The value of a text that is JSON, where the output's schema wants more than a string.
fn structured(said: &str, schema: &Json) -> Option<Json> {
    if schema.value().get("type") == Some(&json!("string")) {
        return None;
    }
    let text = said.trim();
    let fenced = text.strip_prefix("```").and_then(|inside| inside.strip_suffix("```"));
    let body = fenced.map_or(text, |inside| inside.trim_start_matches(|c: char| c.is_ascii_alphabetic()).trim());
    read_strict(body).ok().map(|value| Json::from_value(&value))
}

fn of_calls(
    answer: &mut Answer,
    raw: &[Option<RawCall>],
    names: &WireNames,
    ask: &Ask,
    def: &ModelDef,
    extras: &mut Vec<Value>,
) -> BallotVerdict {
    if raw.len() > MAX_CALLS {
        let said = format!("{} calls in one answer; at most {MAX_CALLS} are read, send fewer", raw.len());
        return malformed(MalformedReason::TooLarge, &said);
    }
    let mut calls: Vec<ProposedCall> = Vec::new();
    for raw in raw {
        let Some((raw, name)) = raw.as_ref().and_then(|raw| raw.name.as_deref().map(|name| (raw, name))) else {
            return malformed(MalformedReason::InvalidEnvelope, "a call without a name: name one of the tools");
        };
        let tool = names.resolve(name, def.lenient, &mut answer.notes);
        let schema = ask.tools.iter().find(|view| view.id.as_str() == tool).map(|view| &view.parameters);
        let (args, raw_args) = args::read(raw.args.as_ref(), schema, &mut answer.notes);
        let call = ProposedCall { tool, provider_id: raw.id.clone(), args, raw_args };
        let twin = calls.iter().find(|other| other.provider_id.is_some() && other.provider_id == call.provider_id);
        match twin {
            // Sent twice, not meant twice.
            Some(twin) if twin.tool == call.tool && twin.args == call.args => {
                answer.notes.push("duplicate_call_dropped".to_owned());
                continue;
            }
            // Ours are the ids that count, so two calls stay two calls.
            Some(_) => answer.notes.push("duplicate_id".to_owned()),
            None => {}
        }
        extras.push(raw.extra.clone().unwrap_or(Value::Null));
        calls.push(call);
    }
    // Some servers hide the cut behind `tool_calls`; the spent limit gives it away.
    let at_limit = def.max_output_tokens.is_some_and(|max| answer.usage.output_tokens >= Some(u64::from(max)));
    let is_broken =
        |call: &ProposedCall| matches!(call.args, ProposedArgs::Malformed { reason: MalformedReason::Syntax, .. });
    if at_limit && calls.iter().any(is_broken) {
        answer.notes.push("cut_seen_by_usage".to_owned());
        return cut();
    }
    BallotVerdict::Proposal(Proposal::Calls(calls))
}

/// What must go back unchanged, with the mark of the provider and model it belongs to.
fn opaque(answer: &Answer, extras: Vec<Value>, def: &ModelDef) -> Option<Json> {
    let has_extras = extras.iter().any(|extra| !extra.is_null());
    if answer.fields.is_empty() && !has_extras {
        return None;
    }
    let calls = if has_extras { extras } else { Vec::new() };
    Some(Json::from_value(&json!({"origin": origin(def), "fields": answer.fields, "calls": calls})))
}
