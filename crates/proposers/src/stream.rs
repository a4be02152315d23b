//! A streamed answer, put together from bytes in whatever pieces they come. Pure: how the bytes are split makes no
//! difference. What is not here: server-sent events (`sse`), what the events of each provider mean (`openai::stream`,
//! `anthropic::stream`, `responses::stream`).

use serde_json::Value;
use toolgate_core::proposal::{BallotVerdict, ProviderFailure};

use crate::answer::{Answer, Unread};
use crate::delta::Delta;
use crate::quote::failed;
use crate::sse::{Decoder, Event, Fault};
use crate::wire::{Wire, not_a_completion, read_frame};
use crate::{anthropic, openai, responses};

/// Most bytes of a stream that are read.
const MAX_STREAM: usize = 16 << 20;

/// What an event meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    /// More may come.
    More,
    /// The answer is complete; whatever follows is not read.
    Ended,
}

/// The answer so far, in the provider's own parts.
#[derive(Debug)]
enum Parts {
    Chat(Box<openai::stream::Parts>),
    Responses(responses::stream::Parts),
    Messages(anthropic::stream::Parts),
}

/// A stream while it comes.
#[derive(Debug)]
pub(crate) struct Stream {
    decoder: Decoder,
    parts: Parts,
    bytes: usize,
    over: Option<Result<(), BallotVerdict>>,
}

impl Stream {
    pub(crate) fn new(wire: Wire) -> Self {
        let parts = match wire {
            Wire::Chat => Parts::Chat(Box::default()),
            Wire::Responses => Parts::Responses(responses::stream::Parts::default()),
            Wire::Messages => Parts::Messages(anthropic::stream::Parts::default()),
        };
        Self { decoder: Decoder::default(), parts, bytes: 0, over: None }
    }

    /// Takes the next bytes; `false` once no further bytes matter.
    pub(crate) fn push(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) -> bool {
        // In pieces, so that a limit is met at the same byte however the bytes came.
        for byte in bytes.chunks(1 << 16) {
            if self.over.is_some() {
                break;
            }
            self.take(byte, deltas);
        }
        self.over.is_none()
    }

    fn take(&mut self, bytes: &[u8], deltas: &mut Vec<Delta>) {
        let room = MAX_STREAM.saturating_sub(self.bytes);
        let (fitting, rest) = bytes.split_at(room.min(bytes.len()));
        self.bytes += fitting.len();
        let mut events = Vec::new();
        let fault = self.decoder.push(fitting, &mut events).err();
        for event in events {
            match self.event(&event, deltas) {
                Ok(Flow::More) => {}
                Ok(Flow::Ended) => return self.over = Some(Ok(())),
                Err(verdict) => return self.over = Some(Err(verdict)),
            }
        }
        let too_large = || failed(ProviderFailure::TooLarge, "the stream is larger than what is read of one");
        self.over = match fault {
            Some(Fault::NotUtf8) => Some(Err(not_a_completion("the stream is not UTF-8 text"))),
            Some(Fault::TooLarge) => Some(Err(too_large())),
            None if !rest.is_empty() => Some(Err(too_large())),
            None => None,
        };
    }

    fn event(&mut self, event: &Event, deltas: &mut Vec<Delta>) -> Result<Flow, BallotVerdict> {
        let data = event.data.trim();
        // Servers keep connections open with events that hold nothing.
        if data.is_empty() || data.starts_with(':') {
            return Ok(Flow::More);
        }
        if data == "[DONE]" {
            return Ok(Flow::Ended);
        }
        self.value(&event.name, &read_frame(data)?, deltas)
    }

    fn value(&mut self, name: &str, value: &Value, deltas: &mut Vec<Delta>) -> Result<Flow, BallotVerdict> {
        match &mut self.parts {
            Parts::Chat(parts) => parts.event(name, value, deltas),
            Parts::Responses(parts) => parts.event(name, value, deltas),
            Parts::Messages(parts) => parts.event(name, value, deltas),
        }
    }

    /// The answer, as far as it came: an answer without its end is none.
    pub(crate) fn finish(mut self) -> Result<Answer, Unread> {
        if self.over.is_none()
            && let Some(event) = std::mem::take(&mut self.decoder).tail()
        {
            // The last event may be cut; then its end is missing, which is judged below.
            let data = event.data.trim();
            if data == "[DONE]" {
                self.over = Some(Ok(()));
            } else if let Ok(value) = read_frame(data) {
                match self.value(&event.name, &value, &mut Vec::new()) {
                    Ok(Flow::More) => {}
                    Ok(Flow::Ended) => self.over = Some(Ok(())),
                    Err(verdict) => self.over = Some(Err(verdict)),
                }
            }
        }
        let (ended, fault) = match self.over {
            Some(Ok(())) => (true, None),
            Some(Err(verdict)) => (false, Some(verdict)),
            None => (false, None),
        };
        let (answer, is_complete) = match self.parts {
            Parts::Chat(parts) => parts.finish(ended),
            Parts::Responses(parts) => parts.finish(),
            Parts::Messages(parts) => parts.finish(),
        };
        match fault {
            Some(verdict) => Err(Unread { verdict, usage: answer.usage }),
            None if !is_complete => Err(Unread { verdict: broken_off(), usage: answer.usage }),
            None => Ok(answer),
        }
    }
}

/// The verdict on a stream without its end. Nothing of it is used.
pub(crate) fn broken_off() -> BallotVerdict {
    failed(ProviderFailure::Transport, "the stream ended before the answer was complete; nothing of it was used")
}
