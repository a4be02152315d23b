//! Answers to a run that stands at a bound: a human raises the bound, or the run ends.

use serde_json::{Value, json};

use super::{missing, record};
use crate::decide::Draft;
use crate::event::{ApprovalVerb, Bound, Event, Raise};
use crate::input::{ApprovalAnswer, ApprovalDecision};
use crate::json::Json;
use crate::reason::{Ending, Refusal, RefusalCode};
use crate::session::Pause;

pub(super) fn answer(draft: &mut Draft<'_>, answer: &ApprovalAnswer, pause: &Pause) -> Result<(), Refusal> {
    match &answer.decision {
        ApprovalDecision::Approve { grant: Some(_) } => {
            let detail = "only calls can be granted for the session; a bound is raised to a value";
            return Err(Refusal::new(RefusalCode::GrantInvalid, detail));
        }
        ApprovalDecision::Approve { grant: None } => {
            let mut event = record(answer, &pause.call, ApprovalVerb::Approve);
            event.missing = missing(&pause.approval);
            if event.missing == 0 {
                event.raises =
                    raise(pause, &pause.args.value()).map_or_else(Vec::new, |raise| with_what_follows(draft, raise));
            }
            draft.push(Event::ApprovalDecided(Box::new(event)));
        }
        ApprovalDecision::Edit { args } => {
            let Some(raise) = raise(pause, &args.value()) else {
                let wanted = json!({"bound": pause.bound.code(), "from": pause.limit, "to": format!("more than `from`, at most {}", pause.bound.most())});
                return Err(Refusal::new(RefusalCode::EditInvalid, format!("the arguments must be {wanted}")));
            };
            if missing(&pause.approval) > 0 {
                let detail = "others must approve as well, so that all must see the same value; approve it or deny it";
                return Err(Refusal::new(RefusalCode::EditInvalid, detail));
            }
            let mut event = record(answer, &pause.call, ApprovalVerb::Edit);
            event.content.args = Some(Json::clone(args));
            event.raises = with_what_follows(draft, raise);
            draft.push(Event::ApprovalDecided(Box::new(event)));
        }
        ApprovalDecision::Deny { message } => {
            let mut event = record(answer, &pause.call, ApprovalVerb::Deny);
            event.content.message.clone_from(message);
            draft.push(Event::ApprovalDecided(Box::new(event)));
            let why = message.as_ref().map_or_else(String::new, |message| format!(": {message}"));
            let detail = format!("an approver did not raise `{}` = {}{why}", pause.bound.code(), pause.limit);
            draft.end_run(Ending::ApprovalDenied, None, Some(detail));
            return Ok(());
        }
        ApprovalDecision::Revoke => return Ok(()),
    }
    draft.advance();
    draft.go_on_after_pause();
    Ok(())
}

/// Where the bundle derives the bound of model calls from that of steps, more steps bring more model calls.
fn with_what_follows(draft: &Draft<'_>, raise: Raise) -> Vec<Raise> {
    let harness = draft.profile().and_then(|profile| profile.harness.as_ref());
    let derived = harness.is_some_and(|harness| harness.max_model_calls.is_none());
    let Some(limits) = draft.session.active_run().map(|run| &run.limits) else { return vec![raise] };
    if raise.bound != Bound::MaxSteps || !derived {
        return vec![raise];
    }
    let more = raise.to.saturating_sub(u64::from(limits.max_steps)).saturating_mul(u64::from(limits.ballots));
    let to = u64::from(limits.max_model_calls).saturating_add(more).min(Bound::MaxModelCalls.most());
    vec![raise, Raise { bound: Bound::MaxModelCalls, to }]
}

/// What the arguments raise: the same bound from the same value to a larger one.
fn raise(pause: &Pause, args: &Value) -> Option<Raise> {
    let args = args.as_object().filter(|args| args.len() == 3)?;
    let to = args.get("to")?.as_u64()?;
    let same = args.get("bound")?.as_str()? == pause.bound.code() && args.get("from")?.as_u64()? == pause.limit;
    (same && to > pause.limit && to <= pause.bound.most()).then_some(Raise { bound: pause.bound, to })
}
