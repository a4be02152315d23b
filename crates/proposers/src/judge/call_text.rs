//! Recognises a call that a model wrote as plain text although it has native calls. Only the whole text counts: prose
//! is never searched, because documents quoted in prose would run. What is not here: the text envelope.

use serde_json::Value;
use toolgate_core::json::read_strict;

use crate::answer::RawCall;

/// A text that is nothing but calls.
#[derive(Debug)]
pub(super) struct CallText {
    /// The calls in it; `None` where the text has the shape but cannot be read strictly.
    pub(super) calls: Option<Vec<RawCall>>,
}

/// The calls a text consists of, or `None` where it is an answer. `is_offered` tells whether a name is a tool's.
pub(super) fn read(text: &str, expects_json: bool, is_offered: impl Fn(&str) -> bool) -> Option<CallText> {
    let body = unfenced(text.trim());
    let mut calls = Vec::new();
    let mut is_strict = true;
    let mut rest = skip_marks(body);
    while !rest.is_empty() {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        let Some(Ok(value)) = values.next() else {
            let is_broken_call = !expects_json && looks_like_call(body);
            return is_broken_call.then_some(CallText { calls: None });
        };
        let (source, after) = rest.split_at(values.byte_offset().min(rest.len()));
        is_strict &= read_strict(source).is_ok();
        match value {
            Value::Array(items) if !items.is_empty() => {
                for item in items {
                    calls.push(call_of(&item, expects_json, &is_offered)?);
                }
            }
            item => calls.push(call_of(&item, expects_json, &is_offered)?),
        }
        rest = skip_marks(after);
    }
    if calls.is_empty() {
        return None;
    }
    Some(CallText { calls: is_strict.then_some(calls) })
}

fn call_of(item: &Value, expects_json: bool, is_offered: impl Fn(&str) -> bool) -> Option<RawCall> {
    let outer = item.as_object()?;
    let call = outer.get("function").and_then(Value::as_object).unwrap_or(outer);
    let name = call.get("name").and_then(Value::as_str)?;
    let args = ["arguments", "args", "parameters", "input"].iter().find_map(|key| call.get(*key));
    let has_args = args.is_some_and(|args| args.is_object() || args.is_string() || args.is_null());
    let known = ["name", "arguments", "args", "parameters", "input", "id", "type", "function", "description"];
    let is_call =
        if is_offered(name) { call.keys().all(|key| known.contains(&key.as_str())) } else { has_args && !expects_json };
    is_call.then(|| RawCall {
        id: outer.get("id").and_then(Value::as_str).map(str::to_owned),
        name: Some(name.to_owned()),
        args: args.cloned(),
        extra: None,
    })
}

/// A text that starts like a call and names arguments, but is no JSON.
fn looks_like_call(body: &str) -> bool {
    let starts = body.starts_with(['{', '[']) || body.starts_with("<tool_call>") || body.starts_with("[TOOL_CALLS]");
    let has_name = body.contains("\"name\"");
    starts && has_name && ["\"arguments\"", "\"parameters\"", "\"args\""].iter().any(|key| body.contains(key))
}

/// The inside of a code fence that wraps the whole text.
fn unfenced(text: &str) -> &str {
    let inside = text.strip_prefix("```").and_then(|t| t.strip_suffix("```"));
    match inside {
        Some(inside) => inside.trim_start_matches(|c: char| c.is_ascii_alphabetic()).trim(),
        None => text,
    }
}

fn skip_marks(text: &str) -> &str {
    let mut rest = text;
    loop {
        let trimmed = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',' || c == ';');
        let stripped =
            ["<tool_call>", "</tool_call>", "[TOOL_CALLS]"].iter().find_map(|mark| trimmed.strip_prefix(mark));
        match stripped {
            Some(after) => rest = after,
            None => return trimmed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str, expects_json: bool) -> Option<Option<usize>> {
        read(text, expects_json, |name| ["get_time", "search"].contains(&name))
            .map(|found| found.calls.map(|c| c.len()))
    }

    #[test]
    fn only_a_text_that_is_nothing_but_calls_counts() {
        for (text, calls) in [
            ("{\"name\":\"get_time\"}\n{\"name\":\"search\",\"arguments\":{\"query\":\"a\"}}", Some(Some(2))),
            ("```json\n{\"name\": \"rm\", \"arguments\": {}}\n```", Some(Some(1))),
            ("<tool_call>{\"name\":\"get_time\",\"arguments\":{}}</tool_call>", Some(Some(1))),
            ("[{\"type\":\"function\",\"function\":{\"name\":\"search\",\"arguments\":\"{}\"}}]", Some(Some(1))),
            ("{\"name\":\"search\",\"arguments\":{\"a\":1,\"a\":2}}", Some(None)),
            ("{\"name\":\"search\",\"arguments\":{query:\"a\"}}", Some(None)),
            ("You can call it like {\"name\":\"get_time\"} if you want.", None),
            ("{\"name\":\"Alice\"}", None),
            ("{\"name\":\"get_time\",\"age\":3}", None),
            ("{\"answer\":42}", None),
            ("42", None),
            ("[]", None),
            ("", None),
        ] {
            assert_eq!(count(text, false), calls, "{text}");
        }
        // Where JSON is the expected answer, only a call of an offered tool is taken for one.
        assert_eq!(count("{\"name\":\"review\",\"arguments\":{}}", true), None);
        assert_eq!(count("{\"name\":\"search\",\"arguments\":{}}", true), Some(Some(1)));
    }
}
