//! `toolgate apply`: checks a bundle here, then puts it over REST. What is not here: the rules (core's `bundle`).

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use toolgate_client::Client;

use crate::bundle_file;
use crate::failure::CommandError;
use crate::output;

/// Check a bundle and put it as the tenant's current one.
#[derive(Debug, Args)]
pub(crate) struct Apply {
    /// The bundle, JSON or YAML.
    file: PathBuf,
    /// The server.
    #[arg(long, env = "TOOLGATE_URL", default_value = "http://127.0.0.1:8420")]
    url: String,
    /// An API key with the scope `registry:write`.
    #[arg(long, env = "TOOLGATE_KEY", hide_env_values = true, required_unless_present = "check")]
    key: Option<String>,
    /// Only check the file; ask no server.
    #[arg(long)]
    check: bool,
    /// Replace only this version (`sha256:…`); refused when another one is current by now.
    #[arg(long, value_name = "DIGEST")]
    replaces: Option<String>,
}

impl Apply {
    pub(crate) async fn run(self) -> Result<ExitCode, CommandError> {
        let bundle = bundle_file::read(&self.file)?;
        let Some(key) = self.key.filter(|_| !self.check) else {
            output::line(&format!("{} is sound: {}", self.file.display(), bundle.digest()));
            return Ok(ExitCode::SUCCESS);
        };
        let client = Client::new(&self.url, &key)?;
        let info = client.put_bundle(&bundle.source().value(), self.replaces.as_deref()).await?;
        output::line(&format!("{} is current: {}", self.file.display(), info.digest));
        Ok(ExitCode::SUCCESS)
    }
}
