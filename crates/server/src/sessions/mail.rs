//! What can be sent to the owner of a session. What is not here: what it does with it (`actor`).

use std::collections::BTreeSet;

use tokio::sync::oneshot;
use toolgate_core::id::{ActorId, Capability, ClientInstance};

use super::{AttachRefused, Attachment, Snapshot, Submission, Taken};
use crate::failure::Failure;

/// A message to the owner of a session.
#[derive(Debug)]
pub(super) enum Mail {
    /// Be in memory and do what is due.
    Wake,
    /// Take an input.
    Submit(Box<Submission>, oneshot::Sender<Result<Taken, Failure>>),
    /// Tell the state.
    Snapshot(oneshot::Sender<Result<Snapshot, Failure>>),
    /// Make a client the executor.
    Attach(Box<AttachOrder>),
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
            Self::Wake => {}
            Self::Submit(_, reply) => drop(reply.send(Err(failure))),
            Self::Snapshot(reply) => drop(reply.send(Err(failure))),
            Self::Attach(order) => drop(order.reply.send(Err(AttachRefused::Failed(failure)))),
        }
    }
}
