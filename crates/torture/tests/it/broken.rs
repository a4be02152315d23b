//! Each property broken, and found as that property. What is not here: the good evidence (`good`).

use serde_json::{Value, json};
use toolgate_torture::check::{Checker, Findings, Property};
use toolgate_torture::evidence::SessionLog;

use crate::good::{Evidence, ONCE, READ, SESSION};

fn found(evidence: &Evidence, more: &[SessionLog]) -> Findings {
    let mut checker = Checker::new(&evidence.told);
    checker.session(&evidence.log);
    for log in more {
        checker.session(log);
    }
    checker.finish()
}

/// What is wrong once good evidence is changed.
fn wrong(change: impl FnOnce(&mut Evidence)) -> Vec<Property> {
    let mut evidence = Evidence::good();
    change(&mut evidence);
    let found = found(&evidence, &[]);
    let wrong: Vec<Property> = Property::ALL.into_iter().filter(|property| found.of(*property).wrong > 0).collect();
    assert_eq!(found.holds(), wrong.is_empty());
    for property in &wrong {
        assert!(!found.of(*property).examples.is_empty(), "{property:?} is shown in words");
    }
    wrong
}

/// Event and row of a number.
fn remove(log: &mut SessionLog, seq: u64) {
    log.rows.retain(|row| row.seq != seq);
    log.events.retain(|event| event["seq"] != seq);
}

/// The log as if the rows of a number had never been, renumbered and chained anew.
fn forget(evidence: &mut Evidence, kinds: &[&str]) {
    let log = &mut evidence.log;
    log.rows.retain(|row| !kinds.contains(&row.kind.as_str()));
    log.events.retain(|event| !kinds.iter().any(|kind| event["type"] == *kind));
    let (mut seq, mut hash) = (0, [0; 32]);
    for (row, event) in log.rows.iter_mut().zip(&mut log.events) {
        seq += 1;
        (row.seq, row.prev_hash) = (seq, hash);
        event["seq"] = seq.into();
        hash = row.hash;
    }
    log.head = (seq, hash);
    // Only the requests that were answered are looked at.
    evidence.told.seen.clear();
    evidence.told.heads.clear();
    evidence.told.journal.clear();
}

#[test]
fn good_evidence_is_good_and_every_property_was_looked_at() {
    assert_eq!(wrong(|_| {}), []);
    let found = found(&Evidence::good(), &[]);
    for property in Property::ALL {
        assert!(found.of(property).looked > 0, "nobody looked at {property:?}");
    }
    assert_eq!(found.later_attempts, 1);
    assert_eq!(found.ends[&("once".to_owned(), "ok".to_owned())], 1);
}

#[test]
fn a_lost_message_is_found() {
    let wrong = wrong(|evidence| forget(evidence, &["message_received"]));
    assert!(wrong.contains(&Property::Acknowledged), "{wrong:?}");
}

#[test]
fn a_lost_approval_cancel_or_close_is_found() {
    for kind in ["approval_decided", "cancel_requested", "session_closed"] {
        let wrong = wrong(|evidence| forget(evidence, &[kind]));
        assert!(wrong.contains(&Property::Acknowledged), "{kind}: {wrong:?}");
    }
}

#[test]
fn an_approval_recorded_as_another_decision_is_found() {
    let wrong = wrong(|evidence| {
        evidence.log.events[8]["decision"] = "deny".into();
        evidence.told.seen.clear();
    });
    assert_eq!(wrong, [Property::Acknowledged]);
}

#[test]
fn a_lost_session_is_found() {
    let mut evidence = Evidence::good();
    evidence.told.acks[0].session = "ses_2".to_owned();
    let found = found(&evidence, &[]);
    assert_eq!(found.of(Property::Acknowledged).wrong, 1);
}

#[test]
fn an_event_that_was_shown_and_is_another_one_is_found() {
    let wrong = wrong(|evidence| evidence.log.events[1]["run"] = 7.into());
    assert_eq!(wrong, [Property::Acknowledged]);
}

#[test]
fn an_event_that_was_shown_and_is_gone_is_found() {
    let wrong = wrong(|evidence| {
        let last = evidence.log.rows.len() as u64;
        remove(&mut evidence.log, last);
        let before = evidence.log.rows.last().unwrap().clone();
        evidence.log.head = (before.seq, before.hash);
        evidence.told.heads.clear();
        evidence.told.acks.truncate(4);
    });
    assert_eq!(wrong, [Property::Acknowledged]);
}

#[test]
fn a_head_that_was_visible_and_is_another_one_is_found() {
    let wrong = wrong(|evidence| {
        evidence.told.heads.get_mut(SESSION).unwrap().insert(5, [99; 32]);
    });
    assert_eq!(wrong, [Property::Acknowledged]);
}

#[test]
fn an_event_that_was_shown_in_two_forms_is_found() {
    let wrong = wrong(|evidence| evidence.told.contradictions.push("twice".to_owned()));
    assert_eq!(wrong, [Property::Acknowledged]);
}

#[test]
fn a_message_that_is_recorded_twice_is_found() {
    let wrong = wrong(|evidence| {
        evidence.log.events[4] = evidence.log.events[12].clone();
        evidence.log.events[4]["seq"] = 5.into();
        evidence.log.rows[4].kind = "message_received".to_owned();
        evidence.told.seen.clear();
    });
    assert_eq!(wrong, [Property::Once]);
}

#[test]
fn two_sessions_of_one_request_are_found() {
    let evidence = Evidence::good();
    let mut twin = evidence.log.clone();
    twin.id = "ses_2".to_owned();
    let found = found(&evidence, &[twin]);
    assert_eq!(found.of(Property::Once).wrong, 1);
}

