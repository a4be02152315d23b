//! The owner of one session while it is in memory:
//!
//! next input → `decide` → append (durable) → `fold` → reconcile effects.
//!
//! Three orders never change: decide before append, append before fold, fold before effect. The actor is the only place
//! that appends. What is not here: what is decided (core), how rows are made (`journal`), how effects run (`effects`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use toolgate_core::bundle::Bundle;
use toolgate_core::event::Recorded;
use toolgate_core::input::{ClientAttached, Input, OutcomeReport, Stamped};
use toolgate_core::session::{Session, Status};
use toolgate_core::time::Timestamp;
use toolgate_core::{Decided, Reply, decide, fold, next_wake};
use toolgate_store::{Blob, IdempotencyRow};

use super::attached::Attached;
use super::deps::Deps;
use super::effects::{Done, Effects};
use super::journal::{Batch, Journal, Written};
use super::load::Loaded;
use super::mail::{AttachOrder, Mail};
use super::output;
use super::{AttachRefused, Attachment, Idempotency, Snapshot, Submission, Taken};
use crate::failure::Failure;

/// How long an idempotency answer is kept.
const ANSWER_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

/// Why an actor has stopped.
#[derive(Debug)]
pub(super) enum Exit {
    /// Nothing to do; the log holds everything.
    Unloaded,
    /// The server stops.
    Stopped,
    /// Another node owns the session.
    Lost,
    /// Something failed; the session must be loaded again.
    Failed,
}

/// The session in memory.
pub(super) struct Actor<'a> {
    deps: &'a Arc<Deps>,
    journal: Journal,
    state: Arc<Session>,
    bundle: Arc<Bundle>,
    alias: Option<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
    head: &'a watch::Sender<u64>,
    effects: Effects,
    attached: Option<Attached>,
}

/// What a batch became, for its sender.
enum Committed {
    Taken { events: Vec<Recorded> },
    Already { seq: u64 },
    Refused(toolgate_core::reason::Refusal),
}

impl<'a> Actor<'a> {
    pub(super) fn new(deps: &'a Arc<Deps>, head: &'a watch::Sender<u64>, loaded: Loaded) -> Self {
        let key = (loaded.tenant.clone(), loaded.state.id);
        head.send_replace(loaded.state.head);
        Self {
            deps,
            journal: Journal { tenant: key.0.clone(), session: key.1, codec: loaded.codec, next: loaded.next },
            state: Arc::new(loaded.state),
            bundle: loaded.bundle,
            alias: loaded.alias,
            created_at: loaded.created_at,
            updated_at: loaded.updated_at,
            head,
            effects: Effects::new(Arc::clone(deps), key.0, key.1),
            attached: None,
        }
    }

    /// Settles what was under way when the last owner stopped, then runs.
    pub(super) async fn recover_and_run(mut self, mail: &mut mpsc::Receiver<Mail>) -> Exit {
        match self.internal(Input::Recovered, Vec::new()).await {
            Ok(()) => self.run(mail).await,
            Err(exit) => exit,
        }
    }

    /// Runs until there is nothing left to do.
    pub(super) async fn run(mut self, mail: &mut mpsc::Receiver<Mail>) -> Exit {
        self.reconcile();
        loop {
            let wake = self.until_wake();
            let idle = self.may_unload();
            let stopping = self.deps.stopping.is_cancelled();
            if stopping && !self.effects.running_tool() {
                return Exit::Stopped;
            }
            let step = tokio::select! {
                received = mail.recv() => match received {
                    Some(received) => self.receive(received).await,
                    None => return Exit::Unloaded,
                },
                Some(done) = self.effects.next() => self.finished(done).await,
                () = gone(self.attached.as_mut()) => {
                    self.attached = None;
                    Ok(())
                }
                () = tokio::time::sleep(wake.unwrap_or(Duration::MAX)), if wake.is_some() => {
                    self.internal(Input::Tick, Vec::new()).await
                }
                () = tokio::time::sleep(self.deps.settings.idle_after), if idle => return Exit::Unloaded,
                () = self.deps.stopping.cancelled(), if !stopping => Ok(()),
            };
            if let Err(exit) = step {
                return exit;
            }
            if !self.deps.stopping.is_cancelled() {
                self.reconcile();
            }
        }
    }

    /// A session that waits for nothing but the outside needs no memory.
    fn may_unload(&self) -> bool {
        self.attached.is_none() && self.effects.is_empty() && self.state.status() != Status::Running
    }

