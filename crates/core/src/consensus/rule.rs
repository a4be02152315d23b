//! Who wins a vote, and from when on that is certain. What is not here: who agrees with whom (`consensus`).

use serde::{Deserialize, Serialize};

use super::{Tally, number};

/// A rule of who wins. Those of bundles are [`Electorate`]s; whoever embeds this crate may count a [`Tally`] by a rule of
/// their own.
pub trait VoteRule {
    /// Ballots that are asked for. Failed and unreadable ones count among them.
    fn electorate(&self) -> u32;

    /// The ballot that stands once every ballot is counted; none without agreement.
    fn winner(&self, tally: &Tally) -> Option<u32>;

    /// What is certain already, whatever the ballots say that are not counted yet. A rule that does not say is asked when
    /// all are.
    fn standing(&self, tally: &Tally) -> Standing {
        if tally.counted() < self.electorate() {
            return Standing::Open;
        }
        self.winner(tally).map_or(Standing::Lost, Standing::Won)
    }
}

/// How a vote stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Ballots that are missing may change it.
    Open,
    /// The group of this ballot has won.
    Won(u32),
    /// No group can win.
    Lost,
}

/// What it takes to win. But for `first`, the winner is the only group that is largest and has as many ballots as are
/// needed: two groups of one size are no agreement.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The first readable ballot stands.
    First,
    /// As many as the bundle says.
    #[default]
    KOfN,
    /// The largest group.
    Plurality,
    /// More than half of the electorate.
    Majority,
    /// At least two thirds of the electorate.
    Supermajority,
    /// All.
    Unanimous,
}

impl Rule {
    /// The word used in bundles and in the log.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::KOfN => "k_of_n",
            Self::Plurality => "plurality",
            Self::Majority => "majority",
            Self::Supermajority => "supermajority",
            Self::Unanimous => "unanimous",
        }
    }

    /// Ballots of `n` that must agree; `k` where the bundle has to say.
    #[must_use]
    pub const fn needed(self, n: u32, k: u32) -> u32 {
        match self {
            Self::First | Self::Plurality => 1,
            Self::KOfN => k,
            Self::Majority => n / 2 + 1,
            Self::Supermajority => n.saturating_mul(2).div_ceil(3),
            Self::Unanimous => n,
        }
    }
}

/// Who votes, and what it takes to win.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Electorate {
    /// Ballots.
    pub n: u32,
    /// The rule.
    pub rule: Rule,
    /// Ballots that must agree.
    pub k: u32,
}

impl Electorate {
    /// An electorate; `k` counts with the rule `k_of_n` alone.
    #[must_use]
    pub fn new(n: u32, rule: Rule, k: Option<u32>) -> Self {
        Self { n, rule, k: rule.needed(n, k.unwrap_or(n)) }
    }

    /// What is left of this vote once it must satisfy another one as well; none if it does already.
    #[must_use]
    pub fn widened(self, rule: Rule, n: u32, k: Option<u32>) -> Option<Self> {
        let wanted = Self::new(n.max(self.n), rule, k);
        let to = Self { k: wanted.k.max(self.k), ..wanted };
        (to.n > self.n || to.k > self.k).then_some(to)
    }
}

impl VoteRule for Electorate {
    fn electorate(&self) -> u32 {
        self.n
    }

    fn winner(&self, tally: &Tally) -> Option<u32> {
        match self.rule {
            // Who was first is for those to know who took the ballots; of several the lowest number stands.
            Rule::First => tally.groups.iter().filter_map(|group| group.first()).min().copied(),
            Rule::KOfN | Rule::Plurality | Rule::Majority | Rule::Supermajority | Rule::Unanimous => {
                tally.winner(self.k)
            }
        }
    }

    fn standing(&self, tally: &Tally) -> Standing {
        let missing = self.n.saturating_sub(tally.counted());
        let winner = self.winner(tally);
        if missing == 0 {
            return winner.map_or(Standing::Lost, Standing::Won);
        }
        let largest = tally.largest();
        // The strongest rival: the second group, or one that nobody has voted for yet.
        let rival = tally.groups.get(1).map_or(0, |group| number(group.len())).saturating_add(missing);
        match winner {
            Some(ballot) if self.rule == Rule::First || largest > rival => Standing::Won(ballot),
            Some(_) => Standing::Open,
            None if largest.saturating_add(missing) < self.k => Standing::Lost,
            None => Standing::Open,
        }
    }
}
