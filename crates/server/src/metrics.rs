//! Figures for operators in Prometheus' text form: what is counted, under which names. What is not here: counting events
//! (`metrics::count`), the listener (`metrics::listen`).
//!
//! Labels are words of this program, or names of tools and models that a registered bundle holds; their number is bounded.
//! Nothing names a tenant, a session or a person, and nothing that a model made up becomes a label.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use toolgate_core::bundle::model::Provider;
use toolgate_core::id::ModelName;
use toolgate_core::proposal::{Ballot, BallotVerdict, Proposal};

mod count;
mod listen;

pub(crate) use listen::{Now, routes};

/// Different tools, and different models, that get a label of their own; all further ones share one.
const MOST_NAMES: usize = 512;
/// The label of names beyond that, and of tools that the bundle does not have. No tool can be called so.
const OTHER: &str = "(other)";
/// Bounds of the seconds that models take: from a twentieth to nearly two minutes.
const SECONDS: (f64, f64, u16) = (0.05, 2.0, 12);

/// The figures of a server. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics {
    inner: Arc<Inner>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// Declares labels.
macro_rules! labels {
    ($($name:ident { $($field:ident: $kind:ty),* })*) => {$(
        #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name {
            $($field: $kind),*
        }
    )*};
}

labels! {
    Kind { kind: &'static str }
    Decided { decision: &'static str, reason: &'static str }
    Ended { venue: &'static str, outcome: &'static str }
    RunEnd { ending: &'static str }
    Verdict { verdict: &'static str }
    Tool { tool: String }
    Answer { provider: &'static str, result: String }
    Took { provider: &'static str }
    Tokens { model: String, direction: &'static str }
    State { state: &'static str }
    Follow { way: &'static str }
}

type Times = Family<Took, Histogram, fn() -> Histogram>;

struct Inner {
    registry: Registry,
    names: Mutex<HashSet<String>>,
    events: Family<Kind, Counter>,
    appends: Counter,
    batches: Counter,
    decisions: Family<Decided, Counter>,
    calls: Family<Ended, Counter>,
    runs: Family<RunEnd, Counter>,
    ballots: Family<Verdict, Counter>,
    votes: Family<Tool, Counter>,
    agreed: Family<Tool, Counter>,
    answers: Family<Answer, Counter>,
    discarded: Family<Took, Counter>,
    seconds: Times,
    tokens: Family<Tokens, Counter>,
    sessions: Family<State, Gauge>,
    breakers: Family<State, Gauge>,
    followers: Family<Follow, Gauge>,
}

fn times() -> Histogram {
    let (first, factor, count) = SECONDS;
    Histogram::new(exponential_buckets(first, factor, count))
}

impl Default for Inner {
    fn default() -> Self {
        let mut inner = Self {
            registry: Registry::with_prefix("toolgate"),
            names: Mutex::default(),
            events: Family::default(),
            appends: Counter::default(),
            batches: Counter::default(),
            decisions: Family::default(),
            calls: Family::default(),
            runs: Family::default(),
            ballots: Family::default(),
            votes: Family::default(),
            agreed: Family::default(),
            answers: Family::default(),
            discarded: Family::default(),
            seconds: Family::new_with_constructor(times),
            tokens: Family::default(),
            sessions: Family::default(),
            breakers: Family::default(),
            followers: Family::default(),
        };
        inner.name();
        inner
    }
}

impl Inner {
    /// Gives each figure its name. What only ever grows gets `_total` by itself.
    fn name(&mut self) {
        let all = &mut self.registry;
        all.register("events_appended", "Events written to logs, by kind", self.events.clone());
        all.register("appends", "Writes of sessions to the log", self.appends.clone());
        all.register("append_batches", "Writes to the database that carried them", self.batches.clone());
        all.register("calls_decided", "Decisions about calls", self.decisions.clone());
        all.register("calls_ended", "Terminal records of calls that were not rejected", self.calls.clone());
        all.register("runs_ended", "Endings of runs", self.runs.clone());
        all.register("ballots", "Answers of models, votes and others", self.ballots.clone());
        all.register("consensus_votes", "Votes in which a ballot named the tool", self.votes.clone());
        all.register("consensus_agreed", "Those of them that agreed on a proposal with the tool", self.agreed.clone());
        all.register("model_answers", "Questions to models, by what came of them", self.answers.clone());
        all.register("attempts_discarded", "Attempts that were thrown away and repeated", self.discarded.clone());
        all.register("model_answer_seconds", "Time from question to answer, waiting included", self.seconds.clone());
        all.register("model_tokens", "Tokens, as far as providers say", self.tokens.clone());
        all.register("sessions_in_memory", "Sessions in memory, each with an actor", self.sessions.clone());
        all.register("model_breakers", "Providers by the state of their breaker", self.breakers.clone());
        all.register("followers", "Open WebSockets and event streams", self.followers.clone());
    }
}

impl Metrics {
    /// Counts an answer of a model.
    pub(crate) fn answered(&self, model: &ModelName, provider: Provider, ballot: &Ballot, took: Duration) {
        let inner = &*self.inner;
        let provider = provider_word(provider);
        inner.answers.get_or_create(&Answer { provider, result: result(&ballot.verdict) }).inc();
        inner.seconds.get_or_create(&Took { provider }).observe(took.as_secs_f64());
        let discarded = ballot.normalised.iter().filter(|note| note.starts_with("attempt_discarded:")).count();
        if discarded > 0 {
            inner.discarded.get_or_create(&Took { provider }).inc_by(discarded as u64);
        }
        let model = self.bounded(model.as_str());
        let usage = ballot.usage;
        for (direction, tokens) in [("input", usage.input_tokens), ("output", usage.output_tokens)] {
            if let Some(tokens) = tokens {
                inner.tokens.get_or_create(&Tokens { model: model.clone(), direction }).inc_by(tokens);
            }
        }
    }

    /// A name of a registered bundle as a label.
    fn bounded(&self, name: &str) -> String {
        let mut names = self.inner.names.lock().unwrap_or_else(PoisonError::into_inner);
        if !names.contains(name) {
            if names.len() >= MOST_NAMES {
                return OTHER.to_owned();
            }
            names.insert(name.to_owned());
        }
        name.to_owned()
    }

    /// All figures as text.
    pub(crate) fn text(&self, now: &Now) -> Result<String, fmt::Error> {
        let inner = &*self.inner;
        let number = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        for (family, state, count) in [
            (&inner.sessions, "running", now.running),
            (&inner.sessions, "parked", now.parked),
            (&inner.breakers, "open", now.breakers.open),
            (&inner.breakers, "closed", now.breakers.closed),
        ] {
            family.get_or_create(&State { state }).set(number(count));
        }
        for (way, count) in [("websocket", now.sockets), ("stream", now.streams)] {
            inner.followers.get_or_create(&Follow { way }).set(number(count));
        }
        inner.appends.inner().store(now.written.writes, Ordering::Relaxed);
        inner.batches.inner().store(now.written.batches, Ordering::Relaxed);
        let mut text = String::new();
        prometheus_text::encode(&mut text, &inner.registry)?;
        Ok(text)
    }
}

const fn provider_word(provider: Provider) -> &'static str {
    match provider {
        Provider::Openai => "openai",
        Provider::OpenaiResponses => "openai_responses",
        Provider::Anthropic => "anthropic",
        Provider::Scripted => "scripted",
    }
}

/// What came of a question: `calls`, `done`, or the closed reason.
fn result(verdict: &BallotVerdict) -> String {
    let reason = match verdict {
        BallotVerdict::Proposal(Proposal::Calls(_)) => return "calls".to_owned(),
        BallotVerdict::Proposal(Proposal::Done { .. }) => return "done".to_owned(),
        BallotVerdict::Malformed { reason, .. } => serde_json::to_value(reason),
        BallotVerdict::Failed { reason, .. } => serde_json::to_value(reason),
    };
    reason.ok().and_then(|reason| reason.as_str().map(str::to_owned)).unwrap_or_default()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_every_figure() {
        let metrics = Metrics::default();
        // A family without a line has no name, either.
        let inner = &*metrics.inner;
        let word = "x";
        drop(inner.events.get_or_create(&Kind { kind: word }));
        drop(inner.decisions.get_or_create(&Decided { decision: word, reason: word }));
        drop(inner.calls.get_or_create(&Ended { venue: word, outcome: word }));
        drop(inner.runs.get_or_create(&RunEnd { ending: word }));
        drop(inner.ballots.get_or_create(&Verdict { verdict: word }));
        for family in [&inner.votes, &inner.agreed] {
            drop(family.get_or_create(&Tool { tool: word.to_owned() }));
        }
        drop(inner.answers.get_or_create(&Answer { provider: word, result: word.to_owned() }));
        drop(inner.discarded.get_or_create(&Took { provider: word }));
        drop(inner.seconds.get_or_create(&Took { provider: word }));
        drop(inner.tokens.get_or_create(&Tokens { model: word.to_owned(), direction: word }));
        let text = metrics.text(&Now::default()).unwrap();
        let mut named: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("# TYPE "))
            .filter_map(|line| line.split(' ').next())
            .collect();
        let page = include_str!("../../../docs/METRICS.md");
        let mut listed: Vec<&str> =
            page.lines().filter_map(|line| line.strip_prefix("| `toolgate_")?.split('`').next()).collect();
        named.sort_unstable();
        listed.sort_unstable();
        let listed: Vec<String> = listed.into_iter().map(|name| format!("toolgate_{name}")).collect();
        assert_eq!(named, listed);
    }

    #[test]
    fn names_are_bounded() {
        let metrics = Metrics::default();
        for n in 0..MOST_NAMES {
            assert_eq!(metrics.bounded(&format!("tool-{n}")), format!("tool-{n}"));
        }
        assert_eq!(metrics.bounded("one-more"), OTHER);
        assert_eq!(metrics.bounded("tool-0"), "tool-0");
        assert_eq!(metrics.bounded("yet-another"), OTHER);
    }
}
