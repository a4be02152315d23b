//! Sessions over REST: start, repeat, list, say more, stop.

use axum::http::Method;
use serde_json::{Value, json};

use super::world::{Caller, World, id};

#[tokio::test]
async fn a_start_answers_where_and_what() {
    let (_, caller) = World::start().await;
    let body = json!({"profile": "server", "prompt": "go", "metadata": {"ticket": "7"}, "limits": {"max_steps": 3}});
    let answer = caller.post("/v1/sessions", &body).await.expect(201);
    let session = answer.json();
    assert_eq!(answer.header("location"), format!("/v1/sessions/{}", id(&session)));
    assert!(answer.headers.get("idempotency-replayed").is_none());
    assert_eq!((&session["status"], &session["profile"]), (&json!("running"), &json!("server")));
    assert_eq!(session["run"]["limits"]["max_steps"], 3);
    assert_eq!(session["allowed_actions"], json!(["cancel", "close"]));
    let created = session["created_at"].as_str().unwrap();
    assert!(created.len() == 24 && created.ends_with('Z') && created.as_bytes()[19] == b'.', "{created}");
    assert!(session["head_seq"].as_u64().unwrap() >= 3);
}

#[tokio::test]
async fn a_trace_context_is_kept_when_it_has_its_form() {
    let (_, caller) = World::start().await;
    let good = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for (sent, kept) in [
        (good, json!(good)),
        ("00-XYZ-00f067aa0ba902b7-01", Value::Null),
        ("ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", Value::Null),
    ] {
        let body = json!({"profile": "client", "prompt": "go"});
        let session = caller.post_with("/v1/sessions", &[("traceparent", sent)], &body).await.expect(201).json();
        let events = caller.get(&format!("/v1/sessions/{}/events", id(&session))).await.json();
        assert_eq!(events["items"][0]["trace"], kept);
    }
}

#[tokio::test]
async fn waiting_gives_the_settled_session() {
    let (_, caller) = World::start().await;
    let body = json!({"profile": "server", "prompt": "go"});
    let answer = caller.post_with("/v1/sessions", &[("prefer", "respond-async, wait=15")], &body).await.expect(201);
    assert_eq!(answer.header("preference-applied"), "wait=15");
    let done = answer.json();
    assert_eq!(
        (&done["status"], &done["run"]["ending"], &done["run"]["output"]),
        (&json!("idle"), &json!("done"), &json!("three"))
    );
    assert_eq!((&done["run"]["steps"], &done["run"]["tool_calls"]), (&json!(2), &json!(1)));
    assert_eq!(done["allowed_actions"], json!(["add_message", "close"]));
}

#[tokio::test]
async fn the_callers_own_id_names_one_session() {
    let (world, caller) = World::start().await;
    let body = json!({"id": "job-7", "profile": "client", "prompt": "go"});
    let first = caller.post("/v1/sessions", &body).await.expect(201).json();
    // Another spelling of the same JSON is the same body.
    let spelled = r#"{ "prompt" : "go", "profile":"client" , "id":"job-7" }"#;
    let second = caller.text(Method::POST, "/v1/sessions", &[], spelled).await.expect(200).json();
    assert_eq!(id(&first), id(&second));
    let other = json!({"id": "job-7", "profile": "client", "prompt": "stop"});
    let problem = caller.post("/v1/sessions", &other).await.problem(409, "alias_conflict");
    assert!(problem["detail"].as_str().unwrap().contains(&id(&first)));
    let found = caller.get("/v1/sessions?alias=job-7").await.expect(200).json();
    assert_eq!(found["items"][0]["id"], first["id"]);
    assert_eq!(caller.get("/v1/sessions?alias=job-8").await.expect(200).json()["items"], json!([]));
    for nothing in ["%00", "two%20words", &"x".repeat(5_000)] {
        assert_eq!(caller.get(&format!("/v1/sessions?alias={nothing}")).await.expect(200).json()["items"], json!([]));
    }
    caller.get("/v1/sessions?alias=job-7&status=idle").await.problem(400, "invalid_parameter");
    // Another tenant has its own names.
    let stranger = world.caller("other").await;
    stranger.put("/v1/bundle", &super::world::bundle()).await.expect(201);
    stranger.post("/v1/sessions", &other).await.expect(201);
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let world = World::bare(toolgate_server::app::HttpLimits::default()).await;
    let caller = world.caller("acme").await;
    let body = |profile: &str| json!({"profile": profile, "prompt": "go"});
    caller.post("/v1/sessions", &body("server")).await.problem(409, "no_bundle");
    caller.put("/v1/bundle", &super::world::bundle()).await.expect(201);
    caller.post("/v1/sessions", &body("nobody")).await.problem(422, "unknown_profile");
    caller.post("/v1/sessions", &json!({"prompt": "go"})).await.problem(422, "profile_required");
    let wide = json!({"profile": "server", "prompt": "go", "limits": {"max_steps": 500}});
    caller.post("/v1/sessions", &wide).await.problem(422, "limit_not_narrower");
    let schema = json!({"profile": "server", "prompt": "go", "output_schema": {"type": "nonsense"}});
    caller.post("/v1/sessions", &schema).await.problem(422, "output_schema_unusable");
    let id = json!({"id": "two words", "profile": "server", "prompt": "go"});
    assert_eq!(caller.post("/v1/sessions", &id).await.problem(422, "invalid_request")["errors"][0]["pointer"], "/id");
}

