//! Clients that execute calls on the user's machine: they come, take calls, run each once, report until somebody answers,
//! break off and come back. What is not here: how a node treats them (`actor`).

use std::collections::{BTreeMap, BTreeSet};

use toolgate_core::Order;
use toolgate_core::id::{ActorId, CallId, ClientInstance, InputId};
use toolgate_core::input::{CallAck, ClientAttached, Input, OutcomeReport, Reporter};
use toolgate_core::output::{Outcome, OutcomeStatus, Output};
use toolgate_core::tool::Venue;
use toolgate_store::SessionKey;

use crate::actor::{Asker, Mail};
use crate::faults::Fault;
use crate::node::ToNode;
use crate::said::Said;
use crate::world::{Happening, World};

/// How long a client waits for the answer to a report before it reports again.
const ANSWER_MS: u64 = 4_000;
/// Reports of one outcome after which a client gives up.
const TRIES: u32 = 200;

/// What reaches a client.
#[derive(Debug)]
pub(crate) enum ToClient {
    /// It is time to connect.
    Connect,
    /// It may execute.
    Attached {
        connection: u64,
    },
    /// It may not, for now.
    Refused {
        connection: u64,
    },
    /// The connection has ended.
    Lost {
        connection: u64,
    },
    Offer {
        connection: u64,
        order: Box<Order>,
    },
    /// It has done its work.
    Ran {
        report: u64,
    },
    /// It is time to report.
    Report {
        report: u64,
    },
    /// A node answered a report.
    Answered {
        report: u64,
        key: SessionKey,
        said: Said,
        id: Option<InputId>,
    },
}

#[derive(Debug, Clone, Copy)]
struct Connection {
    id: u64,
    node: usize,
    life: u64,
    attached: bool,
}

/// One call that the client took.
#[derive(Debug)]
struct Work {
    order: Order,
    id: Option<InputId>,
    outcome: Option<Outcome>,
    answered: bool,
    tries: u32,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    subject: usize,
    instance: ClientInstance,
    by: ActorId,
    connection: Option<Connection>,
    taken: BTreeMap<(CallId, u32), u64>,
    work: BTreeMap<u64, Work>,
}

impl Client {
    pub(crate) fn new(number: usize, subject: usize) -> Option<Self> {
        Some(Self {
            subject,
            instance: ClientInstance::new(format!("client-{number}")).ok()?,
            by: ActorId::new("ann").ok()?,
            connection: None,
            taken: BTreeMap::new(),
            work: BTreeMap::new(),
        })
    }

    /// Its connection to this life of a node, if it has one.
    pub(crate) fn connection_to(&self, node: usize, life: u64) -> Option<u64> {
        self.connection.filter(|to| to.node == node && to.life == life).map(|to| to.id)
    }
}

impl World {
    pub(crate) fn client_receives(&mut self, c: usize, what: ToClient) {
        let Some(client) = self.clients.get_mut(c) else { return };
        let current = client.connection.map(|connection| connection.id);
        match what {
            ToClient::Connect => self.connect(c),
            ToClient::Attached { connection } if current == Some(connection) => {
                if let Some(to) = client.connection.as_mut() {
                    to.attached = true;
                }
                let unanswered = |work: &Work| work.outcome.is_some() && !work.answered;
                let open: Vec<u64> = client.work.iter().filter(|(_, w)| unanswered(w)).map(|(id, _)| *id).collect();
                self.figures.count("clients", "attached");
                for report in open {
                    self.at_ms(1, Happening::Client { client: c, what: ToClient::Report { report } });
                }
            }
            ToClient::Refused { connection } | ToClient::Lost { connection } if current == Some(connection) => {
                client.connection = None;
                let wait = self.rng.u64(100..3_000);
                self.at_ms(wait, Happening::Client { client: c, what: ToClient::Connect });
            }
            ToClient::Offer { connection, order } if current == Some(connection) => self.take(c, *order),
            ToClient::Ran { report } => self.ran(c, report),
            ToClient::Report { report } => self.report(c, report),
            ToClient::Answered { report, key, said, id } => {
                let Some(work) = client.work.get_mut(&report) else { return };
                if said.is_final() && !work.answered {
                    work.answered = true;
                    self.heard(&key, id.as_ref(), said);
                }
            }
            ToClient::Attached { .. } | ToClient::Refused { .. } | ToClient::Lost { .. } | ToClient::Offer { .. } => {}
        }
    }

    /// Somebody outside heard an answer: what it promises is written down.
    pub(crate) fn heard(&mut self, key: &SessionKey, id: Option<&InputId>, said: Said) {
        match (said, id) {
            (Said::Taken { seq }, id) => self.acknowledged(key, id, seq),
            // The same report may have come under another id.
            (Said::Already { seq }, _) => self.acknowledged(key, None, seq),
            (Said::Waits, Some(id)) => {
                self.promised.insert((key.clone(), id.clone()));
            }
            _ => {}
        }
    }

