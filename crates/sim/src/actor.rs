//! One session in a node's memory: load, take over, settle what was under way, then input after input: decide, append,
//! fold, reconcile effects. A twin of `toolgate-server`'s `sessions/actor`, `journal` and `load`. What is not here: what
//! effects do (`effects`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use toolgate_core::event::{Event, Recorded};
use toolgate_core::id::{ClientInstance, InputId, SessionId};
use toolgate_core::input::{ClientAttached, Input, Stamped};
use toolgate_core::session::{Session, Status};
use toolgate_core::time::Timestamp;
use toolgate_core::{Decided, Effect, Reply, decide, fold, next_wake};
use toolgate_store::chain::Position;
use toolgate_store::{Append, Appended, Codec, InboxRow, Projection, Row, SessionKey, SessionRow};

use crate::Mutant;
use crate::client::ToClient;
use crate::database::{Answer, Op};
use crate::effects::{Attached, Step};
use crate::errand::ToErrand;
use crate::faults::Fault;
use crate::node::{ToNode, Waiting};
use crate::said::Said;
use crate::world::{Happening, World};

const IDLE_MS: u64 = 30_000;
const REST_FIRST_MS: u64 = 100;
const REST_MOST_MS: u64 = 10_000;

mod load;

/// Whoever waits for the answer to an input.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Asker {
    Errand(usize),
    /// A report of a client, by its number there.
    Report {
        client: usize,
        report: u64,
    },
    Nobody,
}

/// Mail for the owner of a session.
#[derive(Debug)]
pub(crate) enum Mail {
    Submit { id: Option<InputId>, input: Box<Input>, asker: Asker },
    Attach { client: usize, connection: u64, input: ClientAttached },
}

/// What happens inside an actor.
#[derive(Debug)]
pub(crate) enum Nudge {
    /// Look whether something is due.
    Wake,
    /// The wait after a failure is over.
    Restart,
    /// An effect moves on.
    Effect { run: u64, step: Step },
}

/// An actor.
#[derive(Debug)]
pub(crate) struct Actor {
    token: u64,
    stage: Stage,
    pub(crate) mail: VecDeque<Mail>,
    rest_ms: u64,
}

#[derive(Debug)]
enum Stage {
    /// Asks for the session's row and the nodes.
    Looking {
        tries: u32,
    },
    /// Asks for keys and rows.
    Reading {
        row: Box<SessionRow>,
        takes: bool,
        tries: u32,
    },
    TakingOver {
        owned: Box<Owned>,
        row: Box<Row>,
        tries: u32,
    },
    Open(Box<Owned>),
    /// Failed; loads again after a while.
    Resting,
}

/// The session of an actor.
#[derive(Debug)]
pub(crate) struct Owned {
    pub(crate) state: Session,
    codec: Codec,
    next: Position,
    pub(crate) running: BTreeMap<Effect, u64>,
    /// Results that nobody has looked at yet; until then their effects count as running.
    pub(crate) done: VecDeque<(u64, Input)>,
    pub(crate) attached: Option<Attached>,
    inbox: VecDeque<InboxRow>,
    /// What this owner has consumed, by the body of each put: a list that was read before may still name it, while an input
    /// that was answered and put again is a new one.
    consumed: BTreeSet<Vec<u8>>,
    recovers: bool,
    looks_into_inbox: bool,
    busy: Option<Box<Busy>>,
    alarm: Option<Timestamp>,
    idle_since: Option<Timestamp>,
}

/// An append under way.
#[derive(Debug)]
struct Busy {
    stamped: Stamped,
    events: Vec<Event>,
    reply: Reply,
    next: Position,
    source: Source,
}

/// Where an input came from.
#[derive(Debug)]
enum Source {
    Own,
    Asked(Asker),
    Attach { client: usize, connection: u64, instance: ClientInstance },
    Inbox(InputId),
}

