//! Events, effects and replies as one short line each, for scripts. Calls are named `c1`, `c2`, … in the order in which
//! the log first names them; times are seconds since the session's start.

use std::collections::{BTreeMap, BTreeSet};

use toolgate_core::ask::Entry;
use toolgate_core::consensus::{Electorate, Rule};
use toolgate_core::event::{CallDecided, Charge, Dispatch, Event, Purpose, Raise, Recorded, Settlement};
use toolgate_core::id::CallId;
use toolgate_core::input::Reporter;
use toolgate_core::time::Timestamp;
use toolgate_core::{Effect, Order, Reply};
use toolgate_policy::RuleId;

use crate::world::START;

/// Short names for calls.
#[derive(Default)]
pub(crate) struct Names {
    known: Vec<CallId>,
    pauses: Vec<CallId>,
}

impl Names {
    pub(crate) fn learn(&mut self, log: &[Recorded]) {
        for recorded in log {
            if let Event::CallDecided(e) = &recorded.event
                && !self.known.contains(&e.call)
            {
                self.known.push(e.call.clone());
            }
            if let Event::RunPaused(e) = &recorded.event
                && !self.pauses.contains(&e.call)
            {
                self.pauses.push(e.call.clone());
            }
        }
    }

    pub(crate) fn id(&self, name: &str) -> Option<CallId> {
        if let Some(number) = name.strip_prefix('p') {
            return self.pauses.get(number.parse::<usize>().ok()?.checked_sub(1)?).cloned();
        }
        let number: usize = name.strip_prefix('c')?.parse().ok()?;
        self.known.get(number.checked_sub(1)?).cloned()
    }

    pub(crate) fn name(&self, id: &CallId) -> String {
        self.known
            .iter()
            .position(|known| known == id)
            .map(|place| format!("c{}", place + 1))
            .or_else(|| self.pauses.iter().position(|known| known == id).map(|place| format!("p{}", place + 1)))
            .unwrap_or_else(|| "unknown".to_owned())
    }
}

