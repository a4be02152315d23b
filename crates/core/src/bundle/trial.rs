//! One proposed call tried against a bundle: a session in memory, driven through the same decisions as a real one. What is
//! not here: deciding (`decide`), explaining (`explain`), reading cases from files (the command line).

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::Bundle;
use crate::apply::fold;
use crate::decide::{Reply, decide};
use crate::event::{CallDecided, Event, LedgerAnswer, Recorded, SummaryFault};
use crate::explain::{Explanation, explain};
use crate::id::{ActorId, CallId, Capability, ClientInstance, InvalidName, Label, ProfileName, SessionId, TenantId};
use crate::input::{
    AdmissionAnswer, AdmissionVerdict, ApprovalAnswer, ApprovalDecision, BallotCast, ClientAttached, Input, Narrowed,
    Open, OutcomeReport, Reporter, ReservationAnswer, Seat, Stamped, SummaryFailure, SummaryWritten,
};
use crate::json::Json;
use crate::output::{Outcome, OutcomeStatus, Output};
use crate::outstanding::{Effect, Order, outstanding};
use crate::pipeline::Decision;
use crate::proposal::{Ballot, BallotVerdict, MalformedReason, Proposal, ProposedArgs, ProposedCall, Usage};
use crate::reason::Refusal;
use crate::session::{Awaited, CallState, Session};
use crate::time::Timestamp;

/// When a trial begins: a fixed point, so that the same trial has the same text.
const START: Timestamp = Timestamp(1_700_000_000_000_000);
/// Milliseconds between one call and the next.
const APART_MS: u64 = 1_000;
/// Inputs of one trial; it ends long before, this is for what nobody thought of.
const MAX_INPUTS: usize = 10_000;

/// A call to be tried, and what happened before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trial {
    /// The profile; absent where a label leads to it.
    pub profile: Option<ProfileName>,
    /// The label, where the bundle has a classification.
    pub label: Option<Label>,
    /// What the user wrote.
    pub user: Vec<String>,
    /// What the client can do; absent means everything that a tool asks for.
    pub capabilities: Option<BTreeSet<Capability>>,
    /// Earlier calls, oldest first, each in a step of its own and a second apart.
    pub earlier: Vec<Earlier>,
    /// The call.
    pub call: TrialCall,
}

/// A call as a model would write it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialCall {
    /// The tool.
    pub tool: String,
    /// The text of its arguments.
    pub args: String,
}

/// An earlier call and what became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Earlier {
    /// The call.
    pub call: TrialCall,
    /// Its outcome; absent where it must be rejected.
    pub outcome: Option<OutcomeStatus>,
    /// Its result; where the contract has a schema for it, a success must match that.
    pub result: Option<Output>,
}

/// Why a trial says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrialFault {
    /// The session does not open.
    #[error("the session does not open: {}: {}", .0.code.code(), .0.detail)]
    NotOpened(Refusal),
    /// An earlier call is decided otherwise than the trial says.
    #[error("earlier call {index} (`{tool}`) is decided `{found}`, so what follows it says nothing")]
    Earlier {
        /// Its place, from 0.
        index: usize,
        /// Its tool.
        tool: String,
        /// The decision.
        found: String,
    },
    /// An earlier call ends otherwise than the trial says.
    #[error("earlier call {index} (`{tool}`) ends `{found}`: {detail}")]
    Ended {
        /// Its place, from 0.
        index: usize,
        /// Its tool.
        tool: String,
        /// How it ends.
        found: &'static str,
        /// Why.
        detail: String,
    },
    /// The run ends before the call is reached.
    #[error("the run ends ({0}) before the call is proposed; the profile bounds it")]
    RunEnded(&'static str),
    /// An input was refused.
    #[error("the trial cannot go on: {}: {}", .0.code.code(), .0.detail)]
    Refused(Refusal),
    /// The call was not decided at all.
    #[error("the call was not decided")]
    Undecided,
    /// A name of the trial's own is refused; never seen.
    #[error(transparent)]
    Name(#[from] InvalidName),
}

/// Tries a call through the whole pipeline and explains the decision.
///
/// # Errors
/// Where the session does not open, an earlier call is decided otherwise than the trial says, or the run ends first.
pub fn try_call(bundle: &Bundle, trial: &Trial) -> Result<Explanation, TrialFault> {
    let mut stage = Stage::open(bundle, trial)?;
    for (index, earlier) in trial.earlier.iter().enumerate() {
        stage.earlier(index, earlier)?;
    }
    let call = stage.propose(&trial.call)?.call.clone();
    explain(&stage.log, &call).ok_or(TrialFault::Undecided)
}

/// A session in memory.
struct Stage<'a> {
    bundle: &'a Bundle,
    session: Session,
    log: Vec<Recorded>,
    at: Timestamp,
    client: ClientInstance,
    actor: ActorId,
}

