//! What a proposer is shown, built from the state: the conversation with its provenance, the allowed tools, the gates.
//! What is not here: fitting it into a model's window, and any provider's format.

use crate::ask::{Ask, ToolView};
use crate::bundle::Bundle;
use crate::session::Session;

/// Builds what the model of a ballot of the current round is asked. The same state gives the same question; ballots differ
/// only where the profile's votes have `variety`.
#[must_use]
pub fn ask(session: &Session, bundle: &Bundle, ballot: u32) -> Ask {
    let profile = session.profile.as_ref().and_then(|name| bundle.profile(name));
    let hooks = profile.map(|profile| profile.prompt.clone()).unwrap_or_default();
    let mut instructions: Vec<String> = hooks.before.map(|text| filled(&text, session)).into_iter().collect();
    if !session.trace_requirements.is_empty() {
        instructions.push(evidence_note(session));
    }
    instructions.extend(hooks.after.map(|text| filled(&text, session)));
    let variety = profile.and_then(|profile| profile.consensus.as_ref()).map_or(&[][..], |c| c.variety.as_slice());
    instructions.extend(in_turn(variety, ballot).map(|text| filled(text, session)));
    let wraps_up = session.active_run().is_some_and(|run| run.wrapping_up);
    if wraps_up {
        instructions.push(WRAP_UP.to_owned());
    }
    let tools = profile
        .filter(|_| !wraps_up)
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
        transcript: session.transcript.clone(),
        tools,
        output_schema: own.or_else(|| of_profile.map(|schema| schema.shown().clone())),
        answers_so_far: session.rounds,
    }
}

/// What a model is told in the turn that it gets to finish in.
const WRAP_UP: &str = "This is your last turn: the steps are used up, and no tool can be called any more. Give your final answer \
                       now, from what is known so far, and say what is missing.";

/// What a ballot gets of a list that goes round.
pub(crate) fn in_turn<T>(list: &[T], ballot: u32) -> Option<&T> {
    let place = usize::try_from(ballot.saturating_sub(1)).unwrap_or(0).checked_rem(list.len())?;
    list.get(place)
}

fn evidence_note(session: &Session) -> String {
    let needed: Vec<String> =
        session.trace_requirements.iter().map(|(tag, count)| format!("`{tag}`: {count}")).collect();
    format!("Before you finish, this many calls of tools with these tags must have succeeded: {}.", needed.join(", "))
}

/// The values that a prompt hook may name as `{{name}}`: those of the moment in which the model is asked.
pub(crate) const VALUES: [&str; 9] = [
    "run",
    "step",
    "steps_left",
    "model_calls_left",
    "tool_calls_left",
    "tokens_left",
    "cost_microusd_left",
    "profile",
    "label",
];

/// The first `{{name}}` of a text that names no value.
pub(crate) fn unknown_value(text: &str) -> Option<&str> {
    text.split("{{").skip(1).find_map(|rest| {
        let name = rest.split_once("}}")?.0.trim();
        (!VALUES.contains(&name)).then_some(name)
    })
}

/// The text with its values. What has no bound is `unlimited`.
fn filled(text: &str, session: &Session) -> String {
    let mut parts = text.split("{{");
    let mut out = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        match rest.split_once("}}") {
            Some((name, tail)) => {
                out.push_str(&value(name.trim(), session));
                out.push_str(tail);
            }
            None => {
                out.push_str("{{");
                out.push_str(rest);
            }
        }
    }
    out
}

fn value(name: &str, session: &Session) -> String {
    let run = session.run.as_ref();
    let left = |used: u64, limit: Option<u64>| {
        limit.map_or_else(|| "unlimited".to_owned(), |limit| limit.saturating_sub(used).to_string())
    };
    let counted = |used: u32, limit: u32| left(u64::from(used), Some(u64::from(limit)));
    match (name, run) {
        ("run", run) => run.map_or(1, |run| run.no).to_string(),
        ("step", Some(run)) => (run.steps + 1).to_string(),
        ("steps_left", Some(run)) => counted(run.steps, run.most_steps()),
        ("model_calls_left", Some(run)) => counted(run.model_calls, run.limits.max_model_calls),
        ("tool_calls_left", Some(run)) => counted(run.tool_calls, run.limits.max_tool_calls),
        ("tokens_left", Some(run)) => left(run.spent.tokens, run.limits.max_tokens),
        ("cost_microusd_left", Some(run)) => left(run.spent.cost_microusd, run.limits.max_cost_microusd),
        ("profile", _) => session.profile.as_ref().map(ToString::to_string).unwrap_or_default(),
        ("label", _) => session.label.as_ref().map(ToString::to_string).unwrap_or_default(),
        _ => String::new(),
    }
}
