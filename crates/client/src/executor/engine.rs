//! The conversation: connect, say hello, run what is offered, report, follow, and all of it again after a lost
//! connection. One task holds all state. What is not here: what is known of calls (`ledger`), the socket (`socket`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};
use tokio_tungstenite::tungstenite::{Error, Message};
use url::Url;

use super::ledger::{Key, Ledger, Verdict};
use super::pace::Pace;
use super::socket::{NoSocket, Socket, is_final, open};
use super::{Answer, Call, CallFailure, EndReason, ExecutorOptions, Handler, Notice, report};
use crate::error::ClientError;
use crate::frame::{ApprovedToolCall, Cursor, ErrorFrame, Incoming, Outgoing, StreamEvent};
use crate::model::SessionRequest;
use crate::random;

/// Shortest and longest wait before connecting again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));
/// Silence that is borne before the server has said how often it pings.
const SILENCE: Duration = Duration::from_secs(60);
/// Time between looks at reports that the server could not take.
const RETRY: Duration = Duration::from_secs(1);
/// Signals of running calls that wait.
const SIGNALS: usize = 256;
/// Requests without an answer; more wait for their turn in the command queue.
const PENDING: usize = 64;

/// An order of the owner.
pub(super) enum Command {
    Request(Box<SessionRequest>, oneshot::Sender<Result<String, ClientError>>),
    Follow(String, u64),
}

/// What a running call says.
#[derive(Debug)]
pub(crate) enum Signal {
    Started(Key),
    Progress(Key, String),
}

/// A request that has no answer yet.
struct Pending {
    request: Box<SessionRequest>,
    reply: oneshot::Sender<Result<String, ClientError>>,
}

/// Why a conversation is over.
enum Over {
    /// The connection is lost; connect again, after this time if the server said one.
    Lost(Option<Duration>),
    /// The executor ends.
    End(EndReason),
}

type Outcome = Result<Answer, CallFailure>;

pub(super) struct Engine {
    options: ExecutorOptions,
    url: Url,
    commands: mpsc::Receiver<Command>,
    sessions: BTreeMap<String, u64>,
    ledger: Ledger,
    pending: BTreeMap<String, Pending>,
    requests: u64,
    /// Requests that the server could not take; said again with the next look.
    postponed: Vec<String>,
    calls: JoinSet<Outcome>,
    running: BTreeMap<Id, (Key, AbortHandle)>,
    permits: Arc<Semaphore>,
    signals: (mpsc::Sender<Signal>, mpsc::Receiver<Signal>),
    backoff: Duration,
    pace: Pace,
}

impl Engine {
    pub(super) fn new(options: ExecutorOptions, url: Url, commands: mpsc::Receiver<Command>) -> Self {
        Self {
            sessions: options.sessions.clone(),
            permits: Arc::new(Semaphore::new(options.max_parallel)),
            options,
            url,
            commands,
            ledger: Ledger::default(),
            pending: BTreeMap::new(),
            requests: 0,
            postponed: Vec::new(),
            calls: JoinSet::new(),
            running: BTreeMap::new(),
            signals: mpsc::channel(SIGNALS),
            backoff: BACKOFF.0,
            pace: Pace::new(Instant::now()),
        }
    }

    pub(super) async fn run(mut self) -> EndReason {
        loop {
            let opening = open(&self.url, self.options.client.authorization());
            let (url, opened) = (self.url.clone(), opening.await);
            let wait = match opened {
                Ok(socket) => match self.converse(socket).await {
                    Over::End(reason) => return reason,
                    Over::Lost(wait) => {
                        self.notice(Notice::Disconnected).await;
                        wait
                    }
                },
                Err(NoSocket::Final(reason)) => return reason,
                Err(NoSocket::ForNow(why)) => {
                    tracing::debug!(%url, why, "the channel could not be opened");
                    None
                }
            };
            let wait = match wait {
                Some(asked) => asked,
                None => self.next_backoff(),
            };
            if self.pause(wait).await.is_none() {
                return EndReason::Stopped;
            }
        }
    }

