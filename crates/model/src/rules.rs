//! The rules of the protocol, the mutants that leave one out, and how far an exploration goes.

use crate::promises;

/// Rules that a mutant may leave out. The default follows all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// An append of an earlier epoch is refused.
    pub compare_epoch: bool,
    /// An append made for another head is refused, unless its very bytes stand there.
    pub compare_head: bool,
    /// A reply that was lost is settled by the same bytes again, not by the same facts under a new number.
    pub resend_same_bytes: bool,
    /// A take-over writes a row of its own.
    pub own_event: bool,
    /// A call is sent only once the row that says so is known to be durable.
    pub append_before_effect: bool,
    /// The inbox row goes with the append that applies it.
    pub consume_with_append: bool,
    /// A `once` call of unknown fate is closed as unknown.
    pub unknown_stays_unknown: bool,
    /// The database answers once what it wrote survives its own crash.
    pub durable_before_reply: bool,
    /// The tool refuses a request that comes after its `not_after`.
    pub tool_honours_not_after: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            compare_epoch: true,
            compare_head: true,
            resend_same_bytes: true,
            own_event: true,
            append_before_effect: true,
            consume_with_append: true,
            unknown_stays_unknown: true,
            durable_before_reply: true,
            tool_honours_not_after: true,
        }
    }
}

/// A protocol with something left out, which the checker must find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The epoch is not compared, and take-overs write no row. With the row alone the expected head still keeps deposed
    /// owners out: that is clean, and a test says so.
    NoEpochCompare,
    /// Neither head nor bytes are compared.
    NoExpectedHead,
    /// Neither epoch nor head is compared.
    Neither,
    /// After a lost reply the same facts are written again under the next number.
    ResendUnderNewSeq,
    /// A take-over writes no row: the log no longer says who owned the session.
    TakeOverWithoutEvent,
    /// A call is sent while its dispatch is still being written.
    EffectBeforeAppend,
    /// The inbox row is removed before the append that applies it.
    InboxRemovedOutside,
    /// A new owner sends a `once` call again.
    OnceSentAgain,
    /// The database answers before what it wrote would survive its crash.
    ReplyBeforeDurable,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::NoEpochCompare,
        Self::NoExpectedHead,
        Self::Neither,
        Self::ResendUnderNewSeq,
        Self::TakeOverWithoutEvent,
        Self::EffectBeforeAppend,
        Self::InboxRemovedOutside,
        Self::OnceSentAgain,
        Self::ReplyBeforeDurable,
    ];

    /// Its name in tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoEpochCompare => "no epoch compare",
            Self::NoExpectedHead => "no expected head",
            Self::Neither => "neither epoch nor head",
            Self::ResendUnderNewSeq => "resend under a new seq",
            Self::TakeOverWithoutEvent => "take-over without own event",
            Self::EffectBeforeAppend => "effect before append",
            Self::InboxRemovedOutside => "inbox row removed outside the append",
            Self::OnceSentAgain => "once re-sent after unknown",
            Self::ReplyBeforeDurable => "reply before durable",
        }
    }

    /// The promise that it breaks; it may break others as well.
    #[must_use]
    pub const fn breaks(self) -> &'static str {
        match self {
            Self::NoEpochCompare | Self::Neither => promises::ONE_OWNER,
            Self::NoExpectedHead => promises::GAP_FREE,
            Self::ResendUnderNewSeq => promises::RECORDED_ONCE,
            Self::TakeOverWithoutEvent => promises::EPOCHS,
            Self::EffectBeforeAppend => promises::DURABLE_ALLOW,
            Self::InboxRemovedOutside => promises::INPUT_ONCE,
            Self::OnceSentAgain => promises::ONCE,
            Self::ReplyBeforeDurable => promises::NOTHING_LOST,
        }
    }

    /// The rules without what it leaves out.
    #[must_use]
    pub fn rules(self) -> Rules {
        let all = Rules::default();
        match self {
            Self::NoEpochCompare => Rules { compare_epoch: false, own_event: false, ..all },
            Self::NoExpectedHead => Rules { compare_head: false, ..all },
            Self::Neither => Rules { compare_epoch: false, compare_head: false, ..all },
            Self::ResendUnderNewSeq => Rules { resend_same_bytes: false, ..all },
            Self::TakeOverWithoutEvent => Rules { own_event: false, ..all },
            Self::EffectBeforeAppend => Rules { append_before_effect: false, ..all },
            Self::InboxRemovedOutside => Rules { consume_with_append: false, ..all },
            Self::OnceSentAgain => Rules { unknown_stays_unknown: false, ..all },
            Self::ReplyBeforeDurable => Rules { durable_before_reply: false, ..all },
        }
    }
}

/// How often each bounded thing may happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// Nodes.
    pub nodes: u8,
    /// Take-overs.
    pub take_overs: u8,
    /// Crashes of nodes.
    pub crashes: u8,
    /// Lost replies and resends out of impatience, together.
    pub losses: u8,
    /// Crashes of the database.
    pub database_crashes: u8,
    /// Times that the caller sends its input, which is one.
    pub puts: u8,
    /// Whether the `read` call is part of it.
    pub read: bool,
}

const NOTHING: Bounds =
    Bounds { nodes: 2, take_overs: 1, crashes: 0, losses: 0, database_crashes: 0, puts: 0, read: false };

impl Bounds {
    /// The explorations of `scripts/show`, by name: together more than a million states, and each promise in each of them.
    pub const WIDE: [(&'static str, Self); 4] = [
        (
            "2 nodes, 2 take-overs, all faults, inbox",
            Self { take_overs: 2, crashes: 1, losses: 1, database_crashes: 1, puts: 1, ..NOTHING },
        ),
        ("3 nodes, 2 take-overs, lost reply, inbox", Self { nodes: 3, take_overs: 2, losses: 1, puts: 1, ..NOTHING }),
        ("2 nodes, both calls, lost reply", Self { losses: 1, read: true, ..NOTHING }),
        ("2 nodes, both calls, inbox", Self { puts: 1, read: true, ..NOTHING }),
    ];
    /// Small enough for a debug build.
    pub const NARROW: Self = Self { crashes: 1, losses: 1, database_crashes: 1, puts: 1, ..NOTHING };
}