pub(crate) fn event(names: &Names, recorded: &Recorded) -> String {
    let kind = recorded.event.kind();
    let told = match &recorded.event {
        Event::SessionOpened(e) => {
            let limits = serde_json::to_value(e.limits).unwrap();
            let narrowed: BTreeMap<String, u64> = limits
                .as_object()
                .unwrap()
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), value.as_u64()?)))
                .collect();
            Line::new().some("profile", e.profile.as_ref()).some("label", e.label.as_ref()).list("limits", &narrowed)
        }
        Event::OwnerChanged(e) => Line::new().put("node", &e.node).put("epoch", recorded.epoch),
        Event::ClassificationReceived(e) => Line::new()
            .put("attempt", e.attempt)
            .some("label", e.content.found.as_ref().map(|f| &f.label))
            .some("failed", e.content.failed.as_ref().map(|f| &f.detail)),
        Event::ProfileChosen(e) => Line::new()
            .put("profile", &e.profile)
            .some("label", e.label.as_ref())
            .list("evidence", &e.trace_requirements),
        Event::MessageReceived(e) => Line::new().text(&e.content.text),
        Event::RunStarted(e) => Line::new()
            .put("run", e.run)
            .put("steps", e.limits.max_steps)
            .put("tool_calls", e.limits.max_tool_calls)
            .put("model_calls", e.limits.max_model_calls)
            .put("deadline", at(e.deadline_at)),
        Event::BallotReceived(e) => Line::new()
            .put("step", e.seat.step)
            .unless(e.of == 1, "ballot", format!("{}/{}", e.seat.ballot, e.of))
            .unless(e.seat.round == 1, "round", e.seat.round)
            .unless(e.seat.attempt == 1, "attempt", e.seat.attempt)
            .word(&e.verdict)
            .some("reason", e.reason.as_ref())
            .unless(e.calls == 0, "calls", e.calls)
            .unless(e.sealed.is_empty(), "sealed", e.sealed.len()),
        Event::SummaryAsked(e) => Line::new()
            .put("step", e.seat.step)
            .unless(e.seat.attempt == 1, "attempt", e.seat.attempt)
            .put("model", &e.model)
            .put("entries", e.entries)
            .put("answers", e.answers),
        Event::SummaryReceived(e) => Line::new()
            .put("step", e.seat.step)
            .unless(e.seat.attempt == 1, "attempt", e.seat.attempt)
            .some("fault", e.fault.map(toolgate_core::event::SummaryFault::code))
            .put("charged", format!("{}t/{}$", e.charged.tokens, e.charged.cost_microusd))
            .maybe(e.content.text.as_ref().or(e.content.detail.as_ref())),
        Event::VoteWidened(e) => {
            let vote = |vote: &Electorate| format!("{}of{}:{}", vote.k, vote.n, vote.rule.code());
            Line::new()
                .put("step", e.step)
                .put("round", e.round)
                .put("from", vote(&e.from))
                .put("to", vote(&e.to))
                .put("by", e.why.code())
                .put("tool", &e.tool)
        }
        Event::ConsensusDecided(e) => Line::new()
            .put("step", e.step)
            .put("round", e.round)
            .unless(e.n == 0, "n", e.n)
            .unless(e.rule == Rule::KOfN, "rule", e.rule.code())
            .put("k", e.k)
            .put("groups", format!("{:?}", e.tally.groups).replace(' ', ""))
            .unless(e.tally.unreadable.is_empty(), "unreadable", format!("{:?}", e.tally.unreadable).replace(' ', ""))
            .unless(e.cancelled.is_empty(), "cancelled", format!("{:?}", e.cancelled).replace(' ', ""))
            .word(serde_json::to_string(&e.result).unwrap().replace('"', "")),
        Event::CallDecided(e) => call_decided(names, e),
        Event::CallDispatched(e) => dispatch(Line::new().word(names.name(&e.call)), &e.dispatch),
        Event::CallAcknowledged(e) => {
            Line::new().word(names.name(&e.call)).put("attempt", e.attempt).put("by", &e.instance)
        }
        Event::CallEnded(e) => Line::new()
            .word(names.name(&e.call))
            .word(e.end.code())
            .put("cause", cause(&serde_json::to_value(&e.cause).unwrap()))
            .unless(e.attempt < 2, "attempt", e.attempt)
            .some("replaced_by", e.replaced_by.as_ref().map(|id| names.name(id)))
            .some("output", e.content.outcome.as_ref().and_then(|o| o.output.as_ref()).map(|o| quoted(&o.shown())))
            .maybe(e.content.detail.as_ref()),
        Event::ApprovalDecided(e) => Line::new()
            .word(names.name(&e.call))
            .word(serde_json::to_string(&e.decision).unwrap().replace('"', ""))
            .put("by", &e.by)
            .some("args", e.content.args.as_ref())
            .unless(e.missing == 0, "missing", e.missing)
            .some("grant_until", e.grant.as_ref().map(|grant| at(grant.expires_at)))
            .unless(e.raises.is_empty(), "raises", raises(&e.raises))
            .unless(e.sealed.is_empty(), "sealed", e.sealed.len())
            .maybe(e.content.message.as_ref()),
        Event::ApprovalReminded(e) => {
            Line::new().word(names.name(&e.call)).put("reminder", e.reminder).put("expires", at(e.expires_at))
        }
        Event::AdmissionAnswered(e) => Line::new()
            .word(names.name(&e.call))
            .put("hook", &e.hook)
            .unless(e.attempt == 1, "attempt", e.attempt)
            .word(e.verdict.code())
            .some("args", e.content.args.as_ref())
            .some("next_by", e.next_by.map(at))
            .some("expires", e.approval.as_ref().map(|approval| at(approval.expires_at)))
            .unless(e.sealed.is_empty(), "sealed", e.sealed.len())
            .maybe(e.content.reason.as_ref()),
        Event::BudgetReserved(e) => {
            let ballots: BTreeMap<u32, String> = e
                .ballots
                .iter()
                .map(|one| (one.ballot, format!("{}t/{}$", one.most.tokens, one.most.cost_microusd)))
                .collect();
            Line::new()
                .put("step", e.step)
                .unless(e.round == 1, "round", e.round)
                .unless(e.attempt == 1, "attempt", e.attempt)
                .list("ballots", &ballots)
                .unless(e.charges.is_empty(), "charges", charges(&e.charges))
        }
        Event::ReservationAnswered(e) => Line::new()
            .word(purpose(names, &e.purpose))
            .word(serde_json::to_string(&e.answer).unwrap().replace('"', ""))
            .unless(e.settled.is_empty(), "settled", e.settled.len()),
        Event::BudgetSettled(e) => Line::new().put("settled", e.settled.len()),
        Event::RunPaused(e) => Line::new()
            .word(names.name(&e.call))
            .put("step", e.step)
            .put("bound", e.bound.code())
            .put("used", e.used)
            .put("args", &e.content.args)
            .put("expires", at(e.approval.expires_at)),
        Event::WrapUpStarted(e) => Line::new().put("step", e.step),
        Event::StepEnded(e) => {
            let missing: BTreeMap<String, String> = e
                .deficits
                .iter()
                .map(|(tag, deficit)| (tag.to_string(), format!("{}of{}", deficit.have, deficit.need)))
                .collect();
            Line::new().put("step", e.step).word(e.reason.code()).list("missing", &missing).text(&e.content.text)
        }
        Event::RunEnded(e) => Line::new()
            .put("run", e.run)
            .word(e.ending.code())
            .put("steps", e.steps)
            .put("tool_calls", e.tool_calls)
            .put("model_calls", e.model_calls)
            .unless(!e.wrapped_up, "wrapped_up", "yes")
            .some("output", e.content.output.as_ref())
            .maybe(e.content.detail.as_ref()),
        Event::ClientAttached(e) => {
            let capabilities: Vec<String> = e.capabilities.iter().map(ToString::to_string).collect();
            Line::new().word(&e.instance).unless(capabilities.is_empty(), "capabilities", capabilities.join(","))
        }
        Event::CancelRequested(e) | Event::CloseRequested(e) => {
            Line::new().put("by", &e.by).maybe(e.content.reason.as_ref())
        }
        Event::SessionClosed(e) => Line::new().put("runs", e.runs),
        Event::Ticked(e) | Event::Recovered(e) => Line::new().put("at", at(recorded.at)).put("run", e.run),
        Event::OutcomeRefused(e) => Line::new()
            .word(names.name(&e.call))
            .word(e.code.code())
            .put("by", reporter(&e.reporter))
            .put("claimed", e.claimed.code()),
    };
    format!("{} {kind}{}", recorded.seq, told.0)
}

