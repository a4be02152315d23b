//! The sessions that are in memory: at most one actor each, loaded when mail comes, restarted when it fails. A panic of
//! one never hurts another. What is not here: the actor itself.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_store::{HandOver, SessionKey};

use super::actor::{Actor, Exit};
use super::deps::Deps;
use super::handed::Handed;
use super::heads::{Follow, Head, Watched};
use super::journal::Journal;
use super::load::Loaded;
use super::mail::Mail;
use super::setbacks::Setbacks;
use crate::failure::Failure;

/// Panics in a row after which a session is set aside.
const PANICS_BEFORE_QUARANTINE: u32 = 3;
/// First wait before a failed session is loaded again; doubles up to the most.
const RESTART_FIRST: Duration = Duration::from_millis(100);
/// Longest wait before a failed session is loaded again.
const RESTART_MOST: Duration = Duration::from_secs(10);
/// Times mail is sent anew because the session was just leaving memory.
const SEND_TRIES: u32 = 16;

/// The sessions in memory.
#[derive(Debug)]
pub(super) struct Registry {
    deps: Arc<Deps>,
    actors: Mutex<HashMap<SessionKey, Entry>>,
    heads: Mutex<HashMap<SessionKey, Watched>>,
    /// Watched here, owned elsewhere.
    elsewhere: Mutex<HashSet<SessionKey>>,
    handed: Handed,
    loads: Semaphore,
    setbacks: Setbacks,
    tracker: TaskTracker,
}

/// A session in memory.
#[derive(Debug, Clone)]
struct Entry {
    mail: mpsc::Sender<Box<Mail>>,
    /// Cancelled once it has left memory.
    left: CancellationToken,
}

impl Registry {
    pub(super) fn new(deps: Arc<Deps>) -> Arc<Self> {
        let loads = Semaphore::new(deps.settings.loads_at_once);
        Arc::new(Self {
            deps,
            actors: Mutex::default(),
            heads: Mutex::default(),
            elsewhere: Mutex::default(),
            handed: Handed::default(),
            loads,
            setbacks: Setbacks::default(),
            tracker: TaskTracker::new(),
        })
    }

    /// Sends mail to a session, loading it if need be.
    pub(super) async fn send(self: &Arc<Self>, key: &SessionKey, mail: Mail) -> Result<(), Failure> {
        // Boxed, since the mailbox of every session has room for some from the start.
        let mut mail = Box::new(mail);
        for _ in 0..SEND_TRIES {
            if self.deps.stopping.is_cancelled() {
                return Err(Failure::Busy);
            }
            let entry = self.entry(key, None);
            mail = match entry.mail.try_send(mail) {
                Ok(()) => return Ok(()),
                Err(mpsc::error::TrySendError::Full(_)) => return Err(Failure::Busy),
                Err(mpsc::error::TrySendError::Closed(mail)) => mail,
            };
            entry.left.cancelled().await;
        }
        Err(Failure::Busy)
    }

    /// Takes a session that was created just now into memory, without reading its log back.
    pub(super) fn adopt(self: &Arc<Self>, key: &SessionKey, created: Loaded) {
        if !self.deps.stopping.is_cancelled() {
            self.entry(key, Some(Box::new(created)));
        }
    }

    /// Whether the session is in memory.
    pub(super) fn holds(&self, key: &SessionKey) -> bool {
        self.actors().contains_key(key)
    }

    /// How many sessions are in memory.
    pub(super) fn held(&self) -> usize {
        self.actors().len()
    }

    /// How many sessions in memory run, and how many wait for something outside.
    pub(super) fn census(&self) -> (usize, usize) {
        let actors = self.actors();
        let heads = self.heads();
        let runs = |key: &&SessionKey| heads.get(*key).is_some_and(|watched| watched.head.borrow().runs);
        let running = actors.keys().filter(runs).count();
        (running, actors.len() - running)
    }

    /// Whether the session may be loaded once more, if it could not be of late.
    pub(super) fn may_try(&self, key: &SessionKey) -> bool {
        self.setbacks.may_try(key)
    }

