//! The thick client: holds the channel, runs approved calls, reports their outcomes. What is not here: the conversation
//! itself (`engine`), what is known of each call (`ledger`), frames (`frame`).
//!
//! What holds: the same `(call, attempt)` is never run twice by one executor, also over reconnects; an outcome is kept and
//! reported again until the server has settled the call; every queue has a bound.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::client::Client;
use crate::error::ClientError;
use crate::frame::{ApprovedToolCall, ErrorFrame, FinalOutput, StreamEvent};
use crate::model::SessionRequest;
use crate::random;

mod engine;
mod ledger;
mod pace;
mod report;
mod socket;

/// Orders that wait for the engine.
const COMMANDS: usize = 64;

/// Runs calls of one tool.
#[async_trait]
pub trait Handler: Send + Sync {
    /// Runs the call with exactly its arguments. The future is dropped when nobody waits for the outcome any more.
    async fn run(&self, call: Call) -> Result<Answer, CallFailure>;
}

/// A handler from a function.
pub fn handler<F, R>(run: F) -> Arc<dyn Handler>
where
    F: Fn(Call) -> R + Send + Sync + 'static,
    R: Future<Output = Result<Answer, CallFailure>> + Send + 'static,
{
    struct Function<F>(F);

    #[async_trait]
    impl<F, R> Handler for Function<F>
    where
        F: Fn(Call) -> R + Send + Sync,
        R: Future<Output = Result<Answer, CallFailure>> + Send,
    {
        async fn run(&self, call: Call) -> Result<Answer, CallFailure> {
            (self.0)(call).await
        }
    }

    Arc::new(Function(run))
}

/// A call to run.
#[derive(Debug, Clone)]
pub struct Call {
    /// What was approved.
    pub offer: ApprovedToolCall,
    /// The arguments as a value; 64-bit integers are exact.
    pub args: Value,
    pub(crate) signals: mpsc::Sender<engine::Signal>,
}

impl Call {
    /// Tells people how far the call has come; at most 2,000 characters. May be lost.
    pub fn progress(&self, note: &str) {
        let note = note.chars().take(2_000).collect();
        let key = (self.offer.call_id.clone(), self.offer.attempt);
        // Worth nothing later, so it never waits.
        let _ = self.signals.try_send(engine::Signal::Progress(key, note));
    }
}

/// What a call gave back.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// Any JSON value.
    Json(Value),
    /// Text of a media type.
    Text {
        /// For example `text/plain`; 1 to 128 printable ASCII characters.
        media_type: String,
        /// The text.
        text: String,
    },
}

/// Why a call gave nothing back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallFailure {
    /// It failed: the effect did not happen, or the tool itself said so.
    #[error("failed: {0}")]
    Failed(String),
    /// The person or program at this client refused to run it.
    #[error("denied: {0}")]
    Denied(String),
    /// It did not end in time; it may have happened.
    #[error("timed out: {0}")]
    TimedOut(String),
    /// Nobody knows whether it happened.
    #[error("unknown: {0}")]
    Unknown(String),
}

/// What an executor tells its owner.
#[derive(Debug, Clone)]
pub enum Notice {
    /// The channel is open; `gone` are followed sessions that this key cannot see.
    Connected {
        /// Ids of sessions.
        gone: Vec<String>,
    },
    /// The channel is closed and will be opened again.
    Disconnected,
    /// An event of a followed session, in order and without repetition.
    Event(Box<StreamEvent>),
    /// A run of a followed session is over.
    Final(Box<FinalOutput>),
    /// Something was refused.
    Refused(ErrorFrame),
}

/// Why an executor has ended for good.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EndReason {
    /// Its owner stopped it.
    Stopped,
    /// A newer connection has the same client id.
    Replaced,
    /// The key is not good, or may not use the channel.
    Refused(String),
    /// Server and client do not understand each other.
    Protocol(String),
}

/// How an executor is set up.
pub struct ExecutorOptions {
    pub(crate) client: Client,
    pub(crate) client_id: String,
    pub(crate) capabilities: BTreeSet<String>,
    pub(crate) handlers: BTreeMap<String, Arc<dyn Handler>>,
    pub(crate) sessions: BTreeMap<String, u64>,
    pub(crate) max_parallel: usize,
    pub(crate) notices: Option<mpsc::Sender<Notice>>,
}

