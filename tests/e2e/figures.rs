//! Figures that a provider claims for an answer, up to the largest that JSON can carry: nothing overflows, hangs or goes
//! unrecorded; and a ledger that cannot take a reservation. What is not here: budgets in their usual sizes (`budgets`).

use serde_json::{Value, json};
use toolgate_core::id::{SessionId, TenantId};
use toolgate_core::time::Timestamp;
use toolgate_store::{Charge, MAX_AMOUNT, Reservation, Reserved};
use toolgate_tests::world::{bundle, two_tools, with};
use toolgate_tests::{Backend, Caller, FakeModel, FakeTool, TestServer, Wild, WildModel};

/// The largest figure of one answer that counts, as the core has it.
const MOST: u64 = 1 << 53;

/// A model whose tokens cost as much as a bundle may say.
fn priced(entry: Value) -> Value {
    let prices = json!({"input_microusd_per_million": 1_000_000_000_000_u64,
        "output_microusd_per_million": 1_000_000_000_000_u64, "call_microusd": 1_000_000_000_000_u64});
    with(with(entry, "/prices", prices), "/max_output_tokens", json!(50))
}

fn claiming(answer: Value, prompt: &Value, completion: &Value) -> Value {
    with(answer, "/usage", json!({"prompt_tokens": prompt, "completion_tokens": completion}))
}

/// Plays a look and an answer, whose usage is claimed so; the session as it ended.
async fn play(caller: &Caller) -> (String, Value) {
    let id = caller.open("default", "go").await;
    let session = caller.until_ended(&id, 1).await;
    caller.verified(&id).await;
    (id, session)
}

async fn claims(backend: Backend) {
    let tool = FakeTool::ok().await;
    let server = TestServer::start(backend).await;
    let figures: Vec<Value> = [(1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX].iter().map(|n| json!(n)).collect();
    for (nth, figure) in figures.iter().enumerate() {
        let caller = server.tenant(&format!("t{nth}")).await;
        let look = claiming(FakeModel::calls(&[("look", "{}")]), figure, figure);
        let model = FakeModel::start(vec![look, claiming(FakeModel::text("done"), figure, figure)]).await;
        let mut setting = bundle(&priced(model.entry()), &two_tools(&tool));
        setting["tenant_budget"] = json!({"max_tokens": u64::MAX, "max_cost_microusd": u64::MAX});
        caller.put_bundle(&setting).await;
        let (id, session) = play(&caller).await;
        assert_eq!(session["run"]["ending"], "done", "{figure}: {session}");
        let ballots = caller.events_of(&id, "ballot_received").await;
        assert_eq!(ballots.len(), 2);
        assert_eq!(ballots[0]["usage"], json!({"input_tokens": figure, "output_tokens": figure}), "as it was claimed");
        caller.until_events(&id, "budget_settled", 1).await;
        let usage = caller.get("/v1/usage").await.expect(200).json();
        let used: Vec<u64> =
            usage["items"].as_array().unwrap().iter().map(|one| one["used"].as_u64().unwrap()).collect();
        assert!(used.contains(&(2 * MOST)) && used.iter().all(|used| *used <= 2 * MOST), "{usage}");
        // A run that is bounded ends by its bound.
        let caller = server.tenant(&format!("bounded{nth}")).await;
        let look = claiming(FakeModel::calls(&[("look", "{}")]), figure, &json!(0));
        let model = FakeModel::start(vec![look]).await;
        let mut setting = bundle(&priced(model.entry()), &two_tools(&tool));
        setting["default_harness"]["max_tokens"] = json!(1_000_000);
        caller.put_bundle(&setting).await;
        let (_, session) = play(&caller).await;
        assert_eq!(session["run"]["ending"], "budget_exhausted", "{figure}: {session}");
        assert!(session["run"]["detail"].as_str().unwrap().contains("max_tokens"), "{session}");
        assert_eq!(model.requests().len(), 1);
    }
    server.stop().await;
}

#[tokio::test]
async fn the_largest_figures_are_counted_and_end_what_is_bounded_on_sqlite() {
    claims(Backend::Sqlite).await;
}

#[tokio::test]
async fn the_largest_figures_are_counted_and_end_what_is_bounded_on_postgres() {
    claims(Backend::Postgres).await;
}

/// What is no number of tokens counts as unknown, which is what was set aside; what no JSON reader may take is no answer.
#[tokio::test]
async fn figures_that_are_no_counts_are_not_taken_for_counts() {
    let tool = FakeTool::ok().await;
    let server = TestServer::start(Backend::Sqlite).await;
    for (nth, (figure, ending)) in [
        ("-1", "done"),
        ("1.5", "done"),
        ("1e3", "done"),
        ("1e30", "done"),
        ("\"7\"", "done"),
        ("null", "done"),
        ("[]", "done"),
        ("18446744073709551616", "malformed"),
        ("1e999", "malformed"),
    ]
    .into_iter()
    .enumerate()
    {
        let caller = server.tenant(&format!("t{nth}")).await;
        let body = format!(
            r#"{{"choices":[{{"index":0,"finish_reason":"stop","message":{{"role":"assistant","content":"done"}}}}],
            "usage":{{"prompt_tokens":{figure},"completion_tokens":{figure}}}}}"#
        );
        let answer = || Wild::response("200 OK", "application/json", body.as_bytes());
        let model = WildModel::start((0..8).map(|_| answer()).collect()).await;
        let mut setting = bundle(&priced(model.entry()), &two_tools(&tool));
        setting["tenant_budget"] = json!({"max_tokens": u64::MAX});
        setting["profiles"]["default"]["on_reject"] = json!({"malformed": "end"});
        caller.put_bundle(&setting).await;
        let (id, session) = play(&caller).await;
        assert_eq!(session["run"]["ending"], ending, "{figure}: {session}");
        let ballot = &caller.events_of(&id, "ballot_received").await[0];
        assert!(ballot["usage"]["input_tokens"].is_null(), "{figure}: {ballot}");
    }
    server.stop().await;
}