    /// The sessions in memory.
    pub(super) fn keys(&self) -> Vec<SessionKey> {
        self.actors().keys().cloned().collect()
    }

    /// Sessions that are to be given away.
    pub(super) const fn handed(&self) -> &Handed {
        &self.handed
    }

    /// Sessions that are watched here and not in memory, since another node owns them.
    pub(super) fn watched_elsewhere(&self) -> Vec<SessionKey> {
        let mut elsewhere = self.elsewhere();
        if elsewhere.is_empty() {
            return Vec::new();
        }
        let actors = self.actors();
        let mut heads = self.heads();
        elsewhere.retain(|key| {
            if actors.contains_key(key) {
                return false;
            }
            let is_watched = heads.get(key).is_some_and(|watched| watched.head.receiver_count() > 0);
            if !is_watched {
                heads.remove(key);
            }
            is_watched
        });
        elsewhere.iter().cloned().collect()
    }

    /// The log of a session that is not in memory ends here.
    pub(super) fn raise(&self, key: &SessionKey, head: u64) {
        if let Some(watched) = self.heads().get(key) {
            watched.head.send_if_modified(|known| {
                let more = known.seq < head;
                known.seq = head.max(known.seq);
                more
            });
        }
    }

    /// Another node owns this session: its head is looked for as long as it is watched.
    pub(super) fn is_elsewhere(&self, key: &SessionKey) {
        self.elsewhere().insert(key.clone());
    }

    /// Follows the head of a session, whether it is in memory or not.
    pub(super) fn watch(&self, key: &SessionKey, head: u64) -> watch::Receiver<Head> {
        self.heads().entry(key.clone()).or_insert_with(|| Watched::at(head)).head.subscribe()
    }

    /// Follows the events of a session, whether it is in memory or not.
    pub(super) fn follow(&self, key: &SessionKey, head: u64) -> Follow {
        self.heads().entry(key.clone()).or_insert_with(|| Watched::at(head)).follow()
    }

    /// The head of a session that has been in memory for long enough to have one; the log need not be asked.
    pub(super) fn head_here(&self, key: &SessionKey) -> Option<u64> {
        if !self.holds(key) {
            return None;
        }
        self.heads().get(key).map(|watched| watched.head.borrow().seq)
    }

    /// Waits until every session has left memory.
    pub(super) async fn drained(&self) {
        self.tracker.close();
        self.tracker.wait().await;
    }

    fn entry(self: &Arc<Self>, key: &SessionKey, created: Option<Box<Loaded>>) -> Entry {
        let mut actors = self.actors();
        if let Some(entry) = actors.get(key) {
            return entry.clone();
        }
        let (mail, receiver) = mpsc::channel(self.deps.settings.mailbox);
        let entry = Entry { mail, left: CancellationToken::new() };
        actors.insert(key.clone(), entry.clone());
        let registry = Arc::clone(self);
        let key = key.clone();
        let left = entry.left.clone();
        self.tracker.spawn(async move {
            registry.supervise(&key, receiver, created).await;
            registry.actors().remove(&key);
            registry.forget_head(&key);
            left.cancel();
        });
        entry
    }

