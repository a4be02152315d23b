//! The words of a script's input line: what they mean for the session as it stands.

use std::collections::BTreeSet;

use toolgate_core::event::{Charge, Event, LedgerAnswer, Purpose};
use toolgate_core::id::{ActorId, CallId, Capability, ClientInstance, Label, ProfileName, Sha256Digest, TenantId};
use toolgate_core::input::{
    AdmissionAnswer, AdmissionVerdict, ApprovalAnswer, ApprovalDecision, BallotCast, CallAck, ClassificationFailure,
    Classified, ClassifiedLabel, ClientAttached, GrantAsked, Input, Message, Narrowed, Open, OutcomeReport, Reporter,
    ReservationAnswer, Seat, Stop, SummaryFailure, SummaryWritten,
};
use toolgate_core::json::Json;
use toolgate_core::output::{Outcome, OutcomeStatus, Output};
use toolgate_core::proposal::{
    Ballot, BallotVerdict, MalformedReason, Proposal, ProposedArgs, ProposedCall, ProviderFailure, Usage,
};
use toolgate_core::session::{Awaited, CallState, Phase};
use toolgate_core::{Effect, outstanding};
use toolgate_policy::RuleId;

use crate::render::Names;
use crate::world::World;

/// The words of one line. `key=value` words are options; a quoted or braced word may hold spaces.
pub(crate) struct Words {
    words: Vec<String>,
    line: String,
}

impl Words {
    pub(crate) fn new(line: &str) -> Self {
        let mut words = Vec::new();
        let mut word = String::new();
        let (mut depth, mut quoted, mut escaped) = (0_u32, false, false);
        for c in line.chars() {
            let splits = c == ' ' && depth == 0 && !quoted;
            match c {
                '"' if !escaped => quoted = !quoted,
                '{' | '[' if !quoted => depth += 1,
                '}' | ']' if !quoted => depth -= 1,
                _ => {}
            }
            escaped = c == '\\' && !escaped;
            if !splits {
                word.push(c);
            } else if !word.is_empty() {
                words.push(std::mem::take(&mut word));
            }
        }
        if !word.is_empty() {
            words.push(word);
        }
        Self { words, line: line.to_owned() }
    }

    pub(crate) fn peek(&self) -> &str {
        self.words.first().map_or("", String::as_str)
    }

    pub(crate) fn rest_after(&self, count: usize) -> String {
        unquoted(&self.words[count..].join(" "))
    }

    pub(crate) fn take_prefixed(&mut self, prefix: &str) -> Option<String> {
        let rest = self.words.first()?.strip_prefix(prefix)?.to_owned();
        self.words.remove(0);
        Some(rest)
    }

    pub(crate) fn option(&mut self, key: &str) -> Option<String> {
        let place = self.words.iter().position(|word| word.strip_prefix(key).is_some_and(|r| r.starts_with('=')))?;
        let word = self.words.remove(place);
        Some(unquoted(&word[key.len() + 1..]))
    }

    fn next(&mut self) -> Option<String> {
        (!self.words.is_empty()).then(|| self.words.remove(0))
    }

    fn must(&mut self) -> String {
        self.next().unwrap_or_else(|| panic!("a word is missing: {}", self.line))
    }

    fn text(&mut self) -> Option<String> {
        self.next().map(|word| unquoted(&word))
    }
}

fn unquoted(word: &str) -> String {
    if word.starts_with('"') { serde_json::from_str(word).unwrap() } else { word.to_owned() }
}

/// `10s`, `500ms`.
pub(crate) fn milliseconds(span: &str) -> u64 {
    match span.strip_suffix("ms") {
        Some(ms) => ms.parse().unwrap(),
        None => span.strip_suffix('s').unwrap().parse::<u64>().unwrap() * 1_000,
    }
}

