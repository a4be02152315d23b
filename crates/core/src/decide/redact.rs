//! Cuts what a tool's contract calls secret out of everything that is kept (ruling 1).

use std::collections::BTreeMap;

use serde_json::Value;

use crate::bundle::Bundle;
use crate::id::{CallId, ToolId};
use crate::json::Json;
use crate::profile::Profile;
use crate::proposal::{Ballot, BallotVerdict, MalformedReason, Proposal, ProposedArgs, ProposedCall};

/// What stands in the place of a cut value.
const CUT: &str = "[redacted]";
/// What stands in the place of text that may carry a cut value.
const CUT_TEXT: &str = "[cut: it carries redacted arguments]";

/// The pointers that a tool's contract names; empty for unknown tools.
pub(super) fn pointers<'a>(bundle: &'a Bundle, tool: &str) -> &'a [String] {
    ToolId::new(tool).ok().and_then(|id| bundle.tool(&id)).map_or(&[], |tool| tool.def.redact.as_slice())
}

/// The arguments without the values at the pointers; none when there was nothing to cut.
pub(super) fn cut(args: &Json, pointers: &[String]) -> Option<Json> {
    let mut value = args.value();
    let mut changed = false;
    for pointer in pointers {
        if let Some(place) = secret_at(&mut value, pointer) {
            *place = Value::String(CUT.to_owned());
            changed = true;
        }
    }
    changed.then(|| Json::from_value(&value))
}

/// Arguments that somebody wrote in the place of a model's, as their record keeps them.
pub(super) struct Written {
    /// Without the values that the tool's contract calls secret.
    pub(super) shown: Json,
    /// Whether something was cut.
    pub(super) redacted: bool,
    /// In full under the new call's id, where something was cut.
    pub(super) sealed: BTreeMap<CallId, Json>,
}

/// Splits what was written for a call into what is shown and what is sealed.
pub(super) fn written(bundle: &Bundle, tool: &str, call: &CallId, args: &Json) -> Written {
    match cut(args, pointers(bundle, tool)) {
        None => Written { shown: args.clone(), redacted: false, sealed: BTreeMap::new() },
        Some(shown) => Written { shown, redacted: true, sealed: BTreeMap::from([(call.clone(), args.clone())]) },
    }
}

/// The value at a pointer, or what stands in its way: a model that writes text where an object belongs may have put the
/// secret into that text.
fn secret_at<'a>(value: &'a mut Value, pointer: &str) -> Option<&'a mut Value> {
    let mut place = value;
    for token in pointer.split('/').skip(1) {
        let token = token.replace("~1", "/").replace("~0", "~");
        let leads_on = match &*place {
            Value::Object(_) => true,
            Value::Array(_) => token.parse::<usize>().is_ok(),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        };
        if !leads_on {
            return Some(place);
        }
        place = match place {
            Value::Object(map) => map.get_mut(&token)?,
            Value::Array(items) => items.get_mut(token.parse::<usize>().ok()?)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
    }
    Some(place)
}

/// A ballot as it may be kept, and the calls of which something was cut, by place, with their full arguments. A ballot
/// that is cut already stays as it is, so that `verify` gets the same record again.
pub(super) fn ballot(bundle: &Bundle, profile: Option<&Profile>, full: &Ballot) -> (Ballot, BTreeMap<u32, Json>) {
    let mut kept = full.clone();
    let mut cut_from = BTreeMap::new();
    let carries_secrets = match &mut kept.verdict {
        BallotVerdict::Proposal(Proposal::Calls(calls)) => {
            let mut any = false;
            for (index, call) in (0_u32..).zip(calls) {
                any |= call_of_ballot(bundle, call, index, &mut cut_from);
            }
            any
        }
        BallotVerdict::Malformed { reason, detail } => {
            let any =
                profile.is_some_and(|profile| profile.tools.iter().any(|id| !pointers(bundle, id.as_str()).is_empty()));
            if any {
                *detail = unreadable(*reason);
            }
            any
        }
        BallotVerdict::Proposal(Proposal::Done { .. }) | BallotVerdict::Failed { .. } => false,
    };
    if carries_secrets {
        if !kept.text.is_empty() {
            CUT_TEXT.clone_into(&mut kept.text);
        }
        kept.opaque = None;
    }
    (kept, cut_from)
}

fn call_of_ballot(bundle: &Bundle, call: &mut ProposedCall, index: u32, cut_from: &mut BTreeMap<u32, Json>) -> bool {
    let pointers = pointers(bundle, &call.tool);
    if pointers.is_empty() {
        return false;
    }
    match &mut call.args {
        ProposedArgs::Malformed { reason, detail } => {
            *detail = unreadable(*reason);
            CUT_TEXT.clone_into(&mut call.raw_args);
        }
        ProposedArgs::Readable(full) => {
            let Some(shown) = cut(full, pointers) else { return false };
            shown.as_str().clone_into(&mut call.raw_args);
            cut_from.insert(index, std::mem::replace(full, shown));
        }
    }
    true
}

/// What is told of unreadable text that may carry a secret: the reason, without a quotation.
fn unreadable(reason: MalformedReason) -> String {
    let code = serde_json::to_value(reason).ok();
    let code = code.as_ref().and_then(Value::as_str).unwrap_or("malformed");
    format!("cannot be read ({code}); not quoted, since it may carry redacted arguments")
}
