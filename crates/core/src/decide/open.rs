//! Starts: a session, its profile, its runs.

use std::collections::BTreeMap;

use super::{Draft, Reply};
use crate::bundle::ClassRule;
use crate::event::{
    ClassificationContent, ClassificationReceived, EARLY_VOTES, Event, Limits, MessageReceived, OpenedContent,
    ProfileChosen, RunStarted, SCHEMA_ENGINE, SessionOpened, TextContent,
};
use crate::id::{Label, ProfileName, Tag};
use crate::input::{Classified, Message, Narrowed, Open};
use crate::profile::{AtLimit, Consensus, ControlMode, Harness, Profile};
use crate::reason::{Ending, Refusal, RefusalCode};
use crate::schema::Schema;
use crate::time::Timestamp;

/// Time that one attempt to classify may wait for its turn, in milliseconds.
const CLASSIFY_WAIT_MS: u64 = 120_000;

/// A profile and how it was found.
struct Choice {
    profile: ProfileName,
    label: Option<Label>,
    overrides: BTreeMap<Tag, u32>,
}

pub(super) fn open(draft: &mut Draft<'_>, open: &Open) -> Result<Reply, Refusal> {
    if draft.session.opened.is_some() {
        return Err(Refusal::new(RefusalCode::AlreadyOpen, "the session is open already"));
    }
    if let Some(schema) = &open.output_schema {
        Schema::compile(&schema.value())
            .map_err(|fault| Refusal::new(RefusalCode::OutputSchemaInvalid, fault.to_string()))?;
    }
    let choice = choose(draft, open)?;
    if let Some(choice) = &choice {
        permit(open.ceiling.as_ref(), &choice.profile)?;
    }
    if let Some(choice) = &choice {
        stricter(draft.bundle.profile(&choice.profile), open.control)?;
    }
    narrower(choice.as_ref().and_then(|choice| draft.bundle.profile(&choice.profile)), &open.limits)?;
    draft.push(Event::SessionOpened(Box::new(SessionOpened {
        tenant: open.tenant.clone(),
        by: open.by.clone(),
        alias: open.alias.clone(),
        bundle: open.bundle,
        profile: open.profile.clone(),
        label: open.label.clone(),
        ceiling: open.ceiling.clone(),
        capabilities: open.capabilities.clone(),
        limits: open.limits,
        control: open.control,
        dry_run: open.dry_run,
        classify_by: if choice.is_none() { Some(classify_by(draft)) } else { None },
        rules_version: draft.rules(),
        trace: open.trace.clone(),
        agent: None,
        parent: None,
        forked_from: None,
        content: OpenedContent {
            prompt: open.prompt.clone(),
            output_schema: open.output_schema.clone(),
            metadata: open.metadata.clone(),
        },
    })));
    if let Some(choice) = choice {
        begin(draft, choice);
    }
    Ok(Reply::Accepted)
}

/// When the classifier's adapter must have given up: every attempt may use its whole time, and wait before it.
fn classify_by(draft: &Draft<'_>) -> Timestamp {
    let model = draft.bundle.classification().and_then(|c| c.model.as_ref()).and_then(|name| draft.bundle.model(name));
    let (timeout_ms, retries) = model.map_or((0, 0), |model| (model.timeout_ms, model.retries));
    draft.at.plus_ms(timeout_ms.saturating_add(CLASSIFY_WAIT_MS).saturating_mul(u64::from(retries) + 1))
}

/// The profile that the request names, or none when a classifier is to be asked.
fn choose(draft: &Draft<'_>, open: &Open) -> Result<Option<Choice>, Refusal> {
    let classification = draft.bundle.classification();
    let rule = open.label.as_ref().map(|label| {
        let rules =
            classification.ok_or_else(|| Refusal::new(RefusalCode::UnknownLabel, "the bundle has no labels"))?;
        match rules.rules.get(label) {
            Some(rule) => Ok((rule, Some(label.clone()))),
            None => rules.default.as_ref().map(|rule| (rule, None)).ok_or_else(|| {
                Refusal::new(
                    RefusalCode::UnknownLabel,
                    format!("the bundle has no label `{label}` and no default rule"),
                )
            }),
        }
    });
    match (&open.profile, rule.transpose()?) {
        (Some(profile), None) => {
            if draft.bundle.profile(profile).is_none() {
                let detail = format!("the bundle has no profile `{profile}`");
                return Err(Refusal::new(RefusalCode::UnknownProfile, detail));
            }
            Ok(Some(Choice { profile: profile.clone(), label: None, overrides: BTreeMap::new() }))
        }
        (named, Some((rule, label))) => {
            if named.as_ref().is_some_and(|named| *named != rule.profile) {
                let detail = format!("the label leads to the profile `{}`, but another one was named", rule.profile);
                return Err(Refusal::new(RefusalCode::ProfileNotPermitted, detail));
            }
            Ok(Some(by_rule(rule, label)))
        }
        (None, None) if classification.is_some_and(|c| c.model.is_some()) => Ok(None),
        (None, None) => Err(Refusal::new(RefusalCode::ProfileRequired, "name a profile or a label")),
    }
}

