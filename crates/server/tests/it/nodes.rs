//! Several nodes over one PostgreSQL database: inputs anywhere, take-over, pauses, clients anywhere, drain.

use std::collections::BTreeSet;
use std::time::Duration;

use toolgate_core::event::{Event, Recorded};
use toolgate_core::id::{ClientInstance, SessionId, Sha256Digest};
use toolgate_core::input::{Input, OutcomeReport, Reporter};
use toolgate_core::output::{Outcome, OutcomeStatus};
use toolgate_core::reason::RefusalCode;
use toolgate_server::failure::Failure;
use toolgate_server::sessions::{AttachRefused, Attachment, Idempotency, SessionSettings, Submission};
use toolgate_store::IdempotencyKey;

mod world;

use world::{Database, Gate, TestNode, WAIT, cancel, message, quick};

fn ended(events: &[Recorded]) -> bool {
    events.iter().any(|one| matches!(one.event, Event::RunEnded(_)))
}

async fn pair(database: &Database, settings: SessionSettings) -> (TestNode, TestNode) {
    let one = TestNode::start(database, "one", Gate::open(), settings.clone()).await;
    let two = TestNode::start(database, "two", Gate::open(), settings).await;
    (one, two)
}

async fn attach(node: &TestNode, session: SessionId, client: &str) -> Result<Attachment, AttachRefused> {
    let (sessions, caller) = (node.sessions.clone(), node.caller.clone());
    let instance = ClientInstance::new(client).unwrap();
    node.on(async move { sessions.attach(&caller, session, instance, BTreeSet::new()).await }).await
}