/// Makes the input that a line names.
pub(crate) fn input(world: &World, names: &Names, words: &mut Words) -> Input {
    match words.must().as_str() {
        "open" => open(world, words),
        "message" => Input::Message(Message { by: actor("ann"), text: words.text().unwrap() }),
        "model" => model(world, words),
        "summary" => summary(world, words),
        "classified" => classified(world, words),
        "outcome" => outcome(world, names, words),
        "ack" => ack(world, names, words),
        "attach" => Input::ClientAttached(ClientAttached {
            instance: client(&words.must()),
            by: actor(&words.option("by").unwrap_or_else(|| "ann".to_owned())),
            capabilities: capabilities(words.option("caps")),
        }),
        "approve" => {
            let grant = words.option("grant").map(|text| grant(&text));
            approval(world, names, words, |_| ApprovalDecision::Approve { grant })
        }
        "revoke" => approval(world, names, words, |_| ApprovalDecision::Revoke),
        "admit" => admit(world, names, words),
        "ledger" => ledger(world, words),
        "settled" => Input::Settled(world.session.unsettled.iter().map(|one| one.key.clone()).collect()),
        "deny" => approval(world, names, words, |words| ApprovalDecision::Deny { message: words.text() }),
        "edit" => {
            approval(world, names, words, |words| ApprovalDecision::Edit { args: Json::parse(&words.must()).unwrap() })
        }
        "tick" => Input::Tick,
        "recovered" => Input::Recovered,
        "cancel" => Input::Cancel(Stop { by: actor("ann"), reason: words.text() }),
        "close" => Input::Close(Stop { by: actor("ann"), reason: words.text() }),
        other => panic!("no input `{other}`: {}", words.line),
    }
}

pub(crate) fn actor(name: &str) -> ActorId {
    ActorId::new(name).unwrap()
}

fn client(name: &str) -> ClientInstance {
    ClientInstance::new(name).unwrap()
}

fn capabilities(list: Option<String>) -> BTreeSet<Capability> {
    list.iter().flat_map(|list| list.split(',')).map(|name| Capability::new(name).unwrap()).collect()
}

fn open(world: &World, words: &mut Words) -> Input {
    let limits = words.option("limits").map(|text| serde_json::from_str::<Narrowed>(&text).unwrap());
    let ceiling = words
        .option("ceiling")
        .map(|list| list.split(',').map(|name| ProfileName::new(name).unwrap()).collect::<BTreeSet<_>>());
    let label = words.option("label").map(|name| Label::new(name).unwrap());
    let profile = words.option("profile").map(|name| ProfileName::new(name).unwrap());
    Input::Open(Box::new(Open {
        tenant: TenantId::new("acme").unwrap(),
        by: actor("ann"),
        alias: None,
        bundle: world.bundle.digest(),
        profile: profile.or_else(|| {
            let asks = words.peek() == "classify";
            (label.is_none() && !asks).then(|| ProfileName::new("main").unwrap())
        }),
        label,
        ceiling,
        capabilities: capabilities(words.option("caps")),
        limits: limits.unwrap_or_default(),
        control: words.option("control").map(|text| serde_json::from_value(text.into()).unwrap()),
        dry_run: words.option("dry_run").is_some(),
        output_schema: words.option("output_schema").map(|text| Json::parse(&text).unwrap()),
        prompt: "go".to_owned(),
        trace: None,
        metadata: std::collections::BTreeMap::new(),
    }))
}

fn model(world: &World, words: &mut Words) -> Input {
    let seat = words.option("seat").map(|text| {
        let parts: Vec<u32> = text.split('.').map(|part| part.parse().unwrap()).collect();
        Seat { run: parts[0], step: parts[1], round: parts[2], ballot: parts[3], attempt: parts[4] }
    });
    let ballot_no = words.option("ballot").map(|text| text.parse().unwrap());
    let text = words.option("text").unwrap_or_default();
    let opaque = words.option("opaque").map(|text| Json::string(&text));
    let verdict = verdict(words);
    let seat = seat.unwrap_or_else(|| {
        let open = open_seat(world);
        Seat { ballot: ballot_no.unwrap_or(open.ballot), ..open }
    });
    Input::Ballot(Box::new(BallotCast { seat, ballot: ballot(verdict, text, opaque) }))
}

