//! Lists of sessions: filters, pages, order. What is not here: lists of approvals (`approvals`), of keys and security
//! events (`isolation`).

use std::collections::BTreeSet;

use serde_json::{Value, json};
use toolgate_tests::world::{usual, with};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer};

fn ids(page: &Value) -> Vec<String> {
    let items = page["items"].as_array().unwrap();
    items.iter().map(|item| item["id"].as_str().unwrap().to_owned()).collect()
}

/// Every id of a list, page by page.
async fn pages(caller: &Caller, query: &str, limit: usize) -> Vec<String> {
    let mut found = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = caller.get(&format!("/v1/sessions?limit={limit}{query}{cursor}")).await.expect(200).json();
        assert!(page["items"].as_array().unwrap().len() <= limit);
        found.extend(ids(&page));
        let Some(next) = page["next_cursor"].as_str() else { return found };
        assert_eq!(page["items"].as_array().unwrap().len(), limit, "only the last page is shorter");
        cursor = format!("&cursor={next}");
    }
}

async fn filters_and_pages(backend: Backend) {
    let (model, tool) = (FakeModel::start_with(vec![FakeModel::text("done")], true).await, FakeTool::ok().await);
    let server = TestServer::start(backend).await;
    let caller = server.caller();
    caller.put_bundle(&with(usual(&model, &tool), "/profiles/other", json!(["look"]))).await;
    let mut created = Vec::new();
    for n in 0..7 {
        let id = caller.open(if n % 3 == 0 { "other" } else { "default" }, "go").await;
        caller.until_ended(&id, 1).await;
        created.push(id);
    }
    caller.post(&format!("/v1/sessions/{}/close", created[1]), &json!({})).await.expect(200);
    let newest_first: Vec<String> = created.iter().rev().cloned().collect();
    for limit in [1, 2, 3, 7, 200] {
        assert_eq!(pages(&caller, "", limit).await, newest_first, "pages of {limit}");
    }
    let of = |places: &[usize]| -> Vec<String> { places.iter().map(|place| created[*place].clone()).collect() };
    assert_eq!(pages(&caller, "&profile=other", 2).await, of(&[6, 3, 0]));
    assert_eq!(pages(&caller, "&profile=none", 2).await, Vec::<String>::new());
    assert_eq!(pages(&caller, "&status=closed", 2).await, of(&[1]));
    assert_eq!(pages(&caller, "&status=idle&profile=default", 2).await, of(&[5, 4, 2]));
    assert_eq!(pages(&caller, "&status=running", 2).await, Vec::<String>::new());
    // Times are those of the views; equal milliseconds belong to the later part.
    let at = caller.session(&created[4]).await["created_at"].as_str().unwrap().to_owned();
    let from: BTreeSet<String> = pages(&caller, &format!("&created_from={at}"), 2).await.into_iter().collect();
    let before: BTreeSet<String> = pages(&caller, &format!("&created_before={at}"), 2).await.into_iter().collect();
    assert!(from.contains(&created[4]) && before.contains(&created[0]), "{at}: {from:?} {before:?}");
    assert!(from.is_disjoint(&before));
    assert_eq!(from.len() + before.len(), 7);
    let summary = caller.get("/v1/sessions?status=closed").await.expect(200).json()["items"][0].clone();
    assert_eq!((&summary["ending"], &summary["pending_approvals"]), (&json!("done"), &json!(0)));
    server.stop().await;
}

#[tokio::test]
async fn sessions_are_found_by_filter_and_page_on_sqlite() {
    filters_and_pages(Backend::Sqlite).await;
}

#[tokio::test]
async fn sessions_are_found_by_filter_and_page_on_postgres() {
    filters_and_pages(Backend::Postgres).await;
}

#[tokio::test]
async fn a_cursor_keeps_its_filters_and_its_place() {
    let (model, tool) = (FakeModel::start_with(vec![FakeModel::text("done")], true).await, FakeTool::ok().await);
    let (mut server, caller) = TestServer::with_bundle(&usual(&model, &tool)).await;
    for _ in 0..4 {
        let id = caller.open("default", "go").await;
        caller.until_ended(&id, 1).await;
    }
    let all = ids(&caller.get("/v1/sessions").await.expect(200).json());
    let page = caller.get("/v1/sessions?limit=2&status=idle").await.expect(200).json();
    let cursor = page["next_cursor"].as_str().unwrap().to_owned();
    for other in
        ["", "&status=closed", "&status=idle&profile=default", "&status=idle&created_from=2001-01-01T00:00:00Z"]
    {
        let refused = caller.get(&format!("/v1/sessions?limit=2&cursor={cursor}{other}")).await.expect(400);
        assert_eq!(refused.code(), "cursor_mismatch", "{other}");
    }
    // Of another list, and with a changed letter in each place.
    assert_eq!(caller.get(&format!("/v1/api-keys?cursor={cursor}")).await.expect(400).code(), "cursor_invalid");
    for place in (0..cursor.len()).step_by(7) {
        let letter = if &cursor[place..=place] == "A" { "B" } else { "A" };
        let forged = format!("{}{letter}{}", &cursor[..place], &cursor[place + 1..]);
        let refused = caller.get(&format!("/v1/sessions?limit=2&status=idle&cursor={forged}")).await.expect(400);
        assert!(["cursor_invalid", "cursor_mismatch"].contains(&refused.code().as_str()), "{place}");
    }
    // A newer session does not move the place, and neither does a restart.
    let newer = caller.open("default", "go").await;
    caller.until_ended(&newer, 1).await;
    server.restart().await;
    let caller = server.caller();
    let rest = caller.get(&format!("/v1/sessions?limit=2&status=idle&cursor={cursor}")).await.expect(200).json();
    assert_eq!(ids(&rest), all[2..]);
    server.stop().await;
}