fn by_rule(rule: &ClassRule, label: Option<Label>) -> Choice {
    Choice { profile: rule.profile.clone(), label, overrides: rule.trace_requirements.clone() }
}

fn permit(ceiling: Option<&std::collections::BTreeSet<ProfileName>>, profile: &ProfileName) -> Result<(), Refusal> {
    if ceiling.is_none_or(|allowed| allowed.contains(profile)) {
        return Ok(());
    }
    Err(Refusal::new(RefusalCode::ProfileNotPermitted, format!("the credential may not use the profile `{profile}`")))
}

/// A session may ask for more control than its profile, never for less. A profile that a classifier has yet to find is
/// never loosened: the stricter of the two holds.
fn stricter(profile: Option<&Profile>, asked: Option<ControlMode>) -> Result<(), Refusal> {
    let Some((profile, asked)) = profile.zip(asked) else { return Ok(()) };
    if asked >= profile.control {
        return Ok(());
    }
    Err(Refusal::new(RefusalCode::ControlNotStricter, "`control` asks a human about fewer calls than the profile does"))
}

/// Each asked bound must be at least 1 and no wider than the profile's. A profile that a classifier has yet to find
/// narrows them once more when the run starts (`resolve`).
fn narrower(profile: Option<&Profile>, asked: &Narrowed) -> Result<(), Refusal> {
    let harness = profile.and_then(|profile| profile.harness.as_ref());
    let bounds = [
        ("max_steps", asked.max_steps.map(u64::from), harness.map(|h| u64::from(h.max_steps))),
        ("max_tool_calls", asked.max_tool_calls.map(u64::from), harness.map(|h| u64::from(h.max_tool_calls))),
        (
            "max_model_calls",
            asked.max_model_calls.map(u64::from),
            harness.and_then(|h| h.max_model_calls.map(u64::from)),
        ),
        ("deadline_ms", asked.deadline_ms, harness.map(|h| h.deadline_ms)),
    ];
    for (name, asked, limit) in bounds {
        if asked == Some(0) {
            return Err(Refusal::new(RefusalCode::LimitNotNarrower, format!("`{name}` must be at least 1")));
        }
        if let Some(limit) = limit.filter(|limit| asked.is_some_and(|asked| asked > *limit)) {
            let detail = format!("`{name}` must be from 1 to the profile's {limit}");
            return Err(Refusal::new(RefusalCode::LimitNotNarrower, detail));
        }
    }
    Ok(())
}

pub(super) fn classified(draft: &mut Draft<'_>, answer: &Classified) -> Result<Reply, Refusal> {
    if draft.session.classifying != Some(answer.attempt) {
        return Err(Refusal::new(RefusalCode::StaleAnswer, "the classifier's question is answered or was asked again"));
    }
    let (found, failed) = match &answer.result {
        Ok(label) => (Some(label.clone()), None),
        Err(failure) => (None, Some(failure.clone())),
    };
    let text = found.as_ref().map(|found| found.label.clone());
    let why = failed.as_ref().map(|failed| failed.detail.clone());
    draft.push(Event::ClassificationReceived(ClassificationReceived {
        attempt: answer.attempt,
        usage: answer.usage,
        content: ClassificationContent { found, failed },
    }));
    let rules = draft.bundle.classification();
    let label = text.and_then(|text| Label::new(text).ok());
    let rule = label.as_ref().and_then(|label| rules?.rules.get(label)).map(|rule| (rule, label.clone()));
    let rule = rule.or_else(|| rules?.default.as_ref().map(|rule| (rule, None)));
    let ceiling = draft.session.opened.as_ref().and_then(|opened| opened.ceiling.clone());
    match rule {
        Some((rule, label)) if permit(ceiling.as_ref(), &rule.profile).is_ok() => begin(draft, by_rule(rule, label)),
        Some((rule, _)) => {
            let detail = format!("the label leads to the profile `{}`, which the credential may not use", rule.profile);
            draft.end_run(Ending::ClassificationFailed, None, Some(detail));
        }
        None => {
            let detail = why.unwrap_or_else(|| "the bundle has no rule for the label, and no default".to_owned());
            draft.end_run(Ending::ClassificationFailed, None, Some(detail));
        }
    }
    Ok(Reply::Accepted)
}

