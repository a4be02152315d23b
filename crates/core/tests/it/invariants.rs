//! What must hold of every state, between two inputs. What must hold of every log is `toolgate_core::invariants`, which
//! `World::check` asks.

use std::collections::BTreeSet;

use toolgate_core::ask::Entry;
use toolgate_core::id::CallId;
use toolgate_core::profile::AtLimit;
use toolgate_core::{Effect, outstanding, transcript};

use crate::generate::SECRET;
use crate::world::World;

/// Checks the state between two inputs.
pub(crate) fn check_state(world: &World) {
    let under_way = outstanding(&world.session, &world.bundle);
    let set: BTreeSet<_> = under_way.iter().collect();
    assert_eq!(set.len(), under_way.len(), "no effect stands twice");
    if let Some(run) = world.session.active_run() {
        assert!(run.steps <= run.limits.max_steps && run.model_calls <= run.limits.max_model_calls);
        let asks_beyond = world.bundle.profiles().any(|(_, profile)| {
            profile.harness.as_ref().is_some_and(|harness| harness.at_limit == AtLimit::PauseAndAsk)
        });
        assert!(asks_beyond || run.tool_calls <= run.limits.max_tool_calls);
        let running = under_way.iter().filter(|e| matches!(e, Effect::RunTool(_) | Effect::OfferCall { .. })).count();
        let asks = world.session.calls().is_empty();
        assert!(asks || running <= run.limits.max_parallel_calls as usize, "too many calls at once");
    }
}

/// Checks what models are shown.
pub(crate) fn check_ask(world: &World) {
    let asked = transcript::ask(&world.session, &world.bundle, 2);
    if world.session.calls().is_empty() {
        check_conversation(&asked.transcript);
    }
    assert!(!redacts(world) || !serde_json::to_string(&asked).unwrap().contains(SECRET), "a secret is shown to models");
}

/// Every call has exactly one result, right after the answer that asked for it, in its order.
fn check_conversation(entries: &[std::sync::Arc<Entry>]) {
    let mut expected: Vec<&CallId> = Vec::new();
    for entry in entries {
        match &**entry {
            Entry::Result { call, .. } => {
                assert!(!expected.is_empty(), "a result without a call");
                assert_eq!(expected.remove(0), call);
            }
            Entry::User { .. } | Entry::Model { .. } | Entry::Feedback { .. } | Entry::Summary { .. } => {
                assert!(expected.is_empty(), "calls without a result: {expected:?}");
                if let Entry::Model { calls, .. } = &**entry {
                    expected = calls.iter().map(|view| &view.call).collect();
                }
            }
        }
    }
    assert!(expected.is_empty(), "calls without a result: {expected:?}");
}

/// Whether every tool that takes the secret redacts it.
fn redacts(world: &World) -> bool {
    world.bundle.tools().all(|tool| !tool.def.redact.is_empty() || tool.id.as_str() == "hidden")
}

/// No event shows the secret outside its seal, when every tool that takes it redacts it.
pub(crate) fn check_secrets(world: &World) {
    if !redacts(world) {
        return;
    }
    for recorded in &world.log {
        // Calls of unknown names carry what the model made up; no contract says what of it is secret.
        let mut value = serde_json::to_value(&recorded.event).unwrap();
        value.as_object_mut().unwrap().remove("sealed");
        assert!(!value.to_string().contains(SECRET), "a secret outside its seal: {value}");
    }
}
