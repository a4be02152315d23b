//! The owner of one session while it is in memory:
//!
//! next input → `decide` → append (durable) → `fold` → reconcile effects.
//!
//! Three orders never change: decide before append, append before fold, fold before effect. The actor is the only place
//! that appends. What is not here: what is decided (core), how rows are made (`journal`), how effects run (`effects`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use toolgate_core::bundle::Bundle;
use toolgate_core::event::{CallEnd, Event, Recorded};
use toolgate_core::id::InputId;
use toolgate_core::input::{ClientAttached, Input, OutcomeReport, Stamped};
use toolgate_core::session::{Session, Status};
use toolgate_core::time::Timestamp;
use toolgate_core::{Decided, Effect, Reply, decide_and_apply, next_wake};
use toolgate_store::chain::Position;
use toolgate_store::{Append, Blob, HandOver, IdempotencyRow};

use super::attached::Attached;
use super::deps::Deps;
use super::effects::{Done, Effects};
use super::heads::Watched;
use super::journal::{Batch, Journal, Written};
use super::live::Live;
use super::load::Loaded;
use super::mail::{AttachOrder, Mail, Untaken};
use super::output;
use super::{AttachRefused, Attachment, Idempotency, Snapshot, Submission, Taken};
use crate::crash;
use crate::failure::Failure;

mod brought;

/// How long an idempotency answer is kept.
const ANSWER_KEPT_MS: u64 = 24 * 60 * 60 * 1_000;

/// How long an outcome that may wait is held back for the session's next append.
const HELD_AT_MOST: Duration = Duration::from_millis(10);

/// Why an actor has stopped.
#[derive(Debug)]
pub(super) enum Exit {
    /// Nothing to do; the log holds everything.
    Unloaded,
    /// The server stops or drains: the session is to be given away.
    Stopped {
        /// The epoch in which it was owned.
        epoch: u64,
    },
    /// Another node gets the session, since it asked for it.
    HandedOver {
        /// The epoch in which it was owned.
        epoch: u64,
        /// The request.
        request: Box<HandOver>,
    },
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
    watched: &'a Watched,
    /// Events that those who follow the session have not been told of, each with its size in the log.
    untold: Vec<Live>,
    effects: Effects,
    attached: Option<Box<Attached>>,
    /// When rows that are held back must be appended by themselves.
    held_until: Option<tokio::time::Instant>,
    /// The inbox row whose input is being decided.
    consuming: Option<InputId>,
    /// A node that wants the session.
    wanted: Option<Box<HandOver>>,
    /// Nothing is started, since the node's lease is old.
    held_back: bool,
}

/// What an actor's time is set for.
#[derive(Debug, Clone, Copy)]
enum Ring {
    /// A timer of the session.
    Timer,
    /// Rows that are held back must be appended.
    Held,
    /// Nothing has come for long enough to leave memory.
    Idle,
}

/// What was decided and is not recorded yet.
struct Draft {
    events: Vec<Event>,
    input_id: Option<InputId>,
    at: Timestamp,
    first_seq: u64,
    /// The state with the events.
    after: Arc<Session>,
}

impl Draft {
    fn batch<'b>(
        &'b self,
        before: &'b Session,
        bundle: &'b Bundle,
        blobs: Vec<Blob>,
        idempotency: Option<IdempotencyRow>,
        consumed: Option<InputId>,
    ) -> Batch<'b> {
        Batch {
            events: &self.events,
            input_id: self.input_id.clone(),
            at: self.at,
            before,
            after: &self.after,
            bundle,
            blobs,
            idempotency,
            consumed,
        }
    }
}

/// What a batch became, for its sender.
enum Committed {
    Taken { events: Vec<Recorded> },
    Already { seq: u64 },
    Refused(toolgate_core::reason::Refusal),
}

impl<'a> Actor<'a> {
    /// The actor on the heap, so that the futures that work on it hold a pointer; of what was loaded nothing stays there.
    pub(super) fn boxed(deps: &'a Arc<Deps>, watched: &'a Watched, loaded: Box<Loaded>) -> Box<Self> {
        Box::new(Self::new(deps, watched, *loaded))
    }

