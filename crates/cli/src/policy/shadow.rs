//! `toolgate policy shadow`: what the rules in shadow would have done to the calls of recorded sessions, so that somebody
//! can decide to enforce them. What is not here: the sums (core's `shadow`).

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use toolgate_core::shadow::{Found, ShadowReport};

use crate::export_file;
use crate::failure::CommandError;
use crate::output;

/// Sum up what rules in shadow would have done.
#[derive(Debug, Args)]
pub(crate) struct PolicyShadow {
    /// Exports of sessions: `GET /v1/sessions/{id}/events?follow=false` with `Accept: application/x-ndjson`. `-` reads
    /// standard input. No server is asked.
    #[arg(required = true)]
    logs: Vec<PathBuf>,
    /// Name every call and run that would have got a stricter decision.
    #[arg(long)]
    list: bool,
}

impl PolicyShadow {
    pub(super) fn run(&self) -> Result<ExitCode, CommandError> {
        let mut report = ShadowReport::default();
        for file in &self.logs {
            let name: Arc<str> = file.display().to_string().into();
            for recorded in export_file::read(file)? {
                report.take(&name, &recorded);
            }
        }
        for line in lines(&report, self.list) {
            output::line(&line);
        }
        let (calls, runs, logs) = (report.calls, report.runs, self.logs.len());
        output::line(&format!("{logs} logs, {calls} calls decided, {runs} runs ended"));
        Ok(ExitCode::SUCCESS)
    }
}

fn lines(report: &ShadowReport, list: bool) -> Vec<String> {
    if report.rules.is_empty() {
        return vec!["no rule in shadow looked at any of them".to_owned()];
    }
    let width = report.rules.keys().map(|rule| rule.chars().count()).max().unwrap_or(0).max("rule".len());
    let row = |rule: &str, cells: [String; 5]| {
        let [looked_at, flagged, asks, denies, stricter] = cells;
        format!("{rule:<width$} {looked_at:>10} {flagged:>8} {asks:>10} {denies:>11} {stricter:>9}")
    };
    let heads = ["looked at", "flagged", "would ask", "would deny", "stricter"];
    let mut lines = vec![row("rule", heads.map(ToOwned::to_owned))];
    for (rule, found) in &report.rules {
        let stricter = u64::try_from(found.stricter.len()).unwrap_or(u64::MAX);
        let counts = [found.looked_at, found.flagged, found.would_ask, found.would_deny, stricter];
        lines.push(row(rule, counts.map(|count| count.to_string())));
        if list {
            lines.extend(found.stricter.iter().map(place));
        }
    }
    lines
}

fn place(found: &Found) -> String {
    let what = found.call.as_ref().map_or_else(|| "the end of the run".to_owned(), ToString::to_string);
    format!("  {} seq {}: {what} was {}, would be {}", found.log, found.seq, found.was.code(), found.would.code())
}
