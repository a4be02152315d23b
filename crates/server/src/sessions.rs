//! The sessions of a server: open, submit inputs, read, watch, verify, attach clients. Handlers and the channel know
//! only this. What is not here: HTTP and frames; the actor that owns one session (`sessions::actor`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use toolgate_core::bundle::Bundle;
use toolgate_core::event::Recorded;
use toolgate_core::id::{Capability, ClientInstance, InputId, Label, ProfileName, SessionId, Sha256Digest, TenantId};
use toolgate_core::input::{Input, Narrowed, Open, Stamped};
use toolgate_core::invariants::Broken;
use toolgate_core::json::Json;
use toolgate_core::profile::ControlMode;
use toolgate_core::session::Session;
use toolgate_core::time::Timestamp;
use toolgate_core::{Decided, Reply, decide};
use toolgate_core::{Divergence, Order};
use toolgate_store::{ApprovalBody, ApprovalRow, Created, IdempotencyKey, MasterKey, SessionKey, Store};

use crate::caller::Caller;
use crate::crash;
use crate::failure::Failure;

mod actor;
mod admission;
mod ask;
mod attached;
mod beside;
mod bundles;
mod deltas;
mod deps;
mod effects;
mod elsewhere;
mod handed;
mod heads;
mod heartbeat;
mod inbox;
mod journal;
mod ledger;
mod letter;
mod live;
mod load;
mod mail;
mod nodes;
mod output;
mod registry;
mod resume;
mod setbacks;
mod verify;

pub use bundles::Bundles;
pub use deltas::{Deltas, Piece, Shown, Watcher};
pub use deps::{Deps, SessionSettings};
pub use heads::{Follow, Head, More};
pub use live::Live;
pub use nodes::Nodes;

use journal::{Batch, Journal, NewLog};
use mail::{AttachOrder, Mail, Untaken};
use registry::Registry;

/// How long a reader waits for the owner of a session before it reads the log itself.
const READ_PATIENCE: Duration = Duration::from_secs(1);
/// Times an input is sent anew because its session was just changing hands.
const ROUTE_TRIES: u32 = 4;

/// A session at one moment.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Its state.
    pub state: Arc<Session>,
    /// The bundle it pinned.
    pub bundle: Arc<Bundle>,
    /// The caller's own id.
    pub alias: Option<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When its last event was written.
    pub updated_at: Timestamp,
}

/// A request to start a session.
#[derive(Debug, Clone)]
pub struct OpenRequest {
    /// The caller's own id, unique in the tenant.
    pub alias: Option<String>,
    /// The profile asked for.
    pub profile: Option<ProfileName>,
    /// The label asked for.
    pub label: Option<Label>,
    /// What the caller's client can do.
    pub capabilities: BTreeSet<Capability>,
    /// Narrower bounds.
    pub limits: Narrowed,
    /// More control than the profile's.
    pub control: Option<ControlMode>,
    /// Execute nothing.
    pub dry_run: bool,
    /// The session's own output schema.
    pub output_schema: Option<Json>,
    /// The first message.
    pub prompt: String,
    /// Free metadata.
    pub metadata: BTreeMap<String, String>,
    /// W3C trace context.
    pub trace: Option<String>,
    /// Fingerprint of the body, to tell a repetition of the alias from a conflict.
    pub fingerprint: Sha256Digest,
    /// The answer to store with the effect, when the request carried an idempotency key.
    pub idempotency: Option<Idempotency>,
}

/// What makes the answer to a request durable together with its effect.
#[derive(Debug, Clone)]
pub struct Idempotency {
    /// The scope.
    pub key: IdempotencyKey,
    /// Fingerprint of the body.
    pub fingerprint: Sha256Digest,
    /// The HTTP status of the answer; its body is the session as it is after the effect.
    pub status: u16,
}

/// The answer to a request to start a session.
#[derive(Debug, Clone)]
pub enum Opened {
    /// It was created.
    Created(Snapshot),
    /// The alias names a session that was created with the same body.
    Existing(Snapshot),
}

