//! A world: virtual time, one queue of what happens next, and everything that takes part. One seed, one world, on every
//! machine. What is not here: what the parts do (`node`, `actor`, `wire`, `outside`), and what must hold (`oracle`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fastrand::Rng;
use toolgate_core::bundle::Bundle;
use toolgate_core::id::{InputId, Sha256Digest, TenantId};
use toolgate_core::input::Input;
use toolgate_core::session::{Session, Status};
use toolgate_core::time::Timestamp;
use toolgate_store::SessionKey;

use crate::client::{Client, ToClient};
use crate::database::{self, Database};
use crate::errand::{Errand, ToErrand};
use crate::faults::{Fault, Faults};
use crate::figures::Figures;
use crate::node::{Node, ToNode};
use crate::subject::Subject;
use crate::tool::{Effected, Request};
use crate::trace::Trace;
use crate::wire::Letter;
use crate::{Mutant, Plan, Played, oracle};

/// Worlds that share a bundle: compiling one costs as much as playing a world.
pub(crate) const WORLDS_PER_BUNDLE: u64 = 16;
/// When every world begins.
const START: Timestamp = Timestamp(1_750_000_000_000_000);
/// Virtual time within which everything must have come to rest once nothing fails any more.
const REST_WITHIN_MS: u64 = 20 * 60 * 1_000;
/// How long waiting for people or clients must go on, once nothing fails, before it counts as a legitimate end.
const WAITS_MS: u64 = 90 * 1_000;

/// What happens at one moment.
#[derive(Debug)]
pub(crate) enum Happening {
    /// Something reaches a node; it is lost when the node has died since.
    Node { node: usize, life: u64, what: ToNode },
    /// A statement reaches the database.
    Database(Box<Letter>),
    /// A request reaches a server tool.
    Tool(Box<Request>),
    /// A server tool has done its work.
    ToolDone(Box<Request>),
    /// Something reaches a client.
    Client { client: usize, what: ToClient },
    /// Something reaches whoever sends an input.
    Errand { errand: usize, what: ToErrand },
    /// People look at a session and do something.
    People { subject: usize },
    /// The database may fail.
    Weather,
    /// A dead node starts again.
    Restart { node: usize },
}

/// An answer that somebody outside has received: what it promised must stay true.
#[derive(Debug)]
pub(crate) struct Ack {
    pub(crate) key: SessionKey,
    pub(crate) id: Option<InputId>,
    pub(crate) seq: u64,
    pub(crate) print: Sha256Digest,
}

/// Everything there is.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) now: Timestamp,
    pub(crate) rng: Rng,
    pub(crate) faults: Faults,
    pub(crate) mutant: Option<Mutant>,
    pub(crate) bundle: Arc<Bundle>,
    pub(crate) tenant: TenantId,
    pub(crate) database: Database,
    pub(crate) nodes: Vec<Node>,
    pub(crate) clients: Vec<Client>,
    pub(crate) errands: Vec<Errand>,
    pub(crate) subjects: Vec<Subject>,
    /// Inputs that went through the inbox, by their place there.
    pub(crate) inputs: Vec<Input>,
    pub(crate) effects: Vec<Effected>,
    /// Stored results of the server tools that take our key.
    pub(crate) results: BTreeMap<String, String>,
    pub(crate) acks: Vec<Ack>,
    pub(crate) promised: BTreeSet<(SessionKey, InputId)>,
    pub(crate) figures: Figures,
    pub(crate) trace: Trace,
    pub(crate) healed_at: Option<Timestamp>,
    /// How long nodes send the same bytes again while the outcome is unknown.
    pub(crate) patience_ms: u64,
    /// The database cannot be reached before this.
    pub(crate) away_until: Timestamp,
    /// Crashes of the database so far: replies under way when it dies are lost.
    pub(crate) crashes: u64,
    /// Statements that were given up and have yet to be applied.
    pub(crate) late_letters: u32,
    /// Some node took a live owner for dead.
    pub(crate) taken_early: bool,
    /// People leave when faults end: approvals and client calls then wait for good.
    pub(crate) people_leave: bool,
    pub(crate) fault: Option<String>,
    queue: BTreeMap<(Timestamp, u64), Happening>,
    names: u64,
    steps: u64,
    stormy_steps: u64,
}

