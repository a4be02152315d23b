//! How connections end: each close code, and that a refused frame ends nothing.

use std::time::Duration;

use axum::extract::ws::Message;
use serde_json::json;

use super::world::{WAIT, World};
use super::{IDE, cursor, request};
use crate::caller::Scope;
use crate::channel::ChannelSettings;

#[tokio::test]
async fn the_first_frame_must_be_a_readable_hello() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    for text in [
        "{".to_owned(),
        "[]".to_owned(),
        r#"{"type":"Nonsense"}"#.to_owned(),
        r#"{"type":"Request","prompt":"x"}"#.to_owned(),
        json!({"type": "Hello", "protocol": 2, "client_id": "a", "token": key}).to_string(),
        json!({"type": "Hello", "protocol": 1, "client_id": "a", "token": key, "extra": 1}).to_string(),
        json!({"type": "Hello", "protocol": 1, "client_id": "a", "token": key, "sessions": [{"id": "x"}]}).to_string(),
    ] {
        let mut socket = world.connect(8);
        socket.text(&text).await;
        assert_eq!(socket.next().await["type"], "Error", "{text}");
        assert_eq!(socket.closed().await, 4400, "{text}");
        socket.cut().await;
    }
    let mut socket = world.connect(8);
    socket.raw(Ok(Message::Binary(vec![1, 2].into()))).await;
    assert_eq!(socket.closed().await, 4400);
}

#[tokio::test]
async fn a_frame_that_cannot_be_read_ends_the_connection_and_says_why() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    for (text, code) in [
        (r#"{"type":"Message","session_id":"ses_0","text":"a","text":"b"}"#, "malformed"),
        (r#"{"type":"Hello","protocol":1,"client_id":"a","sessions":[{"id":7}]}"#, "invalid_request"),
    ] {
        let (mut socket, _) = world.hello(&key, "a", &json!([])).await;
        socket.text(text).await;
        assert_eq!(socket.error().await.0, code, "{text}");
        assert_eq!(socket.closed().await, 4400, "{text}");
        socket.cut().await;
    }
}

#[tokio::test]
async fn a_credential_is_needed_and_must_be_good() {
    let world = World::new().await;
    let none = world.key("acme", &[Scope::AuditRead]).await;
    let revoked = world.key("acme", &IDE).await;
    world.revoke(&revoked).await;
    for (key, code) in [("tg_live_nonsense", 4401), (revoked.as_str(), 4401), (none.as_str(), 4403)] {
        let mut socket = world.connect(8);
        socket.hello(key, "a", &json!([])).await;
        assert_eq!(socket.closed().await, code);
    }
    let mut socket = world.connect(8);
    socket.send(json!({"type": "Hello", "protocol": 1, "client_id": "a"})).await;
    assert_eq!(socket.closed().await, 4401);
    assert_eq!(world.channel.connections(), 0);
}

#[tokio::test]
async fn a_revoked_key_loses_its_open_connection() {
    let world = World::with(ChannelSettings { recheck: Duration::from_millis(10), ..ChannelSettings::default() }).await;
    let key = world.key("acme", &IDE).await;
    let (mut socket, _) = world.hello(&key, "a", &json!([])).await;
    world.revoke(&key).await;
    assert_eq!(socket.closed().await, 4401);
}

#[tokio::test]
async fn whoever_says_nothing_is_cut_off() {
    let world = World::with(ChannelSettings { hello: Duration::from_millis(20), ..ChannelSettings::default() }).await;
    let mut socket = world.connect(8);
    assert_eq!(socket.closed().await, 4408);

    let settings = ChannelSettings { heartbeat: Duration::from_millis(200), ..ChannelSettings::default() };
    let world = World::with(settings).await;
    let key = world.key("acme", &IDE).await;
    let (mut silent, _) = world.hello(&key, "silent", &json!([])).await;
    assert_eq!(silent.closed().await, 1001);
    // Whoever answers pings stays.
    let (mut alive, _) = world.hello(&key, "alive", &json!([])).await;
    for _ in 0..4 {
        alive.pinged().await;
    }
}

#[tokio::test]
async fn a_newer_connection_of_the_same_client_replaces_the_older_one() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut older, _) = world.hello(&key, "ide-1", &json!([])).await;
    let session = request(&mut older, "client").await;
    let offer = older.until("ApprovedToolCall").await;
    let (mut newer, _) = world.hello(&key, "ide-1", &cursor(&session, 0)).await;
    assert_eq!(older.closed().await, 4409);
    assert_eq!(newer.until("ApprovedToolCall").await["call_id"], offer["call_id"]);
    assert_eq!(world.channel.connections(), 1);
}

