//! One connection: reads frames in order, greets, and ends everything together. What is not here: what frames do
//! (`handle`), following sessions (`follow`, `execute`), writing (`outbox`).

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::extract::ws::{Message, Utf8Bytes};
use futures_util::{Sink, Stream, StreamExt};
use tokio::time::{Instant, timeout, timeout_at};
use toolgate_core::id::{CallId, Capability, ClientInstance, Sha256Digest};

use super::Channel;
use super::close::{CloseReason, Exit};
use super::handle::Driver;
use super::hub::Place;
use super::outbox::{self, Ended, Outbox, lanes};
use super::rate::Rate;
use crate::app::App;
use crate::auth::AuthError;
use crate::caller::{Caller, Scope};
use crate::error::{ApiError, ErrorCode};
use crate::wire::frame::{ClientFrame, ErrorFrame, FrameFault, Hello, MAX_FRAME_BYTES, PROTOCOL, ServerFrame};

/// Time for the other side to answer a close frame.
const CLOSE_ECHO: Duration = Duration::from_secs(1);

/// What the parts of a connection share once it has said hello.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) app: App,
    pub(super) channel: Channel,
    pub(super) caller: Caller,
    pub(super) client: ClientInstance,
    pub(super) capabilities: BTreeSet<Capability>,
    /// The client only watches.
    pub(super) observe: bool,
    /// The client wants pieces of answers.
    pub(super) deltas: bool,
    pub(super) outbox: Outbox,
    pub(super) exit: Exit,
    pub(super) place: Place,
    /// Input ids of this client begin like this; the rest is its own frame id.
    pub(super) input_prefix: String,
    offered: Mutex<BTreeSet<CallId>>,
}

impl Connection {
    /// Whether the credential has a scope.
    pub(super) fn may(&self, scope: Scope) -> bool {
        self.caller.scopes.contains(&scope)
    }

    /// Calls that were offered over this connection and are not known to be over.
    pub(super) fn offered(&self) -> MutexGuard<'_, BTreeSet<CallId>> {
        self.offered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the client what was refused.
    pub(super) async fn refuse(&self, error: &ApiError, re: Option<String>) -> Result<(), Ended> {
        if error.code().status() >= 500 {
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::error!(%error, cause, "a frame of the channel failed");
        }
        self.outbox.control(&ServerFrame::Error(ErrorFrame::of(error, re))).await
    }
}

/// Runs a connection to its end. Generic, so that it runs over plain channels as well as over a socket.
pub async fn pump<S, E, K>(app: App, channel: Channel, caller: Option<Caller>, stream: S, sink: K)
where
    S: Stream<Item = Result<Message, E>> + Unpin + Send,
    E: Display,
    K: Sink<Message> + Unpin + Send,
{
    let mut stream = stream.fuse();
    let exit = Exit::default();
    let (outbox, lanes) = lanes(channel.settings());
    let watch = async {
        tokio::select! {
            () = app.stopping().cancelled() => exit.close(CloseReason::Restart),
            () = exit.closing() => {}
        }
    };
    let mut reader = Reader {
        stream: &mut stream,
        rate: rate(&channel),
        exit: exit.clone(),
        silence: channel.settings().heartbeat * 2,
    };
    let read = read(&mut reader, &app, &channel, caller, outbox);
    tokio::join!(Box::pin(read), outbox::write(sink, lanes, &exit, channel.settings()), watch);
    // A socket that is dropped with unread bytes loses the close frame on its way; so let the other side answer it.
    let answered = async { while let Some(Ok(_)) = stream.next().await {} };
    let _ = timeout(CLOSE_ECHO, answered).await;
    tracing::debug!(reason = ?exit.reason(), "a connection of the channel has ended");
}

fn rate(channel: &Channel) -> Rate {
    Rate::new(channel.settings().frames_per_s, channel.settings().burst, Instant::now())
}