fn call_decided(names: &Names, e: &CallDecided) -> Line {
    let line = Line::new()
        .word(names.name(&e.call))
        .word(e.decision.code())
        .some("reason", e.reason.map(|reason| reason.code()))
        .put("tool", quoted_if_odd(&e.content.tool))
        .some("args", e.content.args.as_ref())
        .unless(e.sealed.is_empty(), "sealed", e.sealed.len())
        .some("edited_from", e.edited_from.as_ref().map(|id| names.name(id)))
        .some("replay_of", e.replay_of.as_ref().map(|id| names.name(id)))
        .some("rewritten_by", e.rewritten_by.as_ref())
        .some("expires", e.approval.as_ref().map(|approval| at(approval.expires_at)))
        .some(
            "admission",
            e.admission.as_ref().map(|open| open.hooks.iter().map(RuleId::as_str).collect::<Vec<_>>().join(",")),
        )
        .unless(e.content.charges.is_empty(), "charges", charges(&e.content.charges))
        .unless(e.granted_by.is_none(), "granted", "yes");
    let line = match &e.dispatch {
        Some(leave) => dispatch(line, leave),
        None => line,
    };
    line.maybe(e.content.detail.as_ref())
}

fn dispatch(line: Line, leave: &Dispatch) -> Line {
    line.put("attempt", leave.attempt)
        .put("due", at(leave.deadline_at))
        .put("to", leave.instance.as_ref().map_or("server", |instance| instance.as_str()))
}

fn cause(cause: &serde_json::Value) -> String {
    match cause {
        serde_json::Value::String(code) => code.clone(),
        other => {
            let reporter: Reporter = serde_json::from_value(other["reported"].clone()).unwrap();
            format!("reported:{}", self::reporter(&reporter))
        }
    }
}

fn reporter(reporter: &Reporter) -> String {
    match reporter {
        Reporter::Server => "server".to_owned(),
        Reporter::Client { instance, .. } => instance.to_string(),
    }
}

fn raises(raises: &[Raise]) -> String {
    raises.iter().map(|raise| format!("{}:{}", raise.bound.code(), raise.to)).collect::<Vec<_>>().join(",")
}

fn charges(charges: &[Charge]) -> String {
    let one = |charge: &Charge| format!("{}+{}/{}", charge.counter, charge.amount, charge.limit);
    charges.iter().map(one).collect::<Vec<_>>().join(",")
}

fn purpose(names: &Names, purpose: &Purpose) -> String {
    match purpose {
        Purpose::Round { .. } => purpose.key(),
        Purpose::Call { call } => names.name(call),
    }
}

/// The effects that are new, one line each.
pub(crate) fn effects(names: &Names, before: &[Effect], now: &[Effect]) -> Vec<String> {
    let before: BTreeSet<&Effect> = before.iter().collect();
    now.iter().filter(|effect| !before.contains(effect)).map(|new| format!("> {}", effect(names, new))).collect()
}

