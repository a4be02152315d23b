//! Approvals over REST: exactly what is approved, decided once.

use std::time::Duration;

use serde_json::{Value, json};
use toolgate_server::caller::Scope;

use super::world::{Caller, World, id};

/// A session that waits, and its approval in full.
async fn waiting(caller: &Caller) -> (Value, Value) {
    let session = caller.settled("approval").await;
    assert_eq!(session["status"], "waiting_approval");
    assert!(session["allowed_actions"].as_array().unwrap().contains(&json!("decide_approval")));
    let approval = id(&session["waiting"]["approvals"][0]);
    let approval = caller.get(&format!("/v1/approvals/{approval}")).await.expect(200).json();
    (session, approval)
}

#[tokio::test]
async fn only_who_decides_sees_what_the_tool_calls_secret() {
    let (world, caller) = World::start().await;
    let session = caller.settled("login").await;
    let path = format!("/v1/approvals/{}", id(&session["waiting"]["approvals"][0]));
    let approver = world.scoped("acme", &[Scope::ApprovalsWrite], None, None).await;
    let full = approver.get(&path).await.expect(200).json();
    assert_eq!((&full["args"]["password"], &full["redacted"]), (&json!("hunter2"), &json!(false)));
    for scope in [Scope::SessionsRead, Scope::AuditRead] {
        let reader = world.scoped("acme", &[scope], None, None).await;
        let shown = reader.get(&path).await.expect(200);
        assert!(!shown.text.contains("hunter2"), "{}", shown.text);
        let shown = shown.json();
        assert_eq!((&shown["args"]["user"], &shown["redacted"]), (&json!("bob"), &json!(true)));
        assert_eq!((&shown["args_hash"], &shown["digest"]), (&full["args_hash"], &full["digest"]));
    }
    let sid = id(&session);
    for path in
        [format!("/v1/sessions/{sid}"), format!("/v1/sessions/{sid}/events"), format!("/v1/sessions/{sid}/calls")]
    {
        assert!(!caller.get(&path).await.expect(200).text.contains("hunter2"), "{path}");
    }
    // Once decided, nobody sees it any more.
    decide(&caller, &full, json!({"decision": "deny", "digest": full["digest"]})).await.expect(200);
    assert!(!approver.get(&path).await.expect(200).text.contains("hunter2"));
}

async fn decide(caller: &Caller, approval: &Value, body: Value) -> super::world::Answer {
    caller.post(&format!("/v1/approvals/{}/decision", id(approval)), &body).await
}

#[tokio::test]
async fn an_approver_sees_exactly_what_would_run() {
    let (_, caller) = World::start().await;
    let (session, approval) = waiting(&caller).await;
    assert_eq!((&approval["session_id"], &approval["status"]), (&session["id"], &json!("pending")));
    assert_eq!(
        (&approval["tool"], &approval["risk"], &approval["venue"]),
        (&json!("echo"), &json!("high"), &json!("server"))
    );
    assert_eq!(approval["args"], json!({"text": "one\u{202e}two"}));
    assert_eq!(approval["args_escaped"], r#"{"text":"one\u202etwo"}"#);
    assert_eq!((&approval["redacted"], &approval["reason"]), (&json!(false), &json!("needs_human_approval")));
    assert_eq!(approval["allowed_decisions"], json!(["approve", "deny", "edit"]));
    assert!(approval["expires_at"].as_str().unwrap() > approval["requested_at"].as_str().unwrap());
    assert_eq!(approval["digest"], session["waiting"]["approvals"][0]["digest"]);
    let listed = caller.get("/v1/approvals?status=pending").await.expect(200).json();
    assert_eq!(listed["items"][0]["id"], approval["id"]);
    assert!(listed["items"][0].get("args").is_none());
    assert_eq!(caller.get("/v1/approvals?status=denied").await.json()["items"], json!([]));
    caller.get("/v1/approvals?status=maybe").await.problem(400, "invalid_parameter");
}

#[tokio::test]
async fn an_approval_is_used_once_and_the_second_answer_is_the_recorded_one() {
    let (world, caller) = World::start().await;
    let (session, approval) = waiting(&caller).await;
    let approver = world.scoped("acme", &[Scope::ApprovalsWrite], None, None).await;
    let answer = decide(&approver, &approval, json!({"decision": "approve", "digest": approval["digest"]}))
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&answer["decision"], &answer["status"], &answer["settled_by"]),
        (&json!("approve"), &json!("approved"), &json!("alice"))
    );
    for decision in ["approve", "deny"] {
        let second = decide(&approver, &approval, json!({"decision": decision, "digest": approval["digest"]}))
            .await
            .expect(200)
            .json();
        assert_eq!(second, answer);
    }
    let path = format!("/v1/sessions/{}", id(&session));
    let ended = super::world::WAIT;
    let done = tokio::time::timeout(ended, async {
        loop {
            let page = caller.get(&format!("{path}/events?limit=1000")).await.json();
            let items = page["items"].as_array().unwrap().clone();
            if items.iter().any(|event| event["type"] == "run_ended") {
                break items;
            }
            caller.get(&format!("{path}/events?after_seq={}&wait=5", page["last_seq"])).await.expect(200);
        }
    });
    let events = done.await.expect("the run ends");
    assert_eq!(events.iter().filter(|e| e["type"] == "approval_decided").count(), 1);
    let shown = caller.get(&format!("/v1/approvals/{}", id(&approval))).await.expect(200).json();
    assert_eq!(
        (&shown["decision"], &shown["allowed_decisions"]),
        (&json!("approve"), &json!([])),
        "what was sent stays sent"
    );
}

