//! Plays a case: the shared catalogue of tools, the case's own answers, and the part of its expectations that reads the
//! same for every case. What is not here: what one case alone expects (`field_cases`).

use serde_json::{Value, json};
use toolgate_tests::fake_tool::Ran;
use toolgate_tests::world::{bundle, field_case, with};
use toolgate_tests::{FakeModel, FakeTool, TestServer};

/// What a case says about the run's end, and our code for it.
const ENDINGS: [(&str, &str); 3] = [
    ("final answer", "done"),
    ("step limit", "max_steps_exceeded"),
    (
        "repeated empty turns (own reason, before or at a small bound, not only max steps)",
        "max_parse_failures_exceeded",
    ),
];

/// What a case wants the model to be told, and the words that tell it.
const MENTIONS: [(&str, &[&str]); 17] = [
    ("tags is a string, the schema wants an array", &["`/tags`", "is not of type \"array\""]),
    ("send JSON directly, not inside a string", &["send JSON directly, not inside a string"]),
    ("output limit reached", &["output limit reached"]),
    ("arguments discarded", &["arguments discarded"]),
    ("send a smaller call", &["send a smaller call"]),
    ("no answer and no call received", &["no answer and no call received"]),
    ("not valid JSON", &["not valid JSON"]),
    ("double quotes", &["double quotes"]),
    ("control character", &["control character"]),
    ("offset or field", &["column"]),
    ("duplicate key amount_cents", &["duplicate key `amount_cents`"]),
    ("duplicate key command", &["duplicate key `command`"]),
    ("unknown tool functions.get_time", &["unknown_tool"]),
    ("did you mean get_time", &["available: `get_time`"]),
    ("more than one envelope", &["more than one envelope"]),
    ("the whole reply must be one envelope", &["whole reply must be one envelope"]),
    ("limit: null not allowed, leave it out", &["`/limit`: null not allowed, leave it out"]),
];

/// Changes to the set-up of a case.
#[derive(Default)]
pub(super) struct Set {
    model: Option<(&'static str, Value)>,
    limits: Option<Value>,
}

impl Set {
    /// A field of the model's entry.
    pub(super) fn model(field: &'static str, value: Value) -> Self {
        Self { model: Some((field, value)), limits: None }
    }

    /// The session's own bounds instead of the case's.
    pub(super) fn limits(limits: Value) -> Self {
        Self { model: None, limits: Some(limits) }
    }
}

/// A case that was played to the end of its run.
pub(super) struct Played {
    pub(super) case: Value,
    /// The case's expectations, with the chosen alternative laid over them.
    pub(super) expect: Value,
    pub(super) session: Value,
    pub(super) events: Vec<Value>,
    /// What reached the tools.
    pub(super) journal: Vec<Ran>,
    /// What the model was asked.
    pub(super) requests: Vec<Value>,
    /// Every text that the model was shown.
    pub(super) told: String,
    /// The texts that stand for results of tools.
    pub(super) told_as_results: String,
}

impl Played {
    pub(super) fn events_of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.events.iter().filter(move |event| event["type"] == kind)
    }

    pub(super) fn ballots(&self) -> impl Iterator<Item = &Value> {
        self.events_of("ballot_received")
    }

    /// The calls that reached a tool, in order.
    pub(super) fn executed(&self) -> Vec<(String, Value)> {
        let call = |ran: &Ran| (ran.tool.clone(), serde_json::from_str(&ran.body).unwrap());
        self.journal.iter().map(call).collect()
    }

    /// The ids that the provider gave to calls that reached a tool.
    fn executed_provider_ids(&self) -> Vec<String> {
        let of_call = |ran: &Ran| {
            let decided = self.events_of("call_decided").find(|event| event["call_id"] == ran.call_id).unwrap();
            let ballot = self.ballots().find(|ballot| ballot["step"] == decided["step"]).unwrap();
            let index = usize::try_from(decided["index"].as_u64().unwrap()).unwrap();
            ballot["content"]["calls"][index]["provider_id"].as_str().map(ToOwned::to_owned)
        };
        self.journal.iter().filter_map(of_call).collect()
    }
}