/// Plays one world to its end, under the bundle of its seed.
pub(crate) fn play(plan: &Plan, bundle: Option<Arc<Bundle>>) -> Played {
    let Some(bundle) = bundle else {
        return Played { fault: Some("no bundle loads".to_owned()), ..Played::default() };
    };
    let Some(mut world) = World::new(plan, bundle) else { return Played::default() };
    world.begin();
    world.run();
    if world.fault.is_none() {
        world.fault = oracle::check(&mut world).err();
    }
    world.figures.add("world", "micro-steps", world.steps);
    world.figures.add("world", "virtual seconds", world.since_start_ms() / 1_000);
    world.figures.count("world", "seeds");
    Played { fault: world.fault, figures: world.figures, digest: world.trace.digest(), lines: world.trace.into_lines() }
}

impl World {
    fn new(plan: &Plan, bundle: Arc<Bundle>) -> Option<Self> {
        let mut rng = Rng::with_seed(plan.seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x70_01_6a_7e);
        let faults = Faults::swarm(&mut rng);
        let nodes = (1..=rng.usize(1..=4)).filter_map(Node::new).collect();
        let subjects = (0..rng.usize(1..=2)).map(Subject::new).collect();
        let tenant = TenantId::new("acme").ok()?;
        Some(Self {
            now: START,
            stormy_steps: rng.u64(150..1_100),
            people_leave: rng.u8(0..5) == 0,
            patience_ms: if rng.bool() { 20_000 } else { rng.u64(100..6_000) },
            rng,
            faults,
            mutant: plan.mutant,
            bundle,
            tenant,
            database: Database::new(plan.mutant),
            nodes,
            clients: Vec::new(),
            errands: Vec::new(),
            subjects,
            inputs: Vec::new(),
            effects: Vec::new(),
            results: BTreeMap::new(),
            acks: Vec::new(),
            promised: BTreeSet::new(),
            figures: Figures::default(),
            trace: Trace::new(plan.verbose),
            healed_at: None,
            away_until: START,
            crashes: 0,
            late_letters: 0,
            taken_early: false,
            fault: None,
            queue: BTreeMap::new(),
            names: 0,
            steps: 0,
        })
    }

    fn begin(&mut self) {
        for node in 0..self.nodes.len() {
            self.at_ms(0, Happening::Restart { node });
        }
        for subject in 0..self.subjects.len() {
            let wait = self.rng.u64(5..200);
            self.at_ms(wait, Happening::People { subject });
            for _ in 0..self.rng.usize(1..=2) {
                let client = Client::new(self.clients.len(), subject);
                self.clients.extend(client);
                let wait = self.rng.u64(10..3_000);
                self.at_ms(wait, Happening::Client { client: self.clients.len() - 1, what: ToClient::Connect });
            }
        }
        self.at_ms(500, Happening::Weather);
    }

    fn run(&mut self) {
        while let Some(((at, _), happening)) = self.queue.pop_first() {
            self.now = self.now.max(at);
            self.steps += 1;
            if self.healed_at.is_none() && self.steps > self.stormy_steps {
                self.heal();
            }
            self.happen(happening);
            if self.fault.is_some() {
                return;
            }
            if let Some(healed) = self.healed_at {
                if self.steps.is_multiple_of(8) && self.at_rest(healed) {
                    return;
                }
                if self.now > healed.plus_ms(REST_WITHIN_MS) {
                    let still = self.unrest(healed).unwrap_or_default();
                    return self
                        .fail(format!("LIVENESS: not at rest {REST_WITHIN_MS} ms after the last fault: {still}"));
                }
            }
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Node { node, life, what } => self.node_receives(node, life, what),
            Happening::Database(letter) => self.database_receives(*letter),
            Happening::Tool(request) => self.tool_receives(*request),
            Happening::ToolDone(request) => self.tool_answers(*request),
            Happening::Client { client, what } => self.client_receives(client, what),
            Happening::Errand { errand, what } => self.errand_receives(errand, what),
            Happening::People { subject } => self.people_look(subject),
            Happening::Weather => self.weather(),
            Happening::Restart { node } => self.restart(node),
        }
    }

