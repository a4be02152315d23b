//! Decides every recorded input again and compares with what was logged. Audit, recovery and the live path are the same
//! functions, so they cannot drift apart. What is not here: the hash chain (the store), which is checked first.

use crate::apply::{fold, unsealed};
use crate::bundle::Bundle;
use crate::decide::{Decided, MAX_REFUSALS_RECORDED, decide_by};
use crate::event::{
    AdmissionAnswered, AdmissionVerb, ApprovalDecided, ApprovalVerb, EndCause, Event, OutcomeRefused, RULES_VERSION,
    Recorded, SCHEMA_ENGINE,
};
use crate::id::SessionId;
use crate::input::{
    AdmissionAnswer, AdmissionVerdict, ApprovalAnswer, ApprovalDecision, BallotCast, CallAck, Classified,
    ClientAttached, GrantAsked, Input, Message, Open, OutcomeReport, ReservationAnswer, Stamped, Stop, SummaryWritten,
};
use crate::session::Session;
use crate::time::Timestamp;

/// A log that verifies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The state it folds to.
    pub session: Session,
    /// Inputs that were decided again.
    pub redecided: u64,
    /// Sequence numbers of inputs that could not be, since what they held was redacted and is destroyed.
    pub redacted: Vec<u64>,
}

/// A log that does not verify.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Divergence {
    /// A sequence number is missing or stands twice.
    #[error("sequence {expected} is missing; {found} stands in its place")]
    Gap {
        /// What should stand there.
        expected: u64,
        /// What does.
        found: u64,
    },
    /// A decision stands where no input leads to it.
    #[error("sequence {seq}: `{kind}` follows from no recorded input")]
    Unfounded {
        /// Where.
        seq: u64,
        /// What.
        kind: &'static str,
    },
    /// The same input is decided differently now.
    #[error("sequence {seq}: `{logged}` was logged where `{decided}` is decided")]
    Different {
        /// Where.
        seq: u64,
        /// What the log has.
        logged: &'static str,
        /// What follows by the rules.
        decided: &'static str,
    },
    /// A decision that follows is not in the log.
    #[error("sequence {seq}: the log ends or goes on without `{decided}`")]
    Missing {
        /// Where it should stand.
        seq: u64,
        /// What is missing.
        decided: &'static str,
    },
    /// An epoch begins without `owner_changed`, or falls.
    #[error("sequence {seq}: epoch {found} stands where {expected} holds")]
    Epoch {
        /// Where.
        seq: u64,
        /// The epoch in force.
        expected: u64,
        /// The epoch logged.
        found: u64,
    },
    /// The log was decided by other rules than this program knows.
    #[error("sequence {seq}: decided by {what}, which this program does not have")]
    UnknownRules {
        /// Where.
        seq: u64,
        /// Which rules or engine.
        what: String,
    },
    /// The bundle is not the one that the session pinned.
    #[error("the session pinned another bundle")]
    WrongBundle,
}

impl Divergence {
    /// The first sequence number that does not fit; 1 where the whole log is meant.
    #[must_use]
    pub const fn seq(&self) -> u64 {
        match self {
            Self::Gap { expected, .. } => *expected,
            Self::Unfounded { seq, .. }
            | Self::Different { seq, .. }
            | Self::Missing { seq, .. }
            | Self::Epoch { seq, .. }
            | Self::UnknownRules { seq, .. } => *seq,
            Self::WrongBundle => 1,
        }
    }
}

/// Verifies a whole log.
pub fn verify(id: SessionId, log: &[Recorded], bundle: &Bundle) -> Result<Verified, Divergence> {
    let mut verifier = Verifier {
        bundle,
        expected: Vec::new().into_iter(),
        state: Session::new(id),
        redecided: 0,
        redacted: Vec::new(),
        batch_at: Timestamp(0),
        unsure: false,
        blurred: None,
    };
    for recorded in log {
        verifier.step(recorded)?;
    }
    if let Some(missing) = verifier.expected.next() {
        return Err(Divergence::Missing { seq: verifier.state.head + 1, decided: missing.kind() });
    }
    Ok(Verified { session: verifier.state, redecided: verifier.redecided, redacted: verifier.redacted })
}