/// What becomes of the actor.
enum Flow {
    Stays,
    /// The node has died.
    Dead,
    /// It leaves memory.
    Leaves(&'static str),
    /// Something failed: its state must be loaded again.
    Failed,
    /// Another node owns the session.
    Foreign,
}

impl Actor {
    pub(crate) fn new(token: u64) -> Self {
        Self { token, stage: Stage::Looking { tries: 0 }, mail: VecDeque::new(), rest_ms: REST_FIRST_MS }
    }

    pub(crate) fn adopted(token: u64, owned: Owned) -> Self {
        Self { stage: Stage::Open(Box::new(owned)), ..Self::new(token) }
    }

    const fn is_open(&self) -> bool {
        matches!(self.stage, Stage::Open(_))
    }

    /// Its token, once its session is open.
    pub(crate) fn open_token(&self) -> Option<u64> {
        self.is_open().then_some(self.token)
    }
}

impl Owned {
    fn new(state: Session, codec: Codec, next: Position) -> Self {
        Self {
            state,
            codec,
            next,
            running: BTreeMap::new(),
            done: VecDeque::new(),
            attached: None,
            inbox: VecDeque::new(),
            consumed: BTreeSet::new(),
            recovers: true,
            looks_into_inbox: true,
            busy: None,
            alarm: None,
            idle_since: None,
        }
    }

    /// A session that was created just now.
    pub(crate) fn created(id: SessionId, codec: Codec, next: Position, events: Vec<Event>, at: Timestamp) -> Self {
        let mut owned = Self::new(Session::new(id), codec, next);
        owned.recovers = false;
        owned.fold(events, at, None, 1, 1);
        owned
    }

    fn fold(&mut self, events: Vec<Event>, at: Timestamp, id: Option<&InputId>, first: u64, epoch: u64) {
        for (place, event) in (0_u64..).zip(events) {
            let input_id = id.filter(|_| place == 0).cloned();
            fold(&mut self.state, &Recorded { seq: first + place, epoch, at, input_id, event });
        }
    }

    /// The next result of an effect that is still wanted.
    fn next_result(&mut self) -> Option<Input> {
        while let Some((run, input)) = self.done.pop_front() {
            let before = self.running.len();
            self.running.retain(|_, known| *known != run);
            if self.running.len() < before {
                return Some(input);
            }
        }
        None
    }
}

/// The session as the store's scans see it; as the server writes it.
pub(crate) fn projection(after: &Session, at: Timestamp) -> Projection {
    let status = after.status();
    let active = status == Status::Running;
    Projection {
        status: status.code().to_owned(),
        active,
        profile: after.profile.clone(),
        ending: None,
        pending_approvals: 0,
        updated_at: at,
        next_wake_at: if active { None } else { next_wake(after) },
        title: None,
    }
}

impl World {
    pub(crate) fn nudge(&mut self, n: usize, key: &SessionKey, token: u64, what: Nudge) {
        let Some(actor) = self.actor(n, key, token) else { return };
        match (what, &mut actor.stage) {
            (Nudge::Wake, _) => self.poke(n, key),
            (Nudge::Restart, Stage::Resting) => {
                actor.stage = Stage::Looking { tries: 0 };
                self.load(n, key, token);
            }
            (Nudge::Effect { run, step }, Stage::Open(_)) => self.effect_steps(n, key, token, run, step),
            (Nudge::Restart | Nudge::Effect { .. }, _) => {}
        }
    }

    fn actor(&mut self, n: usize, key: &SessionKey, token: u64) -> Option<&mut Actor> {
        self.nodes.get_mut(n)?.actors.get_mut(key).filter(|actor| actor.token == token)
    }

    /// The session in a node's memory, if it is open there.
    pub(crate) fn owned(&mut self, n: usize, key: &SessionKey, token: u64) -> Option<&mut Owned> {
        match self.actor(n, key, token).map(|actor| &mut actor.stage) {
            Some(Stage::Open(owned)) => Some(owned),
            _ => None,
        }
    }

