//! With all rules every state within small bounds is clean; without one of them the checker finds a way to a fault.

use toolgate_model::promises::LATE_EFFECT;
use toolgate_model::{Bounds, Mutant, Rules, explore};

#[test]
fn all_rules_together_are_clean() {
    let found = explore(Rules::default(), Bounds::NARROW, None);
    for (promise, trace) in &found.broken {
        println!("{promise}\n{trace}");
    }
    assert!(found.broken.is_empty() && found.unreached.is_empty(), "{found:?}");
    assert!(found.states > 10_000, "{} states", found.states);
}

/// A tool that ignores `not_after` may act late, and yet never twice.
#[test]
fn a_lenient_tool_acts_late_but_never_twice() {
    let rules = Rules { tool_honours_not_after: false, ..Rules::default() };
    let found = explore(rules, Bounds::NARROW, None);
    assert!(found.broken.is_empty(), "{found:?}");
    assert!(found.unreached.is_empty(), "never reached: {LATE_EFFECT}");
}

/// The owner's row moves the head, so that the expected head alone keeps deposed owners out as well.
#[test]
fn the_owners_row_is_a_second_belt() {
    let rules = Rules { compare_epoch: false, ..Rules::default() };
    let found = explore(rules, Bounds::NARROW, None);
    assert!(found.broken.is_empty(), "{found:?}");
}

fn caught(mutant: Mutant) {
    let found = explore(mutant.rules(), Bounds::NARROW, Some(mutant.breaks()));
    let broken = found.broken.iter().find(|(promise, _)| *promise == mutant.breaks());
    let Some((promise, trace)) = broken else { panic!("`{}` is not caught: {found:?}", mutant.name()) };
    println!("{} ({} states)\n{trace}  broken: {promise}", mutant.name(), found.states);
    assert!(!trace.0.is_empty());
}

macro_rules! mutants {
    ($($name:ident: $mutant:ident,)*) => {
        $(#[test]
        fn $name() {
            caught(Mutant::$mutant);
        })*

        /// A mutant without a test would be a promise that nothing tests.
        #[test]
        fn every_mutant_has_a_test() {
            assert_eq!([$(Mutant::$mutant),*], Mutant::ALL);
        }
    };
}

mutants! {
    without_epoch_compare: NoEpochCompare,
    without_expected_head: NoExpectedHead,
    without_either: Neither,
    resend_under_a_new_seq: ResendUnderNewSeq,
    take_over_without_own_event: TakeOverWithoutEvent,
    effect_before_append: EffectBeforeAppend,
    inbox_row_removed_outside_the_append: InboxRemovedOutside,
    once_sent_again_after_unknown: OnceSentAgain,
    reply_before_durable: ReplyBeforeDurable,
}