#[tokio::test]
async fn other_bytes_than_those_shown_are_not_approved() {
    let (_, caller) = World::start().await;
    let (_, approval) = waiting(&caller).await;
    let other = format!("sha256:{}", "0".repeat(64));
    decide(&caller, &approval, json!({"decision": "approve", "digest": other}))
        .await
        .problem(409, "approval_digest_mismatch");
    let still = caller.get(&format!("/v1/approvals/{}", id(&approval))).await.json();
    assert_eq!(still["status"], "pending");
}

#[tokio::test]
async fn a_denial_reaches_the_log_with_its_words() {
    let (_, caller) = World::start().await;
    let (session, approval) = waiting(&caller).await;
    let body = json!({"decision": "deny", "digest": approval["digest"], "message": "not today"});
    assert_eq!(decide(&caller, &approval, body).await.expect(200).json()["status"], "denied");
    let shown = caller.get(&format!("/v1/approvals/{}", id(&approval))).await.json();
    assert_eq!(shown["message"], "not today");
    let calls = caller.get(&format!("/v1/sessions/{}/calls", id(&session))).await.json();
    assert_eq!((&calls["items"][0]["state"], &calls["items"][0]["status"]), (&json!("ended"), &json!("denied")));
}

#[tokio::test]
async fn an_edit_makes_a_linked_call() {
    let (_, caller) = World::start().await;
    let (session, approval) = waiting(&caller).await;
    let body = json!({"decision": "edit", "digest": approval["digest"], "arguments": {"text": "plain"}});
    assert_eq!(decide(&caller, &approval, body).await.expect(200).json()["status"], "edited");
    let calls = caller.get(&format!("/v1/sessions/{}/calls", id(&session))).await.json();
    let (first, second) = (&calls["items"][0], &calls["items"][1]);
    assert_eq!((&first["replaced_by"], &second["edited_from"]), (&second["call_id"], &first["call_id"]));
    assert_eq!(second["args"], json!({"text": "plain"}));
}

#[tokio::test]
async fn fields_that_do_not_go_together_are_refused() {
    let (_, caller) = World::start().await;
    let (_, approval) = waiting(&caller).await;
    let digest = &approval["digest"];
    for (body, pointer) in [
        (json!({"decision": "approve", "digest": digest, "message": "fine"}), "/message"),
        (json!({"decision": "approve", "digest": digest, "arguments": {}}), "/arguments"),
        (json!({"decision": "edit", "digest": digest}), "/arguments"),
        (json!({"decision": "edit", "digest": digest, "arguments": [1]}), "/arguments"),
        (json!({"decision": "deny", "digest": digest, "message": "x".repeat(2_001)}), "/message"),
        (json!({"decision": "maybe", "digest": digest}), "/decision"),
        (json!({"decision": "approve", "digest": "sha256:0"}), "/digest"),
    ] {
        let problem = decide(&caller, &approval, body).await.problem(422, "invalid_request");
        assert_eq!(problem["errors"][0]["pointer"], pointer, "{problem:#}");
    }
    // Who approves comes from the key alone.
    let forged = json!({"decision": "approve", "digest": digest, "approved_by": "boss"});
    decide(&caller, &approval, forged).await.problem(422, "invalid_request");
    assert_eq!(caller.get(&format!("/v1/approvals/{}", id(&approval))).await.json()["status"], "pending");
}

#[tokio::test]
async fn time_and_cancellation_close_an_approval() {
    let (world, caller) = World::start().await;
    let (session, approval) = waiting(&caller).await;
    caller.post(&format!("/v1/sessions/{}/cancel", id(&session)), &json!({})).await.expect(200);
    let body = |approval: &Value| json!({"decision": "approve", "digest": approval["digest"]});
    decide(&caller, &approval, body(&approval)).await.problem(409, "approval_closed");
    let (_, late) = waiting(&caller).await;
    // The run's own deadline comes first here; either way nobody can approve any more.
    world.clock.advance(Duration::from_secs(2 * 60 * 60));
    let answer = decide(&caller, &late, body(&late)).await;
    assert!(matches!(answer.status.as_u16(), 409 | 410), "{}", answer.text);
    let calls = caller.get(&format!("/v1/approvals/{}", id(&late))).await.json();
    assert_ne!(calls["status"], "approved");
}