    /// Lets a session do what it can.
    pub(crate) fn poke(&mut self, n: usize, key: &SessionKey) {
        let Some(mut actor) = self.nodes.get_mut(n).and_then(|node| node.actors.remove(key)) else { return };
        let flow = match &mut actor.stage {
            Stage::Open(owned) => self.turn(n, key, actor.token, owned, &mut actor.mail),
            Stage::Looking { .. } | Stage::Reading { .. } | Stage::TakingOver { .. } | Stage::Resting => Flow::Stays,
        };
        self.settle(n, key, actor, flow);
    }

    /// Lets a session go, whatever it is doing.
    pub(crate) fn forget(&mut self, n: usize, key: &SessionKey) {
        if let Some(actor) = self.nodes.get_mut(n).and_then(|node| node.actors.remove(key)) {
            self.settle(n, key, actor, Flow::Leaves("session forgotten: the lease had lapsed"));
        }
    }

    /// Puts an actor back, or lets it go.
    fn settle(&mut self, n: usize, key: &SessionKey, mut actor: Actor, flow: Flow) {
        if !matches!(flow, Flow::Stays | Flow::Dead)
            && let Stage::Open(owned) = &actor.stage
        {
            if let Some(attached) = &owned.attached {
                let (client, connection) = (attached.client, attached.connection);
                self.depart(n, 1, Happening::Client { client, what: ToClient::Lost { connection } });
            }
            if let Some(busy) = &owned.busy {
                self.answer_source(n, key, busy.stamped.id.as_ref(), &busy.source, Said::Unknown);
            }
        }
        match flow {
            Flow::Dead => {}
            Flow::Stays => {
                if let Some(node) = self.nodes.get_mut(n) {
                    node.actors.insert(key.clone(), actor);
                }
            }
            Flow::Failed => {
                self.figures.count("nodes", "session loaded again after a failure");
                let wait = actor.rest_ms;
                actor.rest_ms = (wait * 2).min(REST_MOST_MS);
                actor.stage = Stage::Resting;
                self.nudge_later(n, key, actor.token, wait, Nudge::Restart);
                if let Some(node) = self.nodes.get_mut(n) {
                    node.actors.insert(key.clone(), actor);
                }
            }
            Flow::Leaves(why) => {
                self.figures.count("nodes", why);
                for mail in actor.mail {
                    self.refuse(n, key, mail);
                }
            }
            Flow::Foreign => {
                for mail in actor.mail {
                    self.forward(n, key, mail);
                }
            }
        }
    }

    pub(crate) fn nudge_later(&mut self, n: usize, key: &SessionKey, token: u64, wait_ms: u64, what: Nudge) {
        let Some(life) = self.nodes.get(n).map(|node| node.life) else { return };
        let what = ToNode::Actor { key: key.clone(), token, what };
        self.at_ms(wait_ms, Happening::Node { node: n, life, what });
    }

    fn refuse(&mut self, n: usize, key: &SessionKey, mail: Mail) {
        match mail {
            Mail::Submit { id, asker, .. } => self.tell(n, key, id.as_ref(), asker, Said::Busy),
            Mail::Attach { client, connection, .. } => {
                self.depart(n, 1, Happening::Client { client, what: ToClient::Refused { connection } });
            }
        }
    }

    /// Tells whoever asked.
    pub(crate) fn tell(&mut self, n: usize, key: &SessionKey, id: Option<&InputId>, asker: Asker, said: Said) {
        self.figures.count("answers", said.word());
        if matches!(asker, Asker::Nobody) || self.strikes(Fault::AnswerLost) {
            return;
        }
        match asker {
            Asker::Errand(errand) => {
                let what = ToErrand::Answered { key: key.clone(), said, id: id.cloned() };
                self.depart(n, 2, Happening::Errand { errand, what });
            }
            Asker::Report { client, report } => {
                let what = ToClient::Answered { report, key: key.clone(), said, id: id.cloned() };
                self.depart(n, 2, Happening::Client { client, what });
            }
            Asker::Nobody => {}
        }
    }

