//! Random bundles, and random inputs for a session as it stands: mostly fitting ones, so that sessions get somewhere, and
//! stale, foreign, forged and repeated ones in between.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use toolgate_core::bundle::Bundle;
use toolgate_core::event::{ApprovalOpened, ApprovalVerb, Event, LedgerAnswer, Purpose, SummaryFault};
use toolgate_core::id::{
    ApprovalId, CallId, Capability, ClientInstance, InputId, Label, ProfileName, Sha256Digest, TenantId,
};
use toolgate_core::input::{
    AdmissionAnswer, AdmissionVerdict, ApprovalAnswer, ApprovalDecision, BallotCast, CallAck, ClassificationFailure,
    Classified, ClassifiedLabel, ClientAttached, GrantAsked, Input, Message, Narrowed, Open, OutcomeReport, Reporter,
    ReservationAnswer, Seat, Stop, SummaryFailure, SummaryWritten,
};
use toolgate_core::json::Json;
use toolgate_core::output::{Body, Outcome, OutcomeStatus, Output};
use toolgate_core::profile::ControlMode;
use toolgate_core::proposal::{Ballot, BallotVerdict, MalformedReason, Proposal, ProposedCall, ProviderFailure, Usage};
use toolgate_core::reason::RejectReason;
use toolgate_core::session::{Awaited, AwaitedAdmission, Call, CallState, Phase};
use toolgate_core::{Effect, next_wake, outstanding};
use toolgate_policy::RuleId;

use crate::random::Random;
use crate::words::{actor, ballot, call, open_seat};
use crate::world::World;

/// What no session may show outside its seals.
pub(crate) const SECRET: &str = "hunter2";

/// A bundle that loads, drawn from everything that may be said.
pub(crate) fn bundle(random: &mut Random) -> Bundle {
    loop {
        let value = bundle_form(random);
        if let Ok(bundle) = Bundle::load(&value.to_string()) {
            return bundle;
        }
    }
}

fn bundle_form(random: &mut Random) -> Value {
    let classes = ["read", "idempotent", "once"];
    let careful = random.one_in(3);
    let mut tools = serde_json::Map::new();
    for (name, venue) in [("s1", "server"), ("s2", "server"), ("s3", "server"), ("c1", "client"), ("c2", "client")] {
        let mut tool = json!({
            "description": "A tool.", "venue": venue, "class": random.pick(&classes),
            "requires_approval": random.one_in(4), "timeout_ms": random.within(1..60_000),
            "tags": [random.pick(&["a", "b"])],
            "parameters": {"properties": {
                "n": {"type": "integer"}, "key": {"type": "string"}, "password": {"type": "string", "maxLength": 12}
            }, "required": ["n"]}
        });
        if venue == "server" {
            tool["executor"] = json!({"builtin": "echo"});
        } else if random.one_in(2) {
            tool["capability"] = json!("cap");
        }
        if random.one_in(2) {
            tool["idempotency_key"] = json!("key");
        }
        if careful || random.one_in(3) {
            tool["redact"] = json!(["/password"]);
        }
        if random.one_in(5) {
            tool["result"] = json!({"type": "integer"});
        }
        tools.insert(name.to_owned(), tool);
    }
    tools.insert(
        "hidden".to_owned(),
        json!({"description": "x", "venue": "server", "executor": {"builtin": "echo"}, "parameters": {}}),
    );
    let mut profiles = serde_json::Map::new();
    profiles.insert("p".to_owned(), profile(random));
    profiles.insert("q".to_owned(), profile(random));
    let mut form = json!({
        "version": 1, "tools": tools, "profiles": profiles, "default_model": "m",
        "models": {"m": {"provider": "scripted", "script": [{"done": 1}]}, "m2": {"provider": "scripted", "script": [{"done": 1}]}}
    });
    if random.one_in(3) {
        form["classification"] = json!({"rules": {"l": {"profile": "p"}, "k": {"profile": "q"}}});
        if random.one_in(4) {
            form["classification"]["default"] = json!({"profile": "q"});
        }
        if !random.one_in(4) {
            form["classification"]["model"] = json!("m");
        }
    }
    if random.one_in(3) {
        form["models"]["m"]["max_input_tokens"] = json!(random.within(600..1_000));
        form["profiles"]["p"]["summarize"] = json!({"model": "m2", "max_bytes": random.within(100..400)});
    }
    if random.one_in(2) {
        form["policies"] = policies(random);
    }
    if random.one_in(3) {
        let hook = |name: &str, kind: &str, tool: &str| json!({"name": name, "kind": kind, "on": {"tools": [tool]}, "url": "http://hook"});
        form["admission"] =
            json!([hook("v1", "validating", "s1"), hook("m1", "mutating", "s1"), hook("m2", "mutating", "c1")]);
    }
    if random.one_in(4) {
        form["models"]["m"]["prices"] = json!({"input_microusd_per_million": 2_000_000, "call_microusd": 10});
        form["models"]["m2"]["prices"] = json!({"input_microusd_per_million": 1_000_000});
        form["tenant_budget"] = json!({"max_cost_microusd": 90_000, "max_model_calls": 20, "max_tool_calls": 9});
        form["tenant_limits"] =
            json!({"few": {"on": {"tools": ["s2", "c2"]}, "max_count": 3, "argument": "/n", "max_sum": 9}});
        if random.one_in(2) {
            form["profiles"]["p"]["harness"]["max_cost_microusd"] = json!(random.within(20_000..80_000));
            form["profiles"]["q"]["session_budget"] =
                json!({"max_cost_microusd": random.within(20_000..80_000), "max_model_calls": 9});
        }
    }
    form
}

