//! What can go wrong in a world, and how often. Each seed draws a swarm: about half of the faults, at rates of their own,
//! since a world in which everything fails at once reaches little. What is not here: what a fault does.

use std::collections::BTreeMap;

use fastrand::Rng;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A node dies between two micro-steps; it comes back as a new incarnation.
    Kill,
    /// A node stands still between two micro-steps, perhaps for longer than its lease.
    Pause,
    /// A node takes a live owner for dead.
    EarlyTakeOver,
    /// The database cannot be reached for a while.
    Outage,
    /// The database dies and recovers; what was not acknowledged is there or not.
    Crash,
    /// A statement never arrives.
    NeverApplied,
    /// A statement is applied, and its reply is lost.
    ReplyLost,
    /// A statement is given up, and applied much later.
    Delayed,
    /// A statement takes seconds.
    Slow,
    /// The hint that an input waits is lost.
    HintLost,
    /// A model never answers.
    ModelSilent,
    /// A server tool never answers.
    ToolSilent,
    /// A server tool does its work, and the answer is lost.
    ToolAnswerLost,
    /// A request to a tool stays in the network.
    ToolRequestLate,
    /// An answer to a caller or client is lost.
    AnswerLost,
    /// A caller sends again what was answered.
    SentTwice,
    /// A client's report is lost.
    ReportLost,
    /// A client reports twice.
    ReportTwice,
    /// A client reports late.
    ReportLate,
    /// A client takes a call and never runs it.
    ClientSilent,
    /// A client's connection breaks.
    ClientDrops,
}

/// Every fault with the highest rate that a seed may give it, in thousandths of its occasions.
const MOST: [(Fault, u32); 21] = [
    (Fault::Kill, 30),
    (Fault::Pause, 25),
    (Fault::EarlyTakeOver, 120),
    (Fault::Outage, 150),
    (Fault::Crash, 150),
    (Fault::NeverApplied, 60),
    (Fault::ReplyLost, 90),
    (Fault::Delayed, 60),
    (Fault::Slow, 60),
    (Fault::HintLost, 800),
    (Fault::ModelSilent, 60),
    (Fault::ToolSilent, 150),
    (Fault::ToolAnswerLost, 200),
    (Fault::ToolRequestLate, 150),
    (Fault::AnswerLost, 200),
    (Fault::SentTwice, 250),
    (Fault::ReportLost, 250),
    (Fault::ReportTwice, 250),
    (Fault::ReportLate, 250),
    (Fault::ClientSilent, 150),
    (Fault::ClientDrops, 100),
];

impl Fault {
    /// The word in tables.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Kill => "node killed",
            Self::Pause => "node paused",
            Self::EarlyTakeOver => "live owner taken for dead",
            Self::Outage => "database away",
            Self::Crash => "database crashed",
            Self::NeverApplied => "statement lost",
            Self::ReplyLost => "reply lost",
            Self::Delayed => "statement applied late",
            Self::Slow => "statement slow",
            Self::HintLost => "hint lost",
            Self::ModelSilent => "model silent",
            Self::ToolSilent => "tool silent",
            Self::ToolAnswerLost => "tool's answer lost",
            Self::ToolRequestLate => "request to a tool late",
            Self::AnswerLost => "answer to a caller lost",
            Self::SentTwice => "input sent again",
            Self::ReportLost => "report lost",
            Self::ReportTwice => "report twice",
            Self::ReportLate => "report late",
            Self::ClientSilent => "client silent",
            Self::ClientDrops => "client cut off",
        }
    }
}

/// The rates of one world, in thousandths.
#[derive(Debug, Clone, Default)]
pub(crate) struct Faults(BTreeMap<Fault, u32>);

impl Faults {
    /// About half of all faults, each at a rate of its own.
    pub(crate) fn swarm(rng: &mut Rng) -> Self {
        let mut rates = BTreeMap::new();
        for (fault, most) in MOST {
            if rng.bool() {
                rates.insert(fault, rng.u32(1..=most));
            }
        }
        Self(rates)
    }

    /// Whether the fault strikes at this occasion.
    pub(crate) fn strikes(&self, fault: Fault, rng: &mut Rng) -> bool {
        self.0.get(&fault).is_some_and(|rate| rng.u32(0..1_000) < *rate)
    }
}