/// A settlement that takes a counter beyond what it holds is refused by the store, with the reservation that carries it.
async fn overflowing(backend: Backend) {
    let tool = FakeTool::ok().await;
    let look = claiming(FakeModel::calls(&[("look", "{}")]), &json!(u64::MAX), &json!(0));
    let model = FakeModel::start(vec![look, FakeModel::text("done")]).await;
    let server = TestServer::start(backend).await;
    let caller = server.tenant("acme").await;
    let mut setting = bundle(&priced(model.entry()), &two_tools(&tool));
    setting["tenant_budget"] = json!({"max_tokens": u64::MAX});
    caller.put_bundle(&setting).await;
    // So much was spent before that what the first answer claims does not fit any more, and what is set aside does.
    let spent = MAX_AMOUNT - MOST / 2;
    let earlier = Reservation {
        tenant: TenantId::new("acme").unwrap(),
        session: "ses_018f3c7a000070008000000000000001".parse::<SessionId>().unwrap(),
        key: "earlier".to_owned(),
        charges: vec![Charge {
            counter: "budget.tokens".to_owned(),
            window_start: Timestamp(0),
            amount: spent,
            limit: u64::MAX,
        }],
        settle: Vec::new(),
        at: Timestamp(1),
    };
    assert_eq!(server.node().app().store().reserve(&earlier).await.unwrap(), Reserved::Granted);
    let (id, session) = play(&caller).await;
    assert_eq!(session["run"]["ending"], "budget_exhausted", "{session}");
    let answers = caller.events_of(&id, "reservation_answered").await;
    assert_eq!(answers.last().unwrap()["answer"], "refused", "{answers:?}");
    assert!(answers.last().unwrap().to_string().contains("unavailable: the ledger cannot take it"), "{answers:?}");
    assert_eq!(model.requests().len(), 1, "without leave no model is asked");
    // The refusal is not for ever: what cannot be settled is given up, and others are served.
    caller.until_events(&id, "budget_settled", 1).await;
    let (_, session) = play(&caller).await;
    assert_eq!(session["run"]["ending"], "done", "{session}");
    let usage = caller.get("/v1/usage").await.expect(200).json();
    assert!(usage["items"][0]["used"].as_u64().unwrap() > spent, "{usage}");
    server.stop().await;
}

#[tokio::test]
async fn a_reservation_that_the_ledger_cannot_take_ends_the_run_on_sqlite() {
    overflowing(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_reservation_that_the_ledger_cannot_take_ends_the_run_on_postgres() {
    overflowing(Backend::Postgres).await;
}