/// Whether the reason is found late in the pipeline, so that it needs more chances to end a run.
fn is_late(reason: RejectReason) -> bool {
    matches!(
        reason,
        RejectReason::Denylisted
            | RejectReason::ArgumentRule
            | RejectReason::SequenceRule
            | RejectReason::RateLimited
            | RejectReason::CumulativeLimit
            | RejectReason::OriginUnknown
            | RejectReason::PolicyDenied
            | RejectReason::IdempotentReplay
            | RejectReason::IdempotencyConflict
    )
}

/// Policies that object now and then. Policy files are rare, since they take long to compile.
fn policies(random: &mut Random) -> Value {
    let effect = if random.one_in(4) { "ask" } else { "deny" };
    let mut policies = json!({});
    if random.one_in(2) {
        policies["lists"] = json!({"no": {"on": {"tools": ["s3"]}}});
    }
    if random.one_in(2) {
        policies["arguments"] =
            json!({"small": {"on": {"tools": ["s1", "c1"]}, "argument": "/n", "max": 2, "effect": effect}});
    }
    if random.one_in(2) {
        policies["sequences"] =
            json!({"first": {"on": {"tools": ["s2"]}, "only_after": {"tools": ["s1"]}, "effect": effect}});
    }
    if random.one_in(2) {
        policies["rates"] = json!({"slow": {"on": {"all": true}, "max": 2, "window_ms": 60_000, "effect": effect}});
    }
    if random.one_in(2) {
        policies["totals"] =
            json!({"few": {"on": {"tools": ["c2", "s1"]}, "max_count": 1, "scope": "run", "effect": effect}});
    }
    if random.one_in(2) {
        policies["origins"] = json!({"said": {"on": {"tools": ["s2"]}, "argument": "/n", "as": "number", "from": {"user": true}, "effect": effect}});
    }
    if random.one_in(2) {
        policies["repeats"] = json!({"warn": 2, "refuse": 3, "end": 4});
    }
    if random.one_in(12) {
        policies["cedar"] = json!({"main": {"text": "permit(principal, action == Action::\"s1\", resource);"}});
    }
    policies
}

