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
        let (value, name) = (bundle.source().value(), self.file.display());
        let error = match client.put_bundle(&value, self.replaces.as_deref()).await {
            Ok(info) => {
                output::line(&format!("{name} is current: {}", info.digest));
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => error,
        };
        if !matches!(error.code(), Some("precondition_required" | "precondition_failed")) {
            return Err(error.into());
        }
        // Whether this very bundle is the one that is there: a write that replaces it by itself changes nothing.
        let digest = bundle.digest().to_string();
        if client.put_bundle(&value, Some(&digest)).await.is_ok() {
            output::line(&format!("{name} is already current: {digest}"));
            return Ok(ExitCode::SUCCESS);
        }
        Err(CommandError::new(format!(
            "{error}; name the version that `{name}` replaces with `--replaces sha256:…`, or `--replaces '*'` for whatever is there"
        )))
    }
}
