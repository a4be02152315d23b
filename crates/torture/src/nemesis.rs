//! The nemesis: draws faults from a shuffled deck and does them, several nodes at once, and sees that each ends as it must:
//! a killed node starts again, a stopped one goes, a drained one gives its sessions away. What is not here: what the
//! sessions make of it (`check`).

use std::collections::BTreeMap;
use std::panic;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::database::{Cluster, Reader};
use crate::node::Node;
use crate::outside::Outside;

/// The longest that a node may take to be up, to stop, to be empty; the database may be away for a part of it.
const BOUND: Duration = Duration::from_secs(90);
/// The longest that nobody may be told anything once the database is back.
const SERVES_AGAIN: Duration = Duration::from_secs(30);
/// Time between two looks at something that changes by itself.
const LOOK: Duration = Duration::from_millis(50);

/// What can happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// SIGKILL to a node.
    Kill,
    /// SIGSTOP to a node for longer than its lease, then SIGCONT.
    Pause,
    /// SIGTERM to a node; sometimes SIGKILL while it stops.
    Terminate,
    /// An operator drains a node and stops it.
    Drain,
    /// The database stops as in a power cut, and starts again.
    Crash,
    /// Every connection to the database is dropped.
    Cut,
    /// The primary is lost, and its synchronous copy takes its place.
    FailOver,
}

impl Fault {
    /// What was done, in the table.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Pause => "pauses longer than the lease",
            Self::Terminate => "SIGTERM",
            Self::Drain => "drains",
            Self::Crash => "database crashes",
            Self::Cut => "dropped connections",
            Self::FailOver => "failovers to a synchronous copy",
        }
    }
}

/// How many of each.
#[derive(Debug, Clone, Default)]
pub struct Deck(pub BTreeMap<Fault, u64>);

impl Deck {
    fn shuffled(&self, dice: &mut Rng) -> Vec<Fault> {
        let mut all: Vec<Fault> = self.0.iter().flat_map(|(fault, times)| (0..*times).map(move |_| *fault)).collect();
        dice.shuffle(&mut all);
        all
    }
}

/// What it may reach.
#[derive(Debug)]
pub struct Nemesis {
    /// The nodes.
    pub nodes: Vec<Arc<Node>>,
    /// The cluster, where there is one.
    pub cluster: Option<Arc<Cluster>>,
    /// The tables.
    pub reader: Reader,
    /// The lease of a node.
    pub lease: Duration,
    /// Mean time between two faults.
    pub pace: Duration,
    /// Who is told things.
    pub outside: Outside,
}

/// What was done.
#[derive(Debug, Clone, Default)]
pub struct Done {
    /// Faults done.
    pub times: BTreeMap<Fault, u64>,
    /// The longest time from the return of the database to the next thing that somebody was told.
    pub served_again: Duration,
    /// What did not end as it must.
    pub complaints: Vec<String>,
}

/// What ended.
struct Ended {
    fault: Fault,
    node: Option<usize>,
    result: Result<Duration, String>,
}

impl Nemesis {
    /// Does the whole deck, and has every node ready in the end. `tell` is called now and then.
    pub async fn run(self: &Arc<Self>, deck: &Deck, dice: &mut Rng, tell: impl Fn(&Done)) -> Done {
        let mut done = Done::default();
        let mut under_way: JoinSet<Ended> = JoinSet::new();
        let mut free: Vec<usize> = (0..self.nodes.len()).collect();
        let mut crashing = false;
        // One of several is left alone at any time; a single one is not.
        let spared = usize::from(self.nodes.len() > 1);
        let mut told = Instant::now();
        for fault in deck.shuffled(dice) {
            let at_database = matches!(fault, Fault::Crash | Fault::Cut | Fault::FailOver);
            while (at_database && crashing) || (!at_database && free.len() <= spared) {
                let ended = under_way.join_next().await;
                Self::settle(ended, &mut done, &mut free, &mut crashing);
            }
            while let Some(ended) = under_way.try_join_next() {
                Self::settle(Some(ended), &mut done, &mut free, &mut crashing);
            }
            let node = (!at_database).then(|| free.swap_remove(dice.usize(..free.len())));
            crashing |= at_database;
            let (all, forked) = (Arc::clone(self), dice.fork());
            under_way.spawn(async move { all.one(fault, node, forked).await });
            if told.elapsed() > Duration::from_secs(15) {
                tell(&done);
                told = Instant::now();
            }
            let pace = u64::try_from(self.pace.as_millis()).unwrap_or(u64::MAX / 2);
            sleep(Duration::from_millis(dice.u64(0..=2 * pace))).await;
        }
        while let Some(ended) = under_way.join_next().await {
            Self::settle(Some(ended), &mut done, &mut free, &mut crashing);
        }
        for node in &self.nodes {
            if let Err(complaint) = node.until_ready(true, BOUND).await {
                done.complaints.push(complaint);
            }
        }
        done
    }

