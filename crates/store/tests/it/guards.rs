//! The rules over the records of one call, which the database itself keeps.

use std::sync::Arc;

use toolgate_store::{Append, Appended, Guard, Header, Marks, StoreError};

use crate::backend::Backend;
use crate::sample::{ALLOWED, DECIDED, DISPATCHED, Log, TERMINAL, all_rows, append_many, dispatch, later_allow};

contract!(
    a_plain_call_passes,
    an_escalated_call_passes,
    attempts_pass_one_by_one,
    the_whole_life_of_a_call_fits_one_append,
    a_second_decision_is_refused,
    a_second_allow_is_refused,
    a_second_dispatch_of_an_attempt_is_refused,
    a_second_terminal_record_is_refused,
    a_dispatch_without_allow_is_refused,
    a_dispatch_after_the_end_is_refused,
    a_terminal_record_without_decision_is_refused,
    an_allow_without_open_decision_is_refused,
    another_call_does_not_help,
    another_session_does_not_help,
    nothing_but_late_facts_follows_the_closing,
);

async fn accepted(backend: &Backend, append: Append) {
    // Together with another session's, as the server appends; alone, the same bytes are known.
    let mut neighbour = Log::started(&backend.store, "acme").await;
    let good = neighbour.plain(b"x");
    let answers = append_many(&backend.store, vec![Arc::new(good), Arc::new(append.clone())]).await;
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Appended::Ok { .. }))), "{answers:?}");
    let answer = backend.store.append(Arc::new(append)).await.unwrap();
    assert!(matches!(answer, Appended::Already { .. }), "{answer:?}");
}

/// The append is refused by this rule, and the log stays as it was.
async fn refused(backend: &Backend, log: &mut Log, append: Append, rule: Guard) {
    let answer = backend.store.append(Arc::new(append.clone())).await;
    assert!(matches!(answer, Err(StoreError::Guard(found)) if found == rule), "{answer:?}");
    let mut neighbour = Log::started(&backend.store, "acme").await;
    let good = Arc::new(neighbour.plain(b"x"));
    let many = append_many(&backend.store, vec![good, Arc::new(append.clone())]).await;
    assert!(
        matches!(many[..], [Ok(Appended::Ok { head: 2 }), Err(StoreError::Guard(found))] if found == rule),
        "{many:?}"
    );
    for _ in &append.rows {
        log.pop();
    }
    assert_eq!(all_rows(&backend.store, &log.tenant, log.session).await, log.rows);
}

async fn a_plain_call_passes(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    accepted(&backend, log.about(0, DISPATCHED)).await;
    accepted(&backend, log.about(0, TERMINAL)).await;
    let rejected = Marks { decision: true, terminal: true, ..Marks::NONE };
    accepted(&backend, log.about(1, rejected)).await;
    assert_eq!(all_rows(&backend.store, &log.tenant, log.session).await, log.rows);
}

async fn an_escalated_call_passes(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    accepted(&backend, log.about(0, DECIDED)).await;
    let granted = Marks { allow: true, dispatch_attempt: Some(1), ..Marks::NONE };
    accepted(&backend, log.about(0, granted)).await;
    accepted(&backend, log.about(0, TERMINAL)).await;
    accepted(&backend, log.about(1, DECIDED)).await;
    accepted(&backend, log.about(1, later_allow())).await;
    accepted(&backend, log.about(1, dispatch(1))).await;
}

async fn attempts_pass_one_by_one(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    accepted(&backend, log.about(0, ALLOWED)).await;
    for attempt in 1..4 {
        accepted(&backend, log.about(0, dispatch(attempt))).await;
    }
}

async fn the_whole_life_of_a_call_fits_one_append(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    log.about(0, DECIDED);
    log.about(0, later_allow());
    log.about(0, dispatch(1));
    log.about(0, TERMINAL);
    accepted(&backend, log.carry(log.rows[1..].to_vec())).await;

    // In the wrong order the same rows are refused.
    log.about(1, dispatch(1));
    log.about(1, ALLOWED);
    let append = log.carry(log.rows[5..].to_vec());
    refused(&backend, &mut log, append, Guard::DispatchWithoutAllow).await;
}

