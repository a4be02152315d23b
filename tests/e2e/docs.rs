//! Pages against what they speak of: the table and the examples of events, the tests and files that pages name, the
//! list of decisions. Error codes, frames and the OpenAPI document are compared where they are made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use toolgate_core::event::Event;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn page(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The pages that are written by hand.
fn pages() -> Vec<String> {
    let mut found: Vec<String> =
        ["README.md", "LIMITATIONS.md", "CHANGELOG.md", "migrations/README.md"].map(str::to_owned).into();
    for folder in ["docs", "docs/adr"] {
        for entry in std::fs::read_dir(root().join(folder)).unwrap() {
            let name = entry.unwrap().file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") {
                found.push(format!("{folder}/{name}"));
            }
        }
    }
    assert!(found.len() > 20, "the pages are found");
    found
}

/// The cells of every table row whose first cell is a code span or matches `first`.
fn rows(text: &str) -> Vec<Vec<String>> {
    let is_row = |line: &&str| line.starts_with("| ");
    text.lines()
        .filter(is_row)
        .map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// What stands in back-ticks on one line.
fn code_spans(text: &str) -> Vec<String> {
    let mut fenced = false;
    let prose: Vec<&str> = text
        .lines()
        .filter(|line| {
            let fence = line.trim_start().starts_with("```");
            fenced ^= fence;
            !fenced && !fence
        })
        .collect();
    prose.join("\n").split('`').skip(1).step_by(2).map(|span| span.replace('\n', " ")).collect()
}

/// The smallest event of each kind as it is stored; of `call_ended` both forms.
fn smallest_events() -> Vec<Event> {
    let digest = format!("sha256:{}", "0".repeat(64));
    let call = format!("call_{}", "0".repeat(32));
    let approval = format!("apr_{}", "0".repeat(32));
    let seat = json!({"run": 1, "step": 1, "round": 1, "ballot": 1, "attempt": 1});
    let ballot = json!({"verdict": {"failed": {"reason": "transport", "detail": ""}}, "text": "", "normalised": [], "usage": {}});
    let limits = json!({"max_steps": 1, "max_tool_calls": 1, "max_model_calls": 1, "deadline_ms": 1, "max_parallel_calls": 1,
        "max_consecutive_rejections": 1, "max_parse_failures": 1, "repeat_limit": 1, "ballots": 1});
    let dispatch = json!({"attempt": 1, "deadline_at": 0});
    let ended = |cause: Value| {
        json!({"kind": "call_ended", "call": call, "run": 1, "step": 1, "attempt": 1, "end": {"outcome": "ok"}, "cause": cause,
            "output_bytes": 0, "content": {}})
    };
    let events = [
        json!({"kind": "session_opened", "tenant": "t", "by": "ada", "bundle": digest, "capabilities": [], "limits": {},
            "rules_version": 1, "content": {"prompt": "", "metadata": {}}}),
        json!({"kind": "owner_changed", "node": "n", "incarnation": 1}),
        json!({"kind": "classification_received", "attempt": 1, "usage": {}, "content": {}}),
        json!({"kind": "profile_chosen", "profile": "p", "trace_requirements": {}}),
        json!({"kind": "message_received", "by": "ada", "content": {"text": ""}}),
        json!({"kind": "run_started", "run": 1, "rules_version": 1, "schema_engine": "", "limits": limits, "deadline_at": 0}),
        json!({"kind": "ballot_received", "seat": seat, "of": 1, "verdict": "failed", "calls": 0, "usage": {},
            "content": {"ballot": ballot, "redacted": []}}),
        json!({"kind": "summary_asked", "seat": seat, "model": "m", "entries": 3, "answers": 1}),
        json!({"kind": "summary_received", "seat": seat, "usage": {}, "charged": {"tokens": 0, "cost_microusd": 0}, "content": {}}),
        json!({"kind": "vote_widened", "run": 1, "step": 1, "round": 1, "from": {"n": 1, "rule": "k_of_n", "k": 1},
            "to": {"n": 3, "rule": "majority", "k": 2}, "tool": "t", "why": "risk"}),
        json!({"kind": "consensus_decided", "run": 1, "step": 1, "round": 1, "k": 1, "tally": {"groups": [], "unreadable": []},
            "result": "rejected"}),
        json!({"kind": "call_decided", "call": call, "run": 1, "step": 1, "index": 0, "decided_at": 0, "tags": [], "decision": "reject",
            "layer": "form", "rules": [], "args_bytes": 0, "content": {"tool": "t", "redacted": false}}),
        json!({"kind": "call_dispatched", "call": call, "run": 1, "step": 1, "dispatch": dispatch}),
        json!({"kind": "call_acknowledged", "call": call, "attempt": 1, "instance": "i"}),
        ended(json!({"reported": "server"})),
        ended(json!("timeout")),
        json!({"kind": "admission_answered", "call": call, "run": 1, "step": 1, "hook": "h", "attempt": 1, "verdict": "allow",
            "content": {"redacted": false}}),
        json!({"kind": "approval_reminded", "approval": approval, "call": call, "run": 1, "step": 1, "reminder": 1,
            "expires_at": 0}),
        json!({"kind": "budget_reserved", "run": 1, "step": 1, "round": 1, "attempt": 1, "ballots": []}),
        json!({"kind": "reservation_answered", "purpose": {"call": {"call": call}}, "answer": "granted"}),
        json!({"kind": "budget_settled", "settled": []}),
        json!({"kind": "run_paused", "run": 1, "step": 1, "call": call, "bound": "max_steps", "used": 1, "limit": 1,
            "approval": {"id": approval, "requested_at": 0, "expires_at": 0, "digest": digest},
            "content": {"args": "{}"}}),
        json!({"kind": "approval_decided", "approval": approval, "call": call, "by": "ada",
            "digest": digest, "decision": "deny", "content": {"redacted": false}}),
        json!({"kind": "wrap_up_started", "run": 1, "step": 2}),
        json!({"kind": "step_ended", "run": 1, "step": 1, "reason": "malformed", "deficits": {}, "content": {"text": ""}}),
        json!({"kind": "run_ended", "run": 1, "ending": "done", "steps": 1, "tool_calls": 0, "model_calls": 1, "content": {}}),
        json!({"kind": "client_attached", "instance": "i", "by": "ada", "capabilities": []}),
        json!({"kind": "cancel_requested", "by": "ada", "content": {}}),
        json!({"kind": "close_requested", "by": "ada", "content": {}}),
        json!({"kind": "session_closed", "runs": 1}),
        json!({"kind": "ticked", "run": 1}),
        json!({"kind": "recovered", "run": 1}),
        json!({"kind": "outcome_refused", "run": 1, "call": call, "code": "late_outcome", "reporter": "server", "claimed": "ok"}),
    ];
    events
        .into_iter()
        .map(|event| serde_json::from_value(event.clone()).unwrap_or_else(|e| panic!("{event}: {e}")))
        .collect()
}

/// Every kind that the stored form knows, as serde names them for a kind that is none.
fn all_kinds() -> BTreeSet<String> {
    let error = serde_json::from_value::<Event>(json!({"kind": "no_such_kind"})).unwrap_err().to_string();
    let (_, listed) = error.split_once("expected one of").unwrap();
    listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_kind_of_event_has_its_row() {
    let mut code: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for event in smallest_events() {
        let word = match (&event, event.is_input()) {
            (Event::OwnerChanged(_), _) => "store",
            (_, true) => "input",
            (_, false) => "decision",
        };
        code.entry(event.kind().to_owned()).or_default().insert(word);
    }
    assert_eq!(code.keys().cloned().collect::<BTreeSet<_>>(), all_kinds(), "an event is missing above");
    let mut documented: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for row in rows(&page("docs/EVENTS.md")) {
        let [kind, is, ..] = row.as_slice() else { continue };
        let Some(kind) = kind.strip_prefix('`').and_then(|kind| kind.strip_suffix('`')) else { continue };
        let words: BTreeSet<String> = is.split(" or ").map(str::to_owned).collect();
        if words.iter().all(|word| ["input", "decision", "store"].contains(&word.as_str())) {
            assert_eq!(documented.insert(kind.to_owned(), words), None, "`{kind}` has two rows");
            assert!(row.iter().all(|cell| !cell.is_empty()) && row.len() == 5, "`{kind}` has an empty cell");
        }
    }
    let code: BTreeMap<String, BTreeSet<String>> =
        code.into_iter().map(|(kind, words)| (kind, words.into_iter().map(str::to_owned).collect())).collect();
    assert_eq!(documented, code);
}

#[test]
fn every_kind_of_event_has_an_example_that_fits_the_schema() {
    let schema: Value = serde_json::from_str(&page("schemas/channel.schema.json")).unwrap();
    let schema = json!({"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": "#/$defs/EventView"});
    let validator = jsonschema::validator_for(&schema).unwrap();
    let text = page("docs/EVENTS.md");
    let mut shown = BTreeSet::new();
    for line in text.lines().filter(|line| line.starts_with("{\"seq\"")) {
        let example: Value = serde_json::from_str(line).unwrap();
        let faults: Vec<String> = validator.iter_errors(&example).map(|fault| fault.to_string()).collect();
        assert!(faults.is_empty(), "{line}\n{faults:?}");
        shown.insert(example["type"].as_str().unwrap().to_owned());
    }
    assert_eq!(shown, all_kinds());
}

/// Where the short names of test folders lead.
const FOLDERS: [(&str, &str); 9] = [
    ("core/", "crates/core/tests/it/"),
    ("script/", "crates/core/tests/scripts/"),
    ("store/", "crates/store/tests/it/"),
    ("proposers/", "crates/proposers/tests/it/"),
    ("server/", "crates/server/tests/it/"),
    ("client/", "crates/client/tests/it/"),
    ("cli/", "crates/cli/tests/it/"),
    ("e2e/", "tests/e2e/"),
    ("show/", "show/"),
];

/// Whether a reference `file::test`, a file, or `show/NAME` leads somewhere; says what is missing.
fn leads_nowhere(reference: &str) -> Option<String> {
    let (file, test) = reference.split_once("::").map_or((reference, None), |(file, test)| (file, Some(test)));
    let short = FOLDERS.iter().find_map(|(short, long)| file.strip_prefix(short).map(|rest| format!("{long}{rest}")));
    let file = short.unwrap_or_else(|| file.to_owned());
    if let Some(name) = file.strip_prefix("show/") {
        let known = page("scripts/show").lines().any(|line| line.trim_end_matches(')').trim() == name);
        return (!known).then(|| format!("`scripts/show` does not know `{name}`"));
    }
    let path = root().join(&file);
    let Some(test) = test else { return (!path.exists()).then(|| format!("`{file}` does not exist")) };
    let Ok(text) = std::fs::read_to_string(&path) else { return Some(format!("`{file}` does not exist")) };
    (!text.contains(&format!("fn {test}("))).then(|| format!("`{file}` has no `{test}`"))
}

#[test]
fn seeds_are_shown_by_tests_that_exist() {
    let text = page("docs/SEEDS.md");
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    for row in rows(&text) {
        let [id, what, status, shown] = row.as_slice() else { continue };
        if !id.starts_with(['S', 'T', 'R', 'X']) || id[1..].parse::<u32>().is_err() {
            continue;
        }
        assert!(ids.insert(id.clone()), "{id} stands twice");
        assert!(!what.is_empty());
        let references = code_spans(shown);
        let tests =
            references.iter().filter(|span| span.contains("::") || span.contains(".txt") || span.starts_with("show/"));
        match status.as_str() {
            "covered" => assert!(tests.count() > 0, "{id} names no test"),
            "open" => assert!(
                ["decisions", "engine", "models", "later"].iter().any(|part| shown.starts_with(part)),
                "{id}: {shown}"
            ),
            other => panic!("{id}: `{other}` is no status"),
        }
        let named = references.iter().filter(|span| span.contains('/'));
        faults.extend(named.filter_map(|span| leads_nowhere(span)).map(|fault| format!("{id}: {fault}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let expected = [('S', 68), ('T', 62), ('R', 33), ('X', 36)];
    let expected: BTreeSet<String> =
        expected.iter().flat_map(|(letter, most)| (1..=*most).map(move |n| format!("{letter}{n}"))).collect();
    assert_eq!(ids, expected, "every row has its line");
}

#[test]
fn pages_name_files_and_tests_that_exist() {
    let mut code = String::new();
    for folder in ["crates", "tests"] {
        all_code(&root().join(folder), &mut code);
    }
    let mut faults = Vec::new();
    for name in pages() {
        let text = page(&name);
        let folder = root().join(&name).parent().unwrap().to_owned();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            if !file.is_empty() && !link.contains("://") && !folder.join(file).exists() {
                faults.push(format!("{name}: the link `{link}` leads nowhere"));
            }
        }
        for span in code_spans(&text) {
            let starts = ["crates/", "tests/", "scripts/", "migrations/", "config/", "schemas/", "docs/"];
            let path = starts.iter().any(|start| span.starts_with(start)) && !span.contains(['{', '<', ' ', '*', '…']);
            if path || (span.contains("::") && FOLDERS.iter().any(|(short, _)| span.starts_with(short))) {
                faults.extend(leads_nowhere(&span).map(|fault| format!("{name}: {fault}")));
            }
            // A name this long is a sentence: a test, named without its file.
            let sentence = span.matches('_').count() >= 4 && span.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            // Unless it is a word of the program.
            if sentence && !code.contains(&format!("fn {span}(")) && !code.contains(&format!("\"{span}\"")) {
                faults.push(format!("{name}: there is no test `{span}`"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Every Rust file below a folder, one after the other.
fn all_code(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.ends_with("target") {
            all_code(&path, text);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_decision_is_listed() {
    let list = page("docs/adr/README.md");
    for entry in std::fs::read_dir(root().join("docs/adr")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        if name == "README.md" {
            continue;
        }
        let text = page(&format!("docs/adr/{name}"));
        let title = text.lines().next().unwrap().trim_start_matches("# ").to_owned();
        let (number, title) = title.split_once(". ").unwrap();
        assert!(list.contains(&format!("| [{number}]({name}) | {title} |")), "{name} is not listed under its title");
        for part in ["**Question.**", "**Decision.**", "**Why.**"] {
            assert!(text.contains(part), "{name} has no {part}");
        }
    }
}

/// The section of the page on policies, under tools that have what it speaks of; its example is judged at load.
#[test]
fn the_sample_policies_compile() {
    let page = page("docs/POLICIES.md");
    let sample = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).expect("the sample");
    let sample: Value = serde_saphyr::from_str(sample).expect("YAML");
    let tool = |args: Value, tags: &[&str]| {
        let required: Vec<&String> = args.as_object().unwrap().keys().collect();
        json!({"description": "Sample.", "venue": "server", "class": "read", "executor": {"builtin": "echo"}, "tags": tags,
            "parameters": {"type": "object", "properties": args, "required": required}})
    };
    let text = json!({"type": "string"});
    let tools = json!({
        "refund": tool(json!({"customer": text, "amount_cents": {"type": "integer"}}), &[]),
        "find_customer": tool(json!({"name": text}), &["research"]),
        "shell": tool(json!({"argv": {"type": "array", "items": text}}), &[]),
        "read_file": tool(json!({"path": text}), &[]),
        "fetch": tool(json!({"url": text}), &[]),
        "drop_table": tool(json!({}), &[]),
    });
    let names: Vec<&String> = tools.as_object().unwrap().keys().collect();
    let bundle = json!({
        "version": 1,
        "models": {"m": {"provider": "scripted", "script": [{"done": "over"}]}},
        "default_model": "m",
        "default_harness": {"max_steps": 5, "max_tool_calls": 5, "deadline_ms": 600_000},
        "tools": tools,
        "profiles": {"payments": {"tools": names}},
        "policies": sample["policies"],
    });
    let loaded = toolgate_core::bundle::Bundle::load(&bundle.to_string());
    assert!(loaded.is_ok(), "{:#?}", loaded.err());
    // The page's rows name the sections that there are, and the sample has one of each.
    for section in sample["policies"].as_object().unwrap().keys() {
        assert!(page.contains(&format!("| `{section}` |")), "`{section}` has no row");
    }
}
