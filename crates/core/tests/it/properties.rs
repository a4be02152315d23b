//! Random sessions: promises that hold whatever comes in. `TOOLGATE_PROPERTY_SESSIONS` sets how many are played (2,500
//! when unset), `TOOLGATE_PROPERTY_SEED` where they start; a failure prints the seed of its session.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use toolgate_core::bundle::Bundle;
use toolgate_core::event::{ConsensusResult, Event, Recorded};
use toolgate_core::input::{Input, Stop};
use toolgate_core::reason::{Ending, RefusalCode, RejectReason};
use toolgate_core::{Reply, next_wake};

use crate::random::Random;
use crate::words::actor;
use crate::world::World;
use crate::{generate, invariants, tampering};

/// Enough to reach everything on the list below several times.
const DEFAULT_SESSIONS: u64 = 2_500;
/// Sessions that share a bundle: compiling one costs as much as playing several sessions.
const SESSIONS_PER_BUNDLE: u64 = 25;

/// What was played and reached.
#[derive(Default)]
struct Figures {
    sessions: u64,
    inputs: u64,
    events: u64,
    tampered: tampering::Tampered,
    reached: BTreeMap<String, u64>,
}

impl Figures {
    fn count(&mut self, name: String) {
        *self.reached.entry(name).or_insert(0) += 1;
    }

    fn add(&mut self, other: Self) {
        self.sessions += other.sessions;
        self.inputs += other.inputs;
        self.events += other.events;
        self.tampered.tried += other.tampered.tried;
        self.tampered.noticed += other.tampered.noticed;
        self.tampered.unnoticeable += other.tampered.unnoticeable;
        for (name, times) in other.reached {
            *self.reached.entry(name).or_insert(0) += times;
        }
    }

    fn log(&mut self, log: &[Recorded]) {
        for recorded in log {
            self.count(format!("event {}", recorded.event.kind()));
            match &recorded.event {
                Event::CallDecided(e) => {
                    self.count(format!("decision {}", e.decision.code()));
                    if let Some(reason) = e.reason {
                        self.count(format!("reason {}", reason.code()));
                    }
                }
                Event::StepEnded(e) => self.count(format!("reason {}", e.reason.code())),
                Event::CallEnded(e) => {
                    self.count(format!("call {}", e.end.code()));
                    let cause = serde_json::to_value(&e.cause).unwrap();
                    self.count(format!("cause {}", cause.as_str().unwrap_or("reported")));
                    if let Some(code) = e.content.detail.as_ref().and_then(|detail| detail.split(':').next()) {
                        self.count(format!("reason {code}"));
                    }
                }
                Event::ConsensusDecided(e) => {
                    let word = match e.result {
                        ConsensusResult::Agreed { .. } => "agreed",
                        ConsensusResult::Escalated { .. } => "escalated",
                        ConsensusResult::Retry => "retry",
                        ConsensusResult::Rejected => "rejected",
                    };
                    self.count(format!("consensus {word}"));
                    self.count(format!("consensus by {}", e.rule.code()));
                    if !e.cancelled.is_empty() {
                        self.count("consensus early".to_owned());
                    }
                }
                Event::RunEnded(e) => self.count(format!("ending {}", e.ending.code())),
                _ => {}
            }
        }
    }
}

/// What the random sessions must reach; a promise about something that never happens is no promise.
fn required() -> Vec<String> {
    let kinds = [
        "session_opened",
        "owner_changed",
        "classification_received",
        "profile_chosen",
        "message_received",
        "run_started",
        "ballot_received",
        "summary_asked",
        "summary_received",
        "vote_widened",
        "consensus_decided",
        "call_decided",
        "call_dispatched",
        "call_acknowledged",
        "call_ended",
        "admission_answered",
        "approval_decided",
        "approval_reminded",
        "budget_reserved",
        "reservation_answered",
        "budget_settled",
        "run_paused",
        "wrap_up_started",
        "step_ended",
        "run_ended",
        "client_attached",
        "cancel_requested",
        "close_requested",
        "session_closed",
        "ticked",
        "recovered",
        "outcome_refused",
    ];
    let rules = ["first", "k_of_n", "plurality", "majority", "supermajority", "unanimous"];
    let ends = [
        "ok",
        "failed",
        "timed_out",
        "denied_by_client",
        "indeterminate",
        "rejected",
        "denied",
        "expired",
        "cancelled",
        "run_ended",
        "dry_run",
    ];
    let causes = [
        "reported",
        "timeout",
        "cancelled",
        "owner_lost",
        "client_lost",
        "run_ended",
        "approver",
        "approval_expired",
        "replayed",
        "admission",
        "ledger",
        "dry_run",
    ];
    // `executor_taken` is the server's; the other two stand in scripts.
    let refusals = RefusalCode::ALL.iter().filter(|code| {
        !matches!(code, RefusalCode::ExecutorTaken | RefusalCode::OutputSchemaInvalid | RefusalCode::UnknownProfile)
    });
    kinds
        .iter()
        .map(|name| format!("event {name}"))
        .chain(RejectReason::ALL.iter().map(|reason| format!("reason {}", reason.code())))
        .chain(Ending::ALL.iter().map(|ending| format!("ending {}", ending.code())))
        .chain(ends.iter().map(|name| format!("call {name}")))
        .chain(causes.iter().map(|name| format!("cause {name}")))
        .chain(["agreed", "escalated", "retry", "rejected", "early"].iter().map(|name| format!("consensus {name}")))
        .chain(rules.iter().map(|rule| format!("consensus by {rule}")))
        .chain(refusals.map(|code| format!("refusal {}", code.code())))
        .collect()
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |text| text.parse().unwrap())
}