impl<'a> Stage<'a> {
    fn open(bundle: &'a Bundle, trial: &Trial) -> Result<Self, TrialFault> {
        let id = SessionId::from_uuid(Uuid::nil());
        let (client, actor) = (ClientInstance::new("trial")?, ActorId::new("trial")?);
        let mut stage =
            Self { bundle, session: Session::new(id), log: Vec::new(), at: START, client, actor: actor.clone() };
        let all = || bundle.tools().filter_map(|tool| tool.def.capability.clone()).collect();
        let capabilities = trial.capabilities.clone().unwrap_or_else(all);
        let open = Input::Open(Box::new(Open {
            tenant: TenantId::new("trial")?,
            by: actor.clone(),
            alias: None,
            bundle: bundle.digest(),
            profile: trial.profile.clone(),
            label: trial.label.clone(),
            ceiling: None,
            capabilities: capabilities.clone(),
            limits: Narrowed::default(),
            control: None,
            dry_run: false,
            output_schema: None,
            prompt: trial.user.join("\n"),
            trace: None,
            metadata: BTreeMap::new(),
        }));
        stage.send(open).map_err(TrialFault::NotOpened)?;
        let instance = stage.client.clone();
        let attached = ClientAttached { instance, by: actor, capabilities };
        stage.send(Input::ClientAttached(attached)).map_err(TrialFault::Refused)?;
        Ok(stage)
    }

    fn send(&mut self, input: Input) -> Result<(), Refusal> {
        let decided = decide(&self.session, self.bundle, &Stamped { at: self.at, id: None, input });
        for event in decided.events {
            let seq = self.session.head + 1;
            let recorded = Recorded { seq, epoch: 1, at: self.at, input_id: None, event };
            fold(&mut self.session, &recorded);
            self.log.push(recorded);
        }
        match decided.reply {
            Reply::Refused(refusal) => Err(refusal),
            Reply::Accepted | Reply::Unchanged | Reply::Already { .. } => Ok(()),
        }
    }

    /// Every ballot of the next step proposes this call; how it was decided.
    fn propose(&mut self, call: &TrialCall) -> Result<&CallDecided, TrialFault> {
        let before = self.log.len();
        for _ in 0..MAX_INPUTS {
            self.answer_others(None)?;
            let Some(seat) = self.seat() else { break };
            let cast = BallotCast { seat, ballot: ballot(call) };
            self.send(Input::Ballot(Box::new(cast))).map_err(TrialFault::Refused)?;
            if self.decided_since(before).is_some() {
                break;
            }
        }
        let ending = self.ending();
        self.decided_since(before).ok_or_else(|| ending.map_or(TrialFault::Undecided, TrialFault::RunEnded))
    }

    /// The ledger grants what is asked of it; nobody writes summaries; hooks let an earlier call pass, and as many people as must approve it do.
    fn answer_others(&mut self, earlier: Option<&CallId>) -> Result<(), TrialFault> {
        for turn in 0..MAX_INPUTS {
            let asked = outstanding(&self.session, self.bundle).into_iter().find_map(|effect| match effect {
                Effect::Reserve { purpose, .. } => Some(Input::Reservation(ReservationAnswer {
                    purpose,
                    answer: LedgerAnswer::Granted,
                    settled: Vec::new(),
                })),
                Effect::Summarize { seat, .. } => Some(Input::Summary(Box::new(unwritten(seat)))),
                Effect::AskAdmission { call, hook, attempt, .. } if earlier == Some(&call) => {
                    let verdict = AdmissionVerdict::Allow { reason: None };
                    Some(Input::Admission(AdmissionAnswer { call, hook, attempt, verdict }))
                }
                Effect::AskAdmission { .. }
                | Effect::AskModel { .. }
                | Effect::Classify { .. }
                | Effect::Settle(_)
                | Effect::RunTool(_)
                | Effect::OfferCall { .. } => None,
            });
            let waiting = self.session.calls().iter().find_map(|call| {
                let CallState::Waiting(Awaited::Approval(approval)) = &call.state else { return None };
                (earlier == Some(&call.id)).then(|| approval.opened.clone())
            });
            let input = match (asked, waiting) {
                (Some(input), _) => input,
                (None, Some(approval)) => Input::Approval(ApprovalAnswer {
                    approval: approval.id,
                    by: ActorId::new(format!("approver-{turn}"))?,
                    digest: approval.digest,
                    decision: ApprovalDecision::Approve { grant: None },
                    bundle: Some(self.bundle.digest()),
                }),
                (None, None) => return Ok(()),
            };
            self.send(input).map_err(TrialFault::Refused)?;
        }
        Err(TrialFault::Undecided)
    }

    fn decided_since(&self, before: usize) -> Option<&CallDecided> {
        self.log.iter().skip(before).find_map(|recorded| {
            let Event::CallDecided(decided) = &recorded.event else { return None };
            Some(&**decided)
        })
    }

