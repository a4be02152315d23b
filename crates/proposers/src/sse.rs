//! Server-sent events out of bytes, however they are split. Own code because the decoders need it pure and bounded: no
//! event, and no line, grows beyond a limit. What is not here: what the events mean.

/// Longest event, in bytes of its data.
const MAX_EVENT: usize = 2 << 20;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    /// The name from the `event:` line, empty where there was none.
    pub(crate) name: String,
    /// The data lines, joined.
    pub(crate) data: String,
}

/// Why the bytes are no event stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    NotUtf8,
    TooLarge,
}

/// Turns bytes into events; what is pushed in which pieces makes no difference.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    line: Vec<u8>,
    name: String,
    data: String,
    has_data: bool,
    after_cr: bool,
    begun: bool,
}

impl Decoder {
    /// The events that these bytes complete. After a fault nothing more is to be pushed.
    pub(crate) fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), Fault> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_cr) && rest.first() == Some(&b'\n') {
                rest = rest.get(1..).unwrap_or_default();
                continue;
            }
            let end = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let (piece, after) = rest.split_at(end.unwrap_or(rest.len()));
            if self.line.len() + piece.len() + self.data.len() > MAX_EVENT {
                return Err(Fault::TooLarge);
            }
            self.line.extend_from_slice(piece);
            let Some((mark, after)) = after.split_first() else { break };
            self.after_cr = *mark == b'\r';
            rest = after;
            let line = std::mem::take(&mut self.line);
            self.line(&line, events)?;
        }
        Ok(())
    }

    /// The event that the stream ended in. It may be cut, so that nobody may complain about what it holds.
    pub(crate) fn tail(mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        // A line that was cut within a character says nothing.
        if !line.is_empty() {
            self.line(&line, &mut Vec::new()).ok()?;
        }
        self.has_data.then_some(Event { name: self.name, data: self.data })
    }

    fn line(&mut self, line: &[u8], events: &mut Vec<Event>) -> Result<(), Fault> {
        let mut text = std::str::from_utf8(line).map_err(|_| Fault::NotUtf8)?;
        if !std::mem::replace(&mut self.begun, true) {
            text = text.trim_start_matches('\u{feff}');
        }
        if text.is_empty() {
            let (name, data) = (std::mem::take(&mut self.name), std::mem::take(&mut self.data));
            if std::mem::take(&mut self.has_data) {
                events.push(Event { name, data });
            }
            return Ok(());
        }
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.name),
            // Comments, ids and waits mean nothing here.
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests fail loudly")]
mod tests {
    use super::*;

    fn all(bytes: &[u8], size: usize) -> (Result<Vec<Event>, Fault>, Option<Event>) {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        for chunk in bytes.chunks(size) {
            if let Err(fault) = decoder.push(chunk, &mut events) {
                return (Err(fault), None);
            }
        }
        (Ok(events), decoder.tail())
    }

    fn event(name: &str, data: &str) -> Event {
        Event { name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn every_split_gives_the_same_events() {
        let text = "\u{feff}event: a\r\ndata: 1\r\ndata:2\r\n\r\n: comment\n\ndata\n\nid: 7\nretry: 3\ndata: \u{1f600}\r\rdata: tail";
        let expected = vec![event("a", "1\n2"), event("", ""), event("", "\u{1f600}")];
        for size in 1..=text.len() {
            assert_eq!(all(text.as_bytes(), size), (Ok(expected.clone()), Some(event("", "tail"))), "{size}");
        }
    }

    #[test]
    fn half_characters_and_endless_lines_are_typed() {
        let cut = &"data: a\u{1f600}".as_bytes()[..9];
        assert_eq!(all(cut, 3), (Ok(vec![]), None));
        assert_eq!(all(b"data: \xff\n\n", 2).0, Err(Fault::NotUtf8));
        let endless = vec![b'x'; MAX_EVENT + 1];
        assert_eq!(all(&endless, 4096).0, Err(Fault::TooLarge));
        let lines = b"data: 0123456789\n".repeat(MAX_EVENT / 10);
        assert_eq!(all(&lines, 4096).0, Err(Fault::TooLarge));
        assert_eq!(all(&b": keep-alive\n".repeat(300_000), 4096).0.unwrap(), vec![]);
    }
}