/// An input and what comes with it.
#[derive(Debug)]
pub struct Submission {
    /// Unique in the session; a repeated one is answered, not applied.
    pub id: Option<InputId>,
    /// The input.
    pub input: Input,
    /// The answer to store with the effect.
    pub idempotency: Option<Idempotency>,
}

/// The answer to a submission.
#[derive(Debug, Clone)]
pub struct Taken {
    /// The session after it.
    pub snapshot: Snapshot,
    /// The events that follow from it, the record of the input first; empty when nothing changed.
    pub events: Vec<Recorded>,
    /// Set when the same input was taken before: where its record stands.
    pub already: Option<u64>,
}

/// A client's place as the executor of a session; dropping it gives the place up (the calls stay open).
#[derive(Debug)]
pub struct Attachment {
    /// Calls to offer, each until its outcome is recorded; all open ones come first. Closed when a newer connection of the
    /// same instance has taken the place.
    pub offers: mpsc::Receiver<Order>,
    /// Gives the place up when dropped.
    pub guard: AttachGuard,
}

/// Gives an executor's place up when dropped.
#[derive(Debug)]
pub struct AttachGuard {
    _gives_up_when_dropped: oneshot::Sender<()>,
}

/// Why a client did not become the executor.
#[derive(Debug)]
pub enum AttachRefused {
    /// Another instance is connected and executes; this one may only observe.
    ExecutorTaken,
    /// The request failed.
    Failed(Failure),
}

/// What strict verification found.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// Rows checked.
    pub events: u64,
    /// Inputs that were decided again.
    pub redecided: u64,
    /// Sequence numbers of inputs whose content was redacted and is destroyed.
    pub redacted: Vec<u64>,
    /// What does not fit first, if anything.
    pub fault: Option<VerifyFault>,
}

/// The first thing in a log that does not fit.
#[derive(Debug, Clone)]
pub enum VerifyFault {
    /// The hash chain is broken.
    Chain {
        /// The first bad sequence number.
        seq: u64,
        /// What is wrong.
        detail: String,
    },
    /// The log is whole, but the rules decide otherwise.
    Decision(Divergence),
    /// Every decision comes out the same, and yet the log breaks a promise that all logs keep.
    Invariant(Broken),
    /// The content was erased, so that it cannot be decided again.
    Erased {
        /// The first sequence number that cannot be read.
        seq: u64,
    },
}

/// The sessions of a server. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Sessions {
    deps: Arc<Deps>,
    registry: Arc<Registry>,
    /// Cancelled once the node holds no lease any more.
    left: CancellationToken,
}

impl Sessions {
    /// What the sessions are built on.
    pub(crate) const fn deps(&self) -> &Arc<Deps> {
        &self.deps
    }

    /// The sessions over these parts. Nothing runs before [`Sessions::start`].
    #[must_use]
    pub fn new(deps: Deps) -> Self {
        let deps = Arc::new(deps);
        Self { registry: Registry::new(Arc::clone(&deps)), deps, left: CancellationToken::new() }
    }

    /// Resumes every run that was under way, and keeps timers going. Answers how many sessions were woken.
    pub async fn start(&self) -> Result<u64, Failure> {
        heartbeat::beat(&self.deps).await?;
        let woken = resume::resume_open(&self.deps, &self.registry).await?;
        let (deps, registry) = (|| Arc::clone(&self.deps), || Arc::clone(&self.registry));
        tokio::spawn(resume::keep_going(deps(), registry()));
        tokio::spawn(inbox::consume(deps(), registry()));
        tokio::spawn(heads::keep(deps(), registry()));
        tokio::spawn(heartbeat::keep(deps(), registry(), self.left.clone()));
        tokio::spawn(heartbeat::send_hints(deps(), self.left.clone()));
        tokio::spawn(heartbeat::take_hints(deps(), self.left.clone()));
        let (deps, registry, left) = (deps(), registry(), self.left.clone());
        tokio::spawn(async move { registry.handed().keep(&deps, &left).await });
        Ok(woken)
    }

    /// The nodes that share the store.
    #[must_use]
    pub fn nodes(&self) -> &Nodes {
        &self.deps.nodes
    }