    /// Nothing fails any more; what is broken comes back.
    fn heal(&mut self) {
        self.healed_at = Some(self.now);
        self.faults = Faults::default();
        self.away_until = self.now;
        for node in &mut self.nodes {
            node.paused_until = node.paused_until.min(self.now);
        }
        self.note("heal", 0, 0);
    }

    fn weather(&mut self) {
        if self.strikes(Fault::Outage) {
            self.away_until = self.away_until.max(self.now.plus_ms(self.rng.u64(200..25_000)));
            self.note("database away", 0, 0);
        }
        if self.strikes(Fault::Crash) {
            self.crashes += 1;
            self.away_until = self.away_until.max(self.now.plus_ms(self.rng.u64(50..4_000)));
            self.note("database crash", self.crashes, 0);
        }
        if self.healed_at.is_none() {
            let wait = self.rng.u64(300..3_000);
            self.at_ms(wait, Happening::Weather);
        }
    }

    fn at_rest(&mut self, healed: Timestamp) -> bool {
        self.late_letters == 0 && self.unrest(healed).is_none()
    }

    /// What still keeps the world from rest, in words.
    fn unrest(&mut self, healed: Timestamp) -> Option<String> {
        if let Some(errand) = self.errands.iter().find(|errand| errand.said.is_none()) {
            return Some(format!("{:?} has no answer", errand.id.as_str()));
        }
        let waited = self.people_leave && self.now > healed.plus_ms(WAITS_MS);
        for subject in 0..self.subjects.len() {
            let Some(key) = self.key_of(subject) else { return Some("a session was never opened".to_owned()) };
            if !self.database.inbox(&key).is_empty() {
                return Some(format!("{}: the inbox is not empty", key.session));
            }
            let status = self.database.state(&key).map_or(Status::Closed, Session::status);
            let rests = match status {
                Status::Idle | Status::Closed => true,
                Status::WaitingApproval | Status::WaitingClient => waited,
                Status::Running => false,
            };
            if !rests {
                return Some(format!("{} is {}", key.session, status.code()));
            }
        }
        None
    }

    /// Puts something on the queue.
    pub(crate) fn at(&mut self, at: Timestamp, happening: Happening) {
        let place = self.name();
        self.queue.insert((at, place), happening);
    }

    pub(crate) fn at_ms(&mut self, ms: u64, happening: Happening) {
        self.at(self.now.plus_ms(ms), happening);
    }

    /// A number that nothing else in this world has.
    pub(crate) const fn name(&mut self) -> u64 {
        self.names += 1;
        self.names
    }

    /// Whether the fault strikes now.
    pub(crate) fn strikes(&mut self, fault: Fault) -> bool {
        let strikes = self.faults.strikes(fault, &mut self.rng);
        if strikes {
            self.figures.count("faults", fault.word());
        }
        strikes
    }

    pub(crate) fn one_in(&mut self, n: u32) -> bool {
        self.rng.u32(0..n) == 0
    }

    /// Something that must never happen has.
    pub(crate) fn fail(&mut self, why: String) {
        self.trace.say(self.now, &why);
        self.fault.get_or_insert(why);
    }

    pub(crate) fn note(&mut self, what: &'static str, a: u64, b: u64) {
        self.trace.note(self.now, what, a, b);
    }

    pub(crate) const fn is_calm(&self) -> bool {
        self.healed_at.is_some()
    }

    /// Somebody outside was told that the rows from `seq` on are durable; `id` is the input that must stand there.
    pub(crate) fn acknowledged(&mut self, key: &SessionKey, id: Option<&InputId>, seq: u64) {
        match self.database.row(key, seq) {
            Some(row) => {
                let ack = Ack { key: key.clone(), id: id.cloned(), seq, print: database::print(&row) };
                self.acks.push(ack);
            }
            None => self.fail(format!("{}: row {seq} was acknowledged and is not in the log", key.session)),
        }
    }

    const fn since_start_ms(&self) -> u64 {
        self.now.as_micros().saturating_sub(START.as_micros()).unsigned_abs() / 1_000
    }
}
