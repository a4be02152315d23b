//! What is decided: a bundle with 20 rules, a session with 20 earlier calls, one call with 2 KB of arguments. What is not
//! here: the clock and the bounds.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use toolgate_core::bundle::Bundle;
use toolgate_core::event::Recorded;
use toolgate_core::id::{ActorId, ProfileName, SessionId, TenantId};
use toolgate_core::input::{BallotCast, Input, Narrowed, Open, OutcomeReport, Reporter, Stamped};
use toolgate_core::json::Json;
use toolgate_core::output::{Outcome, OutcomeStatus, Output};
use toolgate_core::proposal::{Ballot, BallotVerdict, Proposal, ProposedArgs, ProposedCall, Usage};
use toolgate_core::session::Session;
use toolgate_core::time::Timestamp;
use toolgate_core::{Effect, decide, fold, outstanding};

/// The rules that the call is put before: lists, arguments, sequences, rates, totals, origins, checks, policies.
pub(crate) const RULES: usize = 20;
/// Calls that the session made before.
pub(crate) const EARLIER: u32 = 20;

/// A session in the middle of its run, and the call that is judged next.
pub(crate) struct Scene {
    pub(crate) bundle: Bundle,
    pub(crate) session: Session,
    pub(crate) call: ProposedCall,
    pub(crate) at: Timestamp,
}

pub(crate) fn scene() -> Scene {
    let bundle = Bundle::load(&bundle().to_string()).unwrap();
    let mut play = Play {
        session: Session::new(SessionId::from_uuid(uuid::Uuid::from_u128(7))),
        bundle,
        at: Timestamp(1_790_000_000_000_000),
    };
    play.send(Input::Open(Box::new(Open {
        tenant: TenantId::new("acme").unwrap(),
        by: ActorId::new("alice").unwrap(),
        alias: None,
        bundle: play.bundle.digest(),
        profile: Some(ProfileName::new("p").unwrap()),
        label: None,
        ceiling: None,
        capabilities: BTreeSet::new(),
        limits: Narrowed::default(),
        control: None,
        dry_run: false,
        output_schema: None,
        prompt: "Please send invoice 20260117 to billing@example.com and ceo@example.com; amount 1840.50 EUR."
            .to_owned(),
        trace: None,
        metadata: BTreeMap::new(),
    })));
    for step in 0..EARLIER {
        let call = match step % 4 {
            0 | 1 => call("find_orders", &json!({"query": format!("orders of week {step}")})),
            2 => call("check_invoice", &json!({"path": format!("/w/invoices/{step}.json")})),
            _ => call("send_invoice", &invoice(step)),
        };
        play.step(call);
    }
    assert_eq!(play.session.history.len(), EARLIER as usize, "the earlier calls are in the session");
    let invoice = invoice(99);
    let call = call("send_invoice", &invoice);
    assert!((1_950..2_200).contains(&call.raw_args.len()), "{} bytes of arguments", call.raw_args.len());
    Scene { bundle: play.bundle, session: play.session, call, at: play.at }
}

/// Drives the session as a server does.
struct Play {
    bundle: Bundle,
    session: Session,
    at: Timestamp,
}

impl Play {
    fn send(&mut self, input: Input) {
        self.at = self.at.plus_ms(250);
        let decided = decide(&self.session, &self.bundle, &Stamped { at: self.at, id: None, input });
        assert!(!decided.events.is_empty(), "refused: {:?}", decided.reply);
        for event in decided.events {
            let seq = self.session.head + 1;
            fold(&mut self.session, &Recorded { seq, epoch: 1, at: self.at, input_id: None, event });
        }
    }

    /// The model asks for a call, and the tool answers.
    fn step(&mut self, call: ProposedCall) {
        let effects = outstanding(&self.session, &self.bundle);
        let [Effect::AskModel { seat, .. }] = effects.as_slice() else { panic!("{effects:?}") };
        let ballot = Ballot {
            verdict: BallotVerdict::Proposal(Proposal::Calls(vec![call])),
            text: "I go on.".to_owned(),
            normalised: Vec::new(),
            opaque: None,
            usage: Usage::default(),
            model: None,
            fingerprint: None,
            cut: None,
        };
        self.send(Input::Ballot(Box::new(BallotCast { seat: *seat, ballot })));
        let effects = outstanding(&self.session, &self.bundle);
        let [Effect::RunTool(order)] = effects.as_slice() else { panic!("{effects:?}") };
        let text = format!("{{\"ok\":true,\"text\":\"{}\"}}", "All is as it should be. ".repeat(20));
        self.send(Input::Outcome(OutcomeReport {
            call: order.call.clone(),
            attempt: order.attempt,
            reporter: Reporter::Server,
            outcome: Outcome {
                status: OutcomeStatus::Ok,
                output: Some(Output::text("application/json", text)),
                detail: None,
            },
        }));
    }
}

fn call(tool: &str, args: &Value) -> ProposedCall {
    let args = Json::from_value(args);
    ProposedCall {
        tool: tool.to_owned(),
        provider_id: None,
        raw_args: args.as_str().to_owned(),
        args: ProposedArgs::Readable(args),
    }
}

fn invoice(number: u32) -> Value {
    let lines: Vec<Value> = (0..10)
        .map(|line| {
            json!({"sku": format!("AB-{:05}", number * 100 + line), "title": format!("Part {line} as ordered"),
                "quantity": line + 1, "price": 12.25})
        })
        .collect();
    json!({"to": ["billing@example.com", "ceo@example.com"], "subject": format!("Invoice {number}"),
        "body": "Thank you for your order. Please find the invoice attached. ".repeat(17),
        "path": format!("/w/invoices/{number}.pdf"), "link": format!("https://pay.example.com/i/{number}"),
        "amount": 1840.5, "currency": "EUR", "lines": lines, "due": "2026-12-31",
        "meta": {"team": "sales", "priority": 2, "urgent": false}})
}