fn profile(random: &mut Random) -> Value {
    let mut profile = json!({
        "tools": ["s1", "s2", "s3", "c1", "c2"],
        "harness": {
            "max_steps": random.within(1..12), "max_tool_calls": random.within(0..14),
            "deadline_ms": random.within(1..400_000), "max_parallel_calls": random.within(1..4),
            "repeat_limit": random.within(1..5), "max_consecutive_rejections": random.within(1..5),
            "max_parse_failures": random.within(1..4)
        },
        "approval": {"mode": if random.one_in(5) { "end" } else { "wait" }, "expires_ms": random.within(1_000..90_000)},
        "on_indeterminate": if random.one_in(2) { "end" } else { "feedback" }
    });
    if random.one_in(4) {
        profile["approval"]["approvers"] = json!(random.within(1..3));
        profile["approval"]["self_approval"] = json!(random.one_in(2));
        profile["approval"]["remind_ms"] = json!(random.within(1_000..30_000));
    }
    if random.one_in(4) {
        profile["control"] = json!(random.pick(&["none", "risky", "all"]));
    }
    if random.one_in(3) {
        profile["harness"]["at_limit"] = json!(random.pick(&["pause_and_ask", "wrap_up"]));
    }
    if random.one_in(12) {
        profile["dry_run"] = json!(true);
    }
    if random.one_in(5) {
        let rules = [
            json!({"outcomes": {"status": "ok", "at_least": 3}}),
            json!({"refused": {"at_least": 2}}),
            json!({"refused": {"reason": "approval_denied", "at_least": 1}}),
            json!({"evidence": {"tag": "a", "at_least": 2}}),
        ];
        profile["end_when"] = json!({"enough": random.pick(&rules)});
    }
    if random.one_in(4) {
        profile["harness"]["max_model_calls"] = json!(random.within(1..12));
    }
    if random.one_in(3) {
        profile["consensus"] = consensus(random);
    }
    if random.one_in(4) {
        profile["trace_requirements"] = json!({"a": random.within(0..3), "b": random.within(0..2)});
    }
    if random.one_in(5) {
        profile["output_schema"] = json!({"type": "integer"});
        profile["harness"]["max_output_schema_failures"] = json!(random.within(1..3));
    }
    let mut on_reject = serde_json::Map::new();
    for reason in RejectReason::ALL {
        let fixed = matches!(reason, RejectReason::CrossTenantDenied | RejectReason::NeedsHumanApproval);
        if !fixed && random.one_in(if is_late(*reason) { 2 } else { 6 }) {
            on_reject.insert(reason.code().to_owned(), json!("end"));
        }
    }
    profile["on_reject"] = Value::Object(on_reject);
    profile
}

/// Votes by every rule, of which some grow, and some are decided late.
fn consensus(random: &mut Random) -> Value {
    fn votes(random: &mut Random, rules: &[&str], least: u64) -> Value {
        let n = random.within(least..4);
        match *random.pick(rules) {
            "k_of_n" => json!({"n": n, "k": random.within(1..n + 1)}),
            rule => json!({"n": n, "rule": rule}),
        }
    }
    let rules = ["k_of_n", "k_of_n", "plurality", "majority", "supermajority", "unanimous"];
    let mut form = if random.one_in(8) {
        json!({"n": random.within(1..4), "rule": "first"})
    } else {
        let mut form = votes(random, &rules, 1);
        if random.one_in(3) {
            form["decide"] = json!("all");
        }
        if random.one_in(4) {
            form["escalate_below_percent"] = json!(random.pick(&[60, 100]));
        }
        form
    };
    form["models"] = json!(["m", "m2"]);
    form["on_no_consensus"] = json!(random.pick(&["retry", "escalate", "reject"]));
    form["retries"] = json!(random.within(0..3));
    if random.one_in(3) {
        form["by_tool"] = json!({"s1": votes(random, &rules, 2), "c1": votes(random, &rules, 1)});
    }
    if random.one_in(4) {
        form["by_risk"] = json!({"medium": votes(random, &rules, 2)});
    }
    if random.one_in(4) {
        form["compare"] = json!({"s1": ["/n"], "s2": ["/n"]});
    }
    if random.one_in(4) {
        form["variety"] = json!(["Think twice at step {{step}}.", "Be bold."]);
    }
    form
}

/// An id, sometimes; a small pool, so that some come twice.
pub(crate) fn input_id(random: &mut Random) -> Option<InputId> {
    random.one_in(3).then(|| InputId::new(format!("i{}", random.below(400))).unwrap())
}

