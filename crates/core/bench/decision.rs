//! How long one whole decision takes, and how long it takes to validate the same call against the same compiled schema
//! and do nothing else: both start from the arguments as the log has them, a text. Validating arguments that somebody
//! else has read is shown beside it. Exits 0 only if both bounds hold. What is not here: what is decided (`scene`).
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock, prints, and fails loudly"
)]

#[path = "decision/scene.rs"]
mod scene;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use toolgate_core::id::ToolId;
use toolgate_core::pipeline::{Decision, Situation, Verdict, judge};
use toolgate_core::profile::ControlMode;
use toolgate_core::proposal::ProposedArgs;

use crate::scene::{EARLIER, RULES, Scene};

/// Rounds of one run; the median of them counts.
const ROUNDS: usize = 5;
/// Decisions, and validations, in a round.
const DECISIONS: usize = 10_000;
/// Half of the decisions take at most this.
const MEDIAN: Duration = Duration::from_micros(60);
/// 99 of 100 decisions take at most so many times what 99 of 100 validations take.
const TIMES: f64 = 10.0;

/// What one round found.
struct Round {
    decision: Times,
    /// Reading the arguments and validating them.
    validation: Times,
    /// Validating arguments that are read.
    read: Times,
}

#[derive(Clone, Copy)]
struct Times {
    p50: Duration,
    p99: Duration,
}

/// As the server has it: decision and validation are measured under the same one.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let scene = scene::scene();
    let ProposedArgs::Readable(args) = &scene.call.args else { panic!("the arguments are readable") };
    check(&verdict(&scene));
    // One round goes before, so that caches and lazily built automata are as they are in a running server.
    let rounds: Vec<Round> = (0..=ROUNDS).map(|_| round(&scene)).skip(1).collect();
    println!("{RULES} rules, {} bytes of arguments, {EARLIER} earlier calls", args.as_str().len());
    println!(
        "{:>9} {:>14} {:>14} {:>14} {:>14} {:>7} {:>14} {:>14}",
        "round", "decision p50", "p99", "validation p50", "p99", "p99/p99", "if read p50", "p99"
    );
    for (place, round) in (1..).zip(&rounds) {
        let Round { decision, validation, read } = round;
        println!(
            "{place:>9} {:>14} {:>14} {:>14} {:>14} {:>7.1} {:>14} {:>14}",
            shown(decision.p50),
            shown(decision.p99),
            shown(validation.p50),
            shown(validation.p99),
            round.ratio(),
            shown(read.p50),
            shown(read.p99)
        );
    }
    let p50 = median(rounds.iter().map(|round| round.decision.p50.as_secs_f64()).collect());
    let ratio = median(rounds.iter().map(Round::ratio).collect());
    println!("median p50 of a decision: {:.1} us (bound {} us)", p50 * 1e6, MEDIAN.as_micros());
    println!("median p99 of a decision / p99 of the plain validation of the same call: {ratio:.1} (bound {TIMES})");
    let beside = median(rounds.iter().map(|round| over(round.decision, round.read)).collect());
    println!("for comparison, / p99 of validating arguments already read: {beside:.1} (no bound)");
    if p50 <= MEDIAN.as_secs_f64() && ratio <= TIMES { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Round {
    fn ratio(&self) -> f64 {
        over(self.decision, self.validation)
    }
}

fn over(a: Times, b: Times) -> f64 {
    a.p99.as_secs_f64() / b.p99.as_secs_f64()
}

/// Decisions and validations in turn, so that whatever slows the machine down slows down both.
fn round(scene: &Scene) -> Round {
    let ProposedArgs::Readable(args) = &scene.call.args else { panic!("the arguments are readable") };
    let tool = scene.bundle.tool(&ToolId::new(scene.call.tool.as_str()).unwrap()).unwrap();
    let value = args.value();
    let mut decisions = Vec::with_capacity(DECISIONS);
    let mut validations = Vec::with_capacity(DECISIONS);
    let mut reads = Vec::with_capacity(DECISIONS);
    for _ in 0..DECISIONS {
        let started = Instant::now();
        let verdict = black_box(verdict(black_box(scene)));
        decisions.push(started.elapsed());
        assert_eq!(verdict.decision, Decision::Allow);
        let started = Instant::now();
        let mismatches = black_box(tool.parameters.mismatches(&black_box(args).value(), false));
        validations.push(started.elapsed());
        assert!(mismatches.is_empty());
        let started = Instant::now();
        let mismatches = black_box(tool.parameters.mismatches(black_box(&value), false));
        reads.push(started.elapsed());
        assert!(mismatches.is_empty());
    }
    Round { decision: times(decisions), validation: times(validations), read: times(reads) }
}

/// The decision as the core makes it when a ballot came.
fn verdict(scene: &Scene) -> Verdict<'_> {
    let session = &scene.session;
    let run = session.active_run().unwrap();
    judge(
        &Situation {
            bundle: &scene.bundle,
            profile: scene.bundle.profile(session.profile.as_ref().unwrap()).unwrap(),
            capabilities: &session.capabilities,
            limits: &run.limits,
            tool_calls: run.tool_calls,
            repeats: &run.repeats,
            idempotency: &session.idempotency,
            session: Some(session),
            at: scene.at,
            control: ControlMode::None,
            escalate: None,
            approved_by_edit: false,
        },
        &scene.call,
    )
}

/// The call passes every layer, and every kind of rule has looked at it.
fn check(verdict: &Verdict<'_>) {
    assert_eq!(verdict.decision, Decision::Allow, "{:?}", verdict.detail);
    let policy = verdict.policy.as_ref().unwrap();
    let mut found: BTreeMap<&str, &str> = BTreeMap::new();
    for finding in &policy.findings {
        found.insert(&finding.rule, &finding.outcome);
    }
    // The list names another tool, and of three policies the one that permits is the one that decides.
    assert_eq!(found.len(), RULES - 3, "{found:?}");
    assert!(found.values().all(|outcome| *outcome == "pass"), "{found:?}");
    assert_eq!(policy.cedar.as_ref().unwrap().failed, Vec::<String>::new());
}

fn times(mut all: Vec<Duration>) -> Times {
    all.sort_unstable();
    let at = |share: usize| *all.get((all.len() - 1) * share / 100).unwrap();
    Times { p50: at(50), p99: at(99) }
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_unstable_by(f64::total_cmp);
    *all.get(all.len() / 2).unwrap()
}

fn shown(time: Duration) -> String {
    format!("{:.1} us", time.as_secs_f64() * 1e6)
}
