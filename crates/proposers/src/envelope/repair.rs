//! What a model is told about a reply that is no envelope: the reason, the offending text, the right form. What is not
//! here: any change of the text; nothing is ever repaired for the model.

use toolgate_core::json::JsonFault;
use toolgate_core::proposal::MalformedReason;

use super::parse::Refused;
use crate::quote::{clip, detail, reason_of};

/// The right form, in one line.
pub(super) const REMEDY: &str = "The whole reply must be one envelope: {\"type\":\"tool_call\",\"calls\":[{\"id\":\"1\",\
    \"name\":\"...\",\"args\":{}}]} or {\"type\":\"final_answer\",\"output\":\"...\"}";

/// A refusal that says what is wrong and quotes the offence.
pub(super) fn refuse(reason: MalformedReason, what: &str, offence: &str) -> Refused {
    // The remedy is what helps most, so the quotation gives way to it.
    let room = 380_usize.saturating_sub(what.chars().count() + REMEDY.chars().count()).clamp(20, 120);
    let quoted = clip(offence.trim(), room);
    Refused { reason, detail: detail(&format!("{}: `{quoted}`. {REMEDY}", clip(what, 180))) }
}

/// A refusal for JSON that cannot be read.
pub(super) fn refuse_json(fault: &JsonFault, offence: &str) -> Refused {
    refuse(reason_of(fault.kind), &fault.to_string(), offence)
}
