//! Calls that a client runs, through the Rust client: lost connections, moved servers, lost clients, approvals, refusals.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use toolgate_client::{
    Answer, Call, CallFailure, Client, ClientError, Decision, EndReason, Executor, ExecutorOptions, FinalOutput,
    Handler, Notice, SessionRequest, handler,
};
use toolgate_tests::{Backend, TestServer, WAIT};

use proxy::Proxy;

mod proxy;

fn bundle(class: &str) -> Value {
    json!({
        "version": 1,
        "tools": {
            "terminal": {"description": "Runs.", "venue": "client", "class": class, "capability": "terminal", "max_output_bytes": 100,
                "parameters": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}},
            "quick": {"description": "Runs.", "venue": "client", "timeout_ms": 200, "parameters": {"properties": {}}},
            "careful": {"description": "Runs.", "venue": "client", "requires_approval": true,
                "parameters": {"properties": {"n": {"type": "integer"}}, "required": ["n"]}}
        },
        "models": {
            "work": script("terminal", json!({"n": 9_007_199_254_740_993_u64})),
            "quick": script("quick", json!({})),
            "careful": script("careful", json!({"n": 1}))
        },
        "default_harness": {"max_steps": 5, "max_tool_calls": 5, "deadline_ms": 60000},
        "profiles": {
            "work": {"tools": ["terminal"], "model": "work"},
            "quick": {"tools": ["quick"], "model": "quick", "on_indeterminate": "feedback"},
            "careful": {"tools": ["careful"], "model": "careful", "approval": {"self_approval": true}}
        }
    })
}

fn script(tool: &str, args: Value) -> Value {
    json!({"provider": "scripted", "script": [{"calls": [{"tool": tool, "args": args}]}, {"done": "over"}]})
}

/// A handler that counts its runs and answers once the gate is open.
fn gated(runs: &Arc<AtomicUsize>, gate: &watch::Sender<bool>) -> Arc<dyn Handler> {
    let (runs, gate) = (Arc::clone(runs), gate.clone());
    handler(move |call: Call| {
        runs.fetch_add(1, Ordering::SeqCst);
        let mut open = gate.subscribe();
        async move {
            open.wait_for(|open| *open).await.map_err(|_| CallFailure::Failed("the test is over".to_owned()))?;
            Ok(Answer::Json(json!({"ran": call.args["n"]})))
        }
    })
}

/// A client with everything that a test looks at.
struct Ide {
    executor: Executor,
    notices: mpsc::Receiver<Notice>,
}

impl Ide {
    fn start(client: &Client, tool: &str, handler: Arc<dyn Handler>, sessions: &[&str]) -> Self {
        let (sender, notices) = mpsc::channel(1_024);
        let options = ExecutorOptions::new(client.clone()).capability("terminal").tool(tool, handler).notices(sender);
        let options = sessions.iter().fold(options, |options, session| options.session(session, 0));
        Self { executor: Executor::start(options).unwrap(), notices }
    }

    async fn notice(&mut self) -> Notice {
        timeout(WAIT, self.notices.recv()).await.expect("a notice comes in time").expect("the executor runs")
    }

    async fn until<T>(&mut self, pick: impl Fn(Notice) -> Option<T>) -> T {
        loop {
            if let Some(found) = pick(self.notice().await) {
                return found;
            }
        }
    }

    async fn event(&mut self, kind: &str) {
        self.until(|notice| matches!(notice, Notice::Event(event) if event.event.kind == kind).then_some(())).await;
    }

    async fn reconnected(&mut self) {
        self.until(|notice| matches!(notice, Notice::Disconnected).then_some(())).await;
        self.until(|notice| matches!(notice, Notice::Connected { .. }).then_some(())).await;
    }

    async fn done(&mut self) -> FinalOutput {
        self.until(|notice| match notice {
            Notice::Final(output) => Some(*output),
            Notice::Connected { .. } | Notice::Disconnected | Notice::Event(_) | Notice::Refused(_) => None,
        })
        .await
    }
}

async fn ended_calls(client: &Client, session: &str) -> Vec<Value> {
    let page = client.events(session, 0, 1_000, 0).await.unwrap();
    page.items.into_iter().filter(|event| event.kind == "call_ended").map(|event| json!(event.fields)).collect()
}

