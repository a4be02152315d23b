//! Voting over canonical proposals: who agrees with whom, and whether it is enough. What is not here: what follows
//! without agreement (`decide::vote`).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::id::{Sha256Digest, ToolId};
use crate::json::Json;
use crate::proposal::{BallotVerdict, Proposal, ProposedArgs};

mod rule;

pub use rule::{Electorate, Rule, Standing, VoteRule};

/// How the ballots of a round group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    /// Ballots of equal proposals, largest group first; among equals the one with the earliest ballot.
    pub groups: Vec<Vec<u32>>,
    /// Ballots that hold no readable proposal; they stay in the electorate.
    pub unreadable: Vec<u32>,
}

impl Tally {
    /// Ballots that were counted.
    #[must_use]
    pub fn counted(&self) -> u32 {
        number(self.groups.iter().map(Vec::len).sum::<usize>().saturating_add(self.unreadable.len()))
    }

    /// Members of the largest group; 0 where nothing is readable.
    #[must_use]
    pub fn largest(&self) -> u32 {
        self.groups.first().map_or(0, |group| number(group.len()))
    }

    /// The first ballot of the only group that is largest and has at least `k` members.
    #[must_use]
    pub fn winner(&self, k: u32) -> Option<u32> {
        let largest = self.groups.first()?;
        let tied = self.groups.get(1).is_some_and(|second| second.len() == largest.len());
        if self.largest() >= k && !tied { largest.first().copied() } else { None }
    }

    /// The first ballot of the first of the largest groups.
    #[must_use]
    pub fn strongest(&self) -> Option<u32> {
        self.groups.first().and_then(|group| group.first()).copied()
    }

    /// The members of the group that a ballot is in.
    #[must_use]
    pub fn group_of(&self, ballot: u32) -> Option<&[u32]> {
        self.groups.iter().find(|group| group.contains(&ballot)).map(Vec::as_slice)
    }
}

fn number(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// What two proposals must share to be the same vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison<'a> {
    /// Tools of whose arguments only these count, as JSON pointers; of all others every argument does.
    pub only: &'a BTreeMap<ToolId, Vec<String>>,
    /// How final outputs are compared.
    pub outputs: Outputs,
}

/// How final outputs are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outputs {
    /// Without white space around a text; a text of which nothing is left is no answer.
    Trimmed,
    /// As they stand: the rules before version 3.
    Exact,
}

/// Groups ballots by equal proposals.
#[must_use]
pub fn tally<'a>(ballots: impl Iterator<Item = (u32, &'a BallotVerdict)>, comparison: &Comparison<'_>) -> Tally {
    let mut groups: Vec<(Sha256Digest, Vec<u32>)> = Vec::new();
    let mut unreadable = Vec::new();
    for (number, verdict) in ballots {
        match vote(verdict, comparison) {
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

/// What two ballots must share to agree: the ordered list of calls, as far as it counts, or the output.
fn vote(verdict: &BallotVerdict, comparison: &Comparison<'_>) -> Option<Sha256Digest> {
    let BallotVerdict::Proposal(proposal) = verdict else { return None };
    let mut hash = Sha256::new();
    let mut part = |bytes: &[u8]| {
        hash.update((bytes.len() as u64).to_be_bytes());
        hash.update(bytes);
    };
    match proposal {
        Proposal::Done { output } => {
            part(b"done");
            match comparison.outputs {
                Outputs::Exact => part(output.as_str().as_bytes()),
                Outputs::Trimmed => part(trimmed(output)?.as_str().as_bytes()),
            }
        }
        Proposal::Calls(calls) => {
            part(b"calls");
            for call in calls {
                let ProposedArgs::Readable(args) = &call.args else { return None };
                part(call.tool.as_bytes());
                match ToolId::new(call.tool.as_str()).ok().and_then(|id| comparison.only.get(&id)) {
                    None => part(args.as_str().as_bytes()),
                    Some(pointers) => {
                        let args = args.value();
                        for pointer in pointers {
                            // An argument that is absent is no `null`.
                            match args.pointer(pointer) {
                                Some(value) => part(Json::from_value(value).as_str().as_bytes()),
                                None => part(b""),
                            }
                        }
                    }
                }
            }
        }
    }
    Some(Sha256Digest::from_bytes(hash.finalize().into()))
}

/// A final output as it counts in a vote: a text without the white space around it. None where nothing is left.
#[must_use]
pub fn trimmed(output: &Json) -> Option<Json> {
    let serde_json::Value::String(text) = output.value() else { return Some(output.clone()) };
    let text = text.trim();
    if text.is_empty() { None } else { Some(Json::string(text)) }
}
