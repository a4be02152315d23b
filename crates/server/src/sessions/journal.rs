//! One session's place in the log while this node owns it: makes the rows of a batch and appends them with everything
//! that becomes durable together. What is not here: deciding, and what runs afterwards (`actor`).

use std::sync::Arc;
use std::time::Duration;

use toolgate_core::bundle::Bundle;
use toolgate_core::event::{Event, OwnerChanged};
use toolgate_core::id::{InputId, SessionId, Sha256Digest, TenantId};
use toolgate_core::session::Session;
use toolgate_core::time::Timestamp;
use toolgate_store::chain::Position;
use toolgate_store::{
    Append, Appended, Blob, Codec, Created, IdempotencyRow, NewSession, StoreError, TakeOver, TakenOver, WrappedKey,
};

use super::Snapshot;
use super::beside::{approvals, observed, projection, security};
use super::deps::Deps;
use super::load::{Loaded, load};
use crate::crash;
use crate::failure::Failure;

/// First wait before an append is sent again; doubles up to the second.
const RETRY_FIRST: Duration = Duration::from_millis(20);
/// Longest wait between repetitions.
const RETRY_MOST: Duration = Duration::from_secs(1);
/// Times a take-over is tried anew after somebody else was faster.
const TAKE_OVER_TRIES: u32 = 8;

/// The open end of a session's log.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) tenant: TenantId,
    pub(super) session: SessionId,
    pub(super) codec: Codec,
    pub(super) next: Position,
    /// Rows that are made and go with the next append.
    pub(super) held: Option<Box<Append>>,
    /// How often the node's lease had lapsed when the session was last known to be the node's.
    pub(super) lapses: u64,
}

/// A batch: what was decided and what belongs to it.
pub(super) struct Batch<'a> {
    pub(super) events: &'a [Event],
    pub(super) input_id: Option<InputId>,
    pub(super) at: Timestamp,
    /// The state before and after the events.
    pub(super) before: &'a Session,
    pub(super) after: &'a Session,
    /// The session's bundle: it says who is told.
    pub(super) bundle: &'a Bundle,
    pub(super) blobs: Vec<Blob>,
    pub(super) idempotency: Option<IdempotencyRow>,
    /// The inbox row that the events answer.
    pub(super) consumed: Option<InputId>,
}

/// What became of a batch.
pub(super) enum Written {
    /// Durable.
    Durable,
    /// An input of it is in the log already.
    Duplicate { seq: u64 },
    /// The idempotency key has another answer by now.
    KeyTaken,
    /// Somebody else owns the session, or the log is elsewhere than assumed: forget everything.
    Lost,
}

/// A session to create.
pub(super) struct NewLog<'a> {
    pub(super) alias: Option<String>,
    pub(super) fingerprint: Sha256Digest,
    pub(super) bundle: Sha256Digest,
    pub(super) batch: Batch<'a>,
}

impl Journal {
    /// Loads a session and makes this node its owner.
    pub(super) async fn take(deps: &Deps, tenant: &TenantId, session: SessionId) -> Result<Loaded, Failure> {
        for _ in 0..TAKE_OVER_TRIES {
            let mut loaded = load(deps, tenant, session).await?;
            if loaded.owner.as_ref() == Some(&deps.node) || loaded.state.closed {
                return Ok(loaded);
            }
            if loaded.owner.as_ref().is_some_and(|owner| owner.node != deps.node.node && deps.nodes.is_alive(owner)) {
                return Err(Failure::OwnedElsewhere);
            }
            let mut at = loaded.next;
            at.epoch += 1;
            let now = deps.clock.now();
            let event = Event::OwnerChanged(OwnerChanged {
                node: deps.node.node.as_str().to_owned(),
                incarnation: deps.node.incarnation,
            });
            let encoded = loaded.codec.encode(&[event], None, now, at).map_err(|e| Failure::Internal(e.to_string()))?;
            let Some(row) = encoded.rows.into_iter().next() else {
                return Err(Failure::Internal("a take-over made no row".to_owned()));
            };
            let take_over =
                Arc::new(TakeOver { tenant: tenant.clone(), session, owner: deps.node.clone(), row: row.clone() });
            let answer = repeat(deps, || deps.store.take_over(Arc::clone(&take_over))).await?;
            match answer {
                TakenOver::Ok { .. } | TakenOver::Already { .. } => {
                    crash::point("K13");
                    let recorded = loaded.codec.decode(&row).map_err(|e| Failure::Internal(e.to_string()))?;
                    toolgate_core::fold(&mut loaded.state, &recorded);
                    loaded.owner = Some(deps.node.clone());
                    loaded.next = encoded.next;
                    loaded.updated_at = now;
                    return Ok(loaded);
                }
                TakenOver::Owned { .. } => return Err(Failure::OwnedElsewhere),
                TakenOver::Stale { .. } => {}
            }
        }
        Err(Failure::OwnedElsewhere)
    }

