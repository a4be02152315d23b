//! A small world to judge calls in: tools, a policy as JSON, a history as it is written. What is not here: what any test
//! expects.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use toolgate_policy::{
    CallStatus, Class, Decision, EarlierCall, Facts, Fault, Finding, Judgement, Policy, PolicyForm, Principal, Risk,
    SessionFacts, ToolFacts, Venue,
};

/// Some moment, in microseconds since 1970.
pub(crate) const NOW: u64 = 1_790_000_000_000_000;

/// A tool with these properties, all of them required.
pub(crate) fn tool(id: &str, properties: &Value) -> ToolFacts {
    let names: Vec<&String> = properties.as_object().unwrap().keys().collect();
    ToolFacts {
        id: id.to_owned(),
        venue: Venue::Server,
        class: Class::Once,
        risk: Risk::Medium,
        tags: BTreeSet::new(),
        parameters: json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false}),
        derived: Vec::new(),
        secret: Vec::new(),
    }
}

/// The tools that the field cases share, and a few more.
pub(crate) fn catalogue() -> Vec<ToolFacts> {
    let text = json!({"type": "string"});
    let mut tools = vec![
        tool("search", &json!({"query": text})),
        tool("transfer", &json!({"to": text, "amount_cents": {"type": "integer"}})),
        tool("write_file", &json!({"path": text, "content": text})),
        tool("read_file", &json!({"path": text})),
        tool("run_command", &json!({"command": text})),
        tool("exec", &json!({"argv": {"type": "array", "items": text}})),
        tool("fetch", &json!({"url": text})),
        tool("send_mail", &json!({"to": {"type": "array", "items": text}, "body": text})),
        tool("contacts", &json!({})),
        tool("pay", &json!({"iban": text, "amount": {"type": "number"}})),
        tool("test", &json!({})),
    ];
    for tool in &mut tools {
        match tool.id.as_str() {
            "run_command" => add_optional(tool, "cwd"),
            "search" | "read_file" | "contacts" => tool.class = Class::Read,
            "test" => tool.tags = BTreeSet::from(["tested".to_owned()]),
            "transfer" | "pay" => tool.tags = BTreeSet::from(["money".to_owned()]),
            _ => {}
        }
        if ["write_file", "read_file", "run_command"].contains(&tool.id.as_str()) {
            tool.venue = Venue::Client;
        }
    }
    tools
}

fn add_optional(tool: &mut ToolFacts, name: &str) {
    tool.parameters["properties"][name] = json!({"type": "string"});
}

pub(crate) fn profiles(tools: &[ToolFacts]) -> BTreeMap<String, BTreeSet<String>> {
    BTreeMap::from([("all".to_owned(), tools.iter().map(|tool| tool.id.clone()).collect())])
}

/// Compiles a policy over the catalogue.
pub(crate) fn compile(form: &Value) -> Result<Policy, Vec<Fault>> {
    compile_with(form, &catalogue())
}

pub(crate) fn compile_with(form: &Value, tools: &[ToolFacts]) -> Result<Policy, Vec<Fault>> {
    let form = PolicyForm::read(form).map_err(|fault| vec![fault])?;
    // What is read must be what is written.
    let again = PolicyForm::read(&serde_json::to_value(&form).unwrap()).unwrap();
    assert_eq!(form, again);
    Policy::compile(&form, tools, &profiles(tools))
}

pub(crate) fn policy(form: &Value) -> Policy {
    compile(form).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

/// An earlier call as it is written in a test.
#[derive(Debug, Clone)]
pub(crate) struct Past {
    pub(crate) tool: &'static str,
    pub(crate) args: Value,
    pub(crate) status: CallStatus,
    pub(crate) result: Option<String>,
    pub(crate) run: u32,
    pub(crate) at: u64,
}

/// A successful earlier call of run 1, a minute ago.
pub(crate) fn past(tool: &'static str, args: Value) -> Past {
    Past { tool, args, status: CallStatus::Ok, result: None, run: 1, at: NOW - 60_000_000 }
}

impl Past {
    pub(crate) fn status(self, status: CallStatus) -> Self {
        Self { status, ..self }
    }

    pub(crate) fn result(self, text: &str) -> Self {
        Self { result: Some(text.to_owned()), ..self }
    }

    pub(crate) fn run(self, run: u32) -> Self {
        Self { run, ..self }
    }

    pub(crate) fn ago_ms(self, ms: u64) -> Self {
        Self { at: NOW - ms * 1_000, ..self }
    }
}

pub(crate) fn earlier(past: &[Past]) -> Vec<EarlierCall<'_>> {
    past.iter()
        .map(|one| EarlierCall {
            run: one.run,
            tool: one.tool,
            status: one.status,
            args: Some(&one.args),
            result: one.result.as_deref(),
            at_micros: one.at,
        })
        .collect()
}

/// Facts of a call in run 1 without a history.
pub(crate) fn facts<'a>(tool: &'a str, args: &'a Value) -> Facts<'a> {
    Facts {
        tool,
        args,
        profile: "all",
        principal: Principal { tenant: "acme", id: "alice", roles: &[] },
        session: SessionFacts { id: "s1", run: 1, step: 1, ballots: 1, agreed: 1, ..SessionFacts::default() },
        at_micros: NOW,
        earlier: &[],
        user_words: &[],
        resolved_paths: None,
    }
}

pub(crate) fn judge(policy: &Policy, tool: &str, args: &Value) -> Judgement {
    policy.judge(&facts(tool, args))
}

pub(crate) fn judge_after(policy: &Policy, past: &[Past], tool: &str, args: &Value) -> Judgement {
    policy.judge(&Facts { earlier: &earlier(past), ..facts(tool, args) })
}

/// The decision in a word, and with it the code of the rule that made it.
pub(crate) fn said(judgement: &Judgement) -> String {
    let word = match judgement.decision {
        Decision::Allow => "allow",
        Decision::Ask => "ask",
        Decision::Deny => "deny",
    };
    judgement.first.as_ref().map_or_else(|| word.to_owned(), |first| format!("{word} {}", first.code.code()))
}

/// The finding of a rule.
pub(crate) fn of<'a>(judgement: &'a Judgement, rule: &str) -> &'a Finding {
    judgement.findings.iter().find(|finding| *finding.rule_id == *rule).unwrap_or_else(|| panic!("{judgement:#?}"))
}

/// The faults of a policy that must not compile, one a line: pointer and rule.
pub(crate) fn faults(form: &Value) -> Vec<String> {
    let found = compile(form).err().unwrap_or_else(|| panic!("compiles: {form}"));
    found.iter().map(|fault| format!("{} {}", fault.pointer, fault.rule)).collect()
}

/// A text of a repeated part.
pub(crate) fn many(part: &str, times: usize) -> String {
    part.repeat(times)
}