struct Verifier<'a> {
    bundle: &'a Bundle,
    /// What must follow from the last input.
    expected: std::vec::IntoIter<Event>,
    state: Session,
    redecided: u64,
    redacted: Vec<u64>,
    /// When the last input arrived; what follows from it carries the same time.
    batch_at: Timestamp,
    /// The last input could not be decided again.
    unsure: bool,
    /// The latest round (run, step, round) of which a ballot's seal is destroyed: its vote cannot be counted again.
    blurred: Option<(u32, u32, u32)>,
}

impl Verifier<'_> {
    fn step(&mut self, recorded: &Recorded) -> Result<(), Divergence> {
        let expected_seq = self.state.head + 1;
        if recorded.seq != expected_seq {
            return Err(Divergence::Gap { expected: expected_seq, found: recorded.seq });
        }
        self.known_rules(recorded)?;
        self.known_epoch(recorded)?;
        let follows = recorded.at == self.batch_at && recorded.input_id.is_none();
        match (self.expected.next(), &recorded.event) {
            (Some(decided), logged) if follows && same(&decided, logged) => {}
            (Some(decided), logged) if decided.kind() == logged.kind() || !logged.is_input() => {
                return Err(Divergence::Different {
                    seq: recorded.seq,
                    logged: logged.kind(),
                    decided: decided.kind(),
                });
            }
            (Some(decided), _) => return Err(Divergence::Missing { seq: recorded.seq, decided: decided.kind() }),
            (None, Event::OwnerChanged(_)) if self.state.opened.is_some() => self.unsure = false,
            (None, logged) if logged.is_input() => self.begin(recorded)?,
            (None, logged) if !self.unsure || !follows => {
                return Err(Divergence::Unfounded { seq: recorded.seq, kind: logged.kind() });
            }
            (None, _) => {}
        }
        fold(&mut self.state, recorded);
        Ok(())
    }

    /// Decides a recorded input again and notes what must follow.
    fn begin(&mut self, recorded: &Recorded) -> Result<(), Divergence> {
        self.unsure = false;
        self.batch_at = recorded.at;
        if let Event::OutcomeRefused(refused) = &recorded.event {
            return self.refused(recorded, refused);
        }
        let seat = if let Event::BallotReceived(e) = &recorded.event {
            Some((e.seat.run, e.seat.step, e.seat.round))
        } else {
            None
        };
        let input = input_of(&self.state, recorded).filter(|_| seat.is_none() || seat != self.blurred);
        let Some(input) = input else {
            self.unsure = true;
            self.blurred = seat.or(self.blurred);
            self.redacted.push(recorded.seq);
            return Ok(());
        };
        if matches!(&input, Input::Open(open) if open.bundle != self.bundle.digest()) {
            return Err(Divergence::WrongBundle);
        }
        let stamped = Stamped { at: recorded.at, id: recorded.input_id.clone(), input };
        let rules = if let Event::SessionOpened(e) = &recorded.event { e.rules_version } else { RULES_VERSION };
        let (Decided { events, .. }, _) = decide_by(rules, &self.state, self.bundle, &stamped);
        let mut events = events.into_iter();
        match events.next() {
            Some(first) if same(&first, &recorded.event) => {}
            Some(first) => {
                let (logged, decided) = (recorded.event.kind(), first.kind());
                return Err(Divergence::Different { seq: recorded.seq, logged, decided });
            }
            None => return Err(Divergence::Unfounded { seq: recorded.seq, kind: recorded.event.kind() }),
        }
        self.redecided += 1;
        self.expected = events;
        Ok(())
    }

    /// A refused report is kept without what it claimed, so it is not decided again; that it could be recorded here is
    /// checked.
    fn refused(&self, recorded: &Recorded, refused: &OutcomeRefused) -> Result<(), Divergence> {
        let run = self.state.run.as_ref().filter(|run| run.no == refused.run);
        let fits = run.is_some_and(|run| run.refused_reports < MAX_REFUSALS_RECORDED);
        let again =
            recorded.input_id.as_ref().is_some_and(|id| self.state.recent_inputs.iter().any(|(known, _)| known == id));
        if fits && !again {
            return Ok(());
        }
        Err(Divergence::Unfounded { seq: recorded.seq, kind: recorded.event.kind() })
    }

    /// An epoch holds until `owner_changed` raises it.
    fn known_epoch(&self, recorded: &Recorded) -> Result<(), Divergence> {
        let (expected, found) = (self.state.epoch, recorded.epoch);
        let fits = if matches!(recorded.event, Event::OwnerChanged(_)) {
            found > expected
        } else {
            found == expected || self.state.head == 0
        };
        if fits { Ok(()) } else { Err(Divergence::Epoch { seq: recorded.seq, expected, found }) }
    }

    fn known_rules(&self, recorded: &Recorded) -> Result<(), Divergence> {
        let Event::RunStarted(started) = &recorded.event else { return Ok(()) };
        if started.rules_version > RULES_VERSION {
            let what = format!("rules version {}", started.rules_version);
            return Err(Divergence::UnknownRules { seq: recorded.seq, what });
        }
        if started.schema_engine != SCHEMA_ENGINE {
            let what = format!("schema engine `{}`", started.schema_engine);
            return Err(Divergence::UnknownRules { seq: recorded.seq, what });
        }
        Ok(())
    }
}

