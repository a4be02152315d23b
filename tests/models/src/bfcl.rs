//! The public function-calling data: every schema registers, every true call is valid, and both survive the way to a
//! provider and back. Names are made Toolgate's by a stated mapping: lower case, anything else a `_`, a number where two
//! would be one. What is not here: the mapping of the data's type words (`scripts/models/bfcl_to_cases.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::ask::{Ask, ToolView};
use toolgate_core::bundle::dialect;
use toolgate_core::bundle::model::{ModelDef, Provider};
use toolgate_core::id::ToolId;
use toolgate_core::json::Json;
use toolgate_core::proposal::{BallotVerdict, Proposal, ProposedArgs};
use toolgate_core::schema::{Schema, describe};
use toolgate_proposers::{Reply, decode, encode};

use crate::report::Report;
use crate::{Error, lines};

#[derive(Deserialize)]
struct Case {
    id: String,
    tools: Vec<Tool>,
    calls: Vec<Call>,
}

#[derive(Deserialize)]
struct Tool {
    name: String,
    description: String,
    parameters: Value,
}

#[derive(Deserialize)]
struct Call {
    name: String,
    args: Value,
    valid: bool,
}

pub(crate) fn run(cases: &Path, known: &Path) -> Result<Report, Error> {
    let cases: Vec<Case> = lines::read(cases)?;
    let known = std::fs::read_to_string(known).map_err(|error: io::Error| Error::File(known.to_owned(), error))?;
    let known = known.lines().filter(|line| !line.starts_with('#')).count() as u64;
    let def = json!({"provider": "openai", "base_url": "http://127.0.0.1:9", "model": "m"});
    let def: ModelDef = serde_json::from_value(def).map_err(|error| Error::Line("a definition".into(), 0, error))?;
    let mut report = Report::default();
    let mut distinct = BTreeSet::new();
    for case in &cases {
        report.count("tests", 1);
        let tools = register(case, &mut distinct, &mut report);
        let calls: Vec<&Call> = case.calls.iter().collect();
        for call in &calls {
            judge(case, call, &tools, &mut report);
        }
        round(case, &calls, &tools, &def, &mut report);
    }
    report.count("distinct schemas", distinct.len() as u64);
    let refused = report.counted("calls that are wrong in the data, refused");
    if refused != known {
        report.fail(format!("{refused} calls are refused, {known} are known to be wrong"));
    }
    if cases.is_empty() {
        report.fail("no test was read".to_owned());
    }
    Ok(report)
}

struct Registered<'a> {
    id: ToolId,
    schema: Schema,
    tool: &'a Tool,
}

type Tools<'a> = BTreeMap<&'a str, Registered<'a>>;

/// Registers the tools of a test under names that Toolgate takes.
fn register<'a>(case: &'a Case, distinct: &mut BTreeSet<String>, report: &mut Report) -> Tools<'a> {
    let mut tools = Tools::new();
    let mut used = BTreeSet::new();
    for tool in &case.tools {
        report.count("tools", 1);
        distinct.insert(tool.parameters.to_string());
        let base: String = tool
            .name
            .chars()
            .take(60)
            .map(|c| c.to_ascii_lowercase())
            .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' })
            .collect();
        let numbered = (2..).map(|n| format!("{base}-{n}"));
        let name = std::iter::once(base.clone()).chain(numbered).take(1_000).find(|name| used.insert(name.clone()));
        let id = ToolId::new(name.unwrap_or_default());
        match (id, Schema::for_arguments(&tool.parameters)) {
            (Ok(id), Ok(schema)) => {
                report.count("tools registered", 1);
                tools.insert(&tool.name, Registered { id, schema, tool });
            }
            (Err(error), _) => report.fail(format!("{} {}: {error}", case.id, tool.name)),
            (_, Err(fault)) => report.fail(format!("{} {}: {fault}", case.id, tool.name)),
        }
    }
    tools
}