    fn until_wake(&self) -> Option<Duration> {
        let wake = next_wake(&self.state)?;
        let us = wake.as_micros().saturating_sub(self.deps.clock.now().as_micros());
        Some(Duration::from_micros(u64::try_from(us).unwrap_or(0)))
    }

    async fn receive(&mut self, mail: Mail) -> Result<(), Exit> {
        match mail {
            Mail::Wake => Ok(()),
            Mail::Snapshot(reply) => {
                // Whoever asked may be gone; then nobody needs the answer.
                let _ = reply.send(Ok(self.snapshot()));
                Ok(())
            }
            Mail::Submit(submission, reply) => self.submit(*submission, reply).await,
            Mail::Attach(order) => self.attach(*order).await,
        }
    }

    async fn submit(
        &mut self,
        submission: Submission,
        reply: oneshot::Sender<Result<Taken, Failure>>,
    ) -> Result<(), Exit> {
        let Submission { id, input, idempotency } = submission;
        let (input, blobs) = match input {
            Input::Outcome(report) => {
                let (outcome, blobs) = output::spill(&self.journal.codec, report.outcome);
                (Input::Outcome(OutcomeReport { outcome, ..report }), blobs)
            }
            other => (other, Vec::new()),
        };
        let stamped = Stamped { at: self.deps.clock.now(), id, input };
        let (answer, exit) = match self.commit(stamped, blobs, idempotency.as_ref()).await {
            Ok(Committed::Taken { events }) => (Ok(Taken { snapshot: self.snapshot(), events, already: None }), None),
            Ok(Committed::Already { seq }) => {
                (Ok(Taken { snapshot: self.snapshot(), events: Vec::new(), already: Some(seq) }), None)
            }
            Ok(Committed::Refused(refusal)) => (Err(Failure::Refused(refusal)), None),
            Err((Failure::Repeated { seq }, exit)) => {
                (Ok(Taken { snapshot: self.snapshot(), events: Vec::new(), already: Some(seq) }), exit)
            }
            Err((failure, exit)) => (Err(failure), exit),
        };
        // Whoever asked may be gone; the effect is durable all the same.
        let _ = reply.send(answer);
        exit.map_or(Ok(()), Err)
    }

    /// An input of the server's own: ticks, answers of models, outcomes of tools.
    async fn internal(&mut self, input: Input, blobs: Vec<Blob>) -> Result<(), Exit> {
        let stamped = Stamped { at: self.deps.clock.now(), id: None, input };
        match self.commit(stamped, blobs, None).await {
            Ok(_) => Ok(()),
            Err((failure, exit)) => {
                tracing::error!(session = %self.state.id, error = %failure, "an input could not be recorded");
                exit.map_or(Ok(()), Err)
            }
        }
    }

    async fn finished(&mut self, done: Done) -> Result<(), Exit> {
        let (input, blobs) = done.into_input(&self.journal.codec);
        self.internal(input, blobs).await
    }

    /// Decides an input, appends what follows, folds it. An exit means that the state in memory must be forgotten.
    async fn commit(
        &mut self,
        stamped: Stamped,
        blobs: Vec<Blob>,
        idempotency: Option<&Idempotency>,
    ) -> Result<Committed, (Failure, Option<Exit>)> {
        let Decided { events, reply } = decide(&self.state, &self.bundle, &stamped);
        if events.is_empty() {
            return Ok(match reply {
                Reply::Already { seq } => Committed::Already { seq },
                Reply::Refused(refusal) => Committed::Refused(refusal),
                Reply::Accepted | Reply::Unchanged => Committed::Taken { events: Vec::new() },
            });
        }
        let mut after = Session::clone(&self.state);
        for event in &events {
            toolgate_core::apply(&mut after, event);
        }
        let refused = matches!(reply, Reply::Refused(_));
        let answer = idempotency.filter(|_| !refused).map(|wanted| self.answer(wanted, &after, stamped.at));
        let batch = Batch {
            events: &events,
            input_id: stamped.id.clone(),
            at: stamped.at,
            before: &self.state,
            after: &after,
            bundle: &self.bundle,
            blobs,
            idempotency: answer,
        };
        let first_seq = match self.journal.append(self.deps, batch).await {
            Ok(Written::Durable { first_seq }) => first_seq,
            // The codec has gone on to rows that were never written: load again before anything else.
            Ok(Written::Duplicate { seq }) => {
                return Err((Failure::Repeated { seq }, Some(Exit::Failed)));
            }
            Ok(Written::KeyTaken) => return Err((Failure::IdempotencyReused, Some(Exit::Failed))),
            Ok(Written::Lost) => return Err((Failure::Busy, Some(Exit::Lost))),
            Err(failure) => return Err((failure, Some(Exit::Failed))),
        };
        let recorded = self.fold(events, &stamped, first_seq);
        Ok(match reply {
            Reply::Refused(refusal) => Committed::Refused(refusal),
            Reply::Accepted | Reply::Unchanged | Reply::Already { .. } => Committed::Taken { events: recorded },
        })
    }