    fn answer_source(&mut self, n: usize, key: &SessionKey, id: Option<&InputId>, source: &Source, said: Said) {
        match source {
            Source::Asked(asker) => self.tell(n, key, id, *asker, said),
            Source::Attach { client, connection, .. } => {
                let (client, connection) = (*client, *connection);
                let what = match said {
                    Said::Taken { .. } | Said::Unchanged | Said::Already { .. } => ToClient::Attached { connection },
                    _ => ToClient::Refused { connection },
                };
                self.depart(n, 1, Happening::Client { client, what });
            }
            Source::Own | Source::Inbox(_) => {}
        }
    }

    /// A reply of the database to an actor.
    pub(crate) fn actor_answered(&mut self, n: usize, key: &SessionKey, token: u64, answer: Answer) {
        let Some(mut actor) = self.nodes.get_mut(n).and_then(|node| node.actors.remove(key)) else { return };
        if actor.token != token {
            return self.settle(n, key, actor, Flow::Stays);
        }
        let flow = match std::mem::replace(&mut actor.stage, Stage::Resting) {
            Stage::Looking { tries } => self.looked(n, key, &mut actor, tries, answer),
            Stage::Reading { row, takes, tries } => self.read(n, key, &mut actor, row, takes, tries, answer),
            Stage::TakingOver { owned, row, tries } => self.took_over(n, key, &mut actor, (owned, row, tries), &answer),
            Stage::Open(owned) => {
                actor.stage = Stage::Open(owned);
                match &mut actor.stage {
                    Stage::Open(owned) => self.written(n, key, owned, &answer),
                    _ => Flow::Stays,
                }
            }
            Stage::Resting => Flow::Stays,
        };
        let goes_on = matches!(flow, Flow::Stays) && actor.is_open();
        self.settle(n, key, actor, flow);
        if goes_on {
            self.poke(n, key);
        }
    }

    /// The rows that wait in the inbox.
    pub(crate) fn inbox_rows(&mut self, n: usize, key: &SessionKey, token: u64, rows: Vec<InboxRow>) {
        let Some(owned) = self.owned(n, key, token) else { return };
        for row in rows {
            if !owned.consumed.contains(&row.body.bytes) && !owned.inbox.iter().any(|known| known.id == row.id) {
                owned.inbox.push_back(row);
            }
        }
        self.poke(n, key);
    }

    pub(crate) fn gone(&mut self, n: usize, key: &SessionKey, connection: u64) {
        let Some(actor) = self.nodes.get_mut(n).and_then(|node| node.actors.get_mut(key)) else { return };
        if let Stage::Open(owned) = &mut actor.stage
            && owned.attached.as_ref().is_some_and(|attached| attached.connection == connection)
        {
            owned.attached = None;
        }
        self.poke(n, key);
    }

    /// Takes inputs one after the other until an append is under way or nothing is left to do.
    fn turn(&mut self, n: usize, key: &SessionKey, token: u64, owned: &mut Owned, mail: &mut VecDeque<Mail>) -> Flow {
        if std::mem::take(&mut owned.looks_into_inbox) {
            self.ask(n, Waiting::Inbox { key: key.clone(), token }, Op::Inbox(key.clone()));
        }
        while owned.busy.is_none() {
            if std::mem::take(&mut owned.recovers) {
                let flow = self.commit(n, key, token, owned, None, Input::Recovered, Source::Own);
                if !matches!(flow, Flow::Stays) || owned.busy.is_some() {
                    return flow;
                }
            }
            self.reconcile(n, key, token, owned, None);
            let due = next_wake(&owned.state).is_some_and(|wake| wake <= self.now);
            // Whatever is ready may come first, as in a `select!`.
            let mut ready = Vec::with_capacity(4);
            ready.extend((!mail.is_empty()).then_some(0_u8));
            ready.extend((!owned.done.is_empty()).then_some(1));
            ready.extend((!owned.inbox.is_empty()).then_some(2));
            ready.extend(due.then_some(3));
            let flow = match self.rng.choice(ready) {
                Some(0) => match mail.pop_front() {
                    Some(mail) => self.take_mail(n, key, token, owned, mail),
                    None => Flow::Stays,
                },
                Some(1) => match owned.next_result() {
                    Some(input) => self.commit(n, key, token, owned, None, input, Source::Own),
                    None => Flow::Stays,
                },
                Some(2) => self.take_from_inbox(n, key, token, owned),
                Some(_) => self.commit(n, key, token, owned, None, Input::Tick, Source::Own),
                None => return self.sleep(n, key, token, owned),
            };
            if !matches!(flow, Flow::Stays) {
                return flow;
            }
        }
        Flow::Stays
    }

