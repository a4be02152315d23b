//! Questions to admission hooks, made from the state. What is not here: asking (`hooks`), and what an answer leads to (the
//! core).

use std::sync::Arc;

use toolgate_core::Effect;
use toolgate_core::bundle::Bundle;
use toolgate_core::id::TenantId;
use toolgate_core::input::AdmissionVerdict;
use toolgate_core::session::Session;

use crate::hooks::HookQuestion;

/// The question that an effect asks for; none when the bundle has no such hook or tool, which a running session rules out.
pub(super) fn question(
    tenant: &TenantId,
    state: &Session,
    bundle: &Arc<Bundle>,
    effect: &Effect,
) -> Option<HookQuestion> {
    let Effect::AskAdmission { call, hook, attempt, tool, args } = effect else { return None };
    Some(HookQuestion {
        hook: bundle.hook(hook)?.clone(),
        tenant: tenant.clone(),
        actor: state.opened.as_ref()?.by.clone(),
        session: state.id,
        run: state.run.as_ref().map_or(1, |run| run.no),
        profile: state.profile.clone()?,
        bundle: bundle.digest(),
        call: call.clone(),
        attempt: *attempt,
        version: bundle.tool(tool)?.version,
        tool: tool.clone(),
        contract: bundle.tool(tool)?.def.clone(),
        escalated: state.call(call)?.escalated,
        args: args.clone(),
    })
}

/// The question's task broke: no usable answer.
pub(super) fn lost(why: &str) -> AdmissionVerdict {
    AdmissionVerdict::Failed { detail: why.to_owned() }
}