async fn a_call_runs_once_over_cuts_and_restarts(backend: Backend) {
    let mut server = TestServer::start(backend).await;
    let proxy = Proxy::to(server.node().addr).await;
    let client = Client::new(&proxy.url, server.key()).unwrap();
    client.put_bundle(&bundle("once"), None).await.unwrap();
    let (runs, gate) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(false));
    let mut ide = Ide::start(&client, "terminal", gated(&runs, &gate), &[]);
    let session = ide.executor.request(SessionRequest::new("work", "go")).await.unwrap();
    ide.event("call_acknowledged").await;

    // The connection breaks while the call runs.
    proxy.cut(Some(server.node().addr));
    ide.reconnected().await;
    // The server goes away and comes back somewhere else.
    server.restart().await;
    proxy.cut(Some(server.node().addr));
    ide.reconnected().await;
    // The call ends while there is no way to the server.
    proxy.cut(None);
    ide.until(|notice| matches!(notice, Notice::Disconnected).then_some(())).await;
    gate.send_replace(true);
    proxy.cut(Some(server.node().addr));

    let done = ide.done().await;
    assert_eq!((done.ending.as_str(), done.output), ("done", Some(json!("over"))));
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    let ended = ended_calls(&client, &session).await;
    assert_eq!(ended.len(), 1);
    assert_eq!(ended[0]["status"], "ok", "{ended:#?}");
    assert!(ended[0].to_string().contains("9007199254740993"), "{ended:#?}");
    assert!(client.verify(&session).await.unwrap().verified);
    assert_eq!(ide.executor.stop().await, EndReason::Stopped);
    server.stop().await;
}

#[tokio::test]
async fn a_call_runs_once_over_cuts_and_restarts_on_sqlite() {
    a_call_runs_once_over_cuts_and_restarts(Backend::Sqlite).await;
}

#[tokio::test]
async fn a_call_runs_once_over_cuts_and_restarts_on_postgres() {
    a_call_runs_once_over_cuts_and_restarts(Backend::Postgres).await;
}

#[tokio::test]
async fn what_a_lost_client_had_is_never_run_by_another_unless_it_may_run_again() {
    // By default a profile stops when nobody can know whether a call has happened.
    for (class, runs_elsewhere, status, ending) in
        [("once", 0, "indeterminate", "indeterminate_outcome"), ("idempotent", 1, "ok", "done")]
    {
        let server = TestServer::start(Backend::Sqlite).await;
        let client = Client::new(&server.url(), server.key()).unwrap();
        client.put_bundle(&bundle(class), None).await.unwrap();
        let (first_runs, never) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(false));
        let mut first = Ide::start(&client, "terminal", gated(&first_runs, &never), &[]);
        let session = first.executor.request(SessionRequest::new("work", "go")).await.unwrap();
        first.event("call_acknowledged").await;
        first.executor.stop().await;

        let (runs, open) = (Arc::new(AtomicUsize::new(0)), watch::Sender::new(true));
        let mut second = Ide::start(&client, "terminal", gated(&runs, &open), &[&session]);
        assert_eq!(second.done().await.ending, ending);
        assert_eq!((first_runs.load(Ordering::SeqCst), runs.load(Ordering::SeqCst)), (1, runs_elsewhere), "{class}");
        let ended = ended_calls(&client, &session).await;
        let got: Vec<&str> = ended.iter().map(|e| e["status"].as_str().unwrap()).collect();
        assert_eq!(got, [status], "{class}");
        second.executor.stop().await;
        server.stop().await;
    }
}