    /// Creates a session's log with its first rows.
    pub(super) async fn create(
        deps: &Deps,
        tenant: &TenantId,
        session: SessionId,
        new: NewLog<'_>,
    ) -> Result<(Self, Created), Failure> {
        let lapses = deps.nodes.lapses();
        let (codec, key) = Codec::create(tenant.clone(), session, deps.master.clone())
            .map_err(|error| Failure::Internal(error.to_string()))?;
        let mut journal = Self { tenant: tenant.clone(), session, codec, next: Position::FIRST, held: None, lapses };
        let created_at = new.batch.at;
        let append = journal.compose(new.batch, Some(key))?;
        let new_session = Arc::new(NewSession {
            alias: new.alias,
            body_fingerprint: new.fingerprint,
            bundle: new.bundle,
            created_at,
            owner: deps.node.clone(),
            append,
        });
        let created = repeat(deps, || deps.lanes.create(Arc::clone(&new_session))).await?;
        Ok((journal, created))
    }

    /// The session that was just created, as if it had been loaded.
    pub(super) fn into_loaded(self, created: &Snapshot) -> Loaded {
        Loaded {
            tenant: self.tenant,
            alias: created.alias.clone(),
            created_at: created.created_at,
            owner: None,
            state: Session::clone(&created.state),
            codec: self.codec,
            bundle: Arc::clone(&created.bundle),
            next: self.next,
            updated_at: created.updated_at,
            lapses: self.lapses,
        }
    }

    /// Makes the append of a batch, with the rows that are held back before its own. The journal goes on behind them: unless
    /// all of it becomes durable, the session must be loaded again.
    pub(super) fn compose(&mut self, batch: Batch<'_>, first_key: Option<WrappedKey>) -> Result<Append, Failure> {
        let expected_head = self.next.seq - 1;
        let epoch = self.next.epoch;
        let internal = |error: toolgate_store::CodecError| Failure::Internal(error.to_string());
        let approvals = approvals(&self.codec, &batch).map_err(internal)?;
        let outbox = observed(&batch, self.next.seq);
        let encoded =
            self.codec.encode(batch.events, batch.input_id.as_ref(), batch.at, self.next).map_err(internal)?;
        self.next = encoded.next;
        let append = Append {
            tenant: self.tenant.clone(),
            session: self.session,
            epoch,
            expected_head,
            rows: encoded.rows,
            consumed_inbox: batch.consumed.into_iter().collect(),
            idempotency: batch.idempotency,
            outbox,
            projection: projection(batch.after, batch.at),
            approvals,
            blobs: batch.blobs,
            new_keys: first_key.into_iter().chain(encoded.new_keys).collect(),
            destroyed_keys: encoded.destroyed_keys,
            security: security(self.session, batch.after, batch.events, batch.at),
        };
        Ok(match self.held.take() {
            Some(held) => held.followed_by(append),
            None => append,
        })
    }

    /// Keeps an append back, to go with the next.
    pub(super) fn hold(&mut self, append: Append) {
        self.held = Some(Box::new(append));
    }

    /// What was kept back.
    pub(super) fn release(&mut self) -> Option<Append> {
        self.held.take().map(|held| *held)
    }

    /// Appends and says what became of it. After an error nothing is known: forget the session's state.
    pub(super) async fn append(deps: &Deps, append: Append) -> Result<Written, Failure> {
        let append = Arc::new(append);
        let answer = repeat(deps, || deps.lanes.append(Arc::clone(&append))).await?;
        Ok(match answer {
            Appended::Ok { .. } | Appended::Already { .. } => {
                crash::recorded(&append.rows);
                Written::Durable
            }
            Appended::DuplicateInput { seq, .. } => Written::Duplicate { seq },
            Appended::IdempotencyConflict => Written::KeyTaken,
            Appended::Stale { .. } | Appended::Fenced { .. } => Written::Lost,
        })
    }
}

/// Sends the very same bytes again while the outcome is unknown, within the server's patience.
async fn repeat<T, F, Fut>(deps: &Deps, mut send: F) -> Result<T, Failure>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, StoreError>>,
{
    let until = tokio::time::Instant::now() + deps.settings.append_patience;
    let mut wait = RETRY_FIRST;
    loop {
        match send().await {
            Err(error) if error.outcome_unknown() && tokio::time::Instant::now() + wait < until => {
                tracing::warn!(%error, "the database is away; the same bytes are sent again");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RETRY_MOST);
            }
            answer => return answer.map_err(Failure::from),
        }
    }
}