    fn new(deps: &'a Arc<Deps>, watched: &'a Watched, loaded: Loaded) -> Self {
        let key = (loaded.tenant.clone(), loaded.state.id);
        watched.publish(&loaded.state, Vec::new());
        Self {
            deps,
            journal: Journal {
                tenant: key.0.clone(),
                session: key.1,
                codec: loaded.codec,
                next: loaded.next,
                held: None,
                lapses: loaded.lapses,
            },
            state: Arc::new(loaded.state),
            bundle: loaded.bundle,
            alias: loaded.alias,
            created_at: loaded.created_at,
            updated_at: loaded.updated_at,
            watched,
            untold: Vec::new(),
            effects: Effects::new(Arc::clone(deps), key.0, key.1),
            attached: None,
            held_until: None,
            consuming: None,
            wanted: None,
            held_back: false,
        }
    }

    /// Settles what was under way when the last owner stopped, then runs.
    pub(super) async fn recover_and_run(&mut self, mail: &mut mpsc::Receiver<Box<Mail>>) -> Exit {
        match Box::pin(self.internal(Input::Recovered, Vec::new())).await {
            Ok(()) => self.run(mail).await,
            Err(exit) => exit,
        }
    }

    /// Runs until there is nothing left to do. What takes a step is boxed, so that a session that waits is small.
    pub(super) async fn run(&mut self, mail: &mut mpsc::Receiver<Box<Mail>>) -> Exit {
        if let Err(exit) = Box::pin(self.reconcile()).await {
            return exit;
        }
        loop {
            let idle = self.may_unload();
            let stopping = self.deps.stopping.is_cancelled();
            let leaving = stopping || self.deps.nodes.draining().is_cancelled();
            if leaving && !self.effects.running_tool() {
                let epoch = self.journal.next.epoch;
                return Box::pin(self.settled()).await.map_or_else(|exit| exit, |()| Exit::Stopped { epoch });
            }
            if self.wanted.is_some()
                && let Some(request) = Box::pin(self.due_hand_over()).await
            {
                let epoch = self.journal.next.epoch;
                return Box::pin(self.settled())
                    .await
                    .map_or_else(|exit| exit, |()| Exit::HandedOver { epoch, request });
            }
            let (alarm, ring) = self.alarm(idle);
            let step = tokio::select! {
                received = mail.recv() => match received {
                    Some(received) => Box::pin(self.receive(*received)).await,
                    None => return Box::pin(self.settled()).await.map_or_else(|exit| exit, |()| Exit::Unloaded),
                },
                Some(done) = self.effects.next() => Box::pin(self.finished(done)).await,
                () = gone(self.attached.as_deref_mut()) => {
                    self.attached = None;
                    Ok(())
                }
                () = tokio::time::sleep_until(alarm), if ring.is_some() => match ring {
                    Some(Ring::Timer) => Box::pin(self.internal(Input::Tick, Vec::new())).await,
                    Some(Ring::Held) => Box::pin(self.settled()).await,
                    Some(Ring::Idle) | None => return Exit::Unloaded,
                },
                () = self.deps.stopping.cancelled(), if !stopping => Ok(()),
                () = self.deps.nodes.draining().cancelled(), if !leaving => Ok(()),
                () = self.deps.nodes.next_renewal(), if self.held_back => Ok(()),
            };
            if let Err(exit) = step {
                return exit;
            }
            if !self.deps.stopping.is_cancelled()
                && !self.deps.nodes.draining().is_cancelled()
                && let Err(exit) = Box::pin(self.reconcile()).await
            {
                return exit;
            }
        }
    }

    /// A session that waits for nothing but the outside needs no memory.
    fn may_unload(&self) -> bool {
        self.attached.is_none() && self.effects.is_empty() && self.state.status() != Status::Running
    }

    /// What comes first of all that a time is set for, and when. One timer, since each takes room in every waiting session.
    fn alarm(&self, idle: bool) -> (tokio::time::Instant, Option<Ring>) {
        let now = tokio::time::Instant::now();
        let timer = self.until_wake().and_then(|time| now.checked_add(time)).map(|at| (at, Ring::Timer));
        let held = self.held_until.map(|at| (at, Ring::Held));
        let idle = idle.then(|| now.checked_add(self.deps.settings.idle_after)).flatten().map(|at| (at, Ring::Idle));
        let first = [timer, held, idle].into_iter().flatten().min_by_key(|(at, _)| *at);
        first.map_or((now, None), |(at, ring)| (at, Some(ring)))
    }

