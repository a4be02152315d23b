//! What can be sent to the owner of a session. What is not here: what it does with it (`actor`).

use std::collections::BTreeSet;

use tokio::sync::oneshot;
use toolgate_core::id::{ActorId, Capability, ClientInstance};
use toolgate_store::HandOver;

use super::inbox::Delivered;
use super::{AttachRefused, Attachment, Snapshot, Submission, Taken};
use crate::failure::Failure;

/// A message to the owner of a session.
#[derive(Debug)]
pub(super) enum Mail {
    /// Be in memory and do what is due.
    Wake,
    /// Take an input.
    Submit(Box<Submission>, oneshot::Sender<Result<Taken, Untaken>>),
    /// Take an input that another node put into the inbox.
    Letter(Box<Delivered>),
    /// Give the session to the node that asks, as soon as that can be.
    HandOver(HandOver),
    /// The log ends here: forget the session if it knows less.
    Head(u64),
    /// Tell the state.
    Snapshot(oneshot::Sender<Result<Snapshot, Failure>>),
    /// Make a client the executor.
    Attach(Box<AttachOrder>),
}

/// An input that was not taken. One that nobody has looked at comes back, to be sent elsewhere.
#[derive(Debug)]
pub(super) struct Untaken {
    pub(super) failure: Failure,
    pub(super) submission: Option<Box<Submission>>,
}

impl From<Failure> for Untaken {
    fn from(failure: Failure) -> Self {
        Self { failure, submission: None }
    }
}

/// A client that wants the executor's place.
#[derive(Debug)]
pub(super) struct AttachOrder {
    pub(super) instance: ClientInstance,
    pub(super) by: ActorId,
    pub(super) capabilities: BTreeSet<Capability>,
    pub(super) reply: oneshot::Sender<Result<Attachment, AttachRefused>>,
}

impl Mail {
    /// Tells the sender that it did not go well.
    pub(super) fn fail(self, failure: Failure) {
        // Whoever asked may be gone already.
        match self {
            // What came through the database still stands there.
            Self::Wake | Self::Letter(_) | Self::HandOver(_) | Self::Head(_) => {}
            Self::Submit(submission, reply) => {
                drop(reply.send(Err(Untaken { failure, submission: Some(submission) })));
            }
            Self::Snapshot(reply) => drop(reply.send(Err(failure))),
            Self::Attach(order) => drop(order.reply.send(Err(AttachRefused::Failed(failure)))),
        }
    }
}