fn bundle() -> Value {
    let text = json!({"type": "string"});
    let tool = |description: &str, tags: &[&str], parameters: Value| {
        json!({"description": description, "venue": "server", "executor": {"builtin": "echo"}, "tags": tags,
            "class": "idempotent", "parameters": parameters})
    };
    let line = json!({"type": "object", "additionalProperties": false, "required": ["sku", "quantity", "price"],
        "properties": {"sku": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]{5}$"}, "title": {"type": "string", "maxLength": 80},
            "quantity": {"type": "integer", "minimum": 1, "maximum": 1_000}, "price": {"type": "number", "minimum": 0}}});
    let mut send = tool(
        "Sends an invoice.",
        &["mail"],
        json!({"type": "object", "additionalProperties": false,
            "required": ["to", "subject", "body", "path", "amount", "lines"],
            "properties": {
                "to": {"type": "array", "items": {"type": "string", "format": "email"}, "minItems": 1, "maxItems": 10, "uniqueItems": true},
                "subject": {"type": "string", "minLength": 1, "maxLength": 120}, "body": {"type": "string", "maxLength": 8_000},
                "path": {"type": "string", "pattern": "^/w/"}, "link": {"type": "string", "format": "uri"},
                "amount": {"type": "number", "minimum": 0}, "currency": {"enum": ["EUR", "USD", "GBP"]},
                "lines": {"type": "array", "items": line, "maxItems": 50}, "due": {"type": "string", "format": "date"},
                "meta": {"type": "object", "additionalProperties": false, "properties":
                    {"team": text, "priority": {"type": "integer"}, "urgent": {"type": "boolean"}}}}}),
    );
    let derived = json!([{"name": "file", "from": "/path", "kind": "path", "root": "/w"},
        {"name": "link", "from": "/link", "kind": "url"}]);
    send.as_object_mut().unwrap().insert("derived".to_owned(), derived);
    json!({
        "version": 1, "default_model": "m", "models": {"m": {"provider": "scripted", "script": [{"done": ""}]}},
        "tools": {
            "send_invoice": send,
            "check_invoice": tool("Checks an invoice.", &["checked"], json!({"properties": {"path": text}})),
            "find_orders": tool("Finds orders.", &["found"], json!({"properties": {"query": text}})),
            "wipe": tool("Deletes all.", &[], json!({"properties": {"path": text}})),
        },
        "profiles": {"p": {"tools": ["send_invoice", "check_invoice", "find_orders", "wipe"],
            "harness": {"max_steps": 100, "max_tool_calls": 100, "deadline_ms": 3_600_000, "repeat_limit": 10}}},
        "policies": policies()
    })
}

/// One list, six rules on arguments, two sequences, two rates, two totals, two origins, two checks, three policies; and an
/// evidence rule, which is asked when the run wants to be done, and counted by a policy here.
fn policies() -> Value {
    let on = json!({"tools": ["send_invoice"]});
    let all = json!({"all": true});
    json!({
        "lists": {"no_wipe": {"on": {"tools": ["wipe"]}}},
        "arguments": {
            "own_files": {"on": on, "argument": "/path", "path": {"root": "/w", "not_named": [".env", ".git"]}},
            "own_hosts": {"on": on, "argument": "/link", "url": {"hosts": ["*.example.com"]}},
            "small": {"on": on, "argument": "/amount", "min": 1, "max": 10_000},
            "inside": {"on": on, "argument": "/to/*", "regex": "[a-z.]+@example\\.com"},
            "no_secrets": {"on": on, "argument": "/body", "not_regex": "(?i)password|api[_-]?key|secret"},
            "teams": {"on": on, "argument": "/meta/team", "one_of": ["sales", "support", "finance"]}
        },
        "sequences": {
            "checked_first": {"on": on, "only_after": {"tools": ["check_invoice"]}},
            "not_after_wipe": {"on": on, "after": {"tools": ["wipe"]}, "scope": "run"}
        },
        "rates": {
            "mails": {"on": on, "max": 50, "window_ms": 60_000},
            "calls": {"on": all, "max": 200, "window_ms": 60_000, "per_tool": true}
        },
        "totals": {
            "money": {"on": on, "scope": "session", "sum": {"argument": "/amount", "max": 1_000_000}},
            "many": {"on": on, "scope": "run", "max_count": 50, "per": "/currency"}
        },
        "origins": {
            "recipients": {"on": on, "argument": "/to/*", "as": "email", "from": {"user": true}},
            "sum": {"on": on, "argument": "/amount", "as": "number", "from": {"user": true}}
        },
        "checks": {
            "hidden": {"on": on, "check": "hidden_characters", "argument": "/subject"},
            "large": {"on": on, "check": "amount_implausible", "argument": "/amount", "above": 1_000_000}
        },
        "evidence": {"checked": {"min": {"checked": 1}}},
        "cedar": {"main": {"text": CEDAR}}
    })
}

const CEDAR: &str = r#"
permit(principal, action, resource);
forbid(principal, action == Action::"send_invoice", resource)
when { context.evidence.checked < 1 || context.session.step > 90 };
forbid(principal, action == Action::"send_invoice", resource)
when { context.input.path like "*/secret/*" || (context.derived has link && context.derived.link.host == "evil.example") };
"#;
