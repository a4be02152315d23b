//! Fitting a conversation to a model: what goes first, what never goes, and that the log says so.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use toolgate_core::ask::{Ask, CallView, Entry};
use toolgate_core::bundle::ModelDef;
use toolgate_core::id::{CallId, SessionId};
use toolgate_core::window::{BYTES_PER_TOKEN, Counter, Cut, Estimate};

/// Fits in place, as a reader of the cases below expects it.
fn fit(ask: &mut Ask, model: &ModelDef) -> Option<Cut> {
    let fitted = toolgate_core::window::fit(ask, model, &Estimate)?;
    ask.transcript = fitted.transcript;
    Some(fitted.cut)
}

fn model(max_input_tokens: Option<u32>) -> ModelDef {
    let fields = json!({"provider": "openai", "base_url": "http://127.0.0.1:1/v1", "model": "m",
        "max_input_tokens": max_input_tokens});
    serde_json::from_value(fields).unwrap()
}

/// Tokens for so many bytes of conversation.
fn tokens(bytes: usize) -> Option<u32> {
    Some(u32::try_from(bytes).unwrap().div_ceil(u32::try_from(BYTES_PER_TOKEN).unwrap()))
}

fn ask(transcript: Vec<Entry>) -> Ask {
    Ask {
        instructions: Vec::new(),
        transcript: transcript.into_iter().map(Arc::new).collect(),
        tools: Vec::new(),
        output_schema: None,
        answers_so_far: 0,
    }
}

fn call(step: u32, index: u32) -> CallId {
    CallId::at(SessionId::from_uuid(uuid::Uuid::from_u128(1)), 1, step, index)
}

fn user(text: &str) -> Entry {
    Entry::User { text: text.to_owned() }
}

/// A step with one call whose result has so many bytes.
fn step(no: u32, body: usize) -> [Entry; 2] {
    let (id, tool) = (call(no, 0), "t".to_owned());
    [
        Entry::Model {
            text: String::new(),
            calls: vec![CallView { call: id.clone(), tool: tool.clone(), args: "{}".to_owned() }],
            opaque: None,
        },
        Entry::Result { call: id, tool, status: "ok".to_owned(), reason: None, body: "b".repeat(body) },
    ]
}

fn bodies(ask: &Ask) -> Vec<usize> {
    let body = |entry: &Arc<Entry>| match &**entry {
        Entry::Result { body, .. } if body.starts_with('(') => Some(0),
        Entry::Result { body, .. } => Some(body.len()),
        _ => None,
    };
    ask.transcript.iter().filter_map(body).collect()
}

fn conversation() -> Vec<Entry> {
    let mut entries = vec![user("the task")];
    (1..=4).for_each(|no| entries.extend(step(no, 1_000)));
    entries
}

#[test]
fn what_fits_or_has_no_bound_is_left_alone() {
    for window in [None, tokens(100_000)] {
        let mut ask = ask(conversation());
        let before = ask.clone();
        assert_eq!(fit(&mut ask, &model(window)), None);
        assert_eq!(ask, before);
    }
}

#[test]
fn the_oldest_results_lose_their_bodies_first() {
    let mut ask = ask(conversation());
    let cut = fit(&mut ask, &model(tokens(3_500))).unwrap();
    assert_eq!(bodies(&ask), [0, 0, 1_000, 1_000]);
    assert_eq!((cut.results, cut.answers), (2, 0));
    assert_eq!(ask.transcript.len(), 9, "nothing is left out whole");
    let Entry::Result { body, status, .. } = &*ask.transcript[2] else { panic!("a result") };
    assert_eq!((body.as_str(), status.as_str()), ("(1000 bytes are left out: older than what fits)", "ok"));
}

#[test]
fn then_the_oldest_answers_go_and_the_task_and_the_newest_answer_stay() {
    let mut ask = ask(conversation());
    let cut = fit(&mut ask, &model(tokens(1_500))).unwrap();
    assert_eq!(bodies(&ask), [1_000], "the newest result is whole");
    assert_eq!((cut.results, cut.answers), (0, 3));
    assert_eq!(*ask.transcript[0], user("the task"));
    let Entry::Feedback { code, text } = &*ask.transcript[1] else { panic!("a note") };
    assert_eq!(code, "earlier_steps_left_out");
    assert_eq!(text, "3 earlier steps are left out here, since not all of them fit.");
    assert_eq!(ask.transcript.len(), 4);
}