pub(super) fn message(draft: &mut Draft<'_>, message: &Message) -> Result<Reply, Refusal> {
    if draft.session.active_run().is_some() || draft.session.classifying.is_some() {
        return Err(Refusal::new(RefusalCode::RunActive, "a run is under way; wait for its ending or cancel it"));
    }
    if draft.session.profile.is_none() {
        let detail = "the session never got a profile; start another session";
        return Err(Refusal::new(RefusalCode::ProfileRequired, detail));
    }
    let content = TextContent { text: message.text.clone() };
    draft.push(Event::MessageReceived(MessageReceived { by: message.by.clone(), content }));
    start_run(draft);
    Ok(Reply::Accepted)
}

/// Fixes the profile and starts the first run.
fn begin(draft: &mut Draft<'_>, choice: Choice) {
    let mut required =
        draft.bundle.profile(&choice.profile).map(|profile| profile.trace_requirements.clone()).unwrap_or_default();
    required.extend(choice.overrides);
    draft.push(Event::ProfileChosen(ProfileChosen {
        profile: choice.profile,
        label: choice.label,
        trace_requirements: required,
    }));
    start_run(draft);
}

fn start_run(draft: &mut Draft<'_>) {
    let Some(profile) = draft.profile() else { return };
    let Some(harness) = &profile.harness else { return };
    let asked = draft.session.opened.as_ref().map(|opened| opened.limits).unwrap_or_default();
    let rules = draft.rules();
    let limits = resolve(profile, harness, &asked, rules);
    let deadline_at = draft.at.plus_ms(limits.deadline_ms);
    draft.push(Event::RunStarted(RunStarted {
        run: draft.session.run.as_ref().map_or(1, |run| run.no + 1),
        rules_version: rules,
        schema_engine: SCHEMA_ENGINE.to_owned(),
        limits,
        deadline_at,
    }));
    draft.check_bounds();
}

/// The bounds of a run: what was asked, never wider than the profile.
fn resolve(profile: &Profile, harness: &Harness, asked: &Narrowed, rules: u32) -> Limits {
    let (ballots, retries) = profile.consensus.as_ref().map_or((1, 0), |c| (c.n, c.retries));
    let widest = profile.consensus.as_ref().filter(|_| rules >= EARLY_VOTES).map_or(ballots, Consensus::most_ballots);
    let max_steps = asked.max_steps.unwrap_or(u32::MAX).min(harness.max_steps);
    let of_round = widest.saturating_add(u32::from(profile.summarize.is_some()));
    let steps = harness.max_steps.saturating_add(u32::from(harness.at_limit == AtLimit::WrapUp));
    let all_steps = steps.saturating_mul(of_round).saturating_mul(1 + retries);
    let max_model_calls = harness.max_model_calls.unwrap_or(all_steps);
    Limits {
        max_steps,
        max_tool_calls: asked.max_tool_calls.unwrap_or(u32::MAX).min(harness.max_tool_calls),
        max_model_calls: asked.max_model_calls.unwrap_or(u32::MAX).min(max_model_calls),
        deadline_ms: asked.deadline_ms.unwrap_or(u64::MAX).min(harness.deadline_ms),
        max_parallel_calls: harness.max_parallel_calls,
        max_consecutive_rejections: harness.max_consecutive_rejections,
        max_parse_failures: harness.max_parse_failures,
        max_output_schema_failures: harness.max_output_schema_failures,
        repeat_limit: harness.repeat_limit,
        ballots,
        max_tokens: harness.max_tokens,
        max_cost_microusd: harness.max_cost_microusd,
    }
}