#[tokio::test]
async fn too_long_too_many_too_slow() {
    let small =
        ChannelSettings { burst: 5, stall: Duration::from_millis(50), per_tenant: 2, ..ChannelSettings::default() };
    let world = World::with(small).await;
    let key = world.key("acme", &IDE).await;
    let (mut long, _) = world.hello(&key, "long", &json!([])).await;
    long.text(&"x".repeat(256 * 1024 + 1)).await;
    assert_eq!(long.closed().await, 4413);
    long.cut().await;
    let (mut longer, _) = world.hello(&key, "longer", &json!([])).await;
    longer.raw(Err("Space limit exceeded: Message too long: 600000 > 524288".to_owned())).await;
    assert_eq!(longer.closed().await, 4413);
    longer.cut().await;

    let (mut fast, _) = world.hello(&key, "fast", &json!([])).await;
    for _ in 0..20 {
        fast.send(json!({"type": "Cancel", "session_id": format!("ses_{}", "0".repeat(32))})).await;
    }
    assert_eq!(fast.closed().await, 4429);
    fast.cut().await;

    // Takes the welcome and nothing more.
    let mut stuck = world.connect(1);
    stuck.hello(&key, "stuck", &json!([])).await;
    for _ in 0..3 {
        stuck.send(json!({"type": "Cancel", "session_id": format!("ses_{}", "0".repeat(32))})).await;
    }
    tokio::time::timeout(WAIT, &mut stuck.pump).await.expect("it is given up in time").unwrap();

    let (_one, _) = world.hello(&key, "one", &json!([])).await;
    let (_two, _) = world.hello(&key, "two", &json!([])).await;
    let mut three = world.connect(8);
    three.hello(&key, "three", &json!([])).await;
    assert_eq!(three.closed().await, 4429);
}

#[tokio::test]
async fn a_search_for_sessions_is_ended() {
    let world = World::with(ChannelSettings { sessions: 4, ..ChannelSettings::default() }).await;
    let key = world.key("acme", &IDE).await;
    let sessions = |from: u32, to: u32| (from..to).map(|n| json!({"id": format!("ses_{n:032x}")})).collect::<Vec<_>>();
    let (mut socket, _) = world.hello(&key, "a", &json!(sessions(0, 3))).await;
    socket.hello(&key, "a", &json!(sessions(10, 15))).await;
    assert_eq!(socket.error().await.0, "invalid_request");
    socket.hello(&key, "a", &json!(sessions(20, 22))).await;
    assert_eq!(socket.closed().await, 4429);
}

#[tokio::test]
async fn a_restart_is_announced() {
    let world = World::new().await;
    let key = world.key("acme", &IDE).await;
    let (mut socket, _) = world.hello(&key, "a", &json!([])).await;
    let mut unknown = world.connect(8);
    world.app.stopping().cancel();
    let closing = socket.next().await;
    assert_eq!(closing["type"], "Closing");
    assert!(closing["reconnect_ms"].as_u64().is_some_and(|ms| ms < 5_000));
    assert_eq!(socket.closed().await, 1012);
    assert_eq!(unknown.closed().await, 1012);
    socket.cut().await;
    assert_eq!(world.channel.connections(), 0);
}
