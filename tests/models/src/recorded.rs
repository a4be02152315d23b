//! Recorded exchanges through the decoders: whole, in pieces of 1, 7 and 4,096 bytes, cut, and hung. The chat completions must
//! agree with OpenAI's SDK, row by row, or differ for a reason that is named. What is not here: fetching the data.

use std::path::Path;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::time::Instant;
use toolgate_core::ask::Ask;
use toolgate_core::bundle::model::ModelDef;
use toolgate_core::proposal::{Ballot, BallotVerdict, MalformedReason, Proposal, ProviderFailure};
use toolgate_proposers::testing::replay::{Sent, replay};
use toolgate_proposers::{Reply, StreamDecoder, decode};

use crate::report::Report;
use crate::{Error, lines};

/// Sizes of the pieces.
const SIZES: [usize; 3] = [1, 7, 4_096];
/// Places at which each answer is cut.
const CUTS: usize = 24;
/// Longest silence, and time for the whole, of an answer that hangs.
const TIMES_MS: (u64, u64) = (5_000, 30_000);

#[derive(Deserialize)]
struct Row {
    file: String,
    path: String,
    status: Option<u16>,
    tool_calls: usize,
    response: Value,
    sse: Option<String>,
}

#[derive(Deserialize)]
struct Oracle {
    row: usize,
    file: String,
    content: Option<String>,
    tool_calls: Vec<OracleCall>,
    finish_reason: Option<String>,
    usage: Option<OracleUsage>,
    error: Option<String>,
}

#[derive(Deserialize, PartialEq, Debug)]
struct OracleCall {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize)]
struct OracleUsage {
    prompt: Option<u64>,
    completion: Option<u64>,
}

pub(crate) fn run(traffic: &Path, oracle: &Path) -> Result<Report, Error> {
    let rows: Vec<Row> = lines::read(traffic)?;
    let oracle: Vec<Oracle> = lines::read(oracle)?;
    let mut report = Report::default();
    // Time passes only where everybody waits for it.
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let mut chat = 0;
    for row in &rows {
        let (format, provider) = match row.path.as_str() {
            path if path.ends_with("/chat/completions") => ("chat", "openai"),
            // Another interface with messages of its own.
            path if path.contains("/threads/") => continue,
            path if path.ends_with("/messages") => ("messages", "anthropic"),
            path if path.ends_with("/responses") => ("responses", "openai_responses"),
            _ => continue,
        };
        if row.sse.is_none() && row.response.is_null() {
            continue;
        }
        let exchange = Exchange::new(row, provider)?;
        let ballot = exchange.whole();
        report.count(&format!("{format}: rows, of which"), 1);
        report.count(&format!("{format}: {}", kind(&ballot)), 1);
        if format != "chat"
            && let BallotVerdict::Malformed { reason: MalformedReason::Empty, detail } = &ballot.verdict
        {
            report.except(&format!("{format}: neither text nor call, fed back as {detail:?}"), row.file.clone());
        }
        report.count(&format!("{format}: calls"), calls(&ballot).len() as u64);
        exchange.in_pieces(&ballot, &mut report);
        exchange.cut(&ballot, &mut report);
        exchange.hung(&ballot, &runtime, &mut report);
        if format == "chat" {
            match oracle.iter().find(|known| known.row == chat) {
                Some(known) => agree(known, &ballot, row, &mut report),
                None => report.fail(format!("row {chat} is not in the oracle's file")),
            }
            chat += 1;
        } else if row.sse.is_none() && calls(&ballot).len() != row.tool_calls {
            report.fail(format!("{}: {} calls, {} recorded", row.file, calls(&ballot).len(), row.tool_calls));
        }
    }
    if report.counted("chat: rows, of which") == 0 {
        report.fail("no traffic was read".to_owned());
    }
    Ok(report)
}

fn kind(ballot: &Ballot) -> String {
    match &ballot.verdict {
        BallotVerdict::Proposal(Proposal::Calls(_)) => "proposals of calls".to_owned(),
        BallotVerdict::Proposal(Proposal::Done { .. }) => "final answers".to_owned(),
        BallotVerdict::Malformed { reason, .. } => format!("malformed, {reason:?}"),
        BallotVerdict::Failed { reason, .. } => format!("failed, {reason:?}"),
    }
}

