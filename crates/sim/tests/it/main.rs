//! The simulator's tests: worlds without a defect are clean, and worlds with one are not.
#![expect(clippy::print_stdout, reason = "tests show their figures")]

use toolgate_sim::{Mutant, Plan, play, sweep};

/// Worlds of one test run; `TOOLGATE_SIM_SEEDS` sets another number.
const SEEDS: u64 = 10_000;
/// Within so many worlds every deliberate defect must be found.
const WITHIN: u64 = 400;

#[test]
fn worlds_are_clean() {
    let seeds = std::env::var("TOOLGATE_SIM_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(SEEDS);
    let found = sweep(0, seeds, None, 5);
    println!("{}", found.figures);
    for failure in &found.failures {
        println!("seed {}: {}", failure.seed, failure.why);
        println!("  repeat: cargo run --release -p toolgate-sim -- --seed {} --verbose", failure.seed);
    }
    assert!(found.failures.is_empty(), "{} worlds went wrong", found.failures.len());
    // A promise about something that never happens is no promise.
    let reached = [
        ("faults", "node killed"),
        ("faults", "node paused"),
        ("faults", "live owner taken for dead"),
        ("faults", "database away"),
        ("faults", "database crashed"),
        ("faults", "statement lost"),
        ("faults", "reply lost"),
        ("faults", "statement applied late"),
        ("nodes", "take-over"),
        ("nodes", "take-over lost to another"),
        ("nodes", "append was fenced"),
        ("nodes", "append was stale"),
        ("nodes", "recovered"),
        ("nodes", "session forgotten: the lease had lapsed"),
        ("nodes", "session unloaded"),
        ("inputs", "consumed from the inbox"),
        ("answers", "already"),
        ("answers", "acknowledged rows compared"),
        ("effects", "server, once"),
        ("effects", "client, once"),
        ("effects", "ran after its end was recorded"),
        ("effects", "refused by the tool: past `not_after`"),
        ("calls", "indeterminate"),
        ("calls", "sent again"),
        ("calls", "report refused"),
        ("endings", "done"),
        ("endings", "cancelled"),
    ];
    let missing: Vec<_> = reached.into_iter().filter(|(group, name)| found.figures.of(group, name) == 0).collect();
    assert!(seeds < SEEDS || missing.is_empty(), "never reached: {missing:?}");
}

#[test]
fn a_seed_is_one_world() {
    for seed in 0..10 {
        let plan = Plan { seed, mutant: None, verbose: true };
        let (first, second) = (play(&plan), play(&plan));
        assert_eq!(first.digest, second.digest, "seed {seed}");
        assert_eq!(first.figures, second.figures, "seed {seed}");
        assert_ne!(first.digest, play(&Plan { seed: seed + 1_000, ..plan }).digest, "seeds differ");
    }
}

fn caught(mutant: Mutant) {
    let found = sweep(0, WITHIN, Some(mutant), 1);
    let failure = found.failures.first();
    println!("{mutant:?}: {failure:?} after {} worlds", found.figures.of("world", "seeds"));
    assert!(failure.is_some(), "{mutant:?} is not found within {WITHIN} worlds");
}

#[test]
fn an_append_of_a_deposed_owner_is_noticed() {
    caught(Mutant::NoEpochCheck);
}

#[test]
fn an_append_for_another_head_is_noticed() {
    caught(Mutant::NoHeadCheck);
}

#[test]
fn events_sent_again_for_a_fresh_head_are_noticed() {
    caught(Mutant::FreshHead);
}

#[test]
fn an_effect_before_its_decision_is_durable_is_noticed() {
    caught(Mutant::SentBeforeDurable);
}

#[test]
fn an_owner_that_settles_nothing_is_noticed() {
    caught(Mutant::NoRecovery);
}

#[test]
fn an_input_lost_from_the_inbox_is_noticed() {
    caught(Mutant::InboxForgotten);
}

#[test]
fn a_call_sent_again_is_noticed() {
    caught(Mutant::SentAgain);
}
