//! The server tools of a world and their own journal: what really happened. A tool honours `not_after` as P13 asks (a
//! request that arrives after the call's deadline is refused), and one that takes our key acts once per key. What is not
//! here: client tools (`client`).

use toolgate_core::Order;
use toolgate_core::id::{CallId, Sha256Digest};
use toolgate_core::output::{Outcome, OutcomeStatus, Output};
use toolgate_core::time::Timestamp;
use toolgate_core::tool::{ToolClass, Venue};
use toolgate_store::SessionKey;

use crate::actor::Nudge;
use crate::effects::Step;
use crate::faults::Fault;
use crate::node::ToNode;
use crate::world::{Happening, World};

/// A request on its way to a tool.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) node: usize,
    pub(crate) life: u64,
    pub(crate) key: SessionKey,
    pub(crate) token: u64,
    pub(crate) run: u64,
    pub(crate) order: Order,
    /// Its sender stood still after its last look at the lease, or the network held it.
    pub(crate) excused: bool,
}

/// An effect, as the journal of the tool or client tells it.
#[derive(Debug)]
pub(crate) struct Effected {
    pub(crate) key: SessionKey,
    pub(crate) call: CallId,
    pub(crate) attempt: u32,
    pub(crate) fence: u64,
    pub(crate) args_hash: Sha256Digest,
    pub(crate) class: ToolClass,
    pub(crate) venue: Venue,
    pub(crate) at: Timestamp,
}

impl World {
    pub(crate) fn class_of(&self, order: &Order) -> ToolClass {
        self.bundle.tool(&order.tool).map_or(ToolClass::Once, |tool| tool.def.class)
    }

    /// Writes an effect down; what it follows from must be durable already.
    pub(crate) fn effected(&mut self, key: &SessionKey, order: &Order, venue: Venue, excused: bool) {
        let class = self.class_of(order);
        self.figures.count(
            "effects",
            match (venue, class) {
                (Venue::Server, ToolClass::Read) => "server, read",
                (Venue::Server, ToolClass::Idempotent) => "server, idempotent",
                (Venue::Server, ToolClass::Once) => "server, once",
                (Venue::Client, ToolClass::Read) => "client, read",
                (Venue::Client, ToolClass::Idempotent) => "client, idempotent",
                (Venue::Client, ToolClass::Once) => "client, once",
            },
        );
        self.note("effect", order.fence, u64::from(order.attempt));
        let dispatch = self.database.row(key, order.fence);
        let durable = dispatch.is_some_and(|row| {
            row.call.as_ref() == Some(&order.call) && row.marks.dispatch_attempt == Some(order.attempt)
        });
        if !durable {
            let text = format!(
                "{} ran {} although its dispatch is not in the log at {}",
                key.session, order.call, order.fence
            );
            return self.fail(text);
        }
        if venue == Venue::Server {
            self.look_for_end(key, order, excused);
        }
        let effected = Effected {
            key: key.clone(),
            call: order.call.clone(),
            attempt: order.attempt,
            fence: order.fence,
            args_hash: order.args_hash,
            class,
            venue,
            at: self.now,
        };
        self.effects.push(effected);
    }

    /// A request may reach its tool after a later owner has closed the call only where P13 says so.
    fn look_for_end(&mut self, key: &SessionKey, order: &Order, excused: bool) {
        let rows = self.database.rows(key, order.fence).unwrap_or_default();
        let Some(sent) = self.database.row(key, order.fence) else { return };
        let end = rows.iter().find(|row| row.call.as_ref() == Some(&order.call) && row.marks.terminal);
        let Some(end) = end else { return };
        self.figures.count("effects", "ran after its end was recorded");
        if end.epoch > sent.epoch && !excused && !self.taken_early {
            let text = format!("{} ran {} after a later owner had closed it at {}", key.session, order.call, end.seq);
            self.fail(text);
        }
    }

    pub(crate) fn tool_receives(&mut self, request: Request) {
        if self.now > request.order.deadline_at {
            self.figures.count("effects", "refused by the tool: past `not_after`");
            return self.tool_answers(request);
        }
        let idempotent = self.class_of(&request.order) == ToolClass::Idempotent;
        let known = self.results.contains_key(request.order.call.as_str());
        if idempotent && known {
            self.figures.count("effects", "answered by the tool from its key");
        } else {
            self.effected(&request.key, &request.order, Venue::Server, request.excused);
            let result = format!("{}", self.now.as_micros() % 1_000);
            self.results.insert(request.order.call.as_str().to_owned(), result);
        }
        if self.strikes(Fault::ToolSilent) {
            return;
        }
        let work = self.rng.u64(1..1_500);
        self.at_ms(work, Happening::ToolDone(Box::new(request)));
    }

    pub(crate) fn tool_answers(&mut self, request: Request) {
        let Request { node, life, key, token, run, order, .. } = request;
        let outcome = match self.results.get(order.call.as_str()).cloned() {
            Some(_) if self.strikes(Fault::ToolAnswerLost) => {
                if self.rng.bool() {
                    return;
                }
                Outcome::bare(OutcomeStatus::Indeterminate, "the connection broke before an answer came")
            }
            Some(result) if !result.ends_with('7') => {
                let output = Some(Output::text("application/json", result));
                Outcome { status: OutcomeStatus::Ok, output, detail: None }
            }
            _ => Outcome::bare(OutcomeStatus::Failed, "the tool answered 500"),
        };
        let what = Nudge::Effect { run, step: Step::Reports(Box::new(outcome)) };
        self.at_ms(3, Happening::Node { node, life, what: ToNode::Actor { key, token, what } });
    }
}