/// The next input, and how the clock moves before it.
pub(crate) fn input(random: &mut Random, world: &mut World) -> Input {
    world.now = world.now.plus_ms(random.within(0..400));
    if world.session.opened.is_none() && !random.one_in(8) {
        return open(random, world);
    }
    match random.below(100) {
        0..=1 => open(random, world),
        2..=3 => Input::Cancel(Stop { by: actor("ann"), reason: None }),
        4 if random.one_in(3) => Input::Close(Stop { by: actor("ann"), reason: Some("bye".to_owned()) }),
        5..=12 => attach(random),
        13..=17 => {
            if random.one_in(2) {
                world.now = next_wake(&world.session).map_or(world.now, |wake| wake.max(world.now));
            }
            Input::Tick
        }
        18..=20 => Input::Message(Message { by: actor("ann"), text: "more".to_owned() }),
        21..=24 => classified(random, world),
        25..=29 => hostile_outcome(random, world),
        30..=33 => used_approval(random, world),
        _ => fitting(random, world),
    }
}

/// An input that what the session waits for would bring.
fn fitting(random: &mut Random, world: &World) -> Input {
    if world.session.classifying.is_some() {
        return classified(random, world);
    }
    if world.session.active_run().is_none() && !world.session.unsettled.is_empty() && random.one_in(2) {
        return Input::Settled(world.session.unsettled.iter().map(|one| one.key.clone()).collect());
    }
    if world.session.active_run().is_none() {
        return Input::Message(Message { by: actor("ann"), text: "again".to_owned() });
    }
    let open: Vec<&Call> =
        world.session.calls().iter().filter(|call| !matches!(call.state, CallState::Ended(_))).collect();
    if let Some(pause) = world.session.pause() {
        return approve(random, &pause.approval.opened);
    }
    let reserves = outstanding(&world.session, &world.bundle)
        .iter()
        .any(|effect| matches!(effect, Effect::Reserve { purpose: Purpose::Round { .. }, .. }));
    if reserves && !random.one_in(12) {
        return ledger(random, world);
    }
    if let Some(Effect::Summarize { seat, .. }) = outstanding(&world.session, &world.bundle).first() {
        return summary(random, *seat);
    }
    if open.is_empty() {
        return Input::Ballot(Box::new(cast(random, world)));
    }
    let call = *random.pick(&open);
    match &call.state {
        CallState::Waiting(Awaited::Approval(awaited)) => approve(random, &awaited.opened),
        CallState::Waiting(Awaited::Admission(awaited)) => admit(random, call, awaited),
        CallState::Waiting(Awaited::Reservation) => ledger(random, world),
        CallState::Dispatched(dispatched) => {
            let instance = dispatched.instance.clone();
            if let Some(instance) = instance.clone().filter(|_| random.one_in(6)) {
                return Input::CallAck(CallAck { call: call.id.clone(), attempt: dispatched.attempt, instance });
            }
            let reporter = instance.map_or(Reporter::Server, |instance| Reporter::Client {
                instance,
                by: actor("ann"),
                fence: dispatched.fence,
                args_hash: if random.one_in(30) { Sha256Digest::of(b"other") } else { call.args_hash.unwrap() },
            });
            Input::Outcome(OutcomeReport {
                call: call.id.clone(),
                attempt: dispatched.attempt,
                reporter,
                outcome: outcome(random),
            })
        }
        CallState::Queued | CallState::Ended(_) => attach(random),
    }
}

/// What a model makes of earlier steps, now and then nothing, or in another seat.
fn summary(random: &mut Random, seat: Seat) -> Input {
    let seat = if random.one_in(10) { Seat { attempt: seat.attempt + 1, ..seat } } else { seat };
    let result = match random.below(6) {
        0 => Err(SummaryFailure { fault: SummaryFault::Failed, detail: "reset".to_owned() }),
        1 => Err(SummaryFailure { fault: SummaryFault::Calls, detail: "a call".to_owned() }),
        2 => Ok(" ".to_owned()),
        3 => Ok("much ".repeat(2_000)),
        _ => Ok("what was done".to_owned()),
    };
    let known = Usage { input_tokens: Some(random.within(1..200)), output_tokens: Some(9) };
    let usage = if random.one_in(3) { Usage::default() } else { known };
    Input::Summary(Box::new(SummaryWritten { seat, result, usage, model: None }))
}

