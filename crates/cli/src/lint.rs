//! `toolgate lint`: what a sound bundle still leaves open, and the faults of one that is not sound, in one form. What is not
//! here: the rules (core's `bundle::lint`).

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use toolgate_core::bundle::lint::{LintFinding, Severity};

use crate::bundle_file::{self, BundleFileError};
use crate::failure::CommandError;
use crate::output;

/// The exit code where there is nothing to judge.
const UNREADABLE: u8 = 2;

/// Say what a bundle leaves open: 0 nothing, 1 findings, 2 it cannot be read.
#[derive(Debug, Args)]
pub(crate) struct Lint {
    /// The bundle, JSON or YAML.
    file: PathBuf,
    /// One JSON document instead of lines.
    #[arg(long)]
    json: bool,
    /// Warnings alone give exit code 1 too.
    #[arg(long)]
    deny_warnings: bool,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    file: &'a str,
    errors: usize,
    warnings: usize,
    findings: &'a [LintFinding],
}

impl Lint {
    pub(crate) fn run(&self) -> Result<ExitCode, CommandError> {
        let findings = match bundle_file::read(&self.file) {
            Ok(bundle) => bundle.lint(),
            Err(BundleFileError::Refused { faults, .. }) => faults.into_iter().map(LintFinding::from).collect(),
            Err(BundleFileError::Unreadable(why)) => {
                output::error(&why);
                return Ok(ExitCode::from(UNREADABLE));
            }
        };
        let file = self.file.display().to_string();
        let errors = findings.iter().filter(|finding| finding.severity == Severity::Error).count();
        let report = Report { file: &file, errors, warnings: findings.len() - errors, findings: &findings };
        if self.json {
            let text = serde_json::to_string_pretty(&report);
            output::line(&text.map_err(|error| CommandError::of(&error))?);
        } else {
            for finding in &findings {
                output::line(&line(&file, finding));
            }
            output::line(&format!("{file}: {errors} errors, {} warnings", report.warnings));
        }
        let bad = errors > 0 || (self.deny_warnings && report.warnings > 0);
        Ok(if bad { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }
}

/// `FILE:POINTER: SEVERITY RULE: SENTENCE`; the whole document has the pointer `/`.
fn line(file: &str, finding: &LintFinding) -> String {
    let path = if finding.path.is_empty() { "/" } else { &finding.path };
    let (severity, rule, detail) = (finding.severity.code(), finding.rule, one_line(&finding.detail));
    format!("{file}:{path}: {severity} {rule}: {detail}")
}

/// Some faults quote several lines of a policy file.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
