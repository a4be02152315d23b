//! Fits a conversation to what a model reads at once. The oldest results lose their bodies first, then the oldest answers
//! go with the results of their calls; the results of the newest two answers are whole as long as these fit. What users said,
//! the newest answer and the pairing of calls with results always stay. Pure, whatever counts the tokens.
//! What is not here: what is asked (`transcript`), tokenizers (`toolgate-proposers`), writing summaries (`digest`).

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Entry};
use crate::bundle::ModelDef;
use crate::bundle::model::CallForm;

/// Bytes that count as one token where no tokenizer is named: an estimate on the safe side for prose and JSON, of which
/// tokenizers make a token of some four.
pub const BYTES_PER_TOKEN: u64 = 3;
/// What an entry, a call or a tool takes beside its texts, in tokens.
const AROUND: u64 = 22;
/// What the words around a text envelope take, in tokens.
const ENVELOPE: u64 = 500;

/// Counts tokens. No text has more tokens than bytes.
pub trait Counter: Send + Sync + fmt::Debug {
    /// How many tokens the text has for the model, or more.
    fn tokens(&self, text: &str) -> u64;
}

/// Three bytes are one token.
#[derive(Debug, Clone, Copy)]
pub struct Estimate;

impl Counter for Estimate {
    fn tokens(&self, text: &str) -> u64 {
        (text.len() as u64).div_ceil(BYTES_PER_TOKEN)
    }
}

/// A byte is a token: more than any tokenizer counts, and found without reading the text.
#[derive(Debug, Clone, Copy)]
struct Bytes;

impl Counter for Bytes {
    fn tokens(&self, text: &str) -> u64 {
        text.len() as u64
    }
}

/// What was left out of a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// Results that were shown without their body.
    pub results: u32,
    /// Earlier answers of models that were left out, each with the results of its calls.
    pub answers: u32,
    /// Bytes of text left out.
    pub bytes: u64,
}

/// A conversation that was too long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// What is left of it.
    pub transcript: Vec<Arc<Entry>>,
    /// What was left out.
    pub cut: Cut,
}

/// Cuts the conversation to `max_input_tokens` of the model, and says what was left out; none if nothing was. What cannot
/// be cut is left as it is, and the model may refuse it.
#[must_use]
pub fn fit(ask: &Ask, model: &ModelDef, counter: &dyn Counter) -> Option<Fitted> {
    let room = room(ask, model, counter)?;
    let sizes: Vec<Size> = ask.transcript.iter().map(|entry| Size::of(entry, counter)).collect();
    let plan = Plan::of(&ask.transcript, &sizes, room)?;
    rebuild(&ask.transcript, &sizes, plan)
}

/// Before which entry a summary is due: bodies left out are not enough, a summary of so many tokens in place of what
/// stands there would be, and there is an answer in it.
pub(crate) fn overflow(ask: &Ask, model: &ModelDef, summary: u64) -> Option<usize> {
    let room = room(ask, model, &Estimate)?;
    let sizes: Vec<Size> = ask.transcript.iter().map(|entry| Size::of(entry, &Estimate)).collect();
    let kept = Kept::of(&ask.transcript);
    let bare: u64 = sizes.iter().take(kept.second).map(|size| size.bare).sum();
    let second: u64 = sizes.iter().take(kept.newest).skip(kept.second).map(|size| size.bare).sum();
    let newest: u64 = sizes.iter().skip(kept.newest).map(|size| size.whole).sum();
    let whole: u64 = sizes.iter().skip(kept.second).map(|size| size.whole).sum();
    let stays: u64 = ask
        .transcript
        .iter()
        .zip(&sizes)
        .take(kept.second)
        .filter(|(entry, _)| is_user(entry))
        .map(|(_, s)| s.whole)
        .sum();
    let answers = ask.transcript.iter().take(kept.second).any(|entry| is_answer(entry));
    let helps = stays + summary + AROUND + second + newest <= room;
    (answers && bare + whole > room && helps).then_some(kept.second)
}