    fn fold(&mut self, events: Vec<toolgate_core::event::Event>, stamped: &Stamped, first_seq: u64) -> Vec<Recorded> {
        let epoch = self.journal.next.epoch;
        let state = Arc::make_mut(&mut self.state);
        let mut recorded = Vec::with_capacity(events.len());
        for (idx, event) in (0_u64..).zip(events) {
            let input_id = stamped.id.clone().filter(|_| idx == 0);
            let one = Recorded { seq: first_seq + idx, epoch, at: stamped.at, input_id, event };
            fold(state, &one);
            recorded.push(one);
        }
        self.updated_at = stamped.at;
        self.head.send_replace(self.state.head);
        recorded
    }

    fn answer(&self, wanted: &Idempotency, after: &Session, at: Timestamp) -> IdempotencyRow {
        let snapshot = Snapshot { state: Arc::new(after.clone()), updated_at: at, ..self.snapshot() };
        idempotency_row(wanted, &snapshot, at)
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot {
            state: Arc::clone(&self.state),
            bundle: Arc::clone(&self.bundle),
            alias: self.alias.clone(),
            created_at: self.created_at,
            updated_at: self.updated_at,
        }
    }

    /// A client takes the executor's place: recorded first, then the open calls are offered.
    async fn attach(&mut self, order: AttachOrder) -> Result<(), Exit> {
        let AttachOrder { instance, by, capabilities, reply } = order;
        if self.attached.as_ref().is_some_and(|other| other.instance != instance && !other.is_gone()) {
            let _ = reply.send(Err(AttachRefused::ExecutorTaken));
            return Ok(());
        }
        let input = Input::ClientAttached(ClientAttached { instance: instance.clone(), by, capabilities });
        let stamped = Stamped { at: self.deps.clock.now(), id: None, input };
        let (answer, exit) = match self.commit(stamped, Vec::new(), None).await {
            Ok(Committed::Refused(refusal)) => (Err(AttachRefused::Failed(Failure::Refused(refusal))), None),
            Ok(Committed::Taken { .. } | Committed::Already { .. }) => {
                let (attached, attachment) = Attached::new(instance, self.deps.settings.offers);
                // An older connection of the same instance sees its offers end.
                self.attached = Some(attached);
                (Ok(attachment), None)
            }
            Err((failure, exit)) => (Err(AttachRefused::Failed(failure)), exit),
        };
        let gave: Result<(), Result<Attachment, AttachRefused>> = reply.send(answer);
        if gave.is_err() {
            self.attached = None;
        }
        exit.map_or(Ok(()), Err)
    }

    /// Starts what must be under way and stops what must not.
    fn reconcile(&mut self) {
        let wanted = toolgate_core::outstanding(&self.state, &self.bundle);
        let (offers, tasks): (BTreeMap<_, _>, Vec<_>) = super::effects::split(wanted);
        self.effects.reconcile(tasks, &self.state, &self.bundle);
        if let Some(attached) = self.attached.as_mut() {
            // A client that takes nothing loses its place; its calls stay open.
            if !attached.offer(&offers) {
                self.attached = None;
            }
        }
    }
}

/// The answer to store beside an effect.
pub(super) fn idempotency_row(wanted: &Idempotency, snapshot: &Snapshot, at: Timestamp) -> IdempotencyRow {
    let (status, body) = (wanted.answer)(snapshot);
    IdempotencyRow {
        key: wanted.key.clone(),
        fingerprint: wanted.fingerprint,
        status,
        body,
        sealed_under: None,
        expires_at: at.plus_ms(ANSWER_KEPT_MS),
    }
}

/// Resolves once the attached client has given up its place; never without one.
async fn gone(attached: Option<&mut Attached>) {
    match attached {
        Some(attached) => attached.gone().await,
        None => std::future::pending().await,
    }
}
