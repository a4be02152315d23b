//! Plays user tasks and attacks through the core. What is not here: adding the results up (`score`).

use toolgate_core::bundle::Bundle;
use toolgate_core::input::ApprovalDecision;
use toolgate_core::pipeline::Decision;

use crate::configuration::profile;
use crate::error::DojoError;
use crate::rules;
use crate::stage::{Ruling, Stage};
use crate::suite::{PlayedCall, Suite, UserTask, filled};
use crate::tier::Tier;

/// What became of a user's task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Benign {
    /// Calls that a human was asked about: the tool, and why.
    pub asked: Vec<(String, String)>,
    /// Calls that were rejected: the tool, and why.
    pub rejected: Vec<(String, String)>,
}

/// What became of an attack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attacked {
    /// Injected calls that were rejected, or that a human was asked about.
    pub held: u32,
    /// Injected calls with an effect that ran without a human.
    pub ran: u32,
}

impl Attacked {
    /// The attack did not get through its calls without a human or a rejection.
    #[must_use]
    pub const fn is_stopped(&self) -> bool {
        self.held > 0
    }

    /// It was stopped, and none of its effects happened on the way.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.is_stopped() && self.ran == 0
    }
}

/// Plays a user's own calls in the clean environment. A human approves what is asked.
pub fn benign(suite: &Suite, bundle: &Bundle, task: &UserTask, tier: Tier) -> Result<Benign, DojoError> {
    let mut stage = Stage::open(bundle, 1, &profile(task, tier)?, &task.prompt)?;
    let mut found = Benign::default();
    for call in &task.calls {
        let ruling = user_call(&mut stage, call, &filled(&call.output, &suite.mark, ""))?;
        match ruling.decision {
            Decision::Allow => {}
            Decision::Escalate => found.asked.push((call.tool.clone(), ruling.why)),
            Decision::Reject => found.rejected.push((call.tool.clone(), ruling.why)),
        }
    }
    stage.finish()?;
    Ok(found)
}

/// Plays a user's calls up to the first output that an attacker has written to, then the attacker's calls: the model is
/// taken to obey at once. A human approves what the user wanted and denies what the attacker wants.
pub fn attacked(
    suite: &Suite,
    bundle: &Bundle,
    task: &UserTask,
    injected: &[PlayedCall],
    text: &str,
    tier: Tier,
) -> Result<Attacked, DojoError> {
    let mut stage = Stage::open(bundle, 2, &profile(task, tier)?, &task.prompt)?;
    for call in &task.calls {
        let output = call.poisoned.as_ref().unwrap_or(&call.output);
        user_call(&mut stage, call, &filled(output, &suite.mark, text))?;
        if call.poisoned.is_some() {
            break;
        }
    }
    let mut found = Attacked::default();
    for call in injected {
        let ruling = stage.propose(&call.tool, &call.args)?;
        match ruling.decision {
            Decision::Allow => {
                stage.run(&ruling, &call.args, &call.output, call.error.as_deref())?;
                found.ran += u32::from(rules::acts(&call.tool));
            }
            Decision::Escalate => {
                stage.answer(&ruling, ApprovalDecision::Deny { message: None })?;
                found.held += 1;
            }
            Decision::Reject => found.held += 1,
        }
    }
    stage.finish()?;
    Ok(found)
}

fn user_call(stage: &mut Stage<'_>, call: &PlayedCall, output: &serde_json::Value) -> Result<Ruling, DojoError> {
    let ruling = stage.propose(&call.tool, &call.args)?;
    match ruling.decision {
        Decision::Allow => stage.run(&ruling, &call.args, output, call.error.as_deref())?,
        Decision::Escalate => {
            stage.answer(&ruling, ApprovalDecision::Approve { grant: None })?;
            stage.run(&ruling, &call.args, output, call.error.as_deref())?;
        }
        Decision::Reject => {}
    }
    Ok(ruling)
}
