//! Fits a conversation to what a model reads at once. The oldest results lose their bodies first, then the oldest answers
//! go with the results of their calls; what users said, the newest answer and the pairing of calls with results always
//! stay. Pure: the same question is cut the same way, so that the log need not keep it. What is not here: what is asked
//! (`transcript`), summaries of what is cut.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::ask::{Ask, Entry};
use crate::bundle::ModelDef;

/// Bytes that count as one token: an estimate on the safe side for prose and JSON; tokenizers make a token of some four.
pub const BYTES_PER_TOKEN: u64 = 3;
/// What an entry, a call or a tool takes beside its texts, in bytes.
const AROUND: u64 = 64;

/// What was left out of a question.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    /// Results that were shown without their body.
    pub results: u32,
    /// Earlier answers of models that were left out, each with the results of its calls.
    pub answers: u32,
    /// Bytes left out, an estimate as all sizes here.
    pub bytes: u64,
}

/// Cuts the conversation to `max_input_tokens` of the model. Says what was left out, if anything was. What cannot be cut is
/// left as it is, and the model may refuse it.
pub fn fit(ask: &mut Ask, model: &ModelDef) -> Option<Cut> {
    let window = u64::from(model.max_input_tokens?).saturating_mul(BYTES_PER_TOKEN);
    let room = window.saturating_sub(standing(ask));
    let sizes: Vec<Size> = ask.transcript.iter().map(|entry| Size::of(entry)).collect();
    let whole: u64 = sizes.iter().map(|size| size.whole).sum();
    if whole <= room {
        return None;
    }
    // Where the newest answer begins; from there on nothing is touched.
    let answer = |entry: &Arc<Entry>| matches!(**entry, Entry::Model { .. });
    let newest = ask.transcript.iter().rposition(answer).unwrap_or(ask.transcript.len());
    let old = sizes.get(..newest).unwrap_or_default();
    let least: u64 = whole - old.iter().map(Size::body).sum::<u64>();
    let (bare, from) = if least <= room {
        (bare_until(old, whole, room), 0)
    } else {
        (newest, left_out_until(&ask.transcript, &sizes, newest, least, room))
    };
    rebuild(ask, bare, from)
}

/// What is in the question whatever the conversation is.
fn standing(ask: &Ask) -> u64 {
    let instructions = ask.instructions.iter().map(|text| text.len() as u64 + AROUND);
    let tools = ask
        .tools
        .iter()
        .map(|tool| (tool.id.as_str().len() + tool.description.len() + tool.parameters.as_str().len()) as u64 + AROUND);
    let schema = ask.output_schema.as_ref().map_or(0, |schema| schema.as_str().len() as u64 + AROUND);
    instructions.chain(tools).sum::<u64>().saturating_add(schema)
}

/// What an entry takes.
#[derive(Debug, Clone, Copy)]
struct Size {
    whole: u64,
    /// Without the body of a result.
    bare: u64,
}

impl Size {
    fn of(entry: &Entry) -> Self {
        let len = |text: &str| text.len() as u64;
        match entry {
            Entry::User { text } | Entry::Feedback { text, .. } => Self::fixed(len(text) + AROUND),
            Entry::Model { text, calls, opaque } => {
                let calls: u64 = calls.iter().map(|call| len(&call.tool) + len(&call.args) + AROUND).sum();
                let opaque = opaque.as_ref().map_or(0, |opaque| len(opaque.as_str()));
                Self::fixed(len(text) + calls + opaque + AROUND)
            }
            Entry::Result { reason, body, .. } => {
                let around = reason.as_deref().map_or(0, len) + AROUND;
                let stub = if len(body) > AROUND { AROUND } else { len(body) };
                Self { whole: around + len(body), bare: around + stub }
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

/// Before which entry results lose their body, the oldest first, until the rest fits.
fn bare_until(old: &[Size], whole: u64, room: u64) -> usize {
    let mut left = whole;
    old.iter()
        .position(|size| {
            left -= size.body();
            left <= room
        })
        .map_or(old.len(), |last| last + 1)
}

/// Before which entry answers are left out, until the rest fits; answers go whole.
fn left_out_until(transcript: &[Arc<Entry>], sizes: &[Size], newest: usize, least: u64, room: u64) -> usize {
    let mut left = least;
    let mut from = 0;
    for (entry, size) in transcript.iter().zip(sizes).take(newest) {
        match **entry {
            Entry::Model { .. } if left <= room => break,
            Entry::User { .. } => {}
            Entry::Model { .. } | Entry::Result { .. } | Entry::Feedback { .. } => left -= size.bare,
        }
        from += 1;
    }
    from
}

fn rebuild(ask: &mut Ask, bare: usize, from: usize) -> Option<Cut> {
    let mut cut = Cut::default();
    let mut kept = Vec::with_capacity(ask.transcript.len() - from + 4);
    let mut note = None;
    for (place, entry) in std::mem::take(&mut ask.transcript).into_iter().enumerate() {
        let size = Size::of(&entry);
        match &*entry {
            Entry::User { .. } => kept.push(entry),
            _ if place < from => {
                cut.answers += u32::from(matches!(*entry, Entry::Model { .. }));
                cut.bytes += size.whole;
                note.get_or_insert(kept.len());
            }
            Entry::Result { call, tool, status, reason, body } if place < bare && size.body() > 0 => {
                cut.results += 1;
                cut.bytes += size.body();
                kept.push(Arc::new(Entry::Result {
                    call: call.clone(),
                    tool: tool.clone(),
                    status: status.clone(),
                    reason: reason.clone(),
                    body: format!("({} bytes are left out: older than what fits)", body.len()),
                }));
            }
            Entry::Model { .. } | Entry::Result { .. } | Entry::Feedback { .. } => kept.push(entry),
        }
    }
    if let Some(place) = note.filter(|_| cut.answers > 0) {
        let text = format!("{} earlier steps are left out here, since not all of them fit.", cut.answers);
        kept.insert(place, Arc::new(Entry::Feedback { code: "earlier_steps_left_out".to_owned(), text }));
    }
    ask.transcript = kept;
    (cut != Cut::default()).then_some(cut)
}