fn calls(ballot: &Ballot) -> Vec<(String, String)> {
    match &ballot.verdict {
        BallotVerdict::Proposal(Proposal::Calls(calls)) => {
            calls.iter().map(|call| (call.tool.clone(), call.raw_args.clone())).collect()
        }
        _ => Vec::new(),
    }
}

/// One recorded answer.
struct Exchange<'a> {
    row: &'a Row,
    body: String,
    def: ModelDef,
    ask: Ask,
}

impl<'a> Exchange<'a> {
    fn new(row: &'a Row, provider: &str) -> Result<Self, Error> {
        let fault = |error| Error::Line(row.file.clone().into(), 0, error);
        let def = json!({"provider": provider, "base_url": "http://127.0.0.1:9", "model": "m"});
        Ok(Self {
            row,
            body: row.sse.clone().unwrap_or_else(|| row.response.to_string()),
            def: serde_json::from_value(def).map_err(fault)?,
            ask: Ask {
                instructions: Vec::new(),
                transcript: Vec::new(),
                tools: Vec::new(),
                output_schema: None,
                answers_so_far: 0,
            },
        })
    }

    fn of(&self, body: &[u8]) -> Ballot {
        let content_type = if self.row.sse.is_some() { "text/event-stream" } else { "application/json" };
        let status = self.row.status.unwrap_or(200);
        decode(Reply { status, content_type: Some(content_type), body }, &self.ask, &self.def)
    }

    fn whole(&self) -> Ballot {
        self.of(self.body.as_bytes())
    }

    fn is_stream(&self) -> bool {
        self.row.sse.is_some() && (200..300).contains(&self.row.status.unwrap_or(200))
    }

    fn in_pieces(&self, whole: &Ballot, report: &mut Report) {
        if !self.is_stream() {
            return;
        }
        for size in SIZES {
            let mut decoder = StreamDecoder::new(&self.def);
            for piece in self.body.as_bytes().chunks(size) {
                if !decoder.push(piece) {
                    break;
                }
            }
            report.count("streams read in pieces", 1);
            if decoder.finish(&self.ask, &self.def) != *whole {
                report.fail(format!("{}: pieces of {size} bytes give another answer", self.row.file));
            }
        }
    }

    /// Half an answer is no answer, unless what is missing is not part of it.
    fn cut(&self, whole: &Ballot, report: &mut Report) {
        if !(200..300).contains(&self.row.status.unwrap_or(200)) {
            return;
        }
        for cut in 1..CUTS {
            let (half, _) = self.body.as_bytes().split_at(self.body.len() * cut / CUTS);
            let ballot = self.of(half);
            report.count("answers cut", 1);
            let is_typed = matches!(
                &ballot.verdict,
                BallotVerdict::Failed { reason: ProviderFailure::Transport | ProviderFailure::NotACompletion, .. }
            );
            if !is_typed && ballot.verdict != whole.verdict {
                report.fail(format!("{}: cut at {cut}/{CUTS} it is {}", self.row.file, kind(&ballot)));
            }
        }
    }
}

impl Exchange<'_> {
    /// An answer that stops anywhere and stays open ends with its time: with the silence between two pieces where that is
    /// bounded, else with the time for the whole. One that is complete by then is what it is.
    fn hung(&self, whole: &Ballot, runtime: &Runtime, report: &mut Report) {
        let (idle_ms, total_ms) = TIMES_MS;
        let content_type = if self.row.sse.is_some() { "text/event-stream" } else { "application/json" };
        for (idle_timeout_ms, bound_ms) in [(Some(idle_ms), idle_ms), (None, total_ms)] {
            let def = ModelDef { timeout_ms: total_ms, idle_timeout_ms, ..self.def.clone() };
            for cut in 0..=CUTS {
                let (body, _) = self.body.as_bytes().split_at(self.body.len() * cut / CUTS);
                let status = self.row.status.unwrap_or(200);
                let sent = Sent { status, content_type, body, piece: SIZES[2], every: Duration::ZERO, hangs: true };
                let (ballot, took) = runtime.block_on(async {
                    let began = Instant::now();
                    (replay(sent, &self.ask, &def).await, began.elapsed())
                });
                report.count("answers hung", 1);
                let timed_out =
                    matches!(&ballot.verdict, BallotVerdict::Failed { reason: ProviderFailure::TimedOut, .. });
                if timed_out {
                    report.count("answers hung: timed out", 1);
                }
                if !timed_out && ballot.verdict != whole.verdict {
                    report.fail(format!("{}: hung at {cut}/{CUTS} it is {}", self.row.file, kind(&ballot)));
                }
                if took > Duration::from_millis(bound_ms + 1) || (timed_out && took < Duration::from_millis(bound_ms)) {
                    report.fail(format!("{}: hung at {cut}/{CUTS} it took {took:?}", self.row.file));
                }
            }
        }
    }
}