impl fmt::Debug for ExecutorOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExecutorOptions")
            .field("client_id", &self.client_id)
            .field("capabilities", &self.capabilities)
            .field("tools", &self.handlers.keys())
            .field("sessions", &self.sessions)
            .finish_non_exhaustive()
    }
}

impl ExecutorOptions {
    /// An executor for this server and key, with a client id of its own.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            client_id: format!("rust-{}", random::hex()),
            capabilities: BTreeSet::new(),
            handlers: BTreeMap::new(),
            sessions: BTreeMap::new(),
            max_parallel: 8,
            notices: None,
        }
    }

    /// Names this running instance; 1 to 128 visible ASCII characters. Never give a new process the id of an old one: it
    /// would claim to know what that one has run.
    #[must_use]
    pub fn client_id(mut self, id: &str) -> Self {
        id.clone_into(&mut self.client_id);
        self
    }

    /// Declares a capability.
    #[must_use]
    pub fn capability(mut self, name: &str) -> Self {
        self.capabilities.insert(name.to_owned());
        self
    }

    /// Runs calls of a tool through this handler. Calls of tools without one are denied.
    #[must_use]
    pub fn tool(mut self, name: &str, handler: Arc<dyn Handler>) -> Self {
        self.handlers.insert(name.to_owned(), handler);
        self
    }

    /// Follows a session; `last_seq` is the last event that is known, 0 for none.
    #[must_use]
    pub fn session(mut self, id: &str, last_seq: u64) -> Self {
        self.sessions.insert(id.to_owned(), last_seq);
        self
    }

    /// Calls that run at once, at least 1; normally 8.
    #[must_use]
    pub const fn max_parallel(mut self, calls: usize) -> Self {
        self.max_parallel = if calls == 0 { 1 } else { calls };
        self
    }

    /// Sends notices here. They must be taken: a full channel makes the executor wait, so that no event is lost.
    #[must_use]
    pub fn notices(mut self, sender: mpsc::Sender<Notice>) -> Self {
        self.notices = Some(sender);
        self
    }
}

/// A running executor. Dropping it stops it; calls that run are dropped with it.
#[derive(Debug)]
pub struct Executor {
    commands: mpsc::Sender<engine::Command>,
    task: JoinHandle<EndReason>,
    client_id: String,
}

impl Executor {
    /// Starts: connects, and connects again whenever the connection is lost.
    pub fn start(options: ExecutorOptions) -> Result<Self, ClientError> {
        let url = options.client.channel_url()?;
        let client_id = options.client_id.clone();
        let (commands, receiver) = mpsc::channel(COMMANDS);
        let engine = engine::Engine::new(options, url, receiver);
        Ok(Self { commands, task: tokio::spawn(engine.run()), client_id })
    }

    /// The id of this instance.
    #[must_use]
    pub fn client_id(&self) -> &str {
        &self.client_id
    }

    /// Starts a session, follows it and executes for it; gives its id once it is durable. Without an `id` of its own the
    /// request gets one, so that it is never carried out twice.
    pub async fn request(&self, request: SessionRequest) -> Result<String, ClientError> {
        let (reply, answer) = oneshot::channel();
        let command = engine::Command::Request(Box::new(request), reply);
        self.commands.send(command).await.map_err(|_| ClientError::Ended)?;
        answer.await.unwrap_or(Err(ClientError::Ended))
    }

    /// Follows one more session and executes for it.
    pub async fn follow(&self, session: &str, last_seq: u64) -> Result<(), ClientError> {
        let command = engine::Command::Follow(session.to_owned(), last_seq);
        self.commands.send(command).await.map_err(|_| ClientError::Ended)
    }

    /// Waits until it has ended by itself.
    pub async fn ended(&mut self) -> EndReason {
        (&mut self.task).await.unwrap_or(EndReason::Stopped)
    }

    /// Stops it. Outcomes that the server has not settled are lost with it: its calls become `indeterminate`, or are
    /// offered to others, as their class says.
    pub async fn stop(self) -> EndReason {
        let Self { commands, task, .. } = self;
        drop(commands);
        task.await.unwrap_or(EndReason::Stopped)
    }
}
