//! What a text protocol is: how calls are asked for in words, and how a text is read. Another one than the JSON envelope can
//! be given to `Proposers::with_protocol`. What is not here: the frames around results, which are the same for all.

use std::fmt;

use toolgate_core::ask::Ask;

use super::parse::{Parsed, Refused, parse};
use super::{of_calls, render, repair};

/// How calls and answers travel as text. Pure: the same arguments give the same text and the same reading.
pub trait ToolProtocol: Send + Sync + fmt::Debug {
    /// The text for the system role: how to call, how to finish, the tools with their schemas, the schema of the output.
    fn instructions(&self, ask: &Ask) -> String;

    /// Reads a whole reply. What is refused runs nothing and is fed back; what is put right is named.
    fn parse(&self, text: &str, lenient: bool) -> Result<Parsed, Refused>;

    /// Earlier calls as the model would have written them: names and the JSON text of arguments.
    fn calls(&self, calls: &[(&str, &str)]) -> String;

    /// The right form in one line, for a model that used another one.
    fn remedy(&self) -> &str;
}

/// The JSON envelope.
#[derive(Debug, Clone, Copy, Default)]
pub struct JsonEnvelope;

impl ToolProtocol for JsonEnvelope {
    fn instructions(&self, ask: &Ask) -> String {
        render::protocol(ask)
    }

    fn parse(&self, text: &str, lenient: bool) -> Result<Parsed, Refused> {
        parse(text, lenient)
    }

    fn calls(&self, calls: &[(&str, &str)]) -> String {
        of_calls(calls.iter().copied())
    }

    fn remedy(&self) -> &str {
        repair::REMEDY
    }
}