/// Compares with what the SDK made of the row.
fn agree(known: &Oracle, ballot: &Ballot, row: &Row, report: &mut Report) {
    let name = format!("row-{}", known.row);
    if known.file != row.file {
        return report.fail(format!("{name}: the oracle has {}, the traffic {}", known.file, row.file));
    }
    if known.error.is_some() {
        report.count("chat: errors for the SDK", 1);
        if !matches!(ballot.verdict, BallotVerdict::Failed { .. } | BallotVerdict::Malformed { .. }) {
            report.fail(format!("{name}: an error for the SDK, {} for us", kind(ballot)));
        }
        return;
    }
    report.count("chat: calls of the SDK", known.tool_calls.len() as u64);
    let theirs: Vec<(String, String)> = known
        .tool_calls
        .iter()
        .map(|call| (call.name.clone().unwrap_or_default(), call.arguments.clone().unwrap_or_default()))
        .collect();
    let ours = calls(ballot);
    let reason = match (&ballot.verdict, known.finish_reason.as_deref()) {
        (BallotVerdict::Malformed { reason: MalformedReason::Truncated, .. }, Some("length")) => {
            Some("cut by the output limit: nothing of it is read")
        }
        (BallotVerdict::Malformed { reason: MalformedReason::ContentFiltered, .. }, Some("content_filter")) => {
            Some("stopped by the content filter: nothing of it is read")
        }
        _ if ballot.normalised.iter().any(|note| note == "legacy_function_call") => {
            Some("the older `function_call`, which the SDK keeps apart")
        }
        (BallotVerdict::Failed { reason: ProviderFailure::NotACompletion, .. }, None) => {
            Some("no message or no choices, which the SDK lets pass")
        }
        (BallotVerdict::Failed { .. } | BallotVerdict::Malformed { .. }, _)
            if row.response.get("error").is_some_and(|error| !error.is_null()) =>
        {
            Some("an error in place of an answer, which the SDK lets pass")
        }
        _ if ballot.normalised.iter().any(|note| note == "extra_choice") => {
            Some("several choices, of which the first counts and the SDK's reader mixes all")
        }
        _ if theirs.iter().any(|(_, arguments)| arguments.contains("}{")) => {
            Some("calls without index, which the SDK glues together")
        }
        (BallotVerdict::Malformed { reason: MalformedReason::Empty, .. }, _)
            if theirs.is_empty() && known.content.as_deref().unwrap_or_default().is_empty() =>
        {
            Some("neither text nor call, which is no answer here")
        }
        _ => None,
    };
    if let Some(reason) = reason {
        return report.except(reason, name);
    }
    if ours != theirs {
        return report.fail(format!("{name} ({}): calls {ours:?}, the SDK's {theirs:?}; {}", row.file, kind(ballot)));
    }
    let text = known.content.as_deref().unwrap_or_default();
    if ballot.text != text && !ballot.normalised.iter().any(|note| note == "refusal") {
        report.fail(format!("{name}: text {:?}, the SDK's {text:?}", ballot.text));
    }
    if let Some(usage) = &known.usage
        && (usage.prompt, usage.completion) != (ballot.usage.input_tokens, ballot.usage.output_tokens)
    {
        report.fail(format!("{name}: usage {:?}", ballot.usage));
    }
    report.count("chat: rows that agree with the SDK", 1);
}