#[tokio::test]
async fn what_a_client_does_not_do_is_told_apart() {
    let server = TestServer::start(Backend::Sqlite).await;
    let client = Client::new(&server.url(), server.key()).unwrap();
    client.put_bundle(&bundle("once"), None).await.unwrap();
    let forever = || handler(|_| std::future::pending());
    let failing = || handler(async |_| Err(CallFailure::Failed("no such file".to_owned())));
    let large = || handler(async |_| Ok(Answer::Text { media_type: "text/plain".to_owned(), text: "x".repeat(200) }));
    for (profile, tool, handler, status) in [
        ("work", "other", failing(), "denied_by_client"),
        ("work", "terminal", failing(), "failed"),
        ("work", "terminal", large(), "failed"),
        ("quick", "quick", forever(), "timed_out"),
    ] {
        let mut ide = Ide::start(&client, tool, handler, &[]);
        let session = ide.executor.request(SessionRequest::new(profile, "go")).await.unwrap();
        assert_eq!(ide.done().await.ending, "done", "{status}");
        let ended = ended_calls(&client, &session).await;
        assert_eq!(ended[0]["status"], status, "{ended:#?}");
        ide.executor.stop().await;
    }
    // A handler that breaks down may have done its work before.
    let panicking = handler(async |_| panic!("the handler of the test panics"));
    let mut ide = Ide::start(&client, "terminal", panicking, &[]);
    let session = ide.executor.request(SessionRequest::new("work", "go")).await.unwrap();
    assert_eq!(ide.done().await.ending, "indeterminate_outcome");
    assert_eq!(ended_calls(&client, &session).await[0]["status"], "indeterminate");
    ide.executor.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn an_edited_approval_runs_the_edited_call() {
    let server = TestServer::start(Backend::Sqlite).await;
    let client = Client::new(&server.url(), server.key()).unwrap();
    client.put_bundle(&bundle("once"), None).await.unwrap();
    let mut ide = Ide::start(&client, "careful", handler(async |call: Call| Ok(Answer::Json(call.args))), &[]);
    let session = ide.executor.request(SessionRequest::new("careful", "go")).await.unwrap();
    ide.event("call_decided").await;
    assert_eq!(client.session(&session).await.unwrap().status, "waiting_approval");
    let waiting = client.approvals(Some("pending"), None).await.unwrap();
    let approval = client.approval(&waiting.items[0].id).await.unwrap();
    assert_eq!((approval.session_id.as_str(), approval.args), (session.as_str(), Some(json!({"n": 1}))));
    let digest = approval.digest.unwrap();
    let edit = Decision::Edit { digest: digest.clone(), arguments: json!({"n": 2}) };
    assert_eq!(client.decide(&approval.id, &edit).await.unwrap().decision.as_deref(), Some("edit"));
    assert_eq!(ide.done().await.ending, "done");
    // Whoever comes second gets the first answer.
    let late = client.decide(&approval.id, &Decision::Deny { digest, message: None }).await.unwrap();
    assert_eq!(late.decision.as_deref(), Some("edit"));
    let ended = ended_calls(&client, &session).await;
    assert_eq!(ended.len(), 2);
    assert!(ended[1].to_string().contains(r#"{\"n\":2}"#), "{ended:#?}");
    ide.executor.stop().await;
    server.stop().await;
}

#[tokio::test]
async fn refusals_are_typed() {
    let server = TestServer::start(Backend::Sqlite).await;
    let client = Client::new(&server.url(), server.key()).unwrap();
    let code = |error: ClientError| error.code().unwrap_or("none").to_owned();
    assert_eq!(code(client.create_session(&SessionRequest::new("work", "go")).await.unwrap_err()), "no_bundle");
    client.put_bundle(&bundle("once"), None).await.unwrap();
    assert_eq!(code(client.put_bundle(&json!({"version": 2}), Some("*")).await.unwrap_err()), "bundle_invalid");
    assert_eq!(code(client.session(&format!("ses_{}", "0".repeat(32))).await.unwrap_err()), "not_found");
    let aliased = SessionRequest {
        id: Some("job".to_owned()),
        capabilities: std::iter::once("terminal".to_owned()).collect(),
        ..SessionRequest::new("work", "go")
    };
    let first = client.create_session(&aliased).await.unwrap();
    assert_eq!(client.create_session(&aliased).await.unwrap().id, first.id);
    let other = SessionRequest { prompt: "something else".to_owned(), ..aliased.clone() };
    assert_eq!(code(client.create_session(&other).await.unwrap_err()), "alias_conflict");
    let cancelled = client.cancel(&first.id, Some("enough")).await.unwrap();
    assert_eq!(cancelled.run.unwrap().ending.as_deref(), Some("cancelled"));
    assert_eq!(client.close(&first.id, None).await.unwrap().status, "closed");
    assert_eq!(code(client.add_message(&first.id, "more").await.unwrap_err()), "session_closed");

    let stranger = Client::new(&server.url(), "tg_live_nonsense").unwrap();
    assert_eq!(code(stranger.session(&first.id).await.unwrap_err()), "unauthenticated");
    let mut refused = Executor::start(ExecutorOptions::new(stranger)).unwrap();
    let ended = timeout(WAIT, refused.ended()).await.unwrap();
    assert!(matches!(ended, EndReason::Refused(_)), "{ended:?}");
    // The same over the channel.
    let mut ide = Ide::start(&client, "terminal", handler(async |_| Ok(Answer::Json(Value::Null))), &[]);
    assert_eq!(code(ide.executor.request(other).await.unwrap_err()), "alias_conflict");
    assert_eq!(ide.executor.request(aliased).await.unwrap(), first.id);
    let options = ExecutorOptions::new(client.clone()).client_id(ide.executor.client_id());
    let newer = Executor::start(options).unwrap();
    assert_eq!(timeout(WAIT, ide.executor.ended()).await.unwrap(), EndReason::Replaced);
    newer.stop().await;
    server.stop().await;
}