    fn until_wake(&self) -> Option<Duration> {
        let wake = next_wake(&self.state)?;
        let us = wake.as_micros().saturating_sub(self.deps.clock.now().as_micros());
        Some(Duration::from_micros(u64::try_from(us).unwrap_or(0)))
    }

    async fn receive(&mut self, mail: Mail) -> Result<(), Exit> {
        // Nobody is told what is not durable.
        if let Err((failure, exit)) = self.flush().await {
            mail.fail(failure);
            return Err(exit);
        }
        match mail {
            Mail::Wake => Ok(()),
            Mail::Snapshot(reply) => {
                // Whoever asked may be gone; then nobody needs the answer.
                let _ = reply.send(Ok(self.snapshot()));
                Ok(())
            }
            Mail::Submit(submission, reply) => self.submit(*submission, reply).await,
            Mail::Attach(order) => self.attach(*order).await,
            Mail::Letter(delivered) => self.letter(&delivered).await,
            Mail::HandOver(request) => {
                self.wanted = Some(Box::new(request));
                Ok(())
            }
            Mail::Head(head) if head > self.state.head => Err(Exit::Lost),
            Mail::Head(_) => Ok(()),
        }
    }

    /// Contents of an outcome that are too large for a row.
    fn spilled(&self, input: Input) -> (Input, Vec<Blob>) {
        match input {
            Input::Outcome(report) => {
                let (outcome, blobs) = output::spill(&self.journal.codec, report.outcome);
                (Input::Outcome(OutcomeReport { outcome, ..report }), blobs)
            }
            other => (other, Vec::new()),
        }
    }

    async fn submit(
        &mut self,
        submission: Submission,
        reply: oneshot::Sender<Result<Taken, Untaken>>,
    ) -> Result<(), Exit> {
        let Submission { id, input, idempotency } = submission;
        let (input, blobs) = self.spilled(input);
        let head = self.state.head;
        let stamped = Stamped { at: self.deps.clock.now(), id: id.clone(), input };
        let committed = self.commit(stamped, blobs, idempotency.as_ref()).await;
        let (answer, exit) = match self.unless_recorded(committed, head, id.as_ref()).await {
            Ok(Committed::Taken { events }) => (Ok(Taken { snapshot: self.snapshot(), events, already: None }), None),
            Ok(Committed::Already { seq }) => {
                (Ok(Taken { snapshot: self.snapshot(), events: Vec::new(), already: Some(seq) }), None)
            }
            Ok(Committed::Refused(refusal)) => (Err(Failure::Refused(refusal)), None),
            Err((Failure::Repeated { seq }, exit)) => {
                (Ok(Taken { snapshot: self.snapshot(), events: Vec::new(), already: Some(seq) }), Some(exit))
            }
            Err((failure, exit)) => (Err(failure), Some(exit)),
        };
        if idempotency.is_some() {
            crash::point("K1");
        }
        // Whoever asked may be gone; the effect is durable all the same.
        let _ = reply.send(answer.map_err(Untaken::from));
        exit.map_or(Ok(()), Err)
    }

    /// An input of the server's own: ticks, answers of models, outcomes of tools.
    async fn internal(&mut self, input: Input, blobs: Vec<Blob>) -> Result<(), Exit> {
        let stamped = Stamped { at: self.deps.clock.now(), id: None, input };
        self.commit(stamped, blobs, None).await.map(drop).map_err(|failed| self.unrecorded(failed))
    }

    async fn finished(&mut self, done: Done) -> Result<(), Exit> {
        let repeatable = done.is_repeatable(&self.bundle);
        done.crash_point();
        let (input, blobs) = done.into_input(&self.journal.codec);
        let stamped = Stamped { at: self.deps.clock.now(), id: None, input };
        let (_, Some(draft)) = self.draft(&stamped) else { return Ok(()) };
        if repeatable && self.may_wait(&draft) {
            return self.hold(draft, blobs).map_err(|failed| self.unrecorded(failed));
        }
        self.record(draft, blobs, None, None).await.map(drop).map_err(|failed| self.unrecorded(failed))
    }

    fn unrecorded(&self, (failure, exit): (Failure, Exit)) -> Exit {
        tracing::error!(session = %self.state.id, error = %failure, "an input could not be recorded");
        exit
    }

