//! `toolgate policy`: tries one call, runs a bundle's examples and case files, sums up what rules in shadow would have done.
//! What is not here: the decisions (core's `bundle::trial`), the form of cases (`case`).

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use toolgate_core::bundle::trial::{Trial, TrialCall, try_call};
use toolgate_core::id::{Capability, Label, ProfileName};
use toolgate_server::wire::time_text;

use crate::bundle_file::{self, BundleFileError};
use crate::failure::CommandError;
use crate::output;

mod case;
mod examples;
mod junit;
mod shadow;

use case::EarlierForm;

/// The exit code where there is nothing to judge.
const UNREADABLE: u8 = 2;

/// Test a bundle's policies without a server.
#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Run the examples of a bundle and case files: 0 all pass, 1 some fail, 2 something cannot be read.
    Test(PolicyTest),
    /// Decide one call and explain the decision.
    Try(PolicyTry),
    /// Sum up what rules in shadow would have done to the calls of exported sessions.
    Shadow(shadow::PolicyShadow),
}

/// Run the examples of a bundle and case files.
#[derive(Debug, Args)]
pub(crate) struct PolicyTest {
    /// The bundle, JSON or YAML.
    bundle: PathBuf,
    /// Case files, JSON or YAML.
    cases: Vec<PathBuf>,
    /// Write the results as JUnit XML too.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// Decide one call and explain the decision.
#[derive(Debug, Args)]
pub(crate) struct PolicyTry {
    /// The bundle, JSON or YAML.
    bundle: PathBuf,
    /// The profile.
    #[arg(long, required_unless_present = "label")]
    profile: Option<ProfileName>,
    /// A label that leads to a profile.
    #[arg(long, conflicts_with = "profile")]
    label: Option<Label>,
    /// The tool, as a model would write it.
    #[arg(long)]
    tool: String,
    /// Its arguments, the text as a model would write it.
    #[arg(long, default_value = "{}")]
    args: String,
    /// Earlier calls: a list in JSON or YAML, as `earlier` of a case.
    #[arg(long, value_name = "FILE")]
    earlier: Option<PathBuf>,
    /// What the user wrote; repeat for more.
    #[arg(long)]
    user: Vec<String>,
    /// What the client can do; repeat for more. None means everything that a tool asks for.
    #[arg(long = "capability")]
    capabilities: Vec<Capability>,
}

/// How one example or case came out.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Where it stands: a file, and its name or place in it.
    pub(crate) suite: String,
    /// Its name.
    pub(crate) name: String,
    /// What is wrong; none where it passes.
    pub(crate) failure: Option<String>,
}

impl Policy {
    pub(crate) fn run(self) -> Result<ExitCode, CommandError> {
        let done = match self {
            Self::Test(test) => test.run(),
            Self::Try(one) => one.run(),
            Self::Shadow(report) => report.run().map_err(Stop::Failed),
        };
        match done {
            Err(Stop::Unreadable(why)) => {
                output::error(&why);
                Ok(ExitCode::from(UNREADABLE))
            }
            Err(Stop::Failed(error)) => Err(error),
            Ok(code) => Ok(code),
        }
    }
}

/// Why a command gives no answer.
#[derive(Debug)]
enum Stop {
    Unreadable(String),
    Failed(CommandError),
}

impl From<BundleFileError> for Stop {
    fn from(error: BundleFileError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

impl PolicyTest {
    fn run(self) -> Result<ExitCode, Stop> {
        let (bundle, mut outcomes) = examples::judged(&self.bundle)?;
        for file in &self.cases {
            let suite = file.display().to_string();
            let cases: case::CaseFile = case::read(file)?;
            for case in cases.cases {
                let failure = case.judge(&bundle).err();
                outcomes.push(Outcome { suite: suite.clone(), name: case.name, failure });
            }
        }
        for outcome in &outcomes {
            match &outcome.failure {
                None => output::line(&format!("ok    {} {}", outcome.suite, outcome.name)),
                Some(why) => output::line(&format!("FAIL  {} {}: {why}", outcome.suite, outcome.name)),
            }
        }
        let failed = outcomes.iter().filter(|outcome| outcome.failure.is_some()).count();
        output::line(&format!("{} passed, {failed} failed", outcomes.len() - failed));
        if let Some(file) = &self.junit {
            std::fs::write(file, junit::document(&outcomes)).map_err(|error| {
                Stop::Failed(CommandError::new(format!("`{}` cannot be written: {error}", file.display())))
            })?;
        }
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }
}

impl PolicyTry {
    fn run(self) -> Result<ExitCode, Stop> {
        let bundle = bundle_file::read(&self.bundle)?;
        let earlier: Vec<EarlierForm> = self.earlier.as_deref().map(case::read).transpose()?.unwrap_or_default();
        let capabilities = (!self.capabilities.is_empty()).then(|| self.capabilities.into_iter().collect());
        let trial = Trial {
            profile: self.profile,
            label: self.label,
            user: self.user,
            capabilities,
            earlier: earlier.iter().map(EarlierForm::earlier).collect(),
            call: TrialCall { tool: self.tool, args: self.args },
        };
        let explanation = try_call(&bundle, &trial).map_err(|fault| Stop::Failed(CommandError::of(&fault)))?;
        output::text(&explanation.text(time_text));
        Ok(ExitCode::SUCCESS)
    }
}