    /// Whether the node's lease is young enough to start anything.
    #[must_use]
    pub fn may_act(&self) -> bool {
        self.deps.nodes.may_act(self.deps.settings.lease)
    }

    /// How many sessions are in memory; the others cost nothing but their rows.
    #[must_use]
    pub fn in_memory(&self) -> usize {
        self.registry.held()
    }

    /// How many sessions in memory run, and how many wait for something outside.
    pub(crate) fn census(&self) -> (usize, usize) {
        self.registry.census()
    }

    /// Starts nothing new and waits until running tools have reported.
    pub async fn stop(&self) {
        self.deps.stopping.cancel();
        self.registry.drained().await;
        let others = self.deps.nodes.others(&self.deps.node.node);
        let freed = async {
            self.registry.handed().flush(&self.deps).await?;
            self.deps.store.node_leave(&self.deps.node).await?;
            if self.deps.settings.hints { self.deps.store.hint(&others).await } else { Ok(()) }
        };
        if let Err(error) = freed.await {
            tracing::warn!(%error, "the node could not say that it leaves; its lease runs out by itself");
        }
        self.left.cancel();
    }

    /// Starts a session under the tenant's current bundle.
    pub async fn open(&self, caller: &Caller, request: OpenRequest) -> Result<Opened, Failure> {
        let deps = &self.deps;
        if deps.nodes.draining().is_cancelled() {
            return Err(Failure::Busy);
        }
        let bundle = deps.bundles.current(&*deps.store, &caller.tenant).await?;
        let id = crate::clock::new_session_id();
        let before = Session::new(id);
        let stamped = Stamped { at: deps.clock.now(), id: None, input: open_input(caller, &bundle, &request) };
        let Decided { events, reply } = decide(&before, &bundle, &stamped);
        if let Reply::Refused(refusal) = reply {
            return Err(Failure::Refused(refusal));
        }
        let mut after = before.clone();
        for event in &events {
            toolgate_core::apply(&mut after, event);
        }
        after.epoch = 1;
        let snapshot = Snapshot {
            state: Arc::new(after),
            bundle: Arc::clone(&bundle),
            alias: request.alias.clone(),
            created_at: stamped.at,
            updated_at: stamped.at,
        };
        let idempotency =
            request.idempotency.as_ref().map(|wanted| actor::idempotency_row(wanted, &snapshot, stamped.at));
        let batch = Batch {
            events: &events,
            input_id: None,
            at: stamped.at,
            before: &before,
            after: &snapshot.state,
            bundle: &bundle,
            blobs: Vec::new(),
            idempotency,
            consumed: None,
        };
        let new = NewLog { alias: request.alias, fingerprint: request.fingerprint, bundle: bundle.digest(), batch };
        let (journal, created) = Journal::create(deps, &caller.tenant, id, new).await?;
        match created {
            Created::Ok { .. } | Created::Already { .. } => {
                crash::point("K1");
                deps.metrics.appended(&before, &events, &snapshot.state, &bundle);
                let key = SessionKey { tenant: caller.tenant.clone(), session: id };
                self.registry.adopt(&key, journal.into_loaded(&snapshot));
                Ok(Opened::Created(snapshot))
            }
            Created::AliasExists { session, same_body: true } => {
                self.snapshot(&caller.tenant, session).await.map(Opened::Existing)
            }
            Created::AliasExists { session, same_body: false } => Err(Failure::AliasTaken { session }),
            Created::IdempotencyConflict => Err(Failure::IdempotencyReused),
            Created::SessionExists => Err(Failure::Internal("a fresh session id was taken".to_owned())),
        }
    }