    /// Decides an input, appends what follows, folds it. An exit means that the state in memory must be forgotten.
    async fn commit(
        &mut self,
        stamped: Stamped,
        blobs: Vec<Blob>,
        idempotency: Option<&Idempotency>,
    ) -> Result<Committed, (Failure, Exit)> {
        let (reply, draft) = self.draft(&stamped);
        let Some(draft) = draft else {
            return Ok(match reply {
                Reply::Already { seq } => Committed::Already { seq },
                Reply::Refused(refusal) => Committed::Refused(refusal),
                Reply::Accepted | Reply::Unchanged => Committed::Taken { events: Vec::new() },
            });
        };
        let refused = matches!(reply, Reply::Refused(_));
        let answer = idempotency.filter(|_| !refused).map(|wanted| self.answer(wanted, &draft));
        // The row of a refused one stays for its answer.
        let consumed = self.consuming.clone().filter(|_| !refused);
        let recorded = self.record(draft, blobs, answer, consumed).await?;
        Ok(match reply {
            Reply::Refused(refusal) => Committed::Refused(refusal),
            Reply::Accepted | Reply::Unchanged | Reply::Already { .. } => Committed::Taken { events: recorded },
        })
    }

    /// What an input leads to; nothing if there is nothing to record.
    fn draft(&self, stamped: &Stamped) -> (Reply, Option<Draft>) {
        let (Decided { events, reply }, mut after) = decide_and_apply(&self.state, &self.bundle, stamped);
        if events.is_empty() {
            return (reply, None);
        }
        let Position { seq, epoch, .. } = self.journal.next;
        toolgate_core::place(&mut after, seq, epoch, stamped.id.as_ref());
        let input_id = stamped.id.clone();
        (reply, Some(Draft { events, input_id, at: stamped.at, first_seq: seq, after: Arc::new(after) }))
    }

    /// Appends a draft, with what was held back before it, and takes its state.
    async fn record(
        &mut self,
        draft: Draft,
        blobs: Vec<Blob>,
        idempotency: Option<IdempotencyRow>,
        consumed: Option<InputId>,
    ) -> Result<Vec<Recorded>, (Failure, Exit)> {
        let batch = draft.batch(&self.state, &self.bundle, blobs, idempotency, consumed);
        let append = self.journal.compose(batch, None).map_err(|failure| (failure, Exit::Failed))?;
        let sizes = sizes(&append, draft.events.len());
        self.append(append).await?;
        let recorded = self.take(draft, &sizes);
        self.publish();
        Ok(recorded)
    }

    /// Whether the outcomes of a draft may wait for the next append (ruling 7 of the design): nothing follows from them but
    /// the next question to the model.
    fn may_wait(&self, draft: &Draft) -> bool {
        let outcome =
            |event: &Event| matches!(event, Event::CallEnded(ended) if matches!(ended.end, CallEnd::Outcome(_)));
        let wanted = toolgate_core::outstanding(&draft.after, &self.bundle);
        draft.events.iter().all(outcome)
            && !wanted.is_empty()
            && wanted.iter().all(|effect| matches!(effect, Effect::AskModel { .. }))
    }

    /// Takes the state of a draft that is appended with whatever comes next, or by itself a little later. Until then nobody
    /// outside is told of it.
    fn hold(&mut self, draft: Draft, blobs: Vec<Blob>) -> Result<(), (Failure, Exit)> {
        let batch = draft.batch(&self.state, &self.bundle, blobs, None, None);
        let append = self.journal.compose(batch, None).map_err(|failure| (failure, Exit::Failed))?;
        let sizes = sizes(&append, draft.events.len());
        self.journal.hold(append);
        self.take(draft, &sizes);
        self.held_until = Some(tokio::time::Instant::now() + HELD_AT_MOST);
        Ok(())
    }

    /// [`Self::flush`], where nobody waits for an answer.
    async fn settled(&mut self) -> Result<(), Exit> {
        self.flush().await.map_err(|failed| self.unrecorded(failed))
    }

    /// Makes durable what was held back.
    async fn flush(&mut self) -> Result<(), (Failure, Exit)> {
        let Some(held) = self.journal.release() else { return Ok(()) };
        self.append(held).await?;
        self.publish();
        Ok(())
    }

