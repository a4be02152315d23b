//! Logs edited by hand, each so that one invariant no longer holds: `invariants::check` refuses it with that very one. The
//! numbers are put in order after each edit, so that nothing but the named fault remains.

use serde_json::{Value, json};
use toolgate_core::event::{CallEnd, Event, Recorded};
use toolgate_core::id::{InputId, Sha256Digest};
use toolgate_core::invariants::{Invariant, check};
use toolgate_core::output::OutcomeStatus;

use crate::script::played;
use crate::world::World;

/// An edit of a valid log.
type Edit = fn(&mut Vec<Recorded>);

/// The sessions that are edited.
#[derive(Clone, Copy)]
enum Scene {
    /// Two runs with a read call each, closed; one report came late.
    Plain,
    /// A new owner: `search` is sent again, `write` is in doubt.
    Owners,
    /// An approved call, and a second one on the leave that the first gave.
    Approved,
    /// Two must approve.
    Pair,
    /// A denied call, one that an approver edits, and a rejected one.
    Denied,
    /// Calls of a client.
    Client,
    /// `done` needs a `read`.
    Evidence,
    /// Money is bounded; one answer is lost.
    Money,
    /// The tenant's ledger grants the round and the call.
    Ledger,
    /// A hook lets the call pass.
    Hook,
    /// The run stands at a bound, which a human raises.
    Paused,
    /// Arguments that are sealed.
    Sealed,
    /// Nothing is executed.
    Dry,
    /// The classifier never answers.
    Unclassified,
    /// Two of three agree, and the third is given up.
    Vote,
    /// One proposes, and all of three must agree.
    Larger,
}