#[tokio::test]
async fn a_message_opens_the_next_run_and_a_running_one_refuses_it() {
    let (_, caller) = World::start().await;
    let session = id(&caller.settled("server").await);
    let path = format!("/v1/sessions/{session}/messages");
    let answer = caller.post_with(&path, &[("prefer", "wait=15")], &json!({"text": "more"})).await.expect(202).json();
    assert_eq!((&answer["run"]["no"], &answer["run"]["output"]), (&json!(2), &json!("again")));
    let waiting = id(&caller.settled("client").await);
    let path = format!("/v1/sessions/{waiting}/messages");
    caller.post(&path, &json!({"text": "more"})).await.problem(409, "run_active");
    caller.post(&path, &json!({"text": ""})).await.problem(422, "invalid_request");
}

#[tokio::test]
async fn cancel_and_close_take_an_optional_reason() {
    let (_, caller) = World::start().await;
    let waiting = caller.settled("client").await;
    assert_eq!(waiting["waiting"]["client_calls"][0]["state"], "queued");
    let path = |verb: &str| format!("/v1/sessions/{}/{verb}", id(&waiting));
    let cancelled = caller.post(&path("cancel"), &json!({"reason": "enough"})).await.expect(200).json();
    assert_eq!((&cancelled["status"], &cancelled["run"]["ending"]), (&json!("idle"), &json!("cancelled")));
    caller.post(&path("cancel"), &json!({})).await.problem(409, "no_active_run");
    caller.post(&path("cancel"), &json!({"reason": "x".repeat(2_001)})).await.problem(422, "invalid_request");
    // A body may be left out, with or without a content type.
    let close = caller.request(Method::POST, &path("close")).body(axum::body::Body::empty()).unwrap();
    let closed = caller.send(close).await.expect(200).json();
    assert_eq!((&closed["status"], &closed["allowed_actions"]), (&json!("closed"), &json!([])));
    caller.post(&path("close"), &json!({})).await.problem(409, "session_closed");
    caller.post(&path("messages"), &json!({"text": "x"})).await.problem(409, "session_closed");
}

/// Follows `next_cursor` to the end and gives the ids.
async fn all(caller: &Caller, query: &str) -> Vec<String> {
    let mut ids = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = caller.get(&format!("/v1/sessions?{query}{cursor}")).await.expect(200).json();
        ids.extend(page["items"].as_array().unwrap().iter().map(id));
        match &page["next_cursor"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            end => {
                assert!(end.is_null());
                return ids;
            }
        }
    }
}

#[tokio::test]
async fn lists_page_by_cursor_and_filter() {
    let (world, caller) = World::start().await;
    let mut made = Vec::new();
    for n in 0..7 {
        made.push(id(&caller.settled(if n % 2 == 0 { "server" } else { "client" }).await));
    }
    made.reverse();
    assert_eq!(all(&caller, "limit=3").await, made);
    assert_eq!(all(&caller, "limit=2&status=idle&profile=server").await.len(), 4);
    assert_eq!(all(&caller, "limit=2&profile=client&status=idle").await, Vec::<String>::new());
    let middle =
        caller.get(&format!("/v1/sessions/{}", made[3])).await.json()["created_at"].as_str().unwrap().to_owned();
    let later = all(&caller, &format!("created_from={middle}")).await;
    let earlier = all(&caller, &format!("created_before={middle}")).await;
    assert_eq!([later.clone(), earlier.clone()].concat(), made);
    assert!(!later.is_empty() && !earlier.is_empty());

    let page = caller.get("/v1/sessions?limit=2&status=idle").await.json();
    let cursor = page["next_cursor"].as_str().unwrap();
    caller.get(&format!("/v1/sessions?limit=2&cursor={cursor}")).await.problem(400, "cursor_mismatch");
    caller.get(&format!("/v1/sessions?limit=5&status=idle&cursor={cursor}")).await.expect(200);
    let swapped = if cursor.ends_with('A') { "B" } else { "A" };
    let forged = format!("{}{swapped}", &cursor[..cursor.len() - 1]);
    for wrong in ["x", "", &forged, &cursor[..cursor.len() / 2]] {
        caller.get(&format!("/v1/sessions?status=idle&cursor={wrong}")).await.problem(400, "cursor_invalid");
    }
    caller.get(&format!("/v1/approvals?status=idle&cursor={cursor}")).await.problem(400, "invalid_parameter");
    caller.get(&format!("/v1/approvals?cursor={cursor}")).await.problem(400, "cursor_invalid");
    let stranger = world.caller("other").await;
    stranger.get(&format!("/v1/sessions?status=idle&cursor={cursor}")).await.problem(400, "cursor_invalid");
}

#[tokio::test]
async fn a_log_that_verifies_says_so() {
    let (_, caller) = World::start().await;
    let session = caller.settled("server").await;
    let report = caller.post(&format!("/v1/sessions/{}/verify", id(&session)), &json!({})).await.expect(200).json();
    assert_eq!((&report["verified"], &report["code"]), (&json!(true), &json!("ok")));
    assert_eq!(report["events"], session["head_seq"]);
    assert!(report["redecided"].as_u64().unwrap() >= 3);
}
