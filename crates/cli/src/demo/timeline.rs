//! A session's events as lines for people: proposal, decision, venue, outcome, ending. What is not here: fetching them.

use serde_json::Value;
use toolgate_client::Event;

/// One line per event that tells a reader something; bookkeeping is left out.
pub(super) fn lines(events: &[Event]) -> Vec<String> {
    events.iter().filter_map(line).collect()
}

fn line(event: &Event) -> Option<String> {
    let field = |name: &str| event.fields.get(name).unwrap_or(&Value::Null);
    let content = |name: &str| field("content").get(name).unwrap_or(&Value::Null);
    let step = event.step.map_or_else(|| "      ".to_owned(), |step| format!("step {step}"));
    let text = match event.kind.as_str() {
        "session_opened" => format!("request    {}", words(content("prompt"))),
        "message_received" => format!("message    {}", words(content("text"))),
        "profile_chosen" => {
            let label = field("label").as_str().map(|label| format!(" (label {label})")).unwrap_or_default();
            format!("profile    {}{label}", words(field("profile")))
        }
        "ballot_received" => format!("proposal   {}", proposal(event, field("content"))),
        "summary_received" => format!("summary    {}", words(content("text"))),
        "vote_widened" => format!("larger     {} asks for {} ballots", words(field("tool")), field("to")["n"]),
        "consensus_decided" => format!("consensus  {} needed {} of the ballots", words(field("result")), field("k")),
        "call_decided" => {
            let venue = field("venue").as_str().map(|venue| format!(" at the {venue}")).unwrap_or_default();
            let why = match (field("reason").as_str(), content("detail").as_str()) {
                (Some(reason), Some(detail)) => format!(": {reason} ({detail})"),
                (Some(reason), None) => format!(": {reason}"),
                (None, _) => String::new(),
            };
            format!("decision   {} {}{venue}{why}", words(field("decision")).to_uppercase(), words(content("tool")))
        }
        "client_attached" => format!("client     {} is ready to execute", words(field("client_id"))),
        "call_dispatched" => "dispatch   sent".to_owned(),
        "approval_decided" => format!("approval   {} by {}", words(field("decision")), words(field("by"))),
        "call_ended" => format!("outcome    {}", outcome(field("status"), field("content"))),
        "wrap_up_started" => "wrap-up    one turn is left, for a final answer".to_owned(),
        "step_ended" => format!("refused    {}: {}", words(field("reason")), words(content("text"))),
        "run_ended" => {
            let output = content("output");
            let output = if output.is_null() { String::new() } else { format!(": {}", words(output)) };
            format!("ending     {}{output}", words(field("ending")))
        }
        _ => return None,
    };
    Some(format!("  {:>3}  {step}  {text}", event.seq))
}

/// What a ballot asks for, in a few words.
fn proposal(event: &Event, content: &Value) -> String {
    let calls = content["calls"].as_array().map_or(&[][..], Vec::as_slice);
    if !calls.is_empty() {
        let calls: Vec<String> =
            calls.iter().map(|call| format!("{} {}", words(&call["tool"]), brief(&call["args"]))).collect();
        return calls.join(", ");
    }
    if !content["output"].is_null() {
        return format!("done: {}", words(&content["output"]));
    }
    let verdict = event.fields.get("verdict").map(words).unwrap_or_default();
    format!("{verdict} {}", words(&content["detail"]))
}

fn outcome(status: &Value, content: &Value) -> String {
    let output = &content["output"];
    let text = output.get("json").or_else(|| output.get("text")).filter(|text| !text.is_null());
    match (text, content["detail"].as_str()) {
        (Some(text), _) => format!("{} {}", words(status), brief(text)),
        (None, Some(detail)) => format!("{} ({detail})", words(status)),
        (None, None) => words(status),
    }
}

/// The beginning of a value.
fn brief(value: &Value) -> String {
    words(value).chars().take(90).collect()
}

/// A value without the quotes of JSON strings.
fn words(value: &Value) -> String {
    match value {
        Value::String(text) => text.trim_end().to_owned(),
        other => other.to_string(),
    }
}
