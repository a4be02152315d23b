//! `toolgate explain`: why a call was decided as it was, from an export or from a server; the same text either way. What is
//! not here: the explanation (core's `explain`), the form of exports (`toolgate-server`).

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use toolgate_client::Client;
use toolgate_core::explain::explain;
use toolgate_core::id::{CallId, SessionId};
use toolgate_server::wire::time_text;

use crate::export_file;
use crate::failure::CommandError;
use crate::output;

/// Say why a call was decided as it was, and what became of it.
#[derive(Debug, Args)]
pub(crate) struct Explain {
    /// The call, `call_…`.
    call: CallId,
    /// An export of its session: `GET /v1/sessions/{id}/events?follow=false` with `Accept: application/x-ndjson`. `-` reads
    /// standard input. No server is asked.
    #[arg(long, value_name = "FILE", conflicts_with = "session")]
    log: Option<PathBuf>,
    /// The session, `ses_…`, at a server.
    #[arg(long, required_unless_present = "log")]
    session: Option<SessionId>,
    /// The server.
    #[arg(long, env = "TOOLGATE_URL", default_value = "http://127.0.0.1:8420")]
    url: String,
    /// An API key with the scope `sessions:read` or `audit:read`.
    #[arg(long, env = "TOOLGATE_KEY", hide_env_values = true, required_unless_present = "log")]
    key: Option<String>,
}

impl Explain {
    pub(crate) async fn run(self) -> Result<ExitCode, CommandError> {
        let text = match (&self.log, &self.session, &self.key) {
            (Some(file), _, _) => offline(file, &self.call)?,
            (None, Some(session), Some(key)) => {
                Client::new(&self.url, key)?.explain(&session.to_string(), self.call.as_str()).await?
            }
            (None, _, _) => return Err(CommandError::new("give `--log FILE`, or `--session` and `--key`")),
        };
        output::text(&text);
        Ok(ExitCode::SUCCESS)
    }
}

fn offline(file: &Path, call: &CallId) -> Result<String, CommandError> {
    let (log, name) = (export_file::read(file)?, file.display());
    let explanation = explain(&log, call)
        .ok_or_else(|| CommandError::new(format!("unknown_call: `{name}` decides no call `{call}`")))?;
    Ok(explanation.text(time_text))
}