pub(crate) fn ballot(verdict: BallotVerdict, text: String, opaque: Option<Json>) -> Ballot {
    let usage = Usage { input_tokens: Some(100), output_tokens: Some(20) };
    Ballot { verdict, text, normalised: Vec::new(), opaque, usage, model: None, fingerprint: None, cut: None }
}

/// The first seat that waits for an answer; one that fits nothing when none does.
pub(crate) fn open_seat(world: &World) -> Seat {
    let none = Seat { run: 9, step: 9, round: 1, ballot: 1, attempt: 1 };
    let Some(run) = world.session.active_run() else { return none };
    let Phase::Asking(round) = &run.phase else { return none };
    let ballot = round.missing().next().unwrap_or(1);
    Seat { run: run.no, step: round.step, round: round.round, ballot, attempt: round.attempt }
}

fn verdict(words: &mut Words) -> BallotVerdict {
    match words.peek() {
        "done" => {
            words.must();
            let output = words.next().map_or_else(|| Json::string("ok"), |text| Json::parse(&text).unwrap());
            BallotVerdict::Proposal(Proposal::Done { output })
        }
        "malformed" => {
            words.must();
            BallotVerdict::Malformed { reason: malformed(&words.must()), detail: words.text().unwrap_or_default() }
        }
        "failed" => {
            words.must();
            let reason: ProviderFailure = serde_json::from_value(words.must().into()).unwrap();
            BallotVerdict::Failed { reason, detail: words.text().unwrap_or_default() }
        }
        "calls" => {
            words.must();
            let mut calls = Vec::new();
            while let Some(tool) = words.text() {
                calls.push(call(tool, words.next().as_deref()));
            }
            BallotVerdict::Proposal(Proposal::Calls(calls))
        }
        other => panic!("no verdict `{other}`: {}", words.line),
    }
}

/// A call; arguments that are no JSON object are malformed, as an adapter would have it.
pub(crate) fn call(tool: String, args: Option<&str>) -> ProposedCall {
    let raw = args.unwrap_or("{}").to_owned();
    let args = match Json::parse(&raw) {
        Ok(json) if json.value().is_object() => ProposedArgs::Readable(json),
        Ok(_) => ProposedArgs::Malformed {
            reason: MalformedReason::NotAnObject,
            detail: format!("the arguments must be a JSON object, not {raw}"),
        },
        Err(fault) => ProposedArgs::Malformed { reason: MalformedReason::Syntax, detail: format!("{fault} in {raw}") },
    };
    ProposedCall { tool, provider_id: None, args, raw_args: raw }
}

fn malformed(code: &str) -> MalformedReason {
    serde_json::from_value(code.into()).unwrap()
}

fn classified(world: &World, words: &mut Words) -> Input {
    let attempt = words.option("attempt").map(|text| text.parse().unwrap());
    let attempt = attempt.or(world.session.classifying).unwrap_or(1);
    let result = match words.must().as_str() {
        "failed" => Err(ClassificationFailure {
            provider: Some(ProviderFailure::Transport),
            detail: words.text().unwrap_or_default(),
        }),
        label => Ok(ClassifiedLabel { label: unquoted(label), confidence_milli: 900, reasoning: None }),
    };
    Input::Classified(Classified { attempt, result, usage: Usage::default() })
}

