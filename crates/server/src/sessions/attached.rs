//! The client that holds the executor's place of a session, and what was offered to it over its present connection.
//! What is not here: frames (`channel`), and which calls are open (core's `outstanding`).

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::{mpsc, oneshot};
use toolgate_core::Order;
use toolgate_core::id::{CallId, ClientInstance};

use super::{AttachGuard, Attachment};
use crate::crash;

/// An attached client.
#[derive(Debug)]
pub(super) struct Attached {
    pub(super) instance: ClientInstance,
    offers: mpsc::Sender<Order>,
    /// Call and attempt of what went over this connection.
    offered: BTreeSet<(CallId, u32)>,
    gone: oneshot::Receiver<()>,
}

impl Attached {
    pub(super) fn new(instance: ClientInstance, bound: usize) -> (Self, Attachment) {
        let (offers, receiver) = mpsc::channel(bound);
        let (guard, gone) = oneshot::channel();
        let attached = Self { instance, offers, offered: BTreeSet::new(), gone };
        (attached, Attachment { offers: receiver, guard: AttachGuard { _gives_up_when_dropped: guard } })
    }

    /// Offers what is new to this connection. Answers `false` when the client takes nothing any more.
    pub(super) fn offer(&mut self, wanted: &BTreeMap<ClientInstance, Vec<Order>>) -> bool {
        let mine = wanted.get(&self.instance).map_or(&[][..], Vec::as_slice);
        self.offered.retain(|(call, attempt)| mine.iter().any(|o| o.call == *call && o.attempt == *attempt));
        for order in mine {
            if !self.offered.insert((order.call.clone(), order.attempt)) {
                continue;
            }
            crash::point("K6");
            if self.offers.try_send(order.clone()).is_err() {
                return false;
            }
        }
        true
    }

    /// Whether the place was given up, though the actor has not noticed yet.
    pub(super) fn is_gone(&self) -> bool {
        self.offers.is_closed()
    }

    /// Resolves once the place is given up.
    pub(super) async fn gone(&mut self) {
        // The guard sends nothing; its drop is the message.
        let _ = (&mut self.gone).await;
    }
}