#[test]
fn the_newest_two_answers_keep_their_results_as_long_as_they_fit() {
    let mut ask = ask(conversation());
    let cut = fit(&mut ask, &model(tokens(2_700))).unwrap();
    assert_eq!(bodies(&ask), [1_000, 1_000], "older answers go before the second newest loses its results");
    assert_eq!((cut.results, cut.answers), (0, 2));
    let mut ask = self::ask(conversation());
    let cut = fit(&mut ask, &model(tokens(1_800))).unwrap();
    assert_eq!(bodies(&ask), [0, 1_000], "then it does, and is not left out itself");
    assert_eq!((cut.results, cut.answers), (1, 2));
}

/// Counts nothing but letters, so that it differs from every estimate.
#[derive(Debug)]
struct Letters;

impl Counter for Letters {
    fn tokens(&self, text: &str) -> u64 {
        text.chars().filter(|c| c.is_alphabetic()).count() as u64
    }
}

#[test]
fn any_counter_can_be_plugged_in() {
    let ask = ask(conversation());
    let window = model(Some(2_500));
    assert_eq!(toolgate_core::window::fit(&ask, &window, &Estimate), None, "4,000 bytes are some 1,400 tokens");
    let fitted = toolgate_core::window::fit(&ask, &window, &Letters).unwrap();
    assert_eq!((fitted.cut.results, fitted.cut.bytes), (2, 2_000), "each letter is one");
}

#[test]
fn what_cannot_be_cut_is_asked_all_the_same() {
    let mut ask = ask(conversation());
    assert_eq!(fit(&mut ask, &model(Some(1))).unwrap().answers, 3);
    let again = fit(&mut ask.clone(), &model(Some(1)));
    // What was left is the newest answer; only the note that earlier ones are gone could go as well.
    assert!(again.is_none_or(|cut| cut.answers == 0 && cut.results == 0), "{again:?}");
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let one = prop_oneof![
        1 => (0..300_usize).prop_map(|len| (0, len)),
        6 => (0..3_000_usize).prop_map(|len| (1, len)),
        1 => (0..300_usize).prop_map(|len| (2, len)),
    ];
    prop::collection::vec(one, 0..40).prop_map(|kinds| {
        let mut entries = vec![user("the task")];
        for (no, (kind, len)) in (1..).zip(kinds) {
            match kind {
                0 => entries.push(user(&"u".repeat(len))),
                1 => entries.extend(step(no, len)),
                _ => entries.push(Entry::Feedback { code: "malformed".to_owned(), text: "f".repeat(len) }),
            }
        }
        entries
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_cut_users_pairs_and_the_newest_answer_stay(entries in entries(), window in 1..20_000_u32) {
        let mut fitted = ask(entries.clone());
        let cut = fit(&mut fitted, &model(Some(window)));
        let mut twice = ask(entries.clone());
        prop_assert_eq!(fit(&mut twice, &model(Some(window))), cut);
        prop_assert_eq!(&twice, &fitted);
        let users = |entries: &[Entry]| entries.iter().filter(|e| matches!(e, Entry::User { .. })).cloned().collect::<Vec<_>>();
        let after: Vec<Entry> = fitted.transcript.iter().map(|entry| (**entry).clone()).collect();
        prop_assert_eq!(users(&entries), users(&after));
        let called: BTreeSet<CallId> = after.iter().flat_map(|entry| match entry {
            Entry::Model { calls, .. } => calls.iter().map(|call| call.call.clone()).collect(),
            _ => Vec::new(),
        }).collect();
        let answered: Vec<CallId> = after.iter().filter_map(|entry| match entry {
            Entry::Result { call, .. } => Some(call.clone()),
            _ => None,
        }).collect();
        prop_assert_eq!(answered.len(), called.len());
        prop_assert!(answered.iter().all(|call| called.contains(call)));
        let newest = entries.iter().rposition(|e| matches!(e, Entry::Model { .. })).unwrap_or(entries.len());
        prop_assert!(after.ends_with(&entries[newest..]), "from the newest answer on nothing changes");
        if cut.is_none() {
            prop_assert_eq!(after, entries);
        } else {
            prop_assert!(cut != Some(Cut::default()));
        }
    }
}
