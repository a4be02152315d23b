//! Sessions of a thousand steps, several at once: CPU of a step early and late in the log. All of them stand still at the
//! borders of the two windows, so that a window holds the same steps of each. What is not here: full tables (`bulk`).
//!
//! A run has at most 200 steps, so that a session is several runs. The model has a window that the conversation has outgrown
//! before the first measurement, so that its questions are of one size.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::bound::{Bound, Figures};
use crate::server::{Server, Setup};
use crate::stub::{Gate, Plan, Question, Stub};
use crate::{bundle, open};

/// Sessions at once.
const SESSIONS: usize = 8;
/// Steps of a run.
const RUN: usize = 175;
/// Steps of a session.
const STEPS: usize = 1_050;
/// Tokens of a question: what some 60 steps take.
const WINDOW: u32 = 4_000;
/// The windows: from which step to which.
const WINDOWS: [[usize; 2]; 2] = [[75, 125], [950, 1_050]];

/// What a step cost in a window.
#[derive(Debug, Clone, Copy)]
struct Cost {
    server_ms: f64,
    database_ms: f64,
    question_kib: f64,
}

/// The cost early and late.
#[derive(Debug)]
pub(super) struct EarlyAndLate([Cost; 2]);

pub(super) async fn run(program: &Path, cluster: &str) -> EarlyAndLate {
    let gates: Vec<_> = WINDOWS.as_flattened().iter().map(|step| (*step, Gate::new(SESSIONS))).collect();
    let plans = gates.clone();
    let model = Stub::start(move |question: Question| Plan {
        gate: plans
            .iter()
            .find(|(step, _)| question.after_tool && question.steps == *step)
            .map(|(_, gate)| std::sync::Arc::clone(gate)),
        done: question.after_tool && question.steps.is_multiple_of(RUN),
        ..Plan::default()
    })
    .await;
    let server =
        Server::start(Setup::postgres(program, cluster, bundle::long_runs_in(&model.base_url, 64, WINDOW))).await;
    let client = reqwest::Client::new();
    let workers: Vec<_> =
        (0..SESSIONS).map(|_| tokio::spawn(all_runs(client.clone(), server.url.clone(), server.key.clone()))).collect();
    let mut seen = Vec::new();
    for (step, gate) in &gates {
        let look = || (server.spent_alone(), server.spent_by_database(), model.asked(), model.bytes());
        seen.push(gate.look(look).await);
        println!("{SESSIONS} sessions are at step {step}");
    }
    for worker in workers {
        worker.await.expect("a session ends");
    }
    server.stop().await;
    let cost = |from: usize| {
        let ((alone, database, asked, bytes), then) = (seen[from], seen[from + 1]);
        let steps = (then.2 - asked) as f64;
        let ms = |spent: Duration| spent.as_secs_f64() * 1_000.0 / steps;
        Cost {
            server_ms: ms(then.0 - alone),
            database_ms: ms(then.1 - database),
            question_kib: (then.3 - bytes) as f64 / 1_024.0 / steps,
        }
    };
    EarlyAndLate([cost(0), cost(2)])
}

/// One session, run after run.
async fn all_runs(client: reqwest::Client, url: String, key: String) {
    let session = open::one(&client, &url, &key).await;
    let at = format!("{url}/v1/sessions/{session}");
    for run in 1..=STEPS / RUN {
        if run > 1 {
            let body = json!({"text": "and on"});
            let request =
                client.post(format!("{at}/messages")).bearer_auth(&key).header("prefer", "wait=60").json(&body);
            let answer = request.send().await.expect("the server answers");
            assert!(answer.status().is_success(), "{}", answer.text().await.unwrap_or_default());
        }
        let (mut ending, mut text) = (None, String::new());
        while ending.is_none() {
            let answer = client.get(&at).bearer_auth(&key).send().await.expect("the server answers");
            text = answer.text().await.expect("a body");
            let view: Value = serde_json::from_str(&text).expect("JSON");
            ending = view.pointer("/run/ending").and_then(Value::as_str).map(str::to_owned);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert_eq!(ending.as_deref(), Some("done"), "{text}");
    }
}

impl EarlyAndLate {
    pub(super) fn report(&self, figures: &mut Figures) {
        let Self([early, late]) = self;
        for (cost, [from, to]) in self.0.iter().zip(WINDOWS) {
            println!(
                "steps {from} to {to} of {SESSIONS} sessions: {:.3} ms of CPU a step (server {:.3}, database {:.3}), questions of {:.0} KiB",
                cost.server_ms + cost.database_ms,
                cost.server_ms,
                cost.database_ms,
                cost.question_kib
            );
        }
        figures
            .shown("question to the model, steps 950 to 1,050 over 75 to 125", late.question_kib / early.question_kib);
        figures
            .shown("the server's CPU of a step, steps 950 to 1,050 over 75 to 125", late.server_ms / early.server_ms);
        figures.shown("the database's CPU of a step, the same", late.database_ms / early.database_ms);
        let total = |cost: &Cost| cost.server_ms + cost.database_ms;
        figures.bounded("CPU of a step, the same", total(late) / total(early), Bound::AtMost(1.25));
    }
}
