//! How a session comes into a node's memory: its row, its keys and rows, and the take-over. What is not here: what happens
//! once it is there (`actor`).

use std::sync::Arc;

use toolgate_core::event::{Event, OwnerChanged};
use toolgate_core::fold;
use toolgate_core::session::Session;
use toolgate_store::chain::{Checker, Position};
use toolgate_store::{Codec, Row, SessionKey, SessionRow, TakeOver, TakenOver, WrappedKey};

use super::{Actor, Flow, Owned, Stage};
use crate::Mutant;
use crate::database::{Answer, Lease, Op};
use crate::node::Waiting;
use crate::world::World;

const TAKE_OVER_TRIES: u32 = 8;

impl Owned {
    /// Rows and keys as a session; none when the log is broken.
    fn read(row: &SessionRow, codec: Codec, rows: &[Row]) -> Result<Self, String> {
        let mut state = Session::new(row.session);
        let mut checker = Checker::new(&row.tenant, row.session);
        let mut next = Position::FIRST;
        for stored in rows.iter().take_while(|stored| stored.seq <= row.head_seq) {
            checker.row(stored).map_err(|broken| broken.to_string())?;
            let recorded = codec.decode(stored).map_err(|error| error.to_string())?;
            fold(&mut state, &recorded);
            next = Position::after(stored);
        }
        if state.head != row.head_seq {
            return Err(format!("the head is {}, and the log ends at {}", row.head_seq, state.head));
        }
        next.epoch = row.epoch;
        Ok(Self::new(state, codec, next))
    }
}

impl World {
    /// Begins to load a session.
    pub(crate) fn load(&mut self, n: usize, key: &SessionKey, token: u64) {
        self.ask(n, Waiting::Actor { key: key.clone(), token }, Op::Look(key.clone()));
    }

    pub(super) fn looked(&mut self, n: usize, key: &SessionKey, actor: &mut Actor, tries: u32, answer: Answer) -> Flow {
        let Answer::Looked(Some(row), nodes) = answer else { return Flow::Leaves("load failed") };
        let (takes, foreign) = self.standing(n, &row, &nodes);
        if foreign {
            return Flow::Foreign;
        }
        actor.stage = Stage::Reading { row, takes, tries };
        self.ask(n, Waiting::Actor { key: key.clone(), token: actor.token }, Op::Read(key.clone()));
        Flow::Stays
    }

    /// Whether the session must be taken over, and whether it may not be.
    fn standing(&mut self, n: usize, row: &SessionRow, nodes: &[Lease]) -> (bool, bool) {
        let me = self.nodes.get(n).and_then(|node| node.identity.clone());
        if row.closed || row.owner == me {
            return (false, false);
        }
        (true, self.owned_by_other(n, row.owner.as_ref(), nodes))
    }

    #[expect(clippy::too_many_arguments, reason = "the stage's parts and the answer")]
    pub(super) fn read(
        &mut self,
        n: usize,
        key: &SessionKey,
        actor: &mut Actor,
        row: Box<SessionRow>,
        takes: bool,
        tries: u32,
        answer: Answer,
    ) -> Flow {
        let Answer::Rows(keys, rows) = answer else { return Flow::Leaves("load failed") };
        let owned = match self.assemble(&row, &keys, &rows) {
            Ok(owned) => owned,
            Err(why) => {
                self.fail(format!("{}: the log cannot be read: {why}", key.session));
                return Flow::Leaves("load failed");
            }
        };
        self.figures.count("nodes", "session loaded");
        if !takes {
            actor.stage = Stage::Open(Box::new(owned));
            return self.recovery(actor);
        }
        let mut owned = owned;
        let Some(owner) = self.nodes.get(n).and_then(|node| node.identity.clone()) else { return Flow::Dead };
        let at = Position { epoch: owned.next.epoch + 1, ..owned.next };
        let event =
            Event::OwnerChanged(OwnerChanged { node: owner.node.as_str().to_owned(), incarnation: owner.incarnation });
        let Ok(encoded) = owned.codec.encode(&[event], None, self.now, at) else { return Flow::Failed };
        let Some(first) = encoded.rows.into_iter().next() else { return Flow::Failed };
        owned.next = encoded.next;
        let take_over = TakeOver { tenant: key.tenant.clone(), session: key.session, owner, row: first.clone() };
        actor.stage = Stage::TakingOver { owned: Box::new(owned), row: Box::new(first), tries };
        if self.gap(n) {
            return Flow::Dead;
        }
        let waiting = Waiting::Actor { key: key.clone(), token: actor.token };
        self.ask(n, waiting, Op::TakeOver(Arc::new(take_over)));
        if self.gap(n) { Flow::Dead } else { Flow::Stays }
    }

    fn assemble(&self, row: &SessionRow, keys: &[WrappedKey], rows: &[Row]) -> Result<Owned, String> {
        let codec = Codec::open(row.tenant.clone(), row.session, self.database.master.clone(), keys);
        Owned::read(row, codec.map_err(|error| error.to_string())?, rows)
    }

    pub(super) fn took_over(
        &mut self,
        n: usize,
        key: &SessionKey,
        actor: &mut Actor,
        (mut owned, row, tries): (Box<Owned>, Box<Row>, u32),
        answer: &Answer,
    ) -> Flow {
        match answer {
            Answer::TakenOver(TakenOver::Ok { .. } | TakenOver::Already { .. }) => {
                if self.gap(n) {
                    return Flow::Dead;
                }
                self.figures.count("nodes", "take-over");
                self.note("take-over", n as u64, owned.next.epoch);
                let Ok(recorded) = owned.codec.decode(&row) else { return Flow::Failed };
                fold(&mut owned.state, &recorded);
                actor.stage = Stage::Open(owned);
                self.recovery(actor)
            }
            Answer::TakenOver(TakenOver::Stale { .. }) if tries + 1 < TAKE_OVER_TRIES => {
                self.figures.count("nodes", "take-over lost to another");
                actor.stage = Stage::Looking { tries: tries + 1 };
                self.load(n, key, actor.token);
                Flow::Stays
            }
            _ => Flow::Leaves("take-over failed"),
        }
    }

    fn recovery(&self, actor: &mut Actor) -> Flow {
        if let Stage::Open(owned) = &mut actor.stage {
            owned.recovers = self.mutant != Some(Mutant::NoRecovery);
        }
        Flow::Stays
    }
}