/// Tokens that there are for the conversation; none where it is certain to fit.
fn room(ask: &Ask, model: &ModelDef, counter: &dyn Counter) -> Option<u64> {
    let window = u64::from(model.max_input_tokens?);
    let at_most: u64 = ask.transcript.iter().map(|entry| Size::of(entry, &Bytes).whole).sum();
    if at_most.saturating_add(standing(ask, model, &Bytes)) <= window {
        return None;
    }
    Some(window.saturating_sub(standing(ask, model, counter)))
}

/// What is in the question whatever the conversation is.
fn standing(ask: &Ask, model: &ModelDef, counter: &dyn Counter) -> u64 {
    let tokens = |text: &str| counter.tokens(text);
    let instructions = ask.instructions.iter().map(|text| tokens(text) + AROUND);
    let tools = ask
        .tools
        .iter()
        .map(|tool| tokens(tool.id.as_str()) + tokens(&tool.description) + tokens(tool.parameters.as_str()) + AROUND);
    let schema = ask.output_schema.as_ref().map_or(0, |schema| tokens(schema.as_str()) + AROUND);
    let envelope = if model.calls == CallForm::Native { 0 } else { ENVELOPE };
    instructions.chain(tools).sum::<u64>().saturating_add(schema).saturating_add(envelope)
}

/// What an entry takes, in tokens.
#[derive(Debug, Clone, Copy)]
struct Size {
    whole: u64,
    /// Without the body of a result.
    bare: u64,
}

impl Size {
    fn of(entry: &Entry, counter: &dyn Counter) -> Self {
        let tokens = |text: &str| counter.tokens(text);
        match entry {
            Entry::User { text } | Entry::Feedback { text, .. } | Entry::Summary { text, .. } => {
                Self::fixed(tokens(text) + AROUND)
            }
            Entry::Model { text, calls, opaque } => {
                let calls: u64 = calls.iter().map(|call| tokens(&call.tool) + tokens(&call.args) + AROUND).sum();
                let opaque = opaque.as_ref().map_or(0, |opaque| tokens(opaque.as_str()));
                Self::fixed(tokens(text) + calls + opaque + AROUND)
            }
            Entry::Result { reason, body, .. } => {
                let around = reason.as_deref().map_or(0, tokens) + AROUND;
                let body = tokens(body);
                Self { whole: around + body, bare: around + body.min(AROUND) }
            }
        }
    }

    const fn fixed(whole: u64) -> Self {
        Self { whole, bare: whole }
    }

    /// What goes with the body.
    const fn body(&self) -> u64 {
        self.whole - self.bare
    }
}

/// Where the newest two answers begin; the end of the conversation where there is none.
#[derive(Debug, Clone, Copy)]
struct Kept {
    second: usize,
    newest: usize,
}

impl Kept {
    fn of(transcript: &[Arc<Entry>]) -> Self {
        let mut answers = transcript.iter().enumerate().rev().filter(|(_, entry)| is_answer(entry)).map(|(at, _)| at);
        let newest = answers.next().unwrap_or(transcript.len());
        Self { second: answers.next().unwrap_or(newest), newest }
    }
}

fn is_user(entry: &Entry) -> bool {
    matches!(entry, Entry::User { .. })
}

fn is_answer(entry: &Entry) -> bool {
    matches!(entry, Entry::Model { .. })
}

/// What stays whatever must go.
fn stays(entry: &Entry) -> bool {
    matches!(entry, Entry::User { .. } | Entry::Summary { .. })
}

/// What is left out.
#[derive(Debug, Clone, Copy, Default)]
struct Plan {
    /// Results before this entry lose their body.
    bare: usize,
    /// Of what is before this entry only what must stay does.
    from: usize,
}

impl Plan {
    fn of(transcript: &[Arc<Entry>], sizes: &[Size], room: u64) -> Option<Self> {
        let whole: u64 = sizes.iter().map(|size| size.whole).sum();
        if whole <= room {
            return None;
        }
        let Kept { second, newest } = Kept::of(transcript);
        if let Ok(bare) = bare_until(sizes, 0..second, whole, room) {
            return Some(Self { bare, from: 0 });
        }
        let least = whole - bodies(sizes, 0..second);
        let (from, left) = left_out_until(transcript, sizes, 0..second, least, room);
        if left <= room {
            return Some(Self { bare: second, from });
        }
        if let Ok(bare) = bare_until(sizes, second..newest, left, room) {
            return Some(Self { bare, from });
        }
        let least = left - bodies(sizes, second..newest);
        let (from, _) = left_out_until(transcript, sizes, second..newest, least, room);
        Some(Self { bare: newest, from })
    }
}