    /// Hands an input to the session's owner and waits until its consequences are durable. A caller that goes away
    /// takes nothing with it.
    pub async fn submit(
        &self,
        tenant: &TenantId,
        session: SessionId,
        submission: Submission,
    ) -> Result<Taken, Failure> {
        let key = SessionKey { tenant: tenant.clone(), session };
        let mut submission = Box::new(submission);
        for _ in 0..ROUTE_TRIES {
            if !self.registry.holds(&key)
                && let Some(owners) = elsewhere::owners(&self.deps, &key).await?
            {
                return elsewhere::submit(&self.deps, &key, *submission, owners).await;
            }
            let (reply, answer) = oneshot::channel();
            self.registry.send(&key, Mail::Submit(submission, reply)).await?;
            let stopped = || Untaken::from(Failure::Internal("the session's actor stopped".to_owned()));
            match answer.await.unwrap_or_else(|_| Err(stopped())) {
                Ok(taken) => return Ok(taken),
                // The session has just gone to another node, or this one has not heard of its owner yet.
                Err(Untaken { failure: Failure::OwnedElsewhere | Failure::Busy, submission: Some(untaken) })
                    if !self.deps.stopping.is_cancelled() =>
                {
                    heartbeat::look(&self.deps).await?;
                    submission = untaken;
                }
                Err(untaken) => return Err(untaken.failure),
            }
        }
        Err(Failure::Busy)
    }

    /// The session as it is now.
    pub async fn snapshot(&self, tenant: &TenantId, session: SessionId) -> Result<Snapshot, Failure> {
        let key = SessionKey { tenant: tenant.clone(), session };
        if self.registry.holds(&key) {
            let (reply, answer) = oneshot::channel();
            let asked = self.registry.send(&key, Mail::Snapshot(reply)).await;
            // Whoever cannot write at the moment, since the disk is full or the database away, or is at its work for long,
            // does not keep others from reading: the log has all that is durable.
            if let (Ok(()), Ok(Ok(Ok(snapshot)))) = (asked, tokio::time::timeout(READ_PATIENCE, answer).await) {
                return Ok(snapshot);
            }
        }
        load::load(&self.deps, tenant, session).await.map(load::Loaded::into_snapshot)
    }

    /// The session that a caller's own id names.
    pub async fn find_alias(&self, tenant: &TenantId, alias: &str) -> Result<Snapshot, Failure> {
        let row = self.deps.store.session_by_alias(tenant, alias).await?.ok_or(Failure::NoSuchSession)?;
        self.snapshot(tenant, row.session).await
    }