/// Equal, but for seals that are destroyed by now.
fn same(decided: &Event, logged: &Event) -> bool {
    decided == logged || stripped(decided.clone()) == stripped(logged.clone())
}

fn stripped(mut event: Event) -> Event {
    match &mut event {
        Event::BallotReceived(e) => e.sealed.clear(),
        Event::CallDecided(e) => e.sealed.clear(),
        Event::ApprovalDecided(e) => e.sealed.clear(),
        Event::AdmissionAnswered(e) => e.sealed.clear(),
        Event::SessionOpened(_)
        | Event::OwnerChanged(_)
        | Event::ClassificationReceived(_)
        | Event::ProfileChosen(_)
        | Event::MessageReceived(_)
        | Event::RunStarted(_)
        | Event::SummaryAsked(_)
        | Event::SummaryReceived(_)
        | Event::VoteWidened(_)
        | Event::ConsensusDecided(_)
        | Event::CallDispatched(_)
        | Event::CallAcknowledged(_)
        | Event::CallEnded(_)
        | Event::ApprovalReminded(_)
        | Event::BudgetReserved(_)
        | Event::ReservationAnswered(_)
        | Event::BudgetSettled(_)
        | Event::RunPaused(_)
        | Event::WrapUpStarted(_)
        | Event::StepEnded(_)
        | Event::RunEnded(_)
        | Event::ClientAttached(_)
        | Event::CancelRequested(_)
        | Event::CloseRequested(_)
        | Event::SessionClosed(_)
        | Event::Ticked(_)
        | Event::Recovered(_)
        | Event::OutcomeRefused(_) => {}
    }
    event
}

