//! What each frame of a client does, each checked against the credential's scopes. What is not here: reading frames
//! (`connection`), judging what they ask for (the core). `inputs` and `execution` hold the single frames.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::task::JoinSet;
use toolgate_core::id::{Capability, InputId, SessionId};
use toolgate_core::input::Input;

use super::close::CloseReason;
use super::connection::Connection;
use super::execute::execute;
use super::follow::{Followed, follow};
use super::outbox::Ended;
use crate::auth::AuthError;
use crate::caller::Scope;
use crate::error::{ApiError, ErrorCode};
use crate::http::probe::noting;
use crate::sessions::{Submission, Taken};
use crate::wire::frame::{ClientFrame, Hello, MAX_FRAME_BYTES, PROTOCOL, Resumed, ServerFrame, SessionCursor, Welcome};

mod execution;
mod inputs;

/// Longest note, message or reason, in characters.
const MAX_WORDS: usize = 2_000;

/// Carries frames out for one connection. Dropping it ends everything that runs for the connection.
pub(super) struct Driver {
    connection: Arc<Connection>,
    id: String,
    followed: BTreeSet<SessionId>,
    /// Sessions asked for that are not there.
    missed: usize,
    tasks: JoinSet<()>,
}

impl Driver {
    pub(super) fn new(connection: Arc<Connection>) -> Self {
        let mut tasks = JoinSet::new();
        tasks.spawn(stay_authorised(Arc::clone(&connection)));
        let id = format!("con_{}", uuid::Uuid::now_v7().simple());
        Self { connection, id, followed: BTreeSet::new(), missed: 0, tasks }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Carries a frame out. A refusal is answered; only an ended connection is an error.
    pub(super) async fn handle(&mut self, frame: ClientFrame) -> Result<(), Ended> {
        let re = frame.re();
        let done = match frame {
            ClientFrame::Hello(frame) => match self.check_again(&frame) {
                Ok(()) => return self.hello(frame).await,
                Err(error) => Err(error),
            },
            ClientFrame::Request(frame) => self.request(frame).await,
            ClientFrame::ToolOutcome(frame) => self.outcome(&frame).await,
            ClientFrame::CallAck(frame) => self.ack(&frame).await,
            ClientFrame::CallProgress(frame) => self.progress(frame),
            ClientFrame::Message(frame) => self.message(frame).await,
            ClientFrame::Approval(frame) => self.approval(frame).await,
            ClientFrame::Cancel(frame) => self.cancel(frame).await,
        };
        match done {
            Ok(()) => Ok(()),
            Err(error) => self.connection.refuse(&error, re).await,
        }
    }

    /// A later `Hello` adds sessions and changes nothing else.
    fn check_again(&self, hello: &Hello) -> Result<(), ApiError> {
        let connection = &self.connection;
        if hello.protocol != PROTOCOL || hello.client_id != connection.client {
            return Err(ApiError::invalid("/client_id", "this connection belongs to another client id"));
        }
        if hello.capabilities != connection.capabilities || hello.observe != connection.observe {
            return Err(ApiError::invalid("/capabilities", "connect again to change what the client can do"));
        }
        if hello.deltas != connection.deltas {
            return Err(ApiError::invalid("/deltas", "connect again to change what the client is shown"));
        }
        Ok(())
    }

    /// Answers a `Hello` and begins to follow its sessions.
    pub(super) async fn hello(&mut self, hello: Hello) -> Result<(), Ended> {
        let connection = Arc::clone(&self.connection);
        let settings = connection.channel.settings();
        let mut wanted: BTreeMap<SessionId, u64> = BTreeMap::new();
        for cursor in hello.sessions {
            wanted.insert(cursor.id, cursor.last_seq);
        }
        // Each is a look into the database, whether it is there or not.
        if wanted.len() > settings.sessions {
            let detail = format!("at most {} sessions", settings.sessions);
            return connection.refuse(&ApiError::invalid("/sessions", detail), None).await;
        }
        let (mut follow, mut gone, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (id, last_seq) in wanted {
            if self.followed.contains(&id) {
                continue;
            }
            match self.find(&SessionCursor { id, last_seq }, follow.len()).await {
                Ok(found) => follow.push(found),
                Err(error) if error.code() == ErrorCode::NotFound => gone.push(id.to_string()),
                Err(error) => refused.push((id, error)),
            }
        }
        let resumed = follow
            .iter()
            .map(|followed| Resumed { id: followed.session.to_string(), from_seq: followed.cursor.saturating_add(1) });
        let welcome = Welcome {
            protocol: PROTOCOL,
            connection_id: self.id.clone(),
            heartbeat_ms: u64::try_from(settings.heartbeat.as_millis()).unwrap_or(u64::MAX),
            max_frame_bytes: MAX_FRAME_BYTES as u64,
            resumed: resumed.collect(),
            gone,
        };
        self.missed += welcome.gone.len();
        connection.outbox.control(&ServerFrame::Welcome(welcome)).await?;
        if self.missed > settings.sessions {
            // Nobody forgets so many sessions; this is a search for those of others.
            connection.exit.close(CloseReason::TooFast);
        }
        for (id, error) in refused {
            connection.refuse(&error, Some(id.to_string())).await?;
        }
        for followed in follow {
            self.begin(followed, connection.capabilities.clone());
        }
        Ok(())
    }

    /// Looks a session up for following; `more` others are about to be followed as well.
    async fn find(&self, cursor: &SessionCursor, more: usize) -> Result<Followed, ApiError> {
        let connection = &self.connection;
        if !connection.may(Scope::SessionsRead) && !connection.may(Scope::ClientExecute) {
            return Err(missing(&[Scope::SessionsRead, Scope::ClientExecute]));
        }
        if self.followed.len() + more >= connection.channel.settings().sessions {
            return Err(ApiError::new(ErrorCode::TooManyStreams, "the connection follows too many sessions"));
        }
        let sessions = connection.app.sessions();
        let tenant = &connection.caller.tenant;
        let follow = sessions.follow(tenant, cursor.id).await;
        let follow = noting(&connection.app, &connection.caller, cursor.id, follow).await?;
        if cursor.last_seq > follow.seq() {
            // The hint may be old; the log is the truth.
            let there = sessions.events(tenant, cursor.id, cursor.last_seq - 1, 1).await?;
            if there.is_empty() {
                let detail = format!("the log has no event {}; start again from 0", cursor.last_seq);
                return Err(ApiError::new(ErrorCode::CursorInvalid, detail));
            }
        }
        Ok(Followed { session: cursor.id, cursor: cursor.last_seq, started_by: None, follow })
    }

    fn begin(&mut self, followed: Followed, capabilities: BTreeSet<Capability>) {
        let connection = &self.connection;
        let session = followed.session;
        self.followed.insert(session);
        if connection.may(Scope::SessionsRead) {
            connection.place.follow(session, &connection.outbox);
        }
        // Both end with the connection, or with an `Error` that they have sent.
        let following = follow(Arc::clone(connection), followed);
        self.tasks.spawn(async move {
            let _ = following.await;
        });
        if connection.may(Scope::ClientExecute) && !connection.observe {
            let executing = execute(Arc::clone(connection), session, capabilities);
            self.tasks.spawn(async move {
                let _ = executing.await;
            });
        }
    }

    async fn submit(&self, session: SessionId, id: Option<InputId>, input: Input) -> Result<Taken, ApiError> {
        let connection = &self.connection;
        let submission = Submission { id, input, idempotency: None };
        let taken = connection.app.sessions().submit(&connection.caller.tenant, session, submission).await;
        noting(&connection.app, &connection.caller, session, taken).await
    }
}

/// Ends the connection soon after its credential is revoked or has expired.
async fn stay_authorised(connection: Arc<Connection>) {
    loop {
        tokio::time::sleep(connection.channel.settings().recheck).await;
        match connection.app.auth().recheck(&connection.caller.credential).await {
            // While the database is away nothing can be done with the connection either.
            Ok(()) | Err(AuthError::Store(_)) => {}
            Err(AuthError::Missing | AuthError::Unknown | AuthError::Expired | AuthError::Revoked) => {
                return connection.exit.close(CloseReason::Credentials);
            }
        }
    }
}

fn require(connection: &Connection, scope: Scope) -> Result<(), ApiError> {
    if connection.may(scope) { Ok(()) } else { Err(missing(&[scope])) }
}

fn missing(scopes: &[Scope]) -> ApiError {
    let words: Vec<String> = scopes.iter().map(|scope| format!("`{}`", scope.word())).collect();
    ApiError::new(ErrorCode::InsufficientScope, format!("the key needs the scope {}", words.join(" or ")))
}

fn within(pointer: &str, words: Option<&str>) -> Result<(), ApiError> {
    if words.is_some_and(|words| words.chars().count() > MAX_WORDS) {
        return Err(ApiError::invalid(pointer, format!("longer than {MAX_WORDS} characters")));
    }
    Ok(())
}