    /// Events after `after_seq`, oldest first, at most `limit`.
    pub async fn events(
        &self,
        tenant: &TenantId,
        session: SessionId,
        after_seq: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, Failure> {
        let rows = self.deps.store.read(tenant, session, after_seq, limit).await?;
        if rows.is_empty() {
            self.exists(tenant, session).await?;
            return Ok(Vec::new());
        }
        let codec = self.codec(tenant, session).await?;
        load::decode_all(&codec, &rows)
    }

    /// Follows the head of a session. A hint; the log is the truth.
    pub async fn watch(&self, tenant: &TenantId, session: SessionId) -> Result<watch::Receiver<Head>, Failure> {
        let key = SessionKey { tenant: tenant.clone(), session };
        let head = self.head_of(&key).await?;
        Ok(self.registry.watch(&key, head))
    }

    /// Follows the events of a session.
    pub async fn follow(&self, tenant: &TenantId, session: SessionId) -> Result<Follow, Failure> {
        let key = SessionKey { tenant: tenant.clone(), session };
        let head = self.head_of(&key).await?;
        Ok(self.registry.follow(&key, head))
    }

    /// Shows pieces of the answers that models give in a session of this tenant, as far as this node asks them.
    #[must_use]
    pub fn deltas(&self, tenant: &TenantId, session: SessionId) -> Watcher {
        self.deps.deltas.watch(SessionKey { tenant: tenant.clone(), session })
    }

    /// Events after `after_seq` for somebody who follows, oldest first, at most `limit`.
    pub async fn next_events(
        &self,
        follow: &mut Follow,
        tenant: &TenantId,
        session: SessionId,
        after_seq: u64,
        limit: u32,
    ) -> Result<Vec<Arc<Live>>, Failure> {
        if let Some(events) = follow.after(after_seq) {
            return Ok(events);
        }
        let events = self.events(tenant, session, after_seq, limit).await?;
        // Nobody else sends these.
        Ok(events.into_iter().map(|recorded| Arc::new(Live::new(recorded, 0))).collect())
    }

    /// The head of a session of this tenant, as far as it is known.
    async fn head_of(&self, key: &SessionKey) -> Result<u64, Failure> {
        if let Some(head) = self.registry.head_here(key) {
            return Ok(head);
        }
        let row = self.deps.store.session(&key.tenant, key.session).await?.ok_or(Failure::NoSuchSession)?;
        if row.owner.as_ref() != Some(&self.deps.node) {
            self.registry.is_elsewhere(key);
        }
        Ok(row.head_seq)
    }

    /// Makes a client the executor of a session: recorded, then every open call of its is offered.
    pub async fn attach(
        &self,
        caller: &Caller,
        session: SessionId,
        instance: ClientInstance,
        capabilities: BTreeSet<Capability>,
    ) -> Result<Attachment, AttachRefused> {
        let key = SessionKey { tenant: caller.tenant.clone(), session };
        if !self.registry.holds(&key) {
            elsewhere::ask_for(&self.deps, &key).await?;
        }
        let (reply, answer) = oneshot::channel();
        let order = AttachOrder { instance, by: caller.actor.clone(), capabilities, reply };
        self.registry.send(&key, Mail::Attach(Box::new(order))).await.map_err(AttachRefused::Failed)?;
        let stopped = || AttachRefused::Failed(Failure::Internal("the session's actor stopped".to_owned()));
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }

    /// Checks the chain and decides every recorded input again.
    pub async fn verify(&self, tenant: &TenantId, session: SessionId) -> Result<VerifyReport, Failure> {
        verify::verify(&*self.deps.store, &self.deps.master, &self.deps.bundles, tenant, session).await
    }

    /// The bytes of a blob, opened.
    pub async fn blob(&self, tenant: &TenantId, session: SessionId, digest: &Sha256Digest) -> Result<Vec<u8>, Failure> {
        let blob = self.deps.store.blob(tenant, session, digest).await?.ok_or(Failure::NoSuchSession)?;
        let codec = self.codec(tenant, session).await?;
        codec.open_blob(&blob.content).map_err(|error| load::unreadable(&error))
    }

    /// The content of an approval, opened.
    pub async fn approval_body(&self, tenant: &TenantId, row: &ApprovalRow) -> Result<ApprovalBody, Failure> {
        let codec = self.codec(tenant, row.session).await?;
        codec.open_approval(&row.body).map_err(|error| load::unreadable(&error))
    }

    async fn codec(&self, tenant: &TenantId, session: SessionId) -> Result<toolgate_store::Codec, Failure> {
        load::open_codec(&*self.deps.store, &self.deps.master, tenant, session).await
    }

    /// The head of a session of this tenant.
    async fn exists(&self, tenant: &TenantId, session: SessionId) -> Result<u64, Failure> {
        let row = self.deps.store.session(tenant, session).await?.ok_or(Failure::NoSuchSession)?;
        Ok(row.head_seq)
    }
}

/// Verifies a stored session without a server: for auditors who have the database and the master key.
pub async fn verify_stored(
    store: &dyn Store,
    master: &MasterKey,
    tenant: &TenantId,
    session: SessionId,
) -> Result<VerifyReport, Failure> {
    verify::verify(store, master, &Bundles::default(), tenant, session).await
}

fn open_input(caller: &Caller, bundle: &Bundle, request: &OpenRequest) -> Input {
    Input::Open(Box::new(Open {
        tenant: caller.tenant.clone(),
        by: caller.actor.clone(),
        alias: request.alias.clone(),
        bundle: bundle.digest(),
        profile: request.profile.clone(),
        label: request.label.clone(),
        ceiling: caller.ceiling.clone(),
        capabilities: request.capabilities.clone(),
        limits: request.limits,
        control: request.control,
        dry_run: request.dry_run,
        output_schema: request.output_schema.clone(),
        prompt: request.prompt.clone(),
        trace: request.trace.clone(),
        metadata: request.metadata.clone(),
    }))
}