/// Plays a case as it is given. `chosen` points at the alternative that is ours; `by_hand` names the expectations that
/// the test itself looks at. Fails on any other expectation that is not met or not known.
pub(super) async fn play(id: &str, chosen: Option<&str>, by_hand: &[&str]) -> Played {
    play_with(id, chosen, by_hand, Set::default()).await
}

/// As `play`, with another set-up.
pub(super) async fn play_with(id: &str, chosen: Option<&str>, by_hand: &[&str], set: Set) -> Played {
    let case = field_case(id);
    let given = &case["given"];
    let envelope = case["kind"] == "envelope_text";
    let repeat = given["repeat_last"] == true;
    let model = FakeModel::start_with(answers(given, envelope, repeat), repeat).await;
    let results = given["tool_results"].clone();
    let tool = FakeTool::start(move |ran| match results[&ran.tool].as_str() {
        Some(text) => (200, text.as_bytes().to_vec()),
        None => (200, br#"{"ok":true}"#.to_vec()),
    })
    .await;
    let mut entry = model.entry();
    entry["calls"] = json!(if envelope { "envelope" } else { "native" });
    if let Some((field, value)) = set.model {
        entry[field] = value;
    }
    let steps = given["max_steps"].as_u64().unwrap_or(10);
    let harness =
        json!({"max_steps": steps.max(3), "max_tool_calls": 10, "deadline_ms": 60_000, "max_parse_failures": 4});
    let bundle = with(bundle(&entry, &catalogue(&tool, given)), "/default_harness", harness);
    let (server, caller) = TestServer::with_bundle(&bundle).await;
    let limits = set.limits.unwrap_or_else(|| json!({"max_steps": steps}));
    let body = json!({"profile": "default", "prompt": "Do it.", "limits": limits});
    let session = caller.post("/v1/sessions", &body).await.expect(201).json();
    let session_id = session["id"].as_str().unwrap();
    let session = caller.until_ended(session_id, 1).await;
    let events = caller.events(session_id).await;
    caller.verified(session_id).await;
    server.stop().await;
    // `requests` fails the test if a history was not valid: one result per call, none left over.
    let requests = model.requests();
    let shown = |results: bool| -> String {
        let messages = requests.iter().flat_map(|request| request["messages"].as_array().unwrap());
        let wanted = messages.filter(|message| !results || is_result(message));
        wanted.filter_map(|message| message["content"].as_str()).collect::<Vec<_>>().join("\n")
    };
    let (told, told_as_results) = (shown(false), shown(true));
    let mut expect = case["expect"].clone();
    let mut by_hand = by_hand.to_vec();
    if let Some(chosen) = chosen {
        let over = case["expect"].pointer(chosen).cloned().unwrap_or_else(|| json!({}));
        by_hand.extend(["any_of", "strict_mode"]);
        expect.as_object_mut().unwrap().extend(over.as_object().unwrap().clone());
    }
    let journal = tool.journal();
    let played = Played { case, expect, session, events, journal, requests, told, told_as_results };
    check(&played, &by_hand);
    played
}

/// The case's answers, and an end for runs that would ask on.
fn answers(given: &Value, envelope: bool, repeat: bool) -> Vec<Value> {
    let mut answers: Vec<Value> = if envelope {
        given["texts"].as_array().unwrap().iter().map(|text| FakeModel::text(&expanded(text))).collect()
    } else {
        given["responses"].as_array().unwrap().clone()
    };
    if !repeat {
        let end = if envelope { r#"{"type":"final_answer","output":"the end"}"# } else { "the end" };
        answers.push(FakeModel::text(end));
    }
    answers
}

/// A text of a case, its short forms written out.
fn expanded(text: &Value) -> String {
    if let Some(text) = text.as_str() {
        return text.to_owned();
    }
    let (form, parts) = text.as_object().unwrap().iter().next().unwrap();
    let times = usize::try_from(parts["times"].as_u64().unwrap()).unwrap();
    let part = |name: &str| parts[name].as_str().unwrap();
    match form.as_str() {
        "$repeat" => part("text").repeat(times),
        "$nest" => format!("{}{}", part("open").repeat(times), part("close").repeat(times)),
        other => panic!("no short form `{other}`"),
    }
}

/// The tools that the cases share, and the case's own. The venue is not what these cases test: all run at the stub.
fn catalogue(tool: &FakeTool, given: &Value) -> Value {
    let string = json!({"type": "string"});
    let strings = json!({"type": "array", "items": string});
    let limit = json!({"type": "integer", "minimum": 1, "maximum": 50});
    let mut shared = vec![
        ("get_time", "idempotent", json!({}), json!([])),
        ("search", "idempotent", json!({"query": string, "limit": limit}), json!(["query"])),
        ("set_tags", "once", json!({"tags": strings}), json!(["tags"])),
        ("transfer", "once", json!({"to": string, "amount_cents": {"type": "integer"}}), json!(["to", "amount_cents"])),
        ("write_file", "once", json!({"path": string, "content": string}), json!(["path", "content"])),
        ("read_file", "idempotent", json!({"path": string}), json!(["path"])),
        ("run_command", "once", json!({"command": string, "cwd": string}), json!(["command"])),
    ];
    let own = &given["tool_override"];
    if let Some(name) = own["name"].as_str() {
        shared.push((name, "once", own["schema"]["properties"].clone(), own["schema"]["required"].clone()));
    }
    let entry = |(name, class, properties, required): (&str, &str, Value, Value)| {
        let definition = json!({
            "description": format!("The tool {name}."), "venue": "server", "class": class,
            "executor": tool.executor(name),
            "parameters": {
                "type": "object", "properties": properties, "required": required, "additionalProperties": false
            }
        });
        (name.to_owned(), definition)
    };
    Value::Object(shared.into_iter().map(entry).collect())
}

fn is_result(message: &Value) -> bool {
    message["role"] == "tool" || message["content"].as_str().is_some_and(|text| text.starts_with("[tool result "))
}

fn pairs(calls: &Value) -> Vec<(String, Value)> {
    let pair = |pair: &Value| (pair[0].as_str().unwrap().to_owned(), pair[1].clone());
    calls.as_array().unwrap().iter().map(pair).collect()
}

fn check(played: &Played, by_hand: &[&str]) {
    let executed = played.executed();
    for (key, wanted) in played.expect.as_object().unwrap() {
        if by_hand.contains(&key.as_str()) {
            continue;
        }
        match key.as_str() {
            "executed" => assert_eq!(executed, pairs(wanted)),
            "executions" => assert_eq!(Some(executed.len() as u64), wanted.as_u64(), "{executed:?}"),
            "executed_includes" => {
                for pair in pairs(wanted) {
                    assert!(executed.contains(&pair), "{pair:?} is not among {executed:?}");
                }
            }
            "not_executed" => {
                let ran = played.executed_provider_ids();
                for id in wanted.as_array().unwrap() {
                    assert!(!ran.iter().any(|ran| id == ran), "{id} ran");
                }
            }
            "run_ends" => {
                let code = ENDINGS.iter().find(|(words, _)| wanted == words);
                let (_, code) = code.unwrap_or_else(|| panic!("no code for {wanted}"));
                assert_eq!(played.session["run"]["ending"], *code);
            }
            "final_output" => assert_eq!(played.session["run"]["output"], *wanted),
            "feedback_mentions" => {
                for words in wanted.as_array().unwrap() {
                    let known = MENTIONS.iter().find(|(mention, _)| words == mention);
                    let (_, parts) = known.unwrap_or_else(|| panic!("no words for {words}"));
                    let told = played.told.to_lowercase();
                    let missing = parts.iter().find(|part| !told.contains(&part.to_lowercase()));
                    assert!(missing.is_none(), "{words}: `{}` is not in {}", missing.unwrap(), played.told);
                }
            }
            "model_calls" => assert_eq!(Some(played.requests.len() as u64), wanted.as_u64()),
            "model_calls_at_most" => assert!(Some(played.requests.len() as u64) <= wanted.as_u64()),
            // Checked for every case, where the requests are taken from the stub.
            "history_valid" => assert_eq!(*wanted, true),
            other => panic!("nothing looks at the expectation `{other}`"),
        }
    }
}