    /// Runs a session until it leaves memory for good, loading it again after failures.
    async fn supervise(
        self: &Arc<Self>,
        key: &SessionKey,
        mut mail: mpsc::Receiver<Box<Mail>>,
        mut created: Option<Box<Loaded>>,
    ) {
        let mut panics = 0;
        let mut wait = RESTART_FIRST;
        loop {
            let life = AssertUnwindSafe(self.live(key, &mut mail, created.take())).catch_unwind().await;
            self.rests(key);
            match life {
                Ok(Ok(Exit::Unloaded)) => return close(mail),
                Ok(Ok(Exit::Lost)) => {
                    self.is_elsewhere(key);
                    return close(mail);
                }
                Ok(Ok(Exit::Stopped { epoch })) => {
                    self.is_elsewhere(key);
                    self.handed.push(key.clone(), epoch);
                    return close(mail);
                }
                Ok(Ok(Exit::HandedOver { epoch, request })) => {
                    Box::pin(self.hand_over(key, epoch, *request)).await;
                    return close(mail);
                }
                Ok(Ok(Exit::Failed)) => {}
                Ok(Err(failure)) => {
                    if matches!(failure, Failure::OwnedElsewhere) {
                        self.is_elsewhere(key);
                    } else if !matches!(failure, Failure::NoSuchSession) {
                        self.setbacks.failed(key);
                    }
                    return answer_failure(mail, failure);
                }
                Err(_) => {
                    panics += 1;
                    tracing::error!(session = %key.session, panics, "the session's actor panicked");
                    if panics >= PANICS_BEFORE_QUARANTINE {
                        return self.quarantine(mail).await;
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.deps.stopping.cancelled() => return close(mail),
            }
            wait = (wait * 2).min(RESTART_MOST);
        }
    }

    async fn live(
        &self,
        key: &SessionKey,
        mail: &mut mpsc::Receiver<Box<Mail>>,
        created: Option<Box<Loaded>>,
    ) -> Result<Exit, Failure> {
        let fresh = created.is_some();
        let loaded = match created {
            Some(created) => created,
            None => {
                let _permit = self.loads.acquire().await.map_err(|_| Failure::Busy)?;
                Box::new(Box::pin(Journal::take(&self.deps, &key.tenant, key.session)).await?)
            }
        };
        self.setbacks.loaded(key);
        let head = self.head(key, loaded.state.head);
        let mut actor = Actor::boxed(&self.deps, &head, loaded);
        Ok(if fresh { actor.run(mail).await } else { actor.recover_and_run(mail).await })
    }

    /// Gives a session to the node that asked for it.
    async fn hand_over(&self, key: &SessionKey, epoch: u64, request: HandOver) {
        self.is_elsewhere(key);
        match self.deps.store.release(&key.tenant, key.session, epoch).await {
            Ok(_) => self.deps.nodes.wake([request.to]),
            // It stays here, and is asked for again.
            Err(error) => tracing::warn!(session = %key.session, %error, "the session could not be handed over"),
        }
    }

    /// Answers everybody that the session is set aside, until the server is restarted.
    async fn quarantine(&self, mut mail: mpsc::Receiver<Box<Mail>>) {
        loop {
            tokio::select! {
                waiting = mail.recv() => match waiting {
                    Some(waiting) => waiting.fail(Failure::Quarantined),
                    None => return,
                },
                // The registry holds a sender, so the mailbox alone never ends.
                () = self.deps.stopping.cancelled() => return close(mail),
            }
        }
    }

    fn head(&self, key: &SessionKey, head: u64) -> Watched {
        self.heads().entry(key.clone()).or_insert_with(|| Watched::at(head)).clone()
    }

    /// Nothing is known of the session any more: whoever waits until it settles looks for itself.
    fn rests(&self, key: &SessionKey) {
        if let Some(watched) = self.heads().get(key) {
            watched.rests();
        }
    }

    fn forget_head(&self, key: &SessionKey) {
        let mut heads = self.heads();
        if heads.get(key).is_some_and(|watched| watched.head.receiver_count() == 0) {
            heads.remove(key);
        }
    }

    fn actors(&self) -> std::sync::MutexGuard<'_, HashMap<SessionKey, Entry>> {
        self.actors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn elsewhere(&self) -> std::sync::MutexGuard<'_, HashSet<SessionKey>> {
        self.elsewhere.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heads(&self) -> std::sync::MutexGuard<'_, HashMap<SessionKey, Watched>> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses what is still in the mailbox; its senders try again and find the session loaded anew.
fn close(mut mail: mpsc::Receiver<Box<Mail>>) {
    mail.close();
    while let Ok(left) = mail.try_recv() {
        left.fail(Failure::Busy);
    }
}

/// Gives a load failure to everybody who waits for the session.
fn answer_failure(mut mail: mpsc::Receiver<Box<Mail>>, failure: Failure) {
    mail.close();
    while let Ok(left) = mail.try_recv() {
        left.fail(failure.once_more());
    }
}