fn open(random: &mut Random, world: &World) -> Input {
    let limits = if random.one_in(4) {
        Narrowed {
            max_steps: random.one_in(2).then(|| u32::try_from(random.within(0..9)).unwrap()),
            max_tool_calls: random.one_in(2).then(|| u32::try_from(random.within(0..9)).unwrap()),
            max_model_calls: random.one_in(2).then(|| u32::try_from(random.within(0..9)).unwrap()),
            deadline_ms: random.one_in(2).then(|| random.within(0..300_000)),
        }
    } else {
        Narrowed::default()
    };
    let name = |name: &str| ProfileName::new(name).unwrap();
    let (profile, label) = match random.below(6) {
        0..=1 => (Some(name("p")), None),
        2..=3 => (None, None),
        4 => (None, Some(Label::new("l").unwrap())),
        _ => (Some(name("q")), None),
    };
    let ceiling = random.one_in(5).then(|| BTreeSet::from([name("p")]));
    Input::Open(Box::new(Open {
        tenant: TenantId::new("acme").unwrap(),
        by: actor("ann"),
        alias: None,
        bundle: world.bundle.digest(),
        profile,
        label,
        ceiling,
        capabilities: capabilities(random),
        limits,
        control: random.one_in(8).then(|| *random.pick(&[ControlMode::None, ControlMode::Risky, ControlMode::All])),
        dry_run: random.one_in(16),
        output_schema: random.one_in(12).then(|| Json::parse("{\"type\":\"integer\"}").unwrap()),
        prompt: "go".to_owned(),
        trace: None,
        metadata: BTreeMap::new(),
    }))
}

fn capabilities(random: &mut Random) -> BTreeSet<Capability> {
    (!random.one_in(3)).then(|| Capability::new("cap").unwrap()).into_iter().collect()
}

fn attach(random: &mut Random) -> Input {
    Input::ClientAttached(ClientAttached {
        instance: ClientInstance::new(*random.pick(&["x", "y"])).unwrap(),
        by: actor("ann"),
        capabilities: capabilities(random),
    })
}

fn classified(random: &mut Random, world: &World) -> Input {
    let current = world.session.classifying.unwrap_or(1);
    let attempt = if random.one_in(6) { current + 1 } else { current };
    let result = match random.below(4) {
        0 => Err(ClassificationFailure { provider: None, detail: "unusable".to_owned() }),
        pick => Ok(ClassifiedLabel {
            label: ["l", "k", "Not A Label"][pick - 1].to_owned(),
            confidence_milli: 500,
            reasoning: None,
        }),
    };
    Input::Classified(Classified { attempt, result, usage: Usage::default() })
}

fn cast(random: &mut Random, world: &World) -> BallotCast {
    let mut seat = open_seat(world);
    let round = world.session.active_run().and_then(|run| match &run.phase {
        Phase::Asking(round) => Some(round),
        _ => None,
    });
    let missing: Vec<u32> = round.iter().flat_map(|round| round.missing()).collect();
    if !missing.is_empty() {
        seat.ballot = *random.pick(&missing);
    }
    // Models agree more often than chance would have it.
    let said: Vec<&Ballot> = round.iter().flat_map(|round| round.ballots.values()).collect();
    if !said.is_empty() && random.one_in(2) {
        let again = *random.pick(&said);
        return BallotCast { seat, ballot: ballot(again.verdict.clone(), again.text.clone(), None) };
    }
    match random.below(40) {
        0 => seat.attempt += 1,
        1 => seat.ballot += 1,
        2 => seat.step = seat.step.saturating_sub(1),
        3 => seat.run += 1,
        _ => {}
    }
    let verdict = match random.below(20) {
        0..=4 => {
            let output = random.pick(&["1", "\"1\"", "\"text\"", "{\"a\":2}"]);
            BallotVerdict::Proposal(Proposal::Done { output: Json::parse(output).unwrap() })
        }
        5..=6 => BallotVerdict::Malformed { reason: MalformedReason::Syntax, detail: format!("near {SECRET}") },
        7 if random.one_in(2) => {
            BallotVerdict::Failed { reason: ProviderFailure::Transport, detail: "reset".to_owned() }
        }
        _ => {
            let count = if random.one_in(30) { 0 } else { 1 + random.below(4) };
            BallotVerdict::Proposal(Proposal::Calls((0..count).map(|_| proposed(random)).collect()))
        }
    };
    let calls_secret = matches!(&verdict, BallotVerdict::Proposal(Proposal::Calls(calls))
        if calls.iter().any(|call| call.raw_args.contains(SECRET)));
    let text = if calls_secret { format!("I use {SECRET}") } else { "thinking".to_owned() };
    BallotCast { seat, ballot: ballot(verdict, text, None) }
}