    /// Between none and all of a time that doubles, so that many clients do not come back at once.
    fn next_backoff(&mut self) -> Duration {
        let most = self.backoff;
        self.backoff = (most * 2).min(BACKOFF.1);
        let ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX).max(1);
        Duration::from_millis(random::number() % ms + 1)
    }

    /// Waits and goes on taking commands; `None` when the owner is gone.
    async fn pause(&mut self, time: Duration) -> Option<()> {
        let until = sleep(time);
        tokio::pin!(until);
        loop {
            tokio::select! {
                () = &mut until => return Some(()),
                command = self.commands.recv(), if self.pending.len() < PENDING => drop(self.take(command?)),
                Some(done) = self.calls.join_next_with_id() => drop(self.finished(done)),
                Some(_) = self.signals.1.recv() => {}
            }
        }
    }

    /// Speaks over one connection until it is over.
    async fn converse(&mut self, socket: Socket) -> Over {
        let (mut sink, mut stream) = socket.split();
        let mut silence = SILENCE;
        let mut welcomed = false;
        let mut reconnect = None;
        let mut outbox = vec![self.hello()];
        let mut retry = interval(RETRY);
        retry.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            for text in outbox.drain(..) {
                sleep(self.pace.wait(Instant::now())).await;
                match timeout(silence, sink.send(Message::text(text))).await {
                    Ok(Ok(())) => {}
                    Ok(Err(_)) | Err(_) => return Over::Lost(reconnect),
                }
            }
            tokio::select! {
                received = timeout(silence, stream.next()) => {
                    let text = match received {
                        Ok(Some(Ok(Message::Text(text)))) => text,
                        Ok(Some(Ok(Message::Close(frame)))) => {
                            return is_final(frame.as_ref()).map_or(Over::Lost(reconnect), Over::End);
                        }
                        // Pings are answered by the library.
                        Ok(Some(Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => continue,
                        Ok(Some(Err(Error::Capacity(error)))) => return Over::End(EndReason::Protocol(error.to_string())),
                        Ok(Some(Err(_)) | None) | Err(_) => return Over::Lost(reconnect),
                    };
                    match Incoming::parse(&text) {
                        Ok(Incoming::Welcome(welcome)) => {
                            silence = Duration::from_millis(welcome.heartbeat_ms.saturating_mul(2)).max(RETRY);
                            if !welcomed {
                                welcomed = true;
                                self.backoff = BACKOFF.0;
                                outbox.extend(self.unanswered());
                            }
                            for gone in &welcome.gone {
                                self.sessions.remove(gone);
                            }
                            self.notice(Notice::Connected { gone: welcome.gone }).await;
                        }
                        Ok(Incoming::Closing { reconnect_ms }) => reconnect = Some(Duration::from_millis(reconnect_ms)),
                        Ok(frame) => outbox.extend(self.received(frame).await),
                        Err(error) => return Over::End(EndReason::Protocol(error.to_string())),
                    }
                }
                command = self.commands.recv(), if self.pending.len() < PENDING => match command {
                    Some(command) => {
                        let text = self.take(command);
                        outbox.extend(text.filter(|_| welcomed));
                    }
                    None => {
                        // Said politely, but nobody waits for the answer.
                        let _ = timeout(RETRY, sink.close()).await;
                        return Over::End(EndReason::Stopped);
                    }
                },
                Some(done) = self.calls.join_next_with_id() => {
                    let text = self.finished(done);
                    outbox.extend(text.filter(|_| welcomed));
                }
                Some(signal) = self.signals.1.recv() => {
                    // Offers and outcomes need the room more than words for people do.
                    if welcomed && self.pace.has_room(Instant::now()) {
                        outbox.extend(self.signalled(&signal));
                    }
                }
                _ = retry.tick(), if welcomed => outbox.extend(self.due()),
            }
        }
    }

    fn hello(&self) -> String {
        let sessions = self.sessions.iter().map(|(id, last_seq)| Cursor { id, last_seq: *last_seq });
        Outgoing::Hello {
            protocol: 1,
            client_id: &self.options.client_id,
            capabilities: self.options.capabilities.iter().map(String::as_str).collect(),
            observe: false,
            sessions: sessions.collect(),
        }
        .text()
    }

    /// What has to be said again on a new connection.
    fn unanswered(&self) -> Vec<String> {
        let requests = self
            .pending
            .iter()
            .map(|(frame_id, pending)| Outgoing::Request { frame_id, request: &pending.request }.text());
        self.ledger.reports().map(str::to_owned).chain(requests).collect()
    }

    /// What the server could not take and is to be said again.
    fn due(&mut self) -> Vec<String> {
        let mut due = self.ledger.due();
        for frame_id in std::mem::take(&mut self.postponed) {
            if let Some(pending) = self.pending.get(&frame_id) {
                due.push(Outgoing::Request { frame_id: &frame_id, request: &pending.request }.text());
            }
        }
        due
    }

    /// Takes a command; gives the frame it needs.
    fn take(&mut self, command: Command) -> Option<String> {
        match command {
            Command::Follow(session, last_seq) => {
                self.sessions.entry(session).or_insert(last_seq);
                Some(self.hello())
            }
            Command::Request(mut request, reply) => {
                self.requests += 1;
                let frame_id = format!("r{}", self.requests);
                request.id.get_or_insert_with(|| format!("x-{}", random::hex()));
                let text = Outgoing::Request { frame_id: &frame_id, request: &request }.text();
                self.pending.insert(frame_id, Pending { request, reply });
                Some(text)
            }
        }
    }

    async fn received(&mut self, frame: Incoming) -> Option<String> {
        match frame {
            Incoming::Offer(offer) => self.offered(offer),
            Incoming::Settled(settled) => {
                self.settle(&settled.call_id);
                None
            }
            Incoming::Event(event) => {
                self.event(event).await;
                None
            }
            Incoming::Final(output) => {
                self.notice(Notice::Final(Box::new(output))).await;
                None
            }
            Incoming::Error(error) => self.refused(error).await,
            Incoming::Welcome(_) | Incoming::Closing { .. } | Incoming::Other => None,
        }
    }

    fn offered(&mut self, offer: ApprovedToolCall) -> Option<String> {
        match self.ledger.offered(&offer) {
            Verdict::Leave => None,
            Verdict::Report(text) => Some(text),
            Verdict::Run => {
                let key = (offer.call_id.clone(), offer.attempt);
                let handler = self.options.handlers.get(&offer.tool).cloned();
                let (permits, signals) = (Arc::clone(&self.permits), self.signals.0.clone());
                let task = self.calls.spawn(run(handler, offer, permits, signals));
                self.running.insert(task.id(), (key, task));
                None
            }
        }
    }

    /// A call has ended by itself: the report, unless nobody wants it any more.
    fn finished(&mut self, done: Result<(Id, Outcome), JoinError>) -> Option<String> {
        let (id, outcome) = match done {
            Ok((id, outcome)) => (id, outcome),
            Err(error) if error.is_cancelled() => {
                self.running.remove(&error.id());
                return None;
            }
            Err(error) => {
                (error.id(), Err(CallFailure::Unknown("the handler panicked; it may have happened".to_owned())))
            }
        };
        let (key, _) = self.running.remove(&id)?;
        let text = report::frame(self.ledger.open(&key)?, &outcome);
        self.ledger.reported(&key, text.clone()).then_some(text)
    }

    fn signalled(&self, signal: &Signal) -> Option<String> {
        let (Signal::Started(key) | Signal::Progress(key, _)) = signal;
        let offer = self.ledger.open(key)?;
        let (session_id, call_id, attempt) = (offer.session_id.as_str(), offer.call_id.as_str(), offer.attempt);
        Some(match signal {
            Signal::Started(_) => Outgoing::CallAck { session_id, call_id, attempt }.text(),
            Signal::Progress(_, note) => Outgoing::CallProgress { session_id, call_id, attempt, note }.text(),
        })
    }

    fn settle(&mut self, call: &str) {
        let ended = self.ledger.settle(call);
        for (key, task) in self.running.values() {
            if ended.contains(key) {
                task.abort();
            }
        }
    }

    async fn event(&mut self, event: StreamEvent) {
        if event.event.kind == "call_ended"
            && let Some(call) = &event.event.call_id
        {
            self.settle(call);
        }
        if let Some(pending) = event.re.as_ref().and_then(|re| self.pending.remove(re)) {
            self.sessions.entry(event.session_id.clone()).or_insert(0);
            // Whoever asked may be gone.
            let _ = pending.reply.send(Ok(event.session_id.clone()));
        }
        let known = self.sessions.entry(event.session_id.clone()).or_insert(0);
        // An answer to a repeated frame shows an event once more.
        if event.seq > *known {
            *known = event.seq;
            self.notice(Notice::Event(Box::new(event))).await;
        }
    }

    async fn refused(&mut self, error: ErrorFrame) -> Option<String> {
        let re = error.re.clone().unwrap_or_default();
        if let Some(pending) = self.pending.remove(&re) {
            if error.problem.status == 503 {
                // Not refused, only not now.
                self.postponed.push(re.clone());
                self.pending.insert(re, pending);
            } else {
                // Whoever asked may be gone.
                let _ = pending.reply.send(Err(ClientError::Api(Box::new(error.problem))));
            }
            return None;
        }
        let text = match self.ledger.newest(&re) {
            Some(key) if error.code == "payload_too_large" => {
                let text = report::too_large(self.ledger.open(&key)?);
                self.ledger.reported(&key, text.clone()).then_some(text)
            }
            // The server will not take it later either: another outcome stands, or the call is not ours.
            Some(_) if error.problem.status < 500 => {
                self.settle(&re);
                None
            }
            Some(key) => {
                self.ledger.postpone(&key);
                None
            }
            None => None,
        };
        if error.code == "cursor_invalid" {
            self.sessions.remove(&re);
        }
        self.notice(Notice::Refused(error)).await;
        text
    }

    async fn notice(&self, notice: Notice) {
        if let Some(notices) = &self.options.notices {
            // An owner that does not listen any more needs no notices.
            let _ = notices.send(notice).await;
        }
    }
}

/// Runs one call to its outcome.
async fn run(
    handler: Option<Arc<dyn Handler>>,
    offer: ApprovedToolCall,
    permits: Arc<Semaphore>,
    signals: mpsc::Sender<Signal>,
) -> Outcome {
    let Some(handler) = handler else {
        return Err(CallFailure::Denied(format!("this client has no handler for `{}`", offer.tool)));
    };
    let args = serde_json::from_str(offer.args.get())
        .map_err(|error| CallFailure::Failed(format!("the arguments cannot be read: {error}")))?;
    let left = Instant::now() + Duration::from_millis(offer.expires_in_ms);
    let Ok(Ok(_permit)) = tokio::time::timeout_at(left, permits.acquire_owned()).await else {
        return Err(CallFailure::Failed("the client was too busy to start it in time".to_owned()));
    };
    let key = (offer.call_id.clone(), offer.attempt);
    // Only a courtesy to people who watch.
    let _ = signals.try_send(Signal::Started(key));
    let call = Call { offer, args, signals };
    match tokio::time::timeout_at(left, handler.run(call)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(CallFailure::TimedOut("it did not end in time; it may have happened".to_owned())),
    }
}