fn effect(names: &Names, effect: &Effect) -> String {
    let order = |order: &Order| {
        Line::new()
            .word(names.name(&order.call))
            .word(&order.tool)
            .word(&order.args)
            .unless(order.attempt == 1, "attempt", order.attempt)
            .put("fence", order.fence)
            .put("due", at(order.deadline_at))
            .0
    };
    match effect {
        Effect::Classify { attempt, model } => format!("classify attempt={attempt} model={model}"),
        Effect::AskModel { seat, model } => {
            let line = Line::new()
                .put("step", seat.step)
                .unless(seat.ballot == 1, "ballot", seat.ballot)
                .unless(seat.round == 1, "round", seat.round)
                .unless(seat.attempt == 1, "attempt", seat.attempt)
                .put("model", model);
            format!("ask_model{}", line.0)
        }
        Effect::Summarize { seat, model } => Line::new()
            .put("step", seat.step)
            .unless(seat.attempt == 1, "attempt", seat.attempt)
            .put("model", model)
            .prefixed("summarize"),
        Effect::AskAdmission { call, hook, attempt, tool, args } => {
            let line = Line::new()
                .word(names.name(call))
                .put("hook", hook)
                .unless(*attempt == 1, "attempt", attempt)
                .word(tool)
                .word(args);
            format!("ask_admission{}", line.0)
        }
        Effect::Reserve { purpose, charges } => {
            let line = Line::new().word(self::purpose(names, purpose)).word(self::charges(charges));
            format!("reserve{}", line.0)
        }
        Effect::Settle(settle) => {
            format!("settle {}", settle.iter().map(settlement).collect::<Vec<_>>().join("; "))
        }
        Effect::RunTool(run) => format!("run_tool{}", order(run)),
        Effect::OfferCall { instance, order: offer } => format!("offer_call to={instance}{}", order(offer)),
    }
}

fn settlement(settlement: &Settlement) -> String {
    let used: Vec<String> = settlement.used.iter().map(|(counter, used)| format!("{counter}={used}")).collect();
    let key = if settlement.key.starts_with("call_") { "a call" } else { &settlement.key };
    format!("{key} {}", used.join(" ")).trim_end().to_owned()
}

pub(crate) fn reply(reply: &Reply) -> Option<String> {
    match reply {
        Reply::Accepted => None,
        Reply::Unchanged => Some("unchanged".to_owned()),
        Reply::Already { seq } => Some(format!("already seq={seq}")),
        Reply::Refused(refusal) => Some(format!("refused {}: {}", refusal.code.code(), refusal.detail)),
    }
}

/// What a model is shown of the conversation, one line per entry.
pub(crate) fn entry(names: &Names, entry: &Entry) -> String {
    match entry {
        Entry::User { text } => format!("user {}", quoted(text)),
        Entry::Model { text, calls, opaque } => {
            let calls: Vec<String> =
                calls.iter().map(|call| format!("{} {} {}", names.name(&call.call), call.tool, call.args)).collect();
            Line::new().text(text).unless(opaque.is_none(), "opaque", "yes").list_of("calls", &calls).prefixed("model")
        }
        Entry::Result { call, tool, status, reason, body } => Line::new()
            .word(names.name(call))
            .word(quoted_if_odd(tool))
            .word(status)
            .unless(body.is_empty(), "body", quoted(body))
            .maybe(reason.as_ref())
            .prefixed("result"),
        Entry::Feedback { code, text } => Line::new().word(code).text(text).prefixed("feedback"),
        Entry::Summary { steps, text } => Line::new().put("steps", steps).text(text).prefixed("summary"),
    }
}

fn at(time: Timestamp) -> String {
    let us = time.0 - START.0;
    if us % 1_000_000 == 0 { format!("{}s", us / 1_000_000) } else { format!("{}ms", us / 1_000) }
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).unwrap()
}

fn quoted_if_odd(text: &str) -> String {
    let plain = !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && c != '"');
    if plain { text.to_owned() } else { quoted(text) }
}

/// A line under construction; each piece brings its leading space.
struct Line(String);

impl Line {
    fn new() -> Self {
        Self(String::new())
    }
    fn word(mut self, word: impl std::fmt::Display) -> Self {
        self.0 += &format!(" {word}");
        self
    }
    fn put(self, key: &str, value: impl std::fmt::Display) -> Self {
        self.word(format_args!("{key}={value}"))
    }
    fn unless(self, usual: bool, key: &str, value: impl std::fmt::Display) -> Self {
        if usual { self } else { self.put(key, value) }
    }
    fn some(self, key: &str, value: Option<impl std::fmt::Display>) -> Self {
        match value {
            Some(value) => self.put(key, value),
            None => self,
        }
    }
    fn list(self, key: &str, map: &BTreeMap<impl std::fmt::Display, impl std::fmt::Display>) -> Self {
        let parts: Vec<String> = map.iter().map(|(name, value)| format!("{name}:{value}")).collect();
        self.unless(parts.is_empty(), key, parts.join(","))
    }
    fn list_of(self, key: &str, parts: &[String]) -> Self {
        self.unless(parts.is_empty(), key, parts.join("; "))
    }
    fn text(self, text: &str) -> Self {
        self.word(quoted(text))
    }
    fn maybe(self, text: Option<&String>) -> Self {
        match text {
            Some(text) => self.text(text),
            None => self,
        }
    }
    fn prefixed(self, word: &str) -> String {
        format!("{word}{}", self.0)
    }
}