fn judge(case: &Case, call: &Call, tools: &Tools<'_>, report: &mut Report) {
    report.count("calls", 1);
    let place = format!("{}/{}", case.id, call.name);
    let Some(registered) = tools.get(call.name.as_str()) else {
        return report.fail(format!("{place}: no such tool"));
    };
    let args = Json::from_value(&call.args);
    let found = registered.schema.mismatches(&args.value(), false);
    match (call.valid, found.is_empty()) {
        (true, true) => report.count("calls that are valid", 1),
        (false, false) => report.count("calls that are wrong in the data, refused", 1),
        (true, false) if unnamed(&call.args, &registered.tool.parameters) => {
            report.except("an argument that the schema does not name, which is refused here", place.clone());
        }
        (valid, _) => report.fail(format!("{place}: valid {valid}, but {}", describe(&found))),
    }
    if !found.is_empty() {
        return;
    }
    // What a model is shown allows what is valid.
    for provider in [Provider::Openai, Provider::Anthropic] {
        let shown = dialect::shown(provider, &registered.schema.shown().value()).schema;
        match Schema::compile(&shown) {
            Ok(shown) if shown.mismatches(&args.value(), false).is_empty() => {
                report.count("calls that what is shown allows, by two providers", 1);
            }
            Ok(_) => report.fail(format!("{place}: valid, and not shown so to {provider:?}")),
            Err(fault) => report.fail(format!("{place}: what is shown is no schema: {fault}")),
        }
    }
}

/// Whether a call names an argument at the top that its schema does not.
fn unnamed(args: &Value, schema: &Value) -> bool {
    let named = schema.get("properties").and_then(Value::as_object);
    args.as_object().is_some_and(|args| args.keys().any(|key| !named.is_some_and(|named| named.contains_key(key))))
}

/// The calls of a test as a provider would send them, under the names it was given, come back as they are.
fn round(case: &Case, calls: &[&Call], tools: &Tools<'_>, def: &ModelDef, report: &mut Report) {
    let views = tools.values().map(|registered| ToolView {
        id: registered.id.clone(),
        description: registered.tool.description.clone(),
        parameters: registered.schema.shown().clone(),
    });
    let ask = Ask {
        instructions: Vec::new(),
        transcript: Vec::new(),
        tools: views.collect(),
        output_schema: None,
        answers_so_far: 0,
    };
    let body = encode(&ask, def, &[0; 32]);
    let offered = body.get("tools").and_then(Value::as_array).cloned().unwrap_or_default();
    let wire: BTreeMap<&str, &str> = ask
        .tools
        .iter()
        .zip(&offered)
        .filter_map(|(view, offer)| Some((view.id.as_str(), offer.pointer("/function/name")?.as_str()?)))
        .collect();
    if wire.values().collect::<BTreeSet<_>>().len() != tools.len() {
        return report.fail(format!("{}: two tools share a name on the wire", case.id));
    }
    let meant: Vec<(&ToolId, Json)> = calls
        .iter()
        .filter_map(|call| Some((&tools.get(call.name.as_str())?.id, Json::from_value(&call.args))))
        .take(128)
        .collect();
    if meant.is_empty() {
        return;
    }
    let sent: Vec<Value> = meant
        .iter()
        .enumerate()
        .map(|(at, (id, args))| {
            let name = wire.get(id.as_str()).copied().unwrap_or_default();
            json!({"id": format!("c{at}"), "type": "function", "function": {"name": name, "arguments": args.as_str()}})
        })
        .collect();
    let message = json!({"role": "assistant", "content": null, "tool_calls": sent});
    let answer = json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]}).to_string();
    let reply = Reply { status: 200, content_type: Some("application/json"), body: answer.as_bytes() };
    let BallotVerdict::Proposal(Proposal::Calls(read)) = decode(reply, &ask, def).verdict else {
        return report.fail(format!("{}: the calls are not read", case.id));
    };
    let same = read.len() == meant.len()
        && read.iter().zip(&meant).all(|(call, (id, args))| {
            call.tool == id.as_str()
                && call.args == ProposedArgs::Readable(args.clone())
                && call.raw_args == args.as_str()
        });
    if same {
        report.count("calls that came back from the wire as they were", meant.len() as u64);
    } else {
        report.fail(format!("{}: the calls come back changed", case.id));
    }
}
