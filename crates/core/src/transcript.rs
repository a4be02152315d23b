//! What a proposer is shown, built from the state: the conversation with its provenance, the allowed tools, the gates.
//! What is not here: fitting it into a model's window, and any provider's format.

use crate::ask::{Ask, ToolView};
use crate::bundle::Bundle;
use crate::session::Session;

/// Builds what the models of the current round are asked. The same state gives the same question.
#[must_use]
pub fn ask(session: &Session, bundle: &Bundle) -> Ask {
    let profile = session.profile.as_ref().and_then(|name| bundle.profile(name));
    let hooks = profile.map(|profile| profile.prompt.clone()).unwrap_or_default();
    let mut instructions: Vec<String> = hooks.before.into_iter().collect();
    if !session.trace_requirements.is_empty() {
        instructions.push(evidence_note(session));
    }
    instructions.extend(hooks.after);
    let tools = profile
        .map(|profile| profile.tools.iter().filter_map(|id| bundle.tool(id)).collect::<Vec<_>>())
        .unwrap_or_default()
        .into_iter()
        .map(|tool| ToolView {
            id: tool.id.clone(),
            description: tool.def.description.clone(),
            parameters: tool.parameters.shown().clone(),
        })
        .collect();
    let own = session.opened.as_ref().and_then(|opened| opened.output_schema.clone());
    let of_profile = session.profile.as_ref().and_then(|name| bundle.output_schema(name));
    Ask {
        instructions,
        transcript: session.transcript.iter().map(|entry| (**entry).clone()).collect(),
        tools,
        output_schema: own.or_else(|| of_profile.map(|schema| schema.shown().clone())),
        answers_so_far: session.rounds,
    }
}

fn evidence_note(session: &Session) -> String {
    let needed: Vec<String> =
        session.trace_requirements.iter().map(|(tag, count)| format!("`{tag}`: {count}")).collect();
    format!("Before you finish, this many calls of tools with these tags must have succeeded: {}.", needed.join(", "))
}