impl Scene {
    fn world(self) -> World {
        let (patch, lines) = match self {
            Self::Plain => (
                json!({"profiles": {"main": {"harness": {"max_parallel_calls": 2}}}}),
                "open id=a\n model calls search {\"q\":\"a\"} search {\"q\":\"b\"}\n outcome c1 ok \"A\"\n outcome c2 ok \"B\"
                 model done 1\n message id=b \"more\"\n model calls write {\"text\":\"x\"}\n outcome c3 ok\n model done 2
                 close id=c",
            ),
            Self::Owners => (
                json!({"profiles": {"main": {"harness": {"max_parallel_calls": 4}, "on_indeterminate": "feedback"}}}),
                "open\n model calls search {\"q\":\"a\"} write {\"text\":\"x\"}\n take_over\n recovered\n outcome c1 ok\n model done 1",
            ),
            Self::Approved => (
                json!({}),
                "open\n model calls deploy {\"to\":\"test\"}\n approve c1 grant={\"ttl_ms\":60000}\n outcome c1 ok
                 model calls deploy {\"to\":\"test\"}\n outcome c2 ok\n model done 1",
            ),
            Self::Pair => (
                json!({"profiles": {"main": {"approval": {"approvers": 2}}}}),
                "open\n model calls deploy {\"to\":\"test\"}\n approve c1 by=bob\n approve c1 by=carol\n outcome c1 ok",
            ),
            Self::Denied => (
                json!({"profiles": {"main": {"harness": {"max_parallel_calls": 4}}}}),
                "open\n model calls deploy {\"to\":\"test\"} deploy {\"to\":\"live\"} search {}\n deny c1
                 edit c2 {\"to\":\"test\"}\n outcome c4 ok\n model done 1",
            ),
            Self::Client => (
                json!({}),
                "open\n attach laptop caps=terminal\n model calls terminal {\"cmd\":\"ls\"}\n ack c1\n outcome c1 ok\n model done 1",
            ),
            Self::Evidence => (
                json!({"profiles": {"main": {"trace_requirements": {"read": 1}}}}),
                "open\n model calls search {\"q\":\"a\"}\n outcome c1 ok\n model done 1",
            ),
            Self::Money => (
                json!({"models": {"scripted": {"prices": {"call_microusd": 100}}},
                    "profiles": {"main": {"harness": {"max_cost_microusd": 350}}}}),
                "open\n take_over\n recovered\n model calls search {\"q\":\"a\"}\n outcome c1 ok\n model done 1",
            ),
            Self::Ledger => (
                json!({"tenant_budget": {"max_model_calls": 100, "window_ms": 86_400_000},
                    "tenant_limits": {"few": {"on": {"tools": ["pay"]}, "max_count": 10, "window_ms": 86_400_000}}}),
                "open\n ledger grant\n model calls pay {\"cents\":5}\n ledger grant\n outcome c1 ok",
            ),
            Self::Hook => (
                json!({"admission": [{"name": "check", "kind": "validating", "on": {"tools": ["write"]}, "url": "http://check"}]}),
                "open\n model calls write {\"text\":\"x\"}\n admit c1 allow\n outcome c1 ok",
            ),
            Self::Paused => (
                json!({"profiles": {"main": {"harness": {"max_steps": 1, "at_limit": "pause_and_ask"}}}}),
                "open\n model calls search {\"q\":\"a\"}\n outcome c1 ok\n approve p1\n model done 1",
            ),
            Self::Sealed => (json!({}), "open\n model calls login {\"user\":\"u\",\"password\":\"p\"}\n outcome c1 ok"),
            Self::Dry => (json!({"profiles": {"main": {"dry_run": true}}}), "open\n model calls search {\"q\":\"a\"}\n model done 1"),
            Self::Unclassified => (
                json!({"classification": {"model": "second", "rules": {"easy": {"profile": "main"}}}}),
                "open classify\n classified failed \"no answer\"",
            ),
            Self::Vote => (
                json!({"profiles": {"main": {"consensus": {"n": 3, "rule": "majority"}}}}),
                "open\n model calls search {\"q\":\"a\"}\n model calls search {\"q\":\"a\"}\n outcome c1 ok\n model done 1\n model done 1",
            ),
            Self::Larger => (
                json!({"profiles": {"main": {"consensus":
                    {"n": 1, "k": 1, "by_tool": {"pay": {"n": 3, "rule": "unanimous"}}}}}}),
                "open\n model calls pay {\"cents\":5}\n model calls pay {\"cents\":5}\n model calls pay {\"cents\":5}\n outcome c1 ok",
            ),
        };
        played(&patch, lines)
    }
}

/// The place of the n-th event of a kind, from 0.
fn at(log: &[Recorded], kind: &str, n: usize) -> usize {
    let mut places = log.iter().enumerate().filter(|(_, recorded)| recorded.event.kind() == kind);
    places.nth(n).unwrap_or_else(|| panic!("no `{kind}` number {n}")).0
}

/// Changes fields of an event by their JSON pointers; `null` takes the field away.
fn set(log: &mut [Recorded], kind: &str, n: usize, fields: &[(&str, Value)]) {
    let place = at(log, kind, n);
    let mut value = serde_json::to_value(&log[place].event).unwrap();
    for (pointer, to) in fields {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = value.pointer_mut(parent).unwrap_or_else(|| panic!("no {pointer}"));
        match parent {
            Value::Object(map) => drop(map.insert(name.to_owned(), to.clone())),
            Value::Array(list) => list[name.parse::<usize>().unwrap()] = to.clone(),
            _ => panic!("{pointer} has no parent"),
        }
    }
    let edited: Event = serde_json::from_value(value).unwrap();
    assert_ne!(edited, log[place].event, "the edit changes something");
    log[place].event = edited;
}

fn remove(log: &mut Vec<Recorded>, kind: &str, n: usize) {
    log.remove(at(log, kind, n));
}

/// Puts a copy of an event right after another place.
fn copy(log: &mut Vec<Recorded>, kind: &str, n: usize, after: usize) {
    let mut again = log[at(log, kind, n)].clone();
    (again.input_id, again.epoch, again.at) = (None, log[after].epoch, log[after].at);
    log.insert(after + 1, again);
}

fn end(log: &[Recorded]) -> usize {
    log.len() - 1
}

fn other_hash() -> Value {
    serde_json::to_value(Sha256Digest::of(b"other")).unwrap()
}

fn cases() -> Vec<(Invariant, &'static str, Scene, Edit)> {
    use Invariant::{I1, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13, I14, I16, I17, I19};
    use Scene::{
        Approved, Client, Denied, Dry, Evidence, Hook, Larger, Ledger, Money, Owners, Pair, Paused, Plain, Sealed,
        Unclassified, Vote,
    };
    vec![
        (I1, "no session_opened", Plain, |log| remove(log, "session_opened", 0)),
        (I1, "session_opened twice", Plain, |log| copy(log, "session_opened", 0, 3)),
        (I3, "an epoch without owner", Owners, |log| remove(log, "owner_changed", 0)),
        (I3, "the epoch falls", Owners, |log| {
            let last = end(log);
            log[last].epoch = 1;
        }),
        (I3, "no epoch at all", Plain, |log| log.iter_mut().for_each(|recorded| recorded.epoch = 0)),
        (I3, "the same owner twice", Owners, |log| copy(log, "owner_changed", 0, at(log, "owner_changed", 0))),
        (I3, "an owner without a name", Owners, |log| set(log, "owner_changed", 0, &[("/node", json!(""))])),
        (I4, "a dispatch of a call never decided", Owners, |log| {
            let nobody = json!(format!("call_{:032}", 0));
            set(log, "call_dispatched", 0, &[("/call", nobody)]);
        }),
        (I4, "other arguments than hashed", Plain, |log| {
            set(log, "call_decided", 0, &[("/content/args", json!("{\"q\":\"else\"}"))]);
        }),
        (I4, "a hash of nothing sealed", Sealed, |log| {
            set(log, "call_decided", 0, &[("/content/args_hash", other_hash())]);
        }),
        (I4, "another hash run by the client", Client, |log| {
            set(log, "call_ended", 0, &[("/cause/reported/client/args_hash", other_hash())]);
        }),
        (I4, "a report about another dispatch", Client, |log| {
            set(log, "call_ended", 0, &[("/cause/reported/client/fence", json!(1))]);
        }),
        (I4, "sent before the hook answered", Hook, |log| remove(log, "admission_answered", 0)),
        (I4, "the hook is not asked", Hook, |log| set(log, "call_decided", 0, &[("/admission", Value::Null)])),
        (I4, "sent in a dry run", Dry, |log| {
            let due = json!({"attempt": 1, "deadline_at": 0, "instance": null});
            set(log, "call_decided", 0, &[("/dispatch", due)]);
        }),
        (I5, "decided twice", Plain, |log| copy(log, "call_decided", 0, at(log, "call_decided", 1))),
        (I5, "attempts with a gap", Owners, |log| set(log, "call_dispatched", 0, &[("/dispatch/attempt", json!(3))])),
        (I5, "a `once` call is sent twice", Owners, |log| {
            copy(log, "call_dispatched", 0, at(log, "recovered", 0));
            let once = call_of(log, 1);
            set(log, "call_dispatched", 0, &[("/call", once)]);
        }),
        (I5, "an id of another place", Plain, |log| set(log, "call_decided", 1, &[("/index", json!(7))])),
        (I6, "it ends twice", Plain, |log| copy(log, "call_ended", 0, at(log, "call_ended", 0))),
        (I6, "no terminal record", Plain, |log| remove(log, "call_ended", 1)),
        (I6, "an outcome without a dispatch", Owners, |log| {
            set(log, "call_decided", 0, &[("/dispatch", Value::Null)]);
            remove(log, "call_dispatched", 0);
            set(log, "call_ended", 1, &[("/attempt", json!(0))]);
        }),
        (I6, "sent, but not executed", Plain, |log| {
            set(log, "call_ended", 0, &[("/end", json!({"not_executed": "denied"})), ("/cause", json!("approver"))]);
        }),
        (I6, "sent after its end", Owners, |log| {
            let last = at(log, "call_ended", 1);
            copy(log, "call_dispatched", 0, last);
            set(log, "call_dispatched", 1, &[("/dispatch/attempt", json!(3))]);
        }),
        (I6, "acknowledged after its end", Client, |log| copy(log, "call_acknowledged", 0, at(log, "call_ended", 0))),
        (I7, "a message after the close", Plain, |log| copy(log, "message_received", 0, end(log))),
        (I7, "a run ends twice", Plain, |log| copy(log, "run_ended", 0, at(log, "run_ended", 0))),
        (I7, "a run starts in a run", Plain, |log| copy(log, "run_started", 0, at(log, "run_started", 0))),
        (I7, "a ballot after the run", Plain, |log| copy(log, "ballot_received", 1, at(log, "run_ended", 0))),
        (I7, "closed during a run", Plain, |log| remove(log, "run_ended", 1)),
        (I8, "another bundle", Plain, |log| set(log, "session_opened", 0, &[("/bundle", other_hash())])),
        (I8, "another profile's tool", Plain, |log| {
            set(log, "call_decided", 0, &[("/tool", json!("hidden")), ("/content/tool", json!("hidden"))]);
        }),
        (I8, "another contract", Plain, |log| set(log, "call_decided", 0, &[("/tool_version", other_hash())])),
        (I8, "another class", Plain, |log| set(log, "call_decided", 2, &[("/class", json!("read"))])),
        (I8, "more tags", Plain, |log| set(log, "call_decided", 0, &[("/tags", json!(["paid", "read"]))])),
        (I8, "a profile that is not there", Plain, |log| {
            set(log, "profile_chosen", 0, &[("/profile", json!("other"))]);
        }),
        (I9, "another venue", Plain, |log| set(log, "call_decided", 0, &[("/venue", json!("client"))])),
        (I9, "a client's call to nobody", Client, |log| {
            set(log, "call_decided", 0, &[("/dispatch/instance", Value::Null)]);
        }),
        (I9, "a client that is not there", Client, |log| {
            set(log, "call_decided", 0, &[("/dispatch/instance", json!("tablet"))]);
        }),
        (I9, "a client that cannot", Client, |log| set(log, "client_attached", 0, &[("/capabilities", json!([]))])),
        (I9, "another client reports", Client, |log| {
            set(log, "call_ended", 0, &[("/cause/reported/client/instance", json!("tablet"))]);
        }),
        (I9, "the server reports a client's call", Client, |log| {
            set(log, "call_ended", 0, &[("/cause/reported", json!("server"))]);
        }),
        (I10, "done, and the call failed", Evidence, |log| {
            let place = at(log, "call_ended", 0);
            let Event::CallEnded(ended) = &mut log[place].event else { panic!() };
            ended.end = CallEnd::Outcome(OutcomeStatus::Failed);
            ended.content.outcome.as_mut().unwrap().status = OutcomeStatus::Failed;
        }),
        (I10, "less evidence is asked for", Evidence, |log| {
            set(log, "profile_chosen", 0, &[("/trace_requirements", json!({}))]);
        }),
        (I10, "done without a run", Unclassified, |log| set(log, "run_ended", 0, &[("/ending", json!("done"))])),
        (I11, "wider bounds", Plain, |log| set(log, "run_started", 0, &[("/limits/max_steps", json!(9))])),
        (I11, "a later deadline", Plain, |log| set(log, "run_started", 0, &[("/deadline_at", json!(i64::MAX))])),
        (I11, "one model call too many", Plain, |log| {
            set(log, "run_started", 0, &[("/limits/max_model_calls", json!(1))]);
        }),
        (I11, "one tool call too many", Plain, |log| {
            set(log, "run_started", 0, &[("/limits/max_tool_calls", json!(1))]);
        }),
        (I11, "steps miscounted", Plain, |log| set(log, "run_ended", 0, &[("/steps", json!(1))])),
        (I11, "model calls miscounted", Plain, |log| set(log, "run_ended", 0, &[("/model_calls", json!(1))])),
        (I11, "a lost model call is not counted", Money, |log| set(log, "run_ended", 0, &[("/model_calls", json!(2))])),
        (I11, "nothing set aside", Money, |log| remove(log, "budget_reserved", 1)),
        (I11, "more set aside than there is", Money, |log| {
            set(log, "budget_reserved", 1, &[("/ballots/0/most/cost_microusd", json!(251))]);
        }),
        (I11, "it counts for less", Money, |log| {
            set(log, "ballot_received", 0, &[("/charged/cost_microusd", json!(1))]);
        }),
        (I11, "the ledger did not grant the round", Ledger, |log| remove(log, "reservation_answered", 0)),
        (I11, "the ledger did not grant the call", Ledger, |log| {
            let call = at(log, "call_decided", 0);
            let granted = log.iter().skip(call).position(|r| r.event.kind() == "reservation_answered").unwrap();
            log.remove(call + granted);
        }),
        (I11, "sent after the deadline", Plain, |log| {
            let first = at(log, "call_decided", 0);
            log[first].at = log[first].at.plus_ms(600_000);
        }),
        (I11, "a bound raised by nobody", Paused, |log| remove(log, "approval_decided", 0)),
        (I11, "another bound raised", Paused, |log| {
            set(log, "approval_decided", 0, &[("/raises/0/bound", json!("max_tokens"))]);
        }),
        (I12, "sent before it was approved", Approved, |log| remove(log, "approval_decided", 0)),
        (I12, "one approval is missing", Pair, |log| remove(log, "approval_decided", 0)),
        (I12, "one person twice", Pair, |log| set(log, "approval_decided", 1, &[("/by", json!("bob"))])),
        (I12, "fewer people asked", Pair, |log| {
            set(log, "call_decided", 0, &[("/approval/approvers", json!(1))]);
        }),
        (I12, "approved by who asked", Approved, |log| set(log, "approval_decided", 0, &[("/by", json!("ann"))])),
        (I12, "approved too late", Approved, |log| {
            let place = at(log, "approval_decided", 0);
            log[place].at = log[place].at.plus_ms(900_000);
        }),
        (I12, "something else was shown", Approved, |log| {
            set(log, "approval_decided", 0, &[("/digest", other_hash())]);
        }),
        (I12, "something else was asked", Approved, |log| {
            set(log, "call_decided", 0, &[("/approval/digest", other_hash())]);
        }),
        (I12, "allowed without a human", Approved, |log| {
            set(log, "call_decided", 1, &[("/granted_by", Value::Null)]);
        }),
        (I12, "leave that is over", Approved, |log| {
            set(log, "approval_decided", 0, &[("/grant/expires_at", json!(1))]);
        }),
        (I12, "other arguments than the approver wrote", Denied, |log| {
            set(log, "approval_decided", 1, &[("/content/args", json!("{\"to\":\"live\"}"))]);
        }),
        (I13, "a rejected call is sent", Denied, |log| {
            let due = json!({"attempt": 1, "deadline_at": 0, "instance": null});
            set(log, "call_decided", 2, &[("/dispatch", due)]);
        }),
        (I13, "a denied call is sent", Denied, |log| {
            let denied = at(log, "approval_decided", 0);
            copy(log, "call_dispatched", 0, denied);
            let first = call_of(log, 0);
            set(log, "call_dispatched", 0, &[("/call", first)]);
        }),
        (I14, "`once` is sent again although in doubt", Owners, |log| {
            let ended = at(log, "call_ended", 0);
            copy(log, "call_dispatched", 0, ended);
            let once = call_of(log, 1);
            set(log, "call_dispatched", 1, &[("/call", once)]);
        }),
        (I16, "an input twice", Plain, |log| {
            let place = at(log, "message_received", 0);
            log[place].input_id = Some(InputId::new("a").unwrap());
        }),
        (I16, "a decision with an input's id", Plain, |log| {
            let place = at(log, "run_started", 0);
            log[place].input_id = Some(InputId::new("z").unwrap());
        }),
        (I17, "rules of the future", Plain, |log| set(log, "session_opened", 0, &[("/rules_version", json!(99))])),
        (I19, "a result that is not that of the tally", Vote, |log| {
            set(log, "consensus_decided", 0, &[("/result", json!("rejected"))]);
        }),
        (I19, "another vote than the bundle's", Vote, |log| set(log, "consensus_decided", 0, &[("/k", json!(1))])),
        (I19, "a ballot that never came", Vote, |log| {
            set(log, "consensus_decided", 0, &[("/tally/groups", json!([[1, 2, 3]])), ("/cancelled", json!([]))]);
        }),
        (I19, "a ballot that is not given up", Vote, |log| {
            set(log, "consensus_decided", 0, &[("/cancelled", json!([]))]);
        }),
        (I19, "ballots that do not agree", Vote, |log| {
            let args = "/content/ballot/verdict/proposal/calls/0/args/readable";
            set(log, "ballot_received", 1, &[(args, json!("{\"q\":\"b\"}"))]);
        }),
        (I19, "a call that nobody proposed", Vote, |log| {
            let args = "/content/ballot/verdict/proposal/calls/0/args/readable";
            for ballot in 0..2 {
                set(log, "ballot_received", ballot, &[(args, json!("{\"q\":\"b\"}"))]);
            }
        }),
        (I19, "a call without a vote", Vote, |log| remove(log, "consensus_decided", 0)),
        (I19, "a smaller vote than the tool asks for", Larger, |log| {
            set(log, "vote_widened", 0, &[("/to", json!({"n": 3, "rule": "majority", "k": 2}))]);
        }),
        (I19, "a larger vote that is not held", Larger, |log| {
            for (kind, n) in
                [("consensus_decided", 0), ("ballot_received", 2), ("ballot_received", 1), ("vote_widened", 0)]
            {
                remove(log, kind, n);
            }
        }),
        (I17, "another engine", Plain, |log| set(log, "run_started", 0, &[("/schema_engine", json!("other 1"))])),
    ]
}

/// The id of the n-th decided call, as JSON.
fn call_of(log: &[Recorded], n: usize) -> Value {
    let Event::CallDecided(decided) = &log[at(log, "call_decided", n)].event else { panic!() };
    serde_json::to_value(&decided.call).unwrap()
}

#[test]
fn each_edited_log_breaks_its_invariant() {
    let mut wrong = Vec::new();
    for (invariant, name, scene, edit) in cases() {
        let world = scene.world();
        let mut log = world.log.clone();
        let edited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| edit(&mut log)));
        if edited.is_err() {
            wrong.push(format!("{invariant} {name}: the edit fails, see above"));
            continue;
        }
        for (recorded, seq) in log.iter_mut().zip(1..) {
            recorded.seq = seq;
        }
        match check(world.session.id, &log, &world.bundle) {
            Err(broken) if broken.invariant == invariant => assert!((1..=log.len() as u64).contains(&broken.seq)),
            Err(broken) => wrong.push(format!("{invariant} {name}: {broken}")),
            Ok(_) => wrong.push(format!("{invariant} {name}: holds")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A missing number, and numbers that were not put in order.
#[test]
fn numbers_have_no_gaps() {
    let world = Scene::Plain.world();
    for place in 0..world.log.len() - 1 {
        let mut log = world.log.clone();
        log.remove(place);
        let broken = check(world.session.id, &log, &world.bundle).unwrap_err();
        assert_eq!((broken.invariant, broken.seq), (Invariant::I1, place as u64 + 1));
    }
}

/// An invariant that no log breaks would be a promise that nothing tests.
#[test]
fn every_invariant_has_a_log_that_breaks_it() {
    let cases = cases();
    for invariant in Invariant::ALL {
        assert!(cases.iter().any(|(of, ..)| *of == invariant), "{invariant} has no case");
    }
}

/// Another session's log is not this one's: ids derive from the session.
#[test]
fn a_log_belongs_to_its_session() {
    let world = Scene::Plain.world();
    let other = World::new(world.bundle.clone(), 8).session.id;
    assert_eq!(check(other, &world.log, &world.bundle).unwrap_err().invariant, Invariant::I5);
}