/// A summary, or `failed CODE`, in the seat that asks for one.
fn summary(world: &World, words: &mut Words) -> Input {
    let attempt = words.option("attempt").map(|text| text.parse().unwrap());
    let usage = match words.option("usage").as_deref() {
        Some("none") => Usage::default(),
        _ => Usage { input_tokens: Some(100), output_tokens: Some(20) },
    };
    let seat = Seat { ballot: 0, ..open_seat(world) };
    let seat = Seat { attempt: attempt.unwrap_or(seat.attempt), ..seat };
    let result = match words.must().as_str() {
        "failed" => Err(SummaryFailure {
            fault: serde_json::from_value(words.must().into()).unwrap(),
            detail: words.text().unwrap_or_default(),
        }),
        text => Ok(unquoted(text)),
    };
    Input::Summary(Box::new(SummaryWritten { seat, result, usage, model: None }))
}

fn named(names: &Names, words: &mut Words) -> CallId {
    let name = words.must();
    names.id(&name).unwrap_or_else(|| CallId::parse(&format!("call_{:032x}", name.len())).unwrap())
}

/// A report that fits the call as it stands, but for what the options say.
fn outcome(world: &World, names: &Names, words: &mut Words) -> Input {
    let call = named(names, words);
    let attempt = words.option("attempt").map(|text| text.parse().unwrap());
    let fence = words.option("fence").map(|text| text.parse().unwrap());
    let hash = words.option("hash").map(|text| Sha256Digest::of(text.as_bytes()));
    let by = words.option("by");
    let detail = words.option("detail");
    let status: OutcomeStatus = serde_json::from_value(words.must().into()).unwrap();
    let output = words.text().map(|text| Output::text("text/plain", text));
    let known = world.session.call(&call);
    let open = known.and_then(|call| match &call.state {
        CallState::Dispatched(open) => Some(open.clone()),
        _ => None,
    });
    let last = dispatched_to(world, &call);
    let instance = match by.as_deref() {
        Some("server") => None,
        Some(name) => Some(client(name)),
        None => last.as_ref().and_then(|(_, _, instance)| instance.clone()),
    };
    let reporter = match instance {
        None => Reporter::Server,
        Some(instance) => Reporter::Client {
            instance,
            by: actor("ann"),
            fence: fence.or_else(|| open.as_ref().map(|open| open.fence)).or(last.as_ref().map(|l| l.1)).unwrap_or(0),
            args_hash: hash
                .or_else(|| known.and_then(|call| call.args_hash))
                .unwrap_or_else(|| Sha256Digest::of(b"unknown")),
        },
    };
    Input::Outcome(OutcomeReport {
        call,
        attempt: attempt.or(last.map(|(attempt, _, _)| attempt)).unwrap_or(1),
        reporter,
        outcome: Outcome { status, output, detail },
    })
}

/// The last dispatch of a call: attempt, fence, instance.
fn dispatched_to(world: &World, call: &CallId) -> Option<(u32, u64, Option<ClientInstance>)> {
    world.log.iter().rev().find_map(|recorded| match &recorded.event {
        Event::CallDispatched(e) if e.call == *call => {
            Some((e.dispatch.attempt, recorded.seq, e.dispatch.instance.clone()))
        }
        Event::CallDecided(e) if e.call == *call => {
            e.dispatch.as_ref().map(|dispatch| (dispatch.attempt, recorded.seq, dispatch.instance.clone()))
        }
        _ => None,
    })
}

fn ack(world: &World, names: &Names, words: &mut Words) -> Input {
    let call = named(names, words);
    let last = dispatched_to(world, &call);
    let instance = words.option("by").map(|name| client(&name));
    let attempt = words.option("attempt").map(|text| text.parse().unwrap());
    Input::CallAck(CallAck {
        instance: instance.or(last.as_ref().and_then(|l| l.2.clone())).unwrap_or_else(|| client("nobody")),
        attempt: attempt.or(last.map(|l| l.0)).unwrap_or(1),
        call,
    })
}