/// Waits for something that the database tells.
async fn until(what: impl AsyncFn() -> bool) {
    let waiting = async {
        while !what().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(WAIT, waiting).await.expect("in time");
}

async fn inputs_elsewhere(settings: SessionSettings) {
    let database = Database::new().await;
    let (one, two) = pair(&database, settings).await;
    let session = one.open("client").await;
    one.until(session, |events| events.iter().any(|e| matches!(e.event, Event::CallDecided(_)))).await;
    // A refusal is the same as at the owner.
    let refused = two.submit(session, message(Some("m-0"), "too early")).await;
    let here = one.submit(session, message(Some("m-00"), "too early")).await;
    let (Err(Failure::Refused(there)), Err(Failure::Refused(here))) = (refused, here) else { panic!("both refused") };
    assert_eq!((there.code, &there.detail), (RefusalCode::RunActive, &here.detail));
    // Taken once, and answered as at the owner.
    let taken = two.submit(session, cancel(Some("c-1"))).await.unwrap();
    assert_eq!(taken.already, None);
    assert_eq!(taken.events.first().unwrap().input_id.as_ref().unwrap().as_str(), "c-1");
    assert_eq!(taken.snapshot.state.head, taken.events.last().unwrap().seq);
    assert!(ended(&taken.events), "{:?}", taken.events);
    // A repeated id is answered and not applied, wherever it arrives.
    for node in [&two, &one] {
        let again = node.submit(session, cancel(Some("c-1"))).await.unwrap();
        assert_eq!(again.already, Some(taken.events[0].seq));
    }
    // The id of a refused input is free: it is judged again, and fits now.
    let taken = two.submit(session, message(Some("m-0"), "now")).await.unwrap();
    assert!(!taken.events.is_empty());
    // Without an id of its sender it has one all the same.
    two.until(session, |events| events.iter().filter(|e| matches!(e.event, Event::RunEnded(_))).count() == 2).await;
    two.submit(session, message(None, "more")).await.unwrap();
    assert_eq!(two.owner(session).await.as_ref(), Some(&one.name), "ownership sticks");
    let (sessions, tenant) = (two.sessions.clone(), two.caller.tenant.clone());
    assert!(two.on(async move { sessions.verify(&tenant, session).await }).await.unwrap().fault.is_none());
}

#[tokio::test]
async fn inputs_at_another_node_are_applied_once_and_answered_the_same() {
    inputs_elsewhere(quick()).await;
}

#[tokio::test]
async fn without_hints_inputs_at_another_node_arrive_all_the_same() {
    inputs_elsewhere(SessionSettings { hints: false, ..quick() }).await;
}

#[tokio::test]
async fn an_idempotency_key_is_answered_with_the_effect_elsewhere() {
    let database = Database::new().await;
    let (one, two) = pair(&database, quick()).await;
    let session = one.open("client").await;
    let key = IdempotencyKey {
        tenant: two.caller.tenant.clone(),
        credential: "k1".to_owned(),
        route: "POST /x".to_owned(),
        key: "same".to_owned(),
    };
    let idempotency = Some(Idempotency { key: key.clone(), fingerprint: Sha256Digest::of(b"body"), status: 200 });
    let taken = two.submit(session, Submission { idempotency, ..cancel(None) }).await.unwrap();
    let row = two.store.idempotency_get(&key).await.unwrap().unwrap();
    let view: serde_json::Value = serde_json::from_slice(&row.body).unwrap();
    assert_eq!((row.status, view["id"].as_str().unwrap()), (200, session.to_string().as_str()));
    // The key stands for another body now.
    let idempotency = Some(Idempotency { key, fingerprint: Sha256Digest::of(b"other"), status: 200 });
    let other = two.submit(session, Submission { idempotency, ..message(None, "more") }).await;
    assert!(matches!(other, Err(Failure::IdempotencyReused)), "{other:?}");
    assert_eq!(
        two.store.session(&two.caller.tenant, session).await.unwrap().unwrap().head_seq,
        taken.snapshot.state.head
    );
}

#[tokio::test]
async fn a_killed_owner_is_replaced_and_its_run_goes_on() {
    let database = Database::new().await;
    let mut one = TestNode::start(&database, "one", Gate::closed(), quick()).await;
    let two = TestNode::start(&database, "two", Gate::open(), quick()).await;
    let session = one.open("server").await;
    tokio::time::timeout(WAIT, one.gate.begun.acquire()).await.unwrap().unwrap().forget();
    one.kill();
    let events = two.until(session, ended).await;
    let owners = events.iter().filter(|e| matches!(e.event, Event::OwnerChanged(_))).count();
    assert_eq!(owners, 1);
    assert_eq!(two.owner(session).await, Some(two.name.clone()));
    let (sessions, tenant) = (two.sessions.clone(), two.caller.tenant.clone());
    assert!(two.on(async move { sessions.verify(&tenant, session).await }).await.unwrap().fault.is_none());
}

/// K12: the input was accepted, and its owner dies before it looked at it.
#[tokio::test]
async fn an_input_of_a_dead_owner_is_taken_by_the_next() {
    let database = Database::new().await;
    let (one, two) = pair(&database, quick()).await;
    let session = one.open("client").await;
    one.until(session, |events| events.iter().any(|e| matches!(e.event, Event::CallDecided(_)))).await;
    let paused = one.pause().await;
    let taken = two.submit(session, cancel(Some("c-1"))).await.unwrap();
    assert!(ended(&taken.events));
    assert_eq!(two.owner(session).await, Some(two.name.clone()));
    drop(paused);
    // F8: the paused one finds out and forgets; what it is asked now is answered from the new owner's log.
    let again = async {
        loop {
            match one.submit(session, cancel(Some("c-1"))).await {
                // Its append was fenced: come again.
                Err(Failure::Busy) => {}
                answer => return answer.unwrap(),
            }
        }
    };
    let again = tokio::time::timeout(WAIT, again).await.unwrap();
    assert_eq!(again.already, Some(taken.events[0].seq));
    assert_eq!(one.owner(session).await, Some(two.name.clone()));
    let events = one.until(session, ended).await;
    assert!(events.windows(2).all(|two| two[0].epoch <= two[1].epoch && two[0].seq + 1 == two[1].seq));
}

#[tokio::test]
async fn a_stream_at_another_node_sees_every_event_in_order() {
    let database = Database::new().await;
    let one = TestNode::start(&database, "one", Gate::closed(), quick()).await;
    let two = TestNode::start(&database, "two", Gate::open(), quick()).await;
    let session = one.open("server").await;
    let watching = two.until(session, ended);
    one.gate.may_end.add_permits(1);
    let seen = watching.await;
    let (sessions, tenant) = (one.sessions.clone(), one.caller.tenant.clone());
    let all = one.on(async move { sessions.events(&tenant, session, 0, 1_000).await.unwrap() }).await;
    assert_eq!(seen, all);
    assert!(all.iter().zip(1..).all(|(one, seq)| one.seq == seq));
}

#[tokio::test]
async fn a_session_follows_its_client_to_another_node() {
    let database = Database::new().await;
    let (one, two) = pair(&database, quick()).await;
    let session = one.open("client").await;
    let here = attach(&one, session, "ide-1").await.unwrap();
    // While a client executes here, the session stays here.
    assert!(matches!(attach(&two, session, "ide-2").await, Err(AttachRefused::ExecutorTaken)));
    assert_eq!(two.owner(session).await.as_ref(), Some(&one.name));
    drop(here);
    // The client comes back at the other node: the session follows, and its open call is offered there.
    let attached = async {
        loop {
            match attach(&two, session, "ide-1").await {
                Ok(attachment) => return attachment,
                // The owner has not noticed yet that its client has gone.
                Err(AttachRefused::ExecutorTaken) => tokio::task::yield_now().await,
                Err(AttachRefused::Failed(failure)) => panic!("{failure}"),
            }
        }
    };
    let mut attached = tokio::time::timeout(WAIT, attached).await.unwrap();
    let order = tokio::time::timeout(WAIT, attached.offers.recv()).await.unwrap().unwrap();
    assert_eq!(two.owner(session).await.as_ref(), Some(&two.name));
    let report = OutcomeReport {
        call: order.call.clone(),
        attempt: order.attempt,
        reporter: Reporter::Client {
            instance: ClientInstance::new("ide-1").unwrap(),
            by: two.caller.actor.clone(),
            fence: order.fence,
            args_hash: order.args_hash,
        },
        outcome: Outcome { status: OutcomeStatus::Ok, output: None, detail: None },
    };
    let submission = Submission { id: None, input: Input::Outcome(report), idempotency: None };
    // The outcome may come in anywhere.
    one.submit(session, submission).await.unwrap();
    two.until(session, ended).await;
}

#[tokio::test]
async fn a_drained_node_gives_its_sessions_to_the_others() {
    let database = Database::new().await;
    let one = TestNode::start(&database, "one", Gate::closed(), quick()).await;
    let two = TestNode::start(&database, "two", Gate::open(), quick()).await;
    let busy = one.open("server").await;
    tokio::time::timeout(WAIT, one.gate.begun.acquire()).await.unwrap().unwrap().forget();
    let waiting = one.open("client").await;
    one.until(waiting, |events| events.iter().any(|e| matches!(e.event, Event::CallDecided(_)))).await;
    assert!(two.store.node_drain(&one.name, true).await.unwrap());
    until(async || two.owner(waiting).await.as_ref() != Some(&one.name)).await;
    // A tool that runs may report first.
    assert_eq!(two.owner(busy).await.as_ref(), Some(&one.name));
    one.gate.may_end.add_permits(1);
    let events = two.until(busy, ended).await;
    let outcome = events.iter().position(|e| matches!(e.event, Event::CallEnded(_))).unwrap();
    let moved = events.iter().position(|e| matches!(e.event, Event::OwnerChanged(_))).unwrap();
    assert!(outcome < moved, "the outcome was recorded by its own node");
    // The drained one takes nothing new, and still passes inputs on.
    let taken = one.submit(waiting, cancel(None)).await.unwrap();
    assert!(ended(&taken.events));
    assert_eq!(one.owner(waiting).await.as_ref(), Some(&two.name));
}

#[tokio::test]
async fn a_drained_node_gives_away_what_it_does_not_have_in_memory() {
    let database = Database::new().await;
    let one = TestNode::start(&database, "one", Gate::open(), quick()).await;
    let two = TestNode::start(&database, "two", Gate::open(), quick()).await;
    let session = one.open("client").await;
    one.until(session, |events| events.iter().any(|e| matches!(e.event, Event::CallDecided(_)))).await;
    until(async || one.sessions.in_memory() == 0).await;
    assert_eq!(two.owner(session).await.as_ref(), Some(&one.name));
    assert!(two.store.node_drain(&one.name, true).await.unwrap());
    until(async || two.owner(session).await.as_ref() != Some(&one.name)).await;
    let taken = two.submit(session, cancel(None)).await.unwrap();
    assert!(ended(&taken.events));
    assert_eq!(two.owner(session).await.as_ref(), Some(&two.name));
}

#[tokio::test]
async fn a_stopped_node_leaves_its_sessions_free_at_once() {
    let database = Database::new().await;
    let long = SessionSettings { lease: Duration::from_secs(600), ..quick() };
    let one = TestNode::start(&database, "one", Gate::open(), long.clone()).await;
    let two = TestNode::start(&database, "two", Gate::open(), long).await;
    let session = one.open("client").await;
    one.until(session, |events| events.iter().any(|e| matches!(e.event, Event::CallDecided(_)))).await;
    let sessions = one.sessions.clone();
    one.on(async move { sessions.stop().await }).await;
    assert_eq!(two.owner(session).await, None);
    let nodes = two.store.nodes(10).await.unwrap();
    assert_eq!(nodes.iter().map(|row| row.is_alive()).collect::<Vec<_>>(), [false, true]);
    let taken = two.submit(session, cancel(None)).await.unwrap();
    assert!(ended(&taken.events));
    assert_eq!(two.owner(session).await, Some(two.name.clone()));
}