fn proposed(random: &mut Random) -> ProposedCall {
    if random.one_in(16) {
        // What a name that is no tool carries is kept as it is; no contract says what of it is secret.
        return call((*random.pick(&["nothing", "hidden", "S1"])).to_owned(), Some("{\"n\":1}"));
    }
    let tool = *random.pick(&["s1", "s1", "s2", "s2", "s3", "c1", "c1", "c2"]);
    let args = match random.below(26) {
        0 => "{\"n\":\"1\"}".to_owned(),
        1 => "{\"n\":1,\"Tenant_Id\":\"other\"}".to_owned(),
        2 => "[1]".to_owned(),
        3 => "{\"n\":1,\"n\":2}".to_owned(),
        4..=7 => format!("{{\"n\":{},\"password\":\"{SECRET}\"}}", random.below(2)),
        8 => format!("{{\"n\":1,\"password\":\"{SECRET}-and-far-too-long\"}}"),
        9..=16 => format!("{{\"n\":{},\"key\":\"k{}\"}}", random.below(2), random.below(2)),
        _ => format!("{{\"n\":{}}}", random.below(3)),
    };
    call(tool.to_owned(), Some(&args))
}

fn outcome(random: &mut Random) -> Outcome {
    let status = match random.below(12) {
        0 => OutcomeStatus::Failed,
        1 => OutcomeStatus::DeniedByClient,
        2 => OutcomeStatus::Indeterminate,
        3 => OutcomeStatus::TimedOut,
        _ => OutcomeStatus::Ok,
    };
    let output = match random.below(5) {
        0 => None,
        1 => Some(Output::text("text/plain", "some text".to_owned())),
        2 => Some(Output {
            media_type: "application/octet-stream".to_owned(),
            body: Body::Blob { digest: Sha256Digest::of(b"x"), size: 70_000, preview: "the beginning".to_owned() },
            truncated_from: Some(90_000),
        }),
        _ => Some(Output::text("application/json", "5".to_owned())),
    };
    Outcome { status, output, detail: None }
}

fn approve(random: &mut Random, approval: &ApprovalOpened) -> Input {
    let decision = match random.below(6) {
        0 => ApprovalDecision::Deny { message: random.one_in(2).then(|| "no".to_owned()) },
        1 => {
            let args = random.pick(&[
                "{\"n\":7}",
                "{\"n\":\"7\"}",
                "{\"n\":1,\"actor\":\"x\"}",
                "[7]",
                "{\"n\":3,\"password\":\"hunter2\"}",
                "{\"n\":1,\"key\":\"k0\"}",
            ]);
            ApprovalDecision::Edit { args: Json::parse(args).unwrap() }
        }
        2 if random.one_in(2) => ApprovalDecision::Revoke,
        _ => {
            let open = random.one_in(2).then(|| "n".to_owned()).into_iter().collect();
            let ttl_ms = random.one_in(2).then(|| random.within(900..90_000));
            ApprovalDecision::Approve { grant: random.one_in(4).then_some(GrantAsked { open, ttl_ms }) }
        }
    };
    let digest = if random.one_in(10) { Sha256Digest::of(b"other") } else { approval.digest };
    let other = ApprovalId::parse(&format!("apr_{:032x}", 7)).unwrap();
    let approval = if random.one_in(20) { other } else { approval.id.clone() };
    let people = ["boss", "boss", "boss", "chief", "ann"];
    let by = actor(people[random.below(people.len())]);
    let bundle = random.one_in(40).then(|| Sha256Digest::of(b"other bundle"));
    Input::Approval(ApprovalAnswer { approval, by, digest, bundle, decision })
}