#[test]
fn promises_hold_in_random_sessions() {
    let sessions = setting("TOOLGATE_PROPERTY_SESSIONS", DEFAULT_SESSIONS);
    let first = setting("TOOLGATE_PROPERTY_SEED", 1);
    let started = Instant::now();
    let workers = std::thread::available_parallelism().map_or(1, |cores| cores.get().min(8)) as u64;
    let figures = std::thread::scope(|scope| {
        let running: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || play_share(first..first + sessions, worker, workers)))
            .collect();
        let mut sum = Figures::default();
        for worker in running {
            sum.add(worker.join().unwrap_or_else(|_| panic!("a promise is broken, see above")));
        }
        sum
    });
    let missing: Vec<String> = required().into_iter().filter(|name| !figures.reached.contains_key(name)).collect();
    if sessions >= DEFAULT_SESSIONS {
        assert!(missing.is_empty(), "never reached: {missing:?}");
    }
    println!(
        "properties: {} sessions, {} inputs, {} events, {} tampered logs ({} noticed, {} of the named kinds that only \
         the hash chain can notice), {} behaviours reached, {:.1} s",
        figures.sessions,
        figures.inputs,
        figures.events,
        figures.tampered.tried,
        figures.tampered.noticed,
        figures.tampered.unnoticeable,
        figures.reached.len(),
        started.elapsed().as_secs_f64()
    );
}

/// Plays every session whose bundle falls to this worker.
fn play_share(seeds: Range<u64>, worker: u64, workers: u64) -> Figures {
    let mut figures = Figures::default();
    let mut current: Option<(u64, Bundle)> = None;
    for seed in seeds.filter(|seed| (seed / SESSIONS_PER_BUNDLE) % workers == worker) {
        let group = seed / SESSIONS_PER_BUNDLE;
        let known = current.take().filter(|(of, _)| *of == group);
        let (_, bundle) =
            current.insert(known.unwrap_or_else(|| (group, generate::bundle(&mut Random::new(group ^ 0xb0d1e)))));
        let played = catch_unwind(AssertUnwindSafe(|| play(seed, bundle.clone(), &mut figures)));
        assert!(played.is_ok(), "play it again: TOOLGATE_PROPERTY_SEED={seed} TOOLGATE_PROPERTY_SESSIONS=1");
    }
    figures
}

fn play(seed: u64, bundle: Bundle, figures: &mut Figures) {
    let mut random = Random::new(seed);
    let mut world = World::new(bundle, u128::from(seed));
    let length = 4 + random.below(50);
    for _ in 0..length {
        if world.session.opened.is_some() && random.one_in(25) {
            world.take_over();
            send(&mut world, &mut random, Input::Recovered, figures);
        } else {
            let input = generate::input(&mut random, &mut world);
            send(&mut world, &mut random, input, figures);
        }
        invariants::check_state(&world);
        if random.one_in(8) {
            invariants::check_ask(&world);
        }
    }
    finish(&mut world, &mut random, figures);
    invariants::check_ask(&world);
    invariants::check_secrets(&world);
    if world.log.is_empty() {
        return;
    }
    let verified = world.check();
    assert!(verified.redecided > 0);
    world.check_redacted();
    round_trip(&world);
    if random.one_in(2) {
        tampering::tamper(&mut random, &world, &mut figures.tampered);
    }
    figures.log(&world.log);
    figures.sessions += 1;
    figures.events += world.log.len() as u64;
}

fn send(world: &mut World, random: &mut Random, input: Input, figures: &mut Figures) {
    let id = generate::input_id(random);
    let before = random.one_in(4).then(|| world.session.clone());
    let decided = world.send(id.clone(), input.clone());
    figures.inputs += 1;
    match &decided.reply {
        Reply::Accepted => assert!(!decided.events.is_empty(), "what is accepted is recorded: {input:?}"),
        Reply::Unchanged | Reply::Already { .. } => {
            assert!(decided.events.is_empty());
            assert!(before.is_none_or(|before| before == world.session));
        }
        Reply::Refused(refusal) => {
            figures.count(format!("refusal {}", refusal.code.code()));
            let recorded = decided.events.iter().all(|event| matches!(event, Event::OutcomeRefused(_)));
            assert!(recorded && decided.events.len() <= 1, "a refusal changes nothing but its own record");
        }
    }
    // Sent again under the same id, a taken input is answered with its place.
    if id.is_some() && !decided.events.is_empty() {
        let again = world.send(id, input);
        assert!(matches!(again.reply, Reply::Already { .. }), "{again:?}");
        assert!(again.events.is_empty());
    }
}

/// Every run ends, whatever does not come: a bounded number of ticks at the given times is enough.
fn finish(world: &mut World, random: &mut Random, figures: &mut Figures) {
    let mut ticks = 0;
    while let Some(wake) = next_wake(&world.session) {
        world.now = wake.max(world.now);
        let decided = world.send(None, Input::Tick);
        assert_eq!(decided.reply, Reply::Accepted, "a due tick makes progress");
        ticks += 1;
        assert!(ticks < 40, "the run does not end");
    }
    assert!(world.session.active_run().is_none() && world.session.classifying.is_none());
    if random.one_in(3) && world.session.opened.is_some() && !world.session.closed {
        send(world, random, Input::Close(Stop { by: actor("ann"), reason: None }), figures);
    }
}

/// Events survive the store's JSON, the state a snapshot.
fn round_trip(world: &World) {
    for recorded in &world.log {
        let text = serde_json::to_string(&recorded.event).unwrap();
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), recorded.event, "{text}");
        let value = serde_json::to_value(&recorded.event).unwrap();
        assert_eq!(value["kind"], recorded.event.kind());
    }
    let text = serde_json::to_string(&world.session).unwrap();
    assert_eq!(serde_json::from_str::<toolgate_core::session::Session>(&text).unwrap(), world.session);
}