/// The input that an event records; none when part of it is destroyed.
fn input_of(state: &Session, recorded: &Recorded) -> Option<Input> {
    Some(match &recorded.event {
        Event::SessionOpened(e) => Input::Open(Box::new(Open {
            tenant: e.tenant.clone(),
            by: e.by.clone(),
            alias: e.alias.clone(),
            bundle: e.bundle,
            profile: e.profile.clone(),
            label: e.label.clone(),
            ceiling: e.ceiling.clone(),
            capabilities: e.capabilities.clone(),
            limits: e.limits,
            control: e.control,
            dry_run: e.dry_run,
            output_schema: e.content.output_schema.clone(),
            prompt: e.content.prompt.clone(),
            trace: e.trace.clone(),
            metadata: e.content.metadata.clone(),
        })),
        Event::ClassificationReceived(e) => {
            let result = match (&e.content.found, &e.content.failed) {
                (Some(found), _) => Ok(found.clone()),
                (None, Some(failed)) => Err(failed.clone()),
                (None, None) => return None,
            };
            Input::Classified(Classified { attempt: e.attempt, result, usage: e.usage })
        }
        Event::MessageReceived(e) => Input::Message(Message { by: e.by.clone(), text: e.content.text.clone() }),
        Event::BallotReceived(e) => {
            if e.content.redacted.iter().any(|call| !e.sealed.contains_key(call)) {
                return None;
            }
            Input::Ballot(Box::new(BallotCast { seat: e.seat, ballot: unsealed(state.id, e) }))
        }
        Event::SummaryReceived(e) => Input::Summary(Box::new(SummaryWritten {
            seat: e.seat,
            result: e.answer()?,
            usage: e.usage,
            model: e.model.clone(),
        })),
        Event::CallAcknowledged(e) => {
            Input::CallAck(CallAck { call: e.call.clone(), attempt: e.attempt, instance: e.instance.clone() })
        }
        Event::CallEnded(e) => {
            let EndCause::Reported(reporter) = &e.cause else { return None };
            Input::Outcome(OutcomeReport {
                call: e.call.clone(),
                attempt: e.attempt,
                reporter: reporter.clone(),
                outcome: e.content.outcome.clone()?,
            })
        }
        Event::ApprovalDecided(e) => {
            let decision = match e.decision {
                ApprovalVerb::Approve => ApprovalDecision::Approve { grant: grant_of(e, recorded.at) },
                ApprovalVerb::Revoke => ApprovalDecision::Revoke,
                ApprovalVerb::Deny => ApprovalDecision::Deny { message: e.content.message.clone() },
                ApprovalVerb::Edit if e.content.redacted => {
                    ApprovalDecision::Edit { args: e.sealed.values().next()?.clone() }
                }
                ApprovalVerb::Edit => ApprovalDecision::Edit { args: e.content.args.clone()? },
            };
            Input::Approval(ApprovalAnswer {
                approval: e.approval.clone(),
                by: e.by.clone(),
                digest: e.digest,
                bundle: None,
                decision,
            })
        }
        Event::ClientAttached(e) => Input::ClientAttached(ClientAttached {
            instance: e.instance.clone(),
            by: e.by.clone(),
            capabilities: e.capabilities.clone(),
        }),
        Event::CancelRequested(e) => Input::Cancel(Stop { by: e.by.clone(), reason: e.content.reason.clone() }),
        Event::CloseRequested(e) => Input::Close(Stop { by: e.by.clone(), reason: e.content.reason.clone() }),
        Event::AdmissionAnswered(e) => Input::Admission(AdmissionAnswer {
            call: e.call.clone(),
            hook: e.hook.clone(),
            attempt: e.attempt,
            verdict: admission_verdict(e)?,
        }),
        Event::ReservationAnswered(e) => Input::Reservation(ReservationAnswer {
            purpose: e.purpose.clone(),
            answer: e.answer.clone(),
            settled: e.settled.clone(),
        }),
        Event::BudgetSettled(e) => Input::Settled(e.settled.clone()),
        Event::Ticked(_) => Input::Tick,
        Event::Recovered(_) => Input::Recovered,
        Event::OwnerChanged(_)
        | Event::ProfileChosen(_)
        | Event::RunStarted(_)
        | Event::SummaryAsked(_)
        | Event::VoteWidened(_)
        | Event::ConsensusDecided(_)
        | Event::CallDecided(_)
        | Event::CallDispatched(_)
        | Event::ApprovalReminded(_)
        | Event::BudgetReserved(_)
        | Event::RunPaused(_)
        | Event::WrapUpStarted(_)
        | Event::StepEnded(_)
        | Event::RunEnded(_)
        | Event::SessionClosed(_)
        | Event::OutcomeRefused(_) => return None,
    })
}

/// What the approver had asked to leave open. A grant is recorded with the last approval alone; what earlier approvers
/// asked for had no effect.
fn grant_of(e: &ApprovalDecided, at: Timestamp) -> Option<GrantAsked> {
    let given = e.grant.as_ref()?;
    let ttl_us = given.expires_at.as_micros().saturating_sub(at.as_micros());
    Some(GrantAsked { open: given.open.clone(), ttl_ms: u64::try_from(ttl_us.div_euclid(1_000)).ok() })
}

fn admission_verdict(e: &AdmissionAnswered) -> Option<AdmissionVerdict> {
    let reason = e.content.reason.clone();
    Some(match e.verdict {
        AdmissionVerb::Allow => AdmissionVerdict::Allow { reason },
        AdmissionVerb::Deny => AdmissionVerdict::Deny { reason },
        AdmissionVerb::Failed => AdmissionVerdict::Failed { detail: reason.unwrap_or_default() },
        AdmissionVerb::Rewrite if e.content.redacted => {
            AdmissionVerdict::Rewrite { reason, args: e.sealed.values().next()?.clone() }
        }
        AdmissionVerb::Rewrite => AdmissionVerdict::Rewrite { reason, args: e.content.args.clone()? },
    })
}