/// What a hook says, now and then for another hook or an earlier question.
fn admit(random: &mut Random, call: &Call, awaited: &AwaitedAdmission) -> Input {
    let verdict = match random.below(8) {
        0 => AdmissionVerdict::Deny { reason: random.one_in(2).then(|| "no".to_owned()) },
        1 => AdmissionVerdict::Failed { detail: "time-out".to_owned() },
        2..=3 => {
            let args = *random.pick(&["{\"n\":1}", "{\"n\":\"x\"}", "[1]", "{\"n\":2,\"password\":\"hunter2\"}"]);
            AdmissionVerdict::Rewrite { reason: None, args: Json::parse(args).unwrap() }
        }
        _ => AdmissionVerdict::Allow { reason: None },
    };
    let attempt = if random.one_in(20) { awaited.attempt + 1 } else { awaited.attempt };
    let hook = if random.one_in(20) { RuleId::new("other").unwrap() } else { awaited.hooks[0].clone() };
    Input::Admission(AdmissionAnswer { call: call.id.clone(), hook, attempt, verdict })
}

/// What the ledger says to a reservation that is asked for; now and then to one that is not.
fn ledger(random: &mut Random, world: &World) -> Input {
    let asked: Vec<_> = outstanding(&world.session, &world.bundle)
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Reserve { purpose, charges } => Some((purpose, charges)),
            _ => None,
        })
        .collect();
    if asked.is_empty() || random.one_in(20) {
        let purpose = Purpose::Round { run: 1, step: 1, round: 1, attempt: 7 };
        let answer = ReservationAnswer { purpose, answer: LedgerAnswer::Granted, settled: Vec::new() };
        return Input::Reservation(answer);
    }
    let (purpose, charges) = random.pick(&asked).clone();
    let answer = if random.one_in(8) {
        let charge = random.pick(&charges);
        LedgerAnswer::Refused { counter: charge.counter.clone(), used: charge.limit, limit: charge.limit }
    } else {
        LedgerAnswer::Granted
    };
    let settled = world.session.unsettled.iter().map(|one| one.key.clone()).collect();
    Input::Reservation(ReservationAnswer { purpose, answer, settled })
}

/// An answer to any approval there ever was.
fn used_approval(random: &mut Random, world: &World) -> Input {
    let opened: Vec<&ApprovalOpened> = world
        .log
        .iter()
        .filter_map(|recorded| match &recorded.event {
            Event::CallDecided(e) => e.approval.as_ref(),
            Event::AdmissionAnswered(e) => e.approval.as_ref(),
            Event::RunPaused(e) => Some(&e.approval),
            _ => None,
        })
        .collect();
    if opened.is_empty() {
        return attach(random);
    }
    let approval = *random.pick(&opened);
    if random.one_in(3) {
        return approve(random, approval);
    }
    // Calls that wait for a client are approved and not sent: there an approval can be taken back, and asked for again.
    let revoked = world.session.answers.iter().any(|given| given.verb == ApprovalVerb::Revoke);
    let last = world.session.answers.iter().rev().find(|given| revoked == (given.verb == ApprovalVerb::Revoke));
    let Some(given) = last else { return approve(random, approval) };
    let decision = if revoked { ApprovalDecision::Approve { grant: None } } else { ApprovalDecision::Revoke };
    Input::Approval(ApprovalAnswer {
        approval: given.approval.clone(),
        by: actor("boss"),
        digest: given.digest,
        bundle: None,
        decision,
    })
}

/// A report that somebody makes up from what he may have seen.
fn hostile_outcome(random: &mut Random, world: &World) -> Input {
    let known: Vec<CallId> = world
        .log
        .iter()
        .filter_map(|recorded| match &recorded.event {
            Event::CallDecided(e) => Some(e.call.clone()),
            _ => None,
        })
        .collect();
    let call = match known.is_empty() || random.one_in(10) {
        true => CallId::parse(&format!("call_{:032x}", random.below(9))).unwrap(),
        false => random.pick(&known).clone(),
    };
    let reporter = if random.one_in(2) {
        Reporter::Server
    } else {
        Reporter::Client {
            instance: ClientInstance::new(*random.pick(&["x", "y", "z"])).unwrap(),
            by: actor("mallory"),
            fence: random.within(1..30),
            args_hash: Sha256Digest::of(b"guessed"),
        }
    };
    let attempt = u32::try_from(random.within(0..3)).unwrap();
    Input::Outcome(OutcomeReport { call, attempt, reporter, outcome: outcome(random) })
}