    fn sleep(&mut self, n: usize, key: &SessionKey, token: u64, owned: &mut Owned) -> Flow {
        let wait_ms = |until: Timestamp, now: Timestamp| {
            until.as_micros().saturating_sub(now.as_micros()).unsigned_abs().div_ceil(1_000)
        };
        if let Some(wake) = next_wake(&owned.state)
            && owned.alarm != Some(wake)
        {
            owned.alarm = Some(wake);
            self.nudge_later(n, key, token, wait_ms(wake, self.now), Nudge::Wake);
        }
        let idle = owned.attached.is_none() && owned.running.is_empty() && owned.state.status() != Status::Running;
        match owned.idle_since.filter(|_| idle) {
            Some(since) if self.now >= since.plus_ms(IDLE_MS) => return Flow::Leaves("session unloaded"),
            Some(_) => {}
            None if idle => {
                owned.idle_since = Some(self.now);
                self.nudge_later(n, key, token, IDLE_MS + 1, Nudge::Wake);
            }
            None => owned.idle_since = None,
        }
        Flow::Stays
    }

    fn take_mail(&mut self, n: usize, key: &SessionKey, token: u64, owned: &mut Owned, mail: Mail) -> Flow {
        match mail {
            Mail::Submit { id, input, asker } => self.commit(n, key, token, owned, id, *input, Source::Asked(asker)),
            Mail::Attach { client, connection, input } => {
                if owned.attached.as_ref().is_some_and(|other| other.instance != input.instance) {
                    self.depart(n, 1, Happening::Client { client, what: ToClient::Refused { connection } });
                    return Flow::Stays;
                }
                let source = Source::Attach { client, connection, instance: input.instance.clone() };
                self.commit(n, key, token, owned, None, Input::ClientAttached(input), source)
            }
        }
    }

    fn take_from_inbox(&mut self, n: usize, key: &SessionKey, token: u64, owned: &mut Owned) -> Flow {
        let Some(row) = owned.inbox.pop_front() else { return Flow::Stays };
        owned.consumed.insert(row.body.bytes.clone());
        let place = row.body.bytes.try_into().map_or(usize::MAX, usize::from_be_bytes);
        let Some(input) = self.inputs.get(place).cloned() else { return Flow::Stays };
        let input = if self.mutant == Some(Mutant::InboxForgotten) && self.one_in(4) { Input::Tick } else { input };
        self.commit(n, key, token, owned, Some(row.id.clone()), input, Source::Inbox(row.id))
    }