    fn connect(&mut self, c: usize) {
        let Some(subject) = self.clients.get(c).map(|client| client.subject) else { return };
        if self.is_calm() && self.people_leave {
            return;
        }
        let retry = self.rng.u64(300..2_000);
        let live: Vec<usize> =
            (0..self.nodes.len()).filter(|n| self.nodes.get(*n).is_some_and(|n| n.identity.is_some())).collect();
        let (Some(key), Some(node)) = (self.key_of(subject), self.rng.choice(live)) else {
            return self.at_ms(retry, Happening::Client { client: c, what: ToClient::Connect });
        };
        let id = self.name();
        let life = self.nodes.get(node).map_or(0, |node| node.life);
        let Some(client) = self.clients.get_mut(c) else { return };
        client.connection = Some(Connection { id, node, life, attached: false });
        let input =
            ClientAttached { instance: client.instance.clone(), by: client.by.clone(), capabilities: BTreeSet::new() };
        let mail = Mail::Attach { client: c, connection: id, input };
        self.at_ms(5, Happening::Node { node, life, what: ToNode::Mail { key: key.clone(), mail } });
        // A connection that is never answered, and one that breaks some day.
        let stays =
            if self.strikes(Fault::ClientDrops) { self.rng.u64(50..8_000) } else { self.rng.u64(40_000..120_000) };
        self.at_ms(stays, Happening::Node { node, life, what: ToNode::Gone { key, connection: id } });
        self.at_ms(stays, Happening::Client { client: c, what: ToClient::Lost { connection: id } });
    }

    fn take(&mut self, c: usize, order: Order) {
        let Some(client) = self.clients.get(c) else { return };
        if let Some(report) = client.taken.get(&(order.call.clone(), order.attempt)).copied() {
            // Offered again: it is not run again, its outcome is told again.
            return self.at_ms(1, Happening::Client { client: c, what: ToClient::Report { report } });
        }
        let report = self.name();
        let named = self.rng.bool();
        let id = InputId::new(format!("report-{report}")).ok().filter(|_| named);
        let key = (order.call.clone(), order.attempt);
        if self.one_in(3) {
            let Some(client) = self.clients.get(c) else { return };
            let (call, attempt, instance) = (order.call.clone(), order.attempt, client.instance.clone());
            self.send_from(c, None, Input::CallAck(CallAck { call, attempt, instance }), Asker::Nobody);
        }
        let silent = self.strikes(Fault::ClientSilent);
        let work = self.rng.u64(5..1_500);
        if let Some(client) = self.clients.get_mut(c) {
            client.taken.insert(key, report);
            client.work.insert(report, Work { order, id, outcome: None, answered: false, tries: 0 });
        }
        if !silent {
            self.at_ms(work, Happening::Client { client: c, what: ToClient::Ran { report } });
        }
    }

    fn ran(&mut self, c: usize, report: u64) {
        let Some(subject) = self.clients.get(c).map(|client| client.subject) else { return };
        let Some(key) = self.key_of(subject) else { return };
        let status = match self.rng.u8(0..12) {
            0 => OutcomeStatus::Failed,
            1 => OutcomeStatus::DeniedByClient,
            _ => OutcomeStatus::Ok,
        };
        let output = (status == OutcomeStatus::Ok).then(|| Output::text("application/json", report.to_string()));
        let Some(work) = self.clients.get_mut(c).and_then(|client| client.work.get_mut(&report)) else { return };
        work.outcome = Some(Outcome { status, output, detail: None });
        let order = work.order.clone();
        if status != OutcomeStatus::DeniedByClient {
            self.effected(&key, &order, Venue::Client, false);
        }
        let wait = if self.strikes(Fault::ReportLate) { self.rng.u64(2_000..60_000) } else { 1 };
        self.at_ms(wait, Happening::Client { client: c, what: ToClient::Report { report } });
    }

    fn report(&mut self, c: usize, report: u64) {
        let Some(client) = self.clients.get_mut(c) else { return };
        let attached = client.connection.is_some_and(|connection| connection.attached);
        let (instance, by) = (client.instance.clone(), client.by.clone());
        let Some(work) = client.work.get_mut(&report).filter(|work| !work.answered && work.tries < TRIES) else {
            return;
        };
        let Some(outcome) = work.outcome.clone().filter(|_| attached) else { return };
        work.tries += 1;
        let Order { call, attempt, fence, args_hash, .. } = work.order.clone();
        let id = work.id.clone();
        let reporter = Reporter::Client { instance, by, fence, args_hash };
        let input = Input::Outcome(OutcomeReport { call, attempt, reporter, outcome });
        self.at_ms(ANSWER_MS, Happening::Client { client: c, what: ToClient::Report { report } });
        if self.strikes(Fault::ReportLost) {
            return;
        }
        let asker = Asker::Report { client: c, report };
        if self.strikes(Fault::ReportTwice) {
            self.send_from(c, id.clone(), input.clone(), asker);
        }
        self.send_from(c, id, input, asker);
    }

    fn send_from(&mut self, c: usize, id: Option<InputId>, input: Input, asker: Asker) {
        let Some((subject, connection)) = self.clients.get(c).map(|client| (client.subject, client.connection)) else {
            return;
        };
        let (Some(key), Some(Connection { node, life, .. })) = (self.key_of(subject), connection) else { return };
        let mail = Mail::Submit { id, input: Box::new(input), asker };
        let latency = self.rng.u64(1..15);
        self.at_ms(latency, Happening::Node { node, life, what: ToNode::Mail { key, mail } });
    }
}