    /// Tells those who watch the session of what is durable now.
    fn publish(&mut self) {
        self.watched.publish(&self.state, std::mem::take(&mut self.untold));
    }

    /// Whatever is not durable after this has made the codec go on to rows that were never written: load again before
    /// anything else.
    async fn append(&mut self, append: Append) -> Result<(), (Failure, Exit)> {
        self.held_until = None;
        match Journal::append(self.deps, append).await {
            Ok(Written::Durable) => Ok(()),
            Ok(Written::Duplicate { seq }) => Err((Failure::Repeated { seq }, Exit::Failed)),
            Ok(Written::KeyTaken) => Err((Failure::IdempotencyReused, Exit::Failed)),
            Ok(Written::Lost) => Err((Failure::Busy, Exit::Lost)),
            Err(failure) => Err((failure, Exit::Failed)),
        }
    }

    fn take(&mut self, draft: Draft, sizes: &[usize]) -> Vec<Recorded> {
        let Draft { events, mut input_id, at, first_seq, after } = draft;
        let epoch = after.epoch;
        self.deps.metrics.appended(&self.state, &events, &after, &self.bundle);
        self.state = after;
        self.updated_at = at;
        let record = |(seq, event)| Recorded { seq, epoch, at, input_id: input_id.take(), event };
        let recorded: Vec<Recorded> = (first_seq..).zip(events).map(record).collect();
        if self.watched.is_followed() {
            self.untold.extend(recorded.iter().zip(sizes).map(|(recorded, size)| Live::new(recorded.clone(), *size)));
        }
        recorded
    }

    fn answer(&self, wanted: &Idempotency, draft: &Draft) -> IdempotencyRow {
        let snapshot = Snapshot { state: Arc::clone(&draft.after), updated_at: draft.at, ..self.snapshot() };
        idempotency_row(wanted, &snapshot, draft.at)
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
                self.attached = Some(Box::new(attached));
                (Ok(attachment), None)
            }
            Err((failure, exit)) => (Err(AttachRefused::Failed(failure)), Some(exit)),
        };
        let gave: Result<(), Result<Attachment, AttachRefused>> = reply.send(answer);
        if gave.is_err() {
            self.attached = None;
        }
        exit.map_or(Ok(()), Err)
    }

    /// Starts what must be under way and stops what must not.
    async fn reconcile(&mut self) -> Result<(), Exit> {
        // In this order: a lease that is young now may have lapsed before.
        self.held_back = !self.deps.nodes.may_act(self.deps.settings.lease) || !self.owns().await?;
        if self.held_back {
            return Ok(());
        }
        let wanted = toolgate_core::outstanding(&self.state, &self.bundle);
        let (offers, tasks): (BTreeMap<_, _>, Vec<_>) = super::effects::split(wanted);
        self.effects.reconcile(tasks, &self.state, &self.bundle);
        if let Some(attached) = self.attached.as_mut() {
            // A client that takes nothing loses its place; its calls stay open.
            if !attached.offer(&offers) {
                self.attached = None;
            }
        }
        Ok(())
    }

    /// Whether the session is known to be this node's still. A lease that lapsed and was renewed tells nothing: another node
    /// may have taken the session and settled what this one was about to start.
    async fn owns(&mut self) -> Result<bool, Exit> {
        let lapses = self.deps.nodes.lapses();
        if lapses == self.journal.lapses {
            return Ok(true);
        }
        match self.deps.store.session(&self.journal.tenant, self.journal.session).await {
            Ok(Some(row)) if row.epoch == self.journal.next.epoch => {
                self.journal.lapses = lapses;
                Ok(true)
            }
            Ok(_) => Err(Exit::Lost),
            Err(error) => {
                tracing::warn!(session = %self.state.id, %error, "whose the session is could not be read; nothing is started");
                Ok(false)
            }
        }
    }
}

/// What the last rows of an append take in the log.
fn sizes(append: &Append, rows: usize) -> Vec<usize> {
    let last = append.rows.len().saturating_sub(rows);
    append.rows.iter().skip(last).map(|row| row.header.len() + row.payload.len()).collect()
}

/// The answer to store beside an effect.
pub(super) fn idempotency_row(wanted: &Idempotency, snapshot: &Snapshot, at: Timestamp) -> IdempotencyRow {
    let (status, body) = crate::wire::session::receipt(wanted.status, snapshot);
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