async fn a_second_decision_is_refused(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    accepted(&backend, log.about(0, ALLOWED)).await;
    for marks in [ALLOWED, DECIDED] {
        let append = log.about(0, marks);
        refused(&backend, &mut log, append, Guard::SecondDecision).await;
    }
}

async fn a_second_allow_is_refused(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    accepted(&backend, log.about(0, DECIDED)).await;
    accepted(&backend, log.about(0, later_allow())).await;
    let append = log.about(0, later_allow());
    refused(&backend, &mut log, append, Guard::SecondAllow).await;
}

async fn a_second_dispatch_of_an_attempt_is_refused(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    accepted(&backend, log.about(0, DISPATCHED)).await;
    let append = log.about(0, dispatch(1));
    refused(&backend, &mut log, append, Guard::SecondDispatch).await;
}

async fn a_second_terminal_record_is_refused(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    accepted(&backend, log.about(0, DISPATCHED)).await;
    accepted(&backend, log.about(0, TERMINAL)).await;
    let append = log.about(0, TERMINAL);
    refused(&backend, &mut log, append, Guard::SecondTerminal).await;
}

async fn a_dispatch_without_allow_is_refused(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    let append = log.about(0, dispatch(1));
    refused(&backend, &mut log, append, Guard::DispatchWithoutAllow).await;
    accepted(&backend, log.about(0, DECIDED)).await;
    let append = log.about(0, dispatch(1));
    refused(&backend, &mut log, append, Guard::DispatchWithoutAllow).await;
}

async fn a_dispatch_after_the_end_is_refused(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    accepted(&backend, log.about(0, DISPATCHED)).await;
    accepted(&backend, log.about(0, TERMINAL)).await;
    let append = log.about(0, dispatch(2));
    refused(&backend, &mut log, append, Guard::DispatchAfterTerminal).await;
}

async fn a_terminal_record_without_decision_is_refused(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    let append = log.about(0, TERMINAL);
    refused(&backend, &mut log, append, Guard::TerminalWithoutDecision).await;
}

async fn an_allow_without_open_decision_is_refused(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    let append = log.about(0, later_allow());
    refused(&backend, &mut log, append, Guard::AllowWithoutDecision).await;
    accepted(&backend, log.about(0, ALLOWED)).await;
    let append = log.about(0, later_allow());
    refused(&backend, &mut log, append, Guard::AllowWithoutDecision).await;
}

async fn another_call_does_not_help(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    accepted(&backend, log.about(0, DISPATCHED)).await;
    let append = log.about(1, dispatch(1));
    refused(&backend, &mut log, append, Guard::DispatchWithoutAllow).await;
    let append = log.about(1, TERMINAL);
    refused(&backend, &mut log, append, Guard::TerminalWithoutDecision).await;
}

async fn another_session_does_not_help(backend: Backend) {
    let mut log = Log::started(&backend.store, "acme").await;
    accepted(&backend, log.about(0, DISPATCHED)).await;
    let mut other = Log::started(&backend.store, "acme").await;
    let mut header = log.marked(0, dispatch(2));
    header.kind = "stolen".to_owned();
    let append = other.push(header, b"x");
    refused(&backend, &mut other, append, Guard::DispatchWithoutAllow).await;
}

async fn nothing_but_late_facts_follows_the_closing(backend: Backend) {
    let store = &backend.store;
    let mut log = Log::started(store, "acme").await;
    let mut both = log.clone();
    both.push(Header::new("session_closed"), b"");
    both.plain(b"after");
    let append = both.carry(both.rows[1..].to_vec());
    refused(&backend, &mut both, append, Guard::SessionClosed).await;

    accepted(&backend, log.push(Header::new("session_closed"), b"")).await;
    assert!(store.session(&log.tenant, log.session).await.unwrap().unwrap().closed);
    let append = log.plain(b"after");
    refused(&backend, &mut log, append, Guard::SessionClosed).await;
    for kind in ["late_outcome", "outcome_refused", "budget_settled", "erased"] {
        accepted(&backend, log.push(Header::new(kind), b"late")).await;
    }
    let (take_over, _) = log.take_over(&crate::sample::node("node-2", 1));
    let answer = store.take_over(Arc::new(take_over)).await;
    assert!(matches!(answer, Err(StoreError::Guard(Guard::SessionClosed))), "{answer:?}");
    assert!(store.session(&log.tenant, log.session).await.unwrap().unwrap().closed);
}