    fn seat(&self) -> Option<Seat> {
        outstanding(&self.session, self.bundle).into_iter().find_map(|effect| match effect {
            Effect::AskModel { seat, .. } => Some(seat),
            Effect::Summarize { .. }
            | Effect::Classify { .. }
            | Effect::AskAdmission { .. }
            | Effect::Reserve { .. }
            | Effect::Settle(_)
            | Effect::RunTool(_)
            | Effect::OfferCall { .. } => None,
        })
    }

    fn ending(&self) -> Option<&'static str> {
        self.log.iter().rev().find_map(|recorded| {
            let Event::RunEnded(ended) = &recorded.event else { return None };
            Some(ended.ending.code())
        })
    }

    /// Proposes an earlier call and lets it end as the trial says; a human approves what needs one.
    fn earlier(&mut self, index: usize, earlier: &Earlier) -> Result<(), TrialFault> {
        let decided = self.propose(&earlier.call)?;
        let (call, decision) = (decided.call.clone(), decided.decision);
        let found = decided.reason.map_or(decision.code(), crate::reason::RejectReason::code);
        let otherwise = || TrialFault::Earlier { index, tool: earlier.call.tool.clone(), found: found.to_owned() };
        match (decision, earlier.outcome) {
            (Decision::Reject, None) => {}
            (Decision::Reject, Some(_)) | (Decision::Allow | Decision::Escalate, None) => return Err(otherwise()),
            (Decision::Allow | Decision::Escalate, Some(status)) => {
                self.answer_others(Some(&call))?;
                self.end(&call, status, earlier.result.clone())?;
                self.ended_so(index, &earlier.call.tool, &call, status)?;
            }
        }
        self.at = self.at.plus_ms(APART_MS);
        Ok(())
    }

    /// A success whose result does not match its schema is none, which the author of a case should hear.
    fn ended_so(&self, index: usize, tool: &str, call: &CallId, status: OutcomeStatus) -> Result<(), TrialFault> {
        let end = self.log.iter().rev().find_map(|recorded| {
            let Event::CallEnded(ended) = &recorded.event else { return None };
            (ended.call == *call).then(|| (ended.end.code(), ended.content.detail.clone().unwrap_or_default()))
        });
        match end {
            Some((found, _)) if found == status.code() => Ok(()),
            Some((found, detail)) => Err(TrialFault::Ended { index, tool: tool.to_owned(), found, detail }),
            None => Err(TrialFault::Undecided),
        }
    }

    fn end(&mut self, call: &CallId, status: OutcomeStatus, output: Option<Output>) -> Result<(), TrialFault> {
        let found = outstanding(&self.session, self.bundle).into_iter().find_map(|effect| match effect {
            Effect::RunTool(order) if order.call == *call => Some((order, false)),
            Effect::OfferCall { order, .. } if order.call == *call => Some((order, true)),
            Effect::RunTool(_)
            | Effect::OfferCall { .. }
            | Effect::AskModel { .. }
            | Effect::AskAdmission { .. }
            | Effect::Reserve { .. }
            | Effect::Summarize { .. }
            | Effect::Settle(_)
            | Effect::Classify { .. } => None,
        });
        let Some((Order { attempt, fence, args_hash, .. }, by_client)) = found else {
            return Err(TrialFault::Undecided);
        };
        let reporter = if by_client {
            Reporter::Client { instance: self.client.clone(), by: self.actor.clone(), fence, args_hash }
        } else {
            Reporter::Server
        };
        let outcome = Outcome { status, output, detail: None };
        let report = OutcomeReport { call: call.clone(), attempt, reporter, outcome };
        self.send(Input::Outcome(report)).map_err(TrialFault::Refused)
    }
}

/// No summary, so that a trial sees the policy alone.
fn unwritten(seat: Seat) -> SummaryWritten {
    let failure = SummaryFailure { fault: SummaryFault::Failed, detail: "a trial asks no model".to_owned() };
    SummaryWritten { seat, result: Err(failure), usage: Usage::default(), model: None }
}

fn ballot(call: &TrialCall) -> Ballot {
    let args = match Json::parse(&call.args) {
        Ok(args) if args.as_str().starts_with('{') => ProposedArgs::Readable(args),
        Ok(_) => malformed(MalformedReason::NotAnObject, "the arguments are no JSON object".to_owned()),
        Err(fault) => malformed(MalformedReason::Syntax, format!("the arguments cannot be read: {fault}")),
    };
    let call = ProposedCall { tool: call.tool.clone(), provider_id: None, raw_args: call.args.clone(), args };
    Ballot {
        verdict: BallotVerdict::Proposal(Proposal::Calls(vec![call])),
        text: String::new(),
        normalised: Vec::new(),
        opaque: None,
        usage: Usage::default(),
        model: None,
        fingerprint: None,
        cut: None,
    }
}

const fn malformed(reason: MalformedReason, detail: String) -> ProposedArgs {
    ProposedArgs::Malformed { reason, detail }
}
