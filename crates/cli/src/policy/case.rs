//! Case files: calls and the decision each must get, read strictly. What is not here: trying them (core's
//! `bundle::trial`).

use std::collections::BTreeSet;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use toolgate_core::bundle::Bundle;
use toolgate_core::bundle::trial::{Earlier, Trial, TrialCall, try_call};
use toolgate_core::explain::Explanation;
use toolgate_core::id::{Capability, Label, ProfileName};
use toolgate_core::json::{Json, read_strict, read_typed};
use toolgate_core::output::{OutcomeStatus, Output};
use toolgate_core::pipeline::Decision;
use toolgate_core::reason::RejectReason;

use crate::bundle_file::{self, BundleFileError};

/// A file of cases.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseFile {
    /// The cases, in order.
    pub(super) cases: Vec<Case>,
}

/// A call and the decision it must get.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Case {
    /// For people.
    pub(super) name: String,
    #[serde(default)]
    profile: Option<ProfileName>,
    #[serde(default)]
    label: Option<Label>,
    /// What the user wrote.
    #[serde(default)]
    user: Vec<String>,
    #[serde(default)]
    capabilities: Option<BTreeSet<Capability>>,
    /// Earlier calls, oldest first.
    #[serde(default)]
    earlier: Vec<EarlierForm>,
    call: CallForm,
    /// `allow`, `escalate`, or `reject` with `:` and a reason code if wanted.
    expect: Expected,
    /// The policy rule that must make the decision.
    #[serde(default)]
    rule: Option<String>,
    /// The code that rule must give.
    #[serde(default)]
    code: Option<String>,
}

/// A call: arguments as JSON, or `raw`, the text as a model would write it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallForm {
    tool: String,
    #[serde(default)]
    args: Option<Value>,
    #[serde(default)]
    raw: Option<String>,
}

/// An earlier call and what became of it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EarlierForm {
    tool: String,
    #[serde(default)]
    args: Option<Value>,
    /// `rejected`, or an outcome; a human approves what needs one.
    #[serde(default)]
    outcome: OutcomeForm,
    /// A text, or any other JSON value as JSON.
    #[serde(default)]
    result: Option<Value>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum OutcomeForm {
    #[default]
    Ok,
    Failed,
    TimedOut,
    DeniedByClient,
    Indeterminate,
    Rejected,
}

/// The decision a case must get.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct Expected {
    decision: Decision,
    reason: Option<RejectReason>,
}

impl TryFrom<String> for Expected {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let (word, code) = text.split_once(':').map_or((text.as_str(), None), |(word, code)| (word, Some(code)));
        let decision = [Decision::Allow, Decision::Escalate, Decision::Reject].into_iter().find(|d| d.code() == word);
        let reason = |code: &str| RejectReason::ALL.iter().copied().find(|reason| reason.code() == code);
        match (decision, code) {
            (Some(decision), None) => Ok(Self { decision, reason: None }),
            (Some(Decision::Reject), Some(code)) => match reason(code) {
                Some(reason) => Ok(Self { decision: Decision::Reject, reason: Some(reason) }),
                None => Err(format!("`{code}` is no reason code")),
            },
            (Some(Decision::Allow | Decision::Escalate), Some(_)) | (None, _) => Err(format!(
                "`{text}` is no decision; write `allow`, `escalate`, `reject` or `reject:` and a reason code"
            )),
        }
    }
}

/// Reads a file strictly: JSON with its own reader, everything else as YAML.
pub(super) fn read<T: DeserializeOwned>(file: &Path) -> Result<T, BundleFileError> {
    let name = file.display().to_string();
    let text = bundle_file::text_of(file)?;
    let value = if text.trim_start().starts_with(['{', '[']) {
        read_strict(&text).map_err(|fault| BundleFileError::Unreadable(format!("`{name}` is no JSON: {fault}")))?
    } else {
        bundle_file::from_yaml(&name, &text)?
    };
    read_typed(&value)
        .map_err(|misfit| BundleFileError::Unreadable(format!("`{name}` at `{}`: {}", misfit.pointer, misfit.detail)))
}

fn text_of(args: Option<&Value>) -> String {
    args.map_or_else(|| "{}".to_owned(), |args| Json::from_value(args).as_str().to_owned())
}

impl EarlierForm {
    /// The earlier call of a trial.
    pub(super) fn earlier(&self) -> Earlier {
        Earlier {
            call: TrialCall { tool: self.tool.clone(), args: text_of(self.args.as_ref()) },
            outcome: match self.outcome {
                OutcomeForm::Ok => Some(OutcomeStatus::Ok),
                OutcomeForm::Failed => Some(OutcomeStatus::Failed),
                OutcomeForm::TimedOut => Some(OutcomeStatus::TimedOut),
                OutcomeForm::DeniedByClient => Some(OutcomeStatus::DeniedByClient),
                OutcomeForm::Indeterminate => Some(OutcomeStatus::Indeterminate),
                OutcomeForm::Rejected => None,
            },
            result: self.result.as_ref().map(|result| match result {
                Value::String(text) => Output::text("text/plain", text.clone()),
                other => Output::text("application/json", Json::from_value(other).as_str().to_owned()),
            }),
        }
    }
}

impl Case {
    /// Tries the call; what is wrong, in one line.
    pub(super) fn judge(&self, bundle: &Bundle) -> Result<(), String> {
        let args = match (&self.call.args, &self.call.raw) {
            (Some(_), Some(_)) => return Err("`call` has `args` and `raw`; give one".to_owned()),
            (args, None) => text_of(args.as_ref()),
            (None, Some(raw)) => raw.clone(),
        };
        let trial = Trial {
            profile: self.profile.clone(),
            label: self.label.clone(),
            user: self.user.clone(),
            capabilities: self.capabilities.clone(),
            earlier: self.earlier.iter().map(EarlierForm::earlier).collect(),
            call: TrialCall { tool: self.call.tool.clone(), args },
        };
        let found = try_call(bundle, &trial).map_err(|fault| fault.to_string())?;
        self.compare(&found)
    }

    fn compare(&self, found: &Explanation) -> Result<(), String> {
        let decided = &found.decided;
        let rule = found.policy.as_ref().and_then(|policy| policy.rule.as_deref());
        let code = found.policy.as_ref().and_then(|policy| policy.code.as_deref());
        let fits = decided.decision == self.expect.decision
            && self.expect.reason.is_none_or(|reason| decided.reason == Some(reason))
            && self.rule.as_deref().is_none_or(|wanted| rule == Some(wanted))
            && self.code.as_deref().is_none_or(|wanted| code == Some(wanted));
        if fits {
            return Ok(());
        }
        let reason = decided.reason.map(|reason| format!(":{}", reason.code())).unwrap_or_default();
        let by = rule.map(|rule| format!(" by rule `{rule}` ({})", code.unwrap_or_default())).unwrap_or_default();
        let change = decided.change.as_deref().map(|change| format!("; {change}")).unwrap_or_default();
        Err(format!("must get {}, gets {}{reason}{by}{change}", self.wanted(), decided.decision.code()))
    }

    fn wanted(&self) -> String {
        let reason = self.expect.reason.map(|reason| format!(":{}", reason.code())).unwrap_or_default();
        let rule = self.rule.as_deref().map(|rule| format!(" by rule `{rule}`")).unwrap_or_default();
        let code = self.code.as_deref().map(|code| format!(" with code `{code}`")).unwrap_or_default();
        format!("{}{reason}{rule}{code}", self.expect.decision.code())
    }
}