async fn read<S, E>(reader: &mut Reader<'_, S>, app: &App, channel: &Channel, caller: Option<Caller>, outbox: Outbox)
where
    S: Stream<Item = Result<Message, E>> + Unpin + Send,
    E: Display,
{
    let exit = reader.exit.clone();
    let greeted = timeout_at(Instant::now() + channel.settings().hello, async {
        let text = reader.next().await?;
        greet(app, channel, caller, &text, &outbox, &exit).await
    });
    let greeted = tokio::select! {
        biased;
        () = exit.closing() => return,
        greeted = greeted => greeted,
    };
    let Ok(greeted) = greeted else { return exit.close(CloseReason::NoHello) };
    let Some((connection, hello)) = greeted else { return exit.close(CloseReason::Gone) };
    // From here on only the connection's own parts hold the lanes, so that the writer ends with them.
    drop(outbox);
    let mut driver = Driver::new(connection);
    let driven = async {
        driver.hello(hello).await?;
        while let Some(text) = reader.next().await {
            match ClientFrame::parse(&text) {
                Ok(frame) => driver.handle(frame).await?,
                Err(fault) => {
                    driver.connection().refuse(&unreadable(&fault), None).await?;
                    exit.close(CloseReason::BadFrame);
                }
            }
        }
        Ok::<(), Ended>(())
    };
    tokio::select! {
        biased;
        () = exit.closing() => {}
        // Whatever ended it has given its reason already; this is for the case that nothing has.
        _ = driven => exit.close(CloseReason::Gone),
    }
}

/// The `Error` of a frame that cannot be read.
fn unreadable(fault: &FrameFault) -> ApiError {
    let code = match fault {
        FrameFault::Json(_) | FrameFault::NoType => ErrorCode::Malformed,
        FrameFault::UnknownType(_) | FrameFault::Field { .. } => ErrorCode::InvalidRequest,
    };
    ApiError::new(code, fault.to_string())
}

/// Judges the first frame. `None` means that the connection ends; the reason is set where it is not the client's leaving.
async fn greet(
    app: &App,
    channel: &Channel,
    caller: Option<Caller>,
    text: &str,
    outbox: &Outbox,
    exit: &Exit,
) -> Option<(Arc<Connection>, Hello)> {
    let end = async |error: ApiError, reason: CloseReason| {
        // The client may be gone; the reason is what counts.
        let _ = outbox.control(&ServerFrame::Error(ErrorFrame::of(&error, None))).await;
        exit.close(reason);
        None
    };
    let hello = match ClientFrame::parse(text) {
        Ok(ClientFrame::Hello(hello)) if hello.protocol == PROTOCOL => hello,
        Ok(ClientFrame::Hello(hello)) => {
            let detail = format!("protocol {} is not spoken here, only {PROTOCOL}", hello.protocol);
            return end(ApiError::invalid("/protocol", detail), CloseReason::BadFrame).await;
        }
        Ok(_) => {
            let detail = "the first frame must be `Hello`";
            return end(ApiError::new(ErrorCode::InvalidRequest, detail), CloseReason::BadFrame).await;
        }
        Err(fault) => return end(unreadable(&fault), CloseReason::BadFrame).await,
    };
    let caller = match (caller, &hello.token) {
        (Some(caller), _) => Ok(caller),
        (None, Some(token)) => app.auth().authenticate(token.expose()).await,
        (None, None) => Err(AuthError::Missing),
    };
    let caller = match caller {
        Ok(caller) => caller,
        // Nobody can tell whether the key is good; the client is to come back.
        Err(error @ AuthError::Store(_)) => return end(error.into(), CloseReason::Restart).await,
        Err(error) => return end(error.into(), CloseReason::Credentials).await,
    };
    let scopes = [Scope::SessionsRead, Scope::SessionsWrite, Scope::ClientExecute, Scope::ApprovalsWrite];
    if !scopes.iter().any(|scope| caller.scopes.contains(scope)) {
        let detail = "the key has none of the channel's scopes";
        return end(ApiError::new(ErrorCode::InsufficientScope, detail), CloseReason::Scope).await;
    }
    let client = (caller.tenant.clone(), caller.actor.clone(), hello.client_id.clone());
    let Ok(place) = channel.hub().enter(client, exit, channel.settings().per_tenant) else {
        let detail = "the tenant has too many connections";
        return end(ApiError::new(ErrorCode::TooManyStreams, detail), CloseReason::TooMany).await;
    };
    let connection = Connection {
        app: app.clone(),
        channel: channel.clone(),
        input_prefix: input_prefix(&caller, &hello.client_id),
        caller,
        client: hello.client_id.clone(),
        capabilities: hello.capabilities.clone(),
        observe: hello.observe,
        deltas: hello.deltas,
        outbox: outbox.clone(),
        exit: exit.clone(),
        place,
        offered: Mutex::default(),
    };
    Some((Arc::new(connection), hello))
}

/// The same for every connection of a client, so that a frame sent again after a lost connection has the same input id.
fn input_prefix(caller: &Caller, client: &ClientInstance) -> String {
    let digest = Sha256Digest::of(format!("{}\n{client}", caller.actor).as_bytes()).to_string();
    let hex = digest.strip_prefix("sha256:").unwrap_or_default();
    format!("ws-{}-", hex.get(..16).unwrap_or_default())
}

/// The receiving side.
struct Reader<'a, S> {
    stream: &'a mut S,
    rate: Rate,
    exit: Exit,
    silence: Duration,
}

impl<S, E> Reader<'_, S>
where
    S: Stream<Item = Result<Message, E>> + Unpin,
    E: Display,
{
    /// The next text frame. `None` once the connection ends, with the reason set.
    async fn next(&mut self) -> Option<Utf8Bytes> {
        loop {
            let reason = match timeout(self.silence, self.stream.next()).await {
                Err(_) => CloseReason::Silent,
                Ok(None | Some(Ok(Message::Close(_)))) => CloseReason::Gone,
                Ok(Some(Err(error))) if is_too_long(&error) => CloseReason::TooBig,
                Ok(Some(Err(_))) => CloseReason::Gone,
                Ok(Some(Ok(_))) if !self.rate.take(Instant::now()) => CloseReason::TooFast,
                Ok(Some(Ok(Message::Text(text)))) if text.len() > MAX_FRAME_BYTES => CloseReason::TooBig,
                Ok(Some(Ok(Message::Text(text)))) => return Some(text),
                Ok(Some(Ok(Message::Binary(_)))) => CloseReason::BadFrame,
                // Pings are answered by the library.
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => continue,
            };
            self.exit.close(reason);
            return None;
        }
    }
}

/// Whether the library gave up because a message is over its limit. It hides the kind, but not the words.
fn is_too_long(error: &impl Display) -> bool {
    error.to_string().contains("too long")
}