fn bodies(sizes: &[Size], range: std::ops::Range<usize>) -> u64 {
    sizes.iter().take(range.end).skip(range.start).map(Size::body).sum()
}

/// Before which entry results lose their body, the oldest of the range first, until the rest fits; an error if it does not.
fn bare_until(sizes: &[Size], range: std::ops::Range<usize>, whole: u64, room: u64) -> Result<usize, ()> {
    let mut left = whole;
    let old = sizes.iter().enumerate().take(range.end).skip(range.start);
    for (at, size) in old {
        left -= size.body();
        if left <= room {
            return Ok(at + 1);
        }
    }
    Err(())
}

/// Before which entry of the range answers are left out, the oldest first, until the rest fits; answers go whole. Says what
/// is left.
fn left_out_until(
    transcript: &[Arc<Entry>],
    sizes: &[Size],
    range: std::ops::Range<usize>,
    least: u64,
    room: u64,
) -> (usize, u64) {
    let mut left = least;
    let mut from = range.start;
    for (entry, size) in transcript.iter().zip(sizes).take(range.end).skip(range.start) {
        if is_answer(entry) && left <= room {
            break;
        }
        if !stays(entry) {
            left -= size.bare;
        }
        from += 1;
    }
    (from, left)
}

fn rebuild(transcript: &[Arc<Entry>], sizes: &[Size], plan: Plan) -> Option<Fitted> {
    let mut cut = Cut::default();
    let mut kept = Vec::with_capacity(transcript.len() - plan.from + 4);
    let mut note = None;
    for (place, (entry, size)) in transcript.iter().zip(sizes).enumerate() {
        match &**entry {
            old if place < plan.from && !stays(old) => {
                cut.answers += u32::from(is_answer(old));
                cut.bytes += bytes(entry);
                note.get_or_insert(kept.len());
            }
            Entry::Result { call, tool, status, reason, body } if place < plan.bare && size.body() > 0 => {
                cut.results += 1;
                cut.bytes += body.len() as u64;
                kept.push(Arc::new(Entry::Result {
                    call: call.clone(),
                    tool: tool.clone(),
                    status: status.clone(),
                    reason: reason.clone(),
                    body: format!("({} bytes are left out: older than what fits)", body.len()),
                }));
            }
            Entry::User { .. }
            | Entry::Model { .. }
            | Entry::Result { .. }
            | Entry::Feedback { .. }
            | Entry::Summary { .. } => kept.push(Arc::clone(entry)),
        }
    }
    if let Some(place) = note.filter(|_| cut.answers > 0) {
        let text = format!("{} earlier steps are left out here, since not all of them fit.", cut.answers);
        kept.insert(place, Arc::new(Entry::Feedback { code: "earlier_steps_left_out".to_owned(), text }));
    }
    (cut != Cut::default()).then_some(Fitted { transcript: kept, cut })
}

/// Bytes of an entry that a summary takes the place of.
pub(crate) fn replaceable(entry: &Entry) -> u64 {
    if is_user(entry) { 0 } else { bytes(entry) }
}

/// Bytes of an entry's texts.
fn bytes(entry: &Entry) -> u64 {
    let len = |text: &str| text.len() as u64;
    match entry {
        Entry::User { text } | Entry::Feedback { text, .. } | Entry::Summary { text, .. } => len(text),
        Entry::Model { text, calls, opaque } => {
            let calls: u64 = calls.iter().map(|call| len(&call.tool) + len(&call.args)).sum();
            len(text) + calls + opaque.as_ref().map_or(0, |opaque| len(opaque.as_str()))
        }
        Entry::Result { reason, body, .. } => reason.as_deref().map_or(0, len) + len(body),
    }
}