fn approval(
    world: &World,
    names: &Names,
    words: &mut Words,
    decision: impl FnOnce(&mut Words) -> ApprovalDecision,
) -> Input {
    let call = named(names, words);
    let opened = world.log.iter().find_map(|recorded| match &recorded.event {
        Event::CallDecided(e) if e.call == call => e.approval.clone(),
        Event::AdmissionAnswered(e) if e.call == call => e.approval.clone(),
        Event::RunPaused(e) if e.call == call => Some(e.approval.clone()),
        _ => None,
    });
    let bundle = words.option("bundle").map(|text| Sha256Digest::of(text.as_bytes()));
    let other = toolgate_core::id::ApprovalId::parse(&format!("apr_{:032x}", 1)).unwrap();
    let digest = words.option("digest").map(|text| Sha256Digest::of(text.as_bytes()));
    let by = words.option("by").unwrap_or_else(|| "boss".to_owned());
    Input::Approval(ApprovalAnswer {
        approval: opened.as_ref().map_or(other, |opened| opened.id.clone()),
        by: actor(&by),
        bundle,
        digest: digest.or(opened.map(|opened| opened.digest)).unwrap_or_else(|| Sha256Digest::of(b"")),
        decision: decision(words),
    })
}

fn grant(text: &str) -> GrantAsked {
    let value: serde_json::Value = serde_json::from_str(text).unwrap();
    let open = value["open"].as_array().into_iter().flatten().map(|name| name.as_str().unwrap().to_owned()).collect();
    GrantAsked { open, ttl_ms: value["ttl_ms"].as_u64() }
}

/// A hook's answer about a call: from the hook that is asked, unless the options say otherwise.
fn admit(world: &World, names: &Names, words: &mut Words) -> Input {
    let call = named(names, words);
    let asked = world.session.call(&call).and_then(|call| match &call.state {
        CallState::Waiting(Awaited::Admission(awaited)) => Some((awaited.hooks[0].clone(), awaited.attempt)),
        _ => None,
    });
    let hook = words.option("hook").map(|name| RuleId::new(name).unwrap());
    let attempt = words.option("attempt").map(|text| text.parse().unwrap());
    let verdict = match words.must().as_str() {
        "allow" => AdmissionVerdict::Allow { reason: words.text() },
        "deny" => AdmissionVerdict::Deny { reason: words.text() },
        "failed" => AdmissionVerdict::Failed { detail: words.text().unwrap_or_default() },
        "rewrite" => {
            let args = Json::parse(&words.must()).unwrap();
            AdmissionVerdict::Rewrite { args, reason: words.text() }
        }
        other => panic!("no verdict `{other}`"),
    };
    Input::Admission(AdmissionAnswer {
        call,
        hook: hook.or(asked.as_ref().map(|asked| asked.0.clone())).unwrap_or_else(|| RuleId::new("none").unwrap()),
        attempt: attempt.or(asked.map(|asked| asked.1)).unwrap_or(1),
        verdict,
    })
}

/// The ledger's answer to the first reservation that is asked for; the same request settles what it carried.
fn ledger(world: &World, words: &mut Words) -> Input {
    let asked = outstanding(&world.session, &world.bundle).into_iter().find_map(|effect| match effect {
        Effect::Reserve { purpose, charges } => Some((purpose, charges)),
        _ => None,
    });
    let none = (Purpose::Round { run: 9, step: 9, round: 1, attempt: 1 }, Vec::new());
    let (purpose, charges) = asked.unwrap_or(none);
    let answer = match words.must().as_str() {
        "grant" => LedgerAnswer::Granted,
        "refuse" => {
            let counter = words.text();
            let of = |charge: &&Charge| counter.as_ref().is_none_or(|name| charge.counter == *name);
            let charge = charges.iter().find(of).unwrap();
            LedgerAnswer::Refused { counter: charge.counter.clone(), used: charge.limit, limit: charge.limit }
        }
        other => panic!("no answer `{other}`"),
    };
    let settled = world.session.unsettled.iter().map(|one| one.key.clone()).collect();
    Input::Reservation(ReservationAnswer { purpose, answer, settled })
}
