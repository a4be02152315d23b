//! Voting over canonical proposals: who agrees with whom, and whether it is enough. What is not here: what follows
//! without agreement (`decide::ballot`).

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::id::Sha256Digest;
use crate::proposal::{BallotVerdict, Proposal, ProposedArgs};

/// How the ballots of a round group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Ballots of equal proposals, largest group first; among equals the one with the earliest ballot.
    pub groups: Vec<Vec<u32>>,
    /// Ballots that hold no readable proposal; they stay in the electorate.
    pub unreadable: Vec<u32>,
}

impl Tally {
    /// The first ballot of the only group that is largest and has at least `k` members.
    #[must_use]
    pub fn winner(&self, k: u32) -> Option<u32> {
        let largest = self.groups.first()?;
        let tied = self.groups.get(1).is_some_and(|second| second.len() == largest.len());
        let enough = largest.len() >= usize::try_from(k).unwrap_or(usize::MAX);
        if enough && !tied { largest.first().copied() } else { None }
    }

    /// The first ballot of the first of the largest groups.
    #[must_use]
    pub fn strongest(&self) -> Option<u32> {
        self.groups.first().and_then(|group| group.first()).copied()
    }
}

/// Groups ballots by equal proposals.
#[must_use]
pub fn tally<'a>(ballots: impl Iterator<Item = (u32, &'a BallotVerdict)>) -> Tally {
    let mut groups: Vec<(Sha256Digest, Vec<u32>)> = Vec::new();
    let mut unreadable = Vec::new();
    for (number, verdict) in ballots {
        match vote(verdict) {
            None => unreadable.push(number),
            Some(key) => match groups.iter_mut().find(|(known, _)| *known == key) {
                Some((_, group)) => group.push(number),
                None => groups.push((key, vec![number])),
            },
        }
    }
    groups.sort_by_key(|(_, group)| std::cmp::Reverse(group.len()));
    Tally { groups: groups.into_iter().map(|(_, group)| group).collect(), unreadable }
}

/// What two ballots must share to agree: the whole ordered list of calls, or the output.
fn vote(verdict: &BallotVerdict) -> Option<Sha256Digest> {
    let BallotVerdict::Proposal(proposal) = verdict else { return None };
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    match proposal {
        Proposal::Done { output } => {
            part(b"done");
            part(output.as_str().as_bytes());
        }
        Proposal::Calls(calls) => {
            part(b"calls");
            for call in calls {
                let ProposedArgs::Readable(args) = &call.args else { return None };
                part(call.tool.as_bytes());
                part(args.as_str().as_bytes());
            }
        }
    }
    Some(Sha256Digest::from_bytes(hash.finalize().into()))
}