    fn settle(
        ended: Option<Result<Ended, tokio::task::JoinError>>,
        done: &mut Done,
        free: &mut Vec<usize>,
        crashing: &mut bool,
    ) {
        match ended {
            Some(Ok(ended)) => {
                *done.times.entry(ended.fault).or_default() += 1;
                match ended.node {
                    Some(node) => free.push(node),
                    None => *crashing = false,
                }
                match ended.result {
                    Ok(served_again) => done.served_again = done.served_again.max(served_again),
                    Err(complaint) => {
                        println!("{}: {complaint}", ended.fault.word());
                        done.complaints.push(format!("{}: {complaint}", ended.fault.word()));
                    }
                }
            }
            // A fault that panicked has not given its node back, so that the rest would wait for ever.
            Some(Err(error)) => panic::resume_unwind(error.into_panic()),
            None => {}
        }
    }

    async fn one(&self, fault: Fault, node: Option<usize>, mut dice: Rng) -> Ended {
        let result = match node.and_then(|node| self.nodes.get(node)) {
            Some(node) => self.at_node(fault, node, &mut dice).await.map(|()| Duration::ZERO),
            None => self.at_database(fault, &mut dice).await,
        };
        if let (Err(_), Some(node)) = (&result, node.and_then(|node| self.nodes.get(node))) {
            // The run goes on with it; what was wrong is kept.
            let _ = node.signal("-CONT").await;
            node.kill().await;
            let _ = node.up(BOUND).await;
        }
        Ended { fault, node, result }
    }

    async fn at_node(&self, fault: Fault, node: &Node, dice: &mut Rng) -> Result<(), String> {
        match fault {
            Fault::Kill => {
                node.signal("-KILL").await?;
                node.over(BOUND).await?;
                sleep(Duration::from_millis(dice.u64(..600))).await;
                node.up(BOUND).await?;
                // Sometimes the next fault finds it as soon as it listens.
                if dice.u8(..100) < 70 { node.until_ready(true, BOUND).await } else { Ok(()) }
            }
            Fault::Pause => {
                node.signal("-STOP").await?;
                sleep(self.lease + Duration::from_millis(dice.u64(100..1_200))).await;
                node.signal("-CONT").await?;
                node.until_ready(true, BOUND).await
            }
            Fault::Terminate | Fault::Drain => {
                if fault == Fault::Drain {
                    self.drain(node).await?;
                }
                node.signal("-TERM").await?;
                if dice.u8(..100) < 25 {
                    sleep(Duration::from_millis(dice.u64(..500))).await;
                    node.kill().await;
                } else {
                    let status = node.over(BOUND).await?;
                    if !status.success() {
                        let last = node.last_words();
                        return Err(format!("node {} was told to stop and ended with {status}: {last}", node.place));
                    }
                }
                node.up(BOUND).await?;
                node.until_ready(true, BOUND).await
            }
            Fault::Crash | Fault::Cut | Fault::FailOver => Ok(()),
        }
    }

    /// Drains a node and waits until it owns nothing; the database may be away meanwhile.
    async fn drain(&self, node: &Node) -> Result<(), String> {
        let name = node.name();
        let drained = async {
            while !node.drain().await {
                sleep(LOOK).await;
            }
            node.until_ready(false, BOUND).await?;
            while self.reader.owned(&name).await.map_or(true, |owned| !owned.is_empty()) {
                sleep(LOOK).await;
            }
            Ok(())
        };
        match timeout(BOUND, drained).await {
            Ok(done) => done,
            Err(_) => {
                let left = self.reader.owned(&name).await;
                let log = node.last_words();
                Err(format!("node {} is drained and not empty within {BOUND:?}: {left:?}; {log}", node.place))
            }
        }
    }

    async fn at_database(&self, fault: Fault, dice: &mut Rng) -> Result<Duration, String> {
        match fault {
            Fault::Crash | Fault::FailOver => {
                let Some(cluster) = &self.cluster else { return Err("there is no cluster".to_owned()) };
                cluster.crash().await;
                sleep(Duration::from_millis(dice.u64(..1_500))).await;
                if fault == Fault::Crash {
                    cluster.restart().await;
                } else {
                    cluster.fail_over().await;
                }
                self.served_again().await
            }
            Fault::Cut => {
                // It may be away at this very moment, which cuts them as well.
                let _ = self.reader.cut().await;
                Ok(Duration::ZERO)
            }
            Fault::Kill | Fault::Pause | Fault::Terminate | Fault::Drain => Ok(Duration::ZERO),
        }
    }

    /// Time until somebody is told something.
    async fn served_again(&self) -> Result<Duration, String> {
        let back = Instant::now();
        let before = self.outside.progress();
        while self.outside.progress() == before {
            if back.elapsed() > SERVES_AGAIN {
                return Err(format!("nobody was told anything within {SERVES_AGAIN:?} of the database's return"));
            }
            sleep(LOOK).await;
        }
        Ok(back.elapsed())
    }
}