    /// Decides an input and sends what follows to the log.
    #[expect(clippy::too_many_arguments, reason = "place, session and input")]
    fn commit(
        &mut self,
        n: usize,
        key: &SessionKey,
        token: u64,
        owned: &mut Owned,
        id: Option<InputId>,
        input: Input,
        source: Source,
    ) -> Flow {
        owned.idle_since = None;
        let stamped = Stamped { at: self.now, id, input };
        let Decided { events, reply } = decide(&owned.state, &self.bundle, &stamped);
        let said = said(&reply, None);
        self.trace
            .detail(self.now, || format!("node {n} decides {:?}: {} events, {reply:?}", stamped.input, events.len()));
        if events.is_empty() && !matches!(source, Source::Inbox(_)) {
            self.take_place(owned, &source, said);
            self.answer_source(n, key, stamped.id.as_ref(), &source, said);
            return Flow::Stays;
        }
        if let Source::Inbox(id) = &source
            && events.is_empty()
            && self.mutant != Some(Mutant::InboxForgotten)
        {
            let (epoch, id) = (owned.next.epoch, id.clone());
            let op = Op::Reply { key: key.clone(), epoch, id, said, at: self.now };
            self.ask(n, Waiting::Actor { key: key.clone(), token }, op);
            owned.busy = Some(Box::new(Busy { stamped, events, reply, next: owned.next, source }));
            return if self.gap(n) { Flow::Dead } else { Flow::Stays };
        }
        let mut after = owned.state.clone();
        for event in &events {
            toolgate_core::apply(&mut after, event);
        }
        if self.mutant == Some(Mutant::SentBeforeDurable) {
            self.reconcile(n, key, token, owned, Some(&after));
        }
        let head = owned.next;
        let Ok(encoded) = owned.codec.encode(&events, stamped.id.as_ref(), stamped.at, head) else {
            return Flow::Failed;
        };
        let consumed = if let Source::Inbox(id) = &source { vec![id.clone()] } else { Vec::new() };
        let append = Append {
            tenant: key.tenant.clone(),
            session: key.session,
            epoch: head.epoch,
            expected_head: head.seq - 1,
            rows: encoded.rows,
            consumed_inbox: consumed,
            idempotency: None,
            outbox: Vec::new(),
            projection: projection(&after, stamped.at),
            approvals: Vec::new(),
            blobs: Vec::new(),
            new_keys: encoded.new_keys,
            destroyed_keys: encoded.destroyed_keys,
            security: Vec::new(),
        };
        if self.gap(n) {
            return Flow::Dead;
        }
        let op = Op::Append { append: Arc::new(append), events: events.clone() };
        self.ask(n, Waiting::Actor { key: key.clone(), token }, op);
        owned.busy = Some(Box::new(Busy { stamped, events, reply, next: encoded.next, source }));
        if self.gap(n) { Flow::Dead } else { Flow::Stays }
    }

    /// A client whose coming was recorded, or needs no record, has the place.
    fn take_place(&mut self, owned: &mut Owned, source: &Source, said: Said) {
        let Source::Attach { client, connection, instance } = source else { return };
        if !matches!(said, Said::Refused(_)) {
            owned.attached = Some(Attached::new(*client, *connection, instance.clone()));
        }
    }

    /// What became of an append.
    fn written(&mut self, n: usize, key: &SessionKey, owned: &mut Owned, answer: &Answer) -> Flow {
        if owned.busy.is_none() {
            return Flow::Stays;
        }
        match answer {
            Answer::Appended(Appended::Ok { .. } | Appended::Already { .. }) | Answer::Replied => {}
            Answer::Appended(Appended::Stale { .. }) => return Flow::Leaves("append was stale"),
            Answer::Appended(Appended::Fenced { .. }) => return Flow::Leaves("append was fenced"),
            _ => return Flow::Failed,
        }
        if self.gap(n) {
            return Flow::Dead;
        }
        let Some(busy) = owned.busy.take() else { return Flow::Stays };
        let Busy { stamped, events, reply, next, source } = *busy;
        let (first, epoch) = (owned.next.seq, owned.next.epoch);
        let said = said(&reply, (!events.is_empty()).then_some(first));
        for event in &events {
            self.note(event.kind(), first, epoch);
        }
        owned.next = next;
        owned.fold(events, stamped.at, stamped.id.as_ref(), first, epoch);
        self.take_place(owned, &source, said);
        self.answer_source(n, key, stamped.id.as_ref(), &source, said);
        if matches!(source, Source::Inbox(_)) {
            self.figures.count("inputs", "consumed from the inbox");
        }
        Flow::Stays
    }
}

fn said(reply: &Reply, seq: Option<u64>) -> Said {
    match (reply, seq) {
        (Reply::Accepted, Some(seq)) => Said::Taken { seq },
        (Reply::Accepted | Reply::Unchanged, _) => Said::Unchanged,
        (Reply::Already { seq }, _) => Said::Already { seq: *seq },
        (Reply::Refused(refusal), _) => Said::Refused(refusal.code),
    }
}