#[test]
fn another_answer_the_second_time_is_found() {
    let wrong = wrong(|evidence| evidence.told.other_answers.push("201, then 202".to_owned()));
    assert_eq!(wrong, [Property::SameAnswer]);
}

#[test]
fn a_gap_is_found() {
    let wrong = wrong(|evidence| remove(&mut evidence.log, 5));
    assert!(wrong.contains(&Property::NoGap) && wrong.contains(&Property::Linked), "{wrong:?}");
}

#[test]
fn a_log_that_ends_before_its_head_is_found() {
    let wrong = wrong(|evidence| evidence.log.head.0 += 1);
    assert_eq!(wrong, [Property::NoGap]);
}

#[test]
fn a_gap_that_only_the_api_shows_is_found() {
    let wrong = wrong(|evidence| {
        evidence.log.events.remove(4);
        evidence.told.seen.get_mut(SESSION).unwrap().remove(&5);
    });
    assert!(wrong.contains(&Property::NoGap) && wrong.contains(&Property::SameLog), "{wrong:?}");
}

#[test]
fn an_epoch_that_falls_is_found() {
    let wrong = wrong(|evidence| evidence.log.rows[9].epoch = 1);
    assert_eq!(wrong, [Property::NoReversal]);
}

#[test]
fn a_broken_link_is_found() {
    let wrong = wrong(|evidence| evidence.log.rows[6].prev_hash = [77; 32]);
    assert_eq!(wrong, [Property::Linked]);
}

#[test]
fn a_head_with_another_hash_is_found() {
    let wrong = wrong(|evidence| evidence.log.head.1 = [77; 32]);
    assert_eq!(wrong, [Property::Linked]);
}

#[test]
fn a_log_that_does_not_verify_is_found() {
    let wrong = wrong(|evidence| evidence.log.verified = Err("I14 does not hold at sequence 9".to_owned()));
    assert_eq!(wrong, [Property::Verified]);
}

#[test]
fn an_api_that_tells_another_kind_is_found() {
    let wrong = wrong(|evidence| evidence.log.rows[4].kind = "ticked".to_owned());
    assert_eq!(wrong, [Property::SameLog]);
}

#[test]
fn an_effect_of_a_call_that_nobody_decided_is_found() {
    let wrong = wrong(|evidence| {
        let mut other = evidence.told.journal[0].clone();
        other.call = "call_nobody".to_owned();
        evidence.told.journal.push(other);
    });
    assert_eq!(wrong, [Property::Decided]);
}

#[test]
fn an_effect_that_was_not_dispatched_so_is_found() {
    type Change = fn(&mut Evidence);
    let changes: [(&str, Change); 5] = [
        ("another attempt", |evidence| evidence.told.journal[1].attempt = 3),
        ("another fence", |evidence| evidence.told.journal[1].fence = 5),
        ("another tool", |evidence| evidence.told.journal[1].tool = "pay".to_owned()),
        ("other arguments", |evidence| evidence.told.journal[1].args = json!({"n": 2}).to_string()),
        ("never allowed", |evidence| {
            let allowed = evidence.log.rows.iter_mut().find(|row| row.allow && row.call.as_deref() == Some(ONCE));
            allowed.unwrap().allow = false;
        }),
    ];
    for (name, change) in changes {
        assert_eq!(wrong(change), [Property::Decided], "{name}");
    }
}

#[test]
fn an_effect_before_its_approval_is_found() {
    let wrong = wrong(|evidence| {
        // Dispatched with the decision, approved afterwards.
        evidence.log.rows[9].dispatch = None;
        evidence.log.rows[7].dispatch = Some(1);
        evidence.told.journal[2].fence = 8;
    });
    assert_eq!(wrong, [Property::Decided]);
}

#[test]
fn a_once_call_that_reached_its_tool_twice_is_found() {
    let wrong = wrong(|evidence| evidence.told.journal.push(evidence.told.journal[2].clone()));
    assert_eq!(wrong, [Property::OnceOnly, Property::AttemptOnce]);
}

#[test]
fn a_once_call_that_was_dispatched_twice_is_found() {
    let wrong = wrong(|evidence| {
        let mut again = evidence.told.journal[2].clone();
        (again.attempt, again.fence) = (2, 12);
        evidence.told.journal.push(again);
        evidence.log.rows[11].call = Some(ONCE.to_owned());
        evidence.log.rows[11].dispatch = Some(2);
        evidence.log.events[11]["call_id"] = ONCE.into();
        evidence.told.seen.clear();
    });
    assert_eq!(wrong, [Property::OnceOnly]);
}

#[test]
fn an_attempt_that_reached_its_tool_twice_is_found() {
    let wrong = wrong(|evidence| evidence.told.journal.push(evidence.told.journal[0].clone()));
    assert_eq!(wrong, [Property::AttemptOnce]);
}

#[test]
fn an_outcome_that_no_tool_gave_is_found() {
    let unknown = wrong(|evidence| {
        let text = json!({"receipt": 8}).to_string();
        evidence.log.events[6]["content"]["output"]["text"] = Value::String(text);
        evidence.told.seen.clear();
    });
    assert_eq!(unknown, [Property::Genuine]);
    let never_asked = wrong(|evidence| evidence.told.journal.retain(|asked| asked.call != READ));
    assert_eq!(never_asked, [Property::Genuine]);
}

#[test]
fn what_does_not_end_is_found() {
    assert_eq!(wrong(|evidence| evidence.log.active = true), [Property::Ended]);
    assert_eq!(wrong(|evidence| evidence.told.complaints.push("stuck".to_owned())), [Property::Ended]);
}
