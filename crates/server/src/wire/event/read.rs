//! Reads an export (`GET …/events` as NDJSON) back into the facts that an explanation rests on. What is not here: all
//! other kinds, which are only counted, and checking the log (`toolgate verify`), for which an export lacks the bytes.
//!
//! An export shows less than the log holds. What it leaves out and no explanation reads gets a harmless value here; that
//! the explanation is the same is tested in `crates/cli/tests/it/explain.rs`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error as WordError, StrDeserializer};
use toolgate_core::consensus::Tally;
use toolgate_core::event::{
    AdmissionAnswered, AdmissionContent, AdmissionOpened, ApprovalContent, ApprovalDecided, ApprovalOpened,
    ApprovalReminded, CallAcknowledged, CallContent, CallDecided, CallDispatched, CallEnd, CallEnded, ConsensusDecided,
    ConsensusResult, Dispatch, EndCause, EndedContent, Event, GrantGiven, LedgerAnswer, OutcomeRefused, PolicyRecord,
    Purpose, Recorded, ReservationAnswered, RunContent, RunEnded, RunStarted, VoteWidened,
};
use toolgate_core::id::{CallId, SessionId};
use toolgate_core::output::{Outcome, OutcomeStatus};

mod line;

use line::{
    Ack, Admission, AnswerLine, Asked, Count, DecidedLine, Ended, Exact, Leave, Profile, Refused, Reminded,
    Reservation, Run, RunEnd, Time, Widening, opened,
};

/// Why a text is no export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {detail}")]
pub struct ExportFault {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub detail: String,
}

/// Reads an export of one session, from its first event without gaps. Empty lines are ignored, as a stream has them.
pub fn read_export(text: &str) -> Result<Vec<Recorded>, ExportFault> {
    let mut found = Vec::new();
    let mut session: Option<SessionId> = None;
    let mut last = 0;
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim().is_empty() {
            continue;
        }
        let fault = |detail: String| ExportFault { line, detail };
        let envelope: Envelope = serde_json::from_str(text).map_err(|error| fault(error.to_string()))?;
        if session.is_some_and(|first| first != envelope.session_id) {
            return Err(fault(format!("`{}` is another session than the lines before", envelope.session_id)));
        }
        session = Some(envelope.session_id);
        if envelope.seq != last + 1 {
            return Err(fault(format!(
                "sequence {} follows {last}; an export begins at 1 and has no gap",
                envelope.seq
            )));
        }
        last = envelope.seq;
        if let Some(event) = envelope.event(text).map_err(|error| fault(error.to_string()))? {
            let at = envelope.at.0;
            found.push(Recorded { seq: envelope.seq, epoch: 0, at, input_id: None, event });
        }
    }
    if last == 0 {
        return Err(ExportFault { line: 1, detail: "there is no event".to_owned() });
    }
    Ok(found)
}

/// What every event has.
#[derive(Debug, Deserialize)]
struct Envelope {
    seq: u64,
    session_id: SessionId,
    at: Time,
    #[serde(default)]
    run: u32,
    #[serde(default)]
    step: u32,
    call_id: Option<CallId>,
    #[serde(rename = "type")]
    kind: String,
}

/// A word of a closed set, read as the log's own form has it.
fn word<'de, T: Deserialize<'de>>(text: &'de str) -> Result<T, serde_json::Error> {
    let word: StrDeserializer<'de, WordError> = text.into_deserializer();
    T::deserialize(word).map_err(serde::de::Error::custom)
}

impl Envelope {
    /// The fact, where an explanation reads its kind.
    fn event(&self, text: &str) -> Result<Option<Event>, serde_json::Error> {
        Ok(Some(match self.kind.as_str() {
            "session_opened" => Event::SessionOpened(Box::new(opened(serde_json::from_str(text)?)?)),
            "profile_chosen" => Event::ProfileChosen(serde_json::from_str::<Profile>(text)?.into()),
            "run_started" => Event::RunStarted(self.started(serde_json::from_str(text)?)),
            "vote_widened" => {
                let Widening { round, from, to, tool, why } = serde_json::from_str(text)?;
                Event::VoteWidened(VoteWidened { run: self.run, step: self.step, round, from, to, tool, why })
            }
            "consensus_decided" => Event::ConsensusDecided(self.counted(serde_json::from_str(text)?)?),
            "call_decided" => Event::CallDecided(Box::new(self.decided(serde_json::from_str(text)?)?)),
            "call_dispatched" => Event::CallDispatched(CallDispatched {
                call: self.call()?,
                run: self.run,
                step: self.step,
                dispatch: serde_json::from_str::<Leave>(text)?.into(),
            }),
            "call_acknowledged" => {
                let ack: Ack = serde_json::from_str(text)?;
                Event::CallAcknowledged(CallAcknowledged {
                    call: self.call()?,
                    attempt: ack.attempt,
                    instance: ack.client_id,
                })
            }
            "call_ended" => Event::CallEnded(Box::new(self.ended(serde_json::from_str(text)?)?)),
            "approval_decided" => Event::ApprovalDecided(Box::new(self.answered(serde_json::from_str(text)?)?)),
            "admission_answered" => Event::AdmissionAnswered(Box::new(self.admitted(serde_json::from_str(text)?)?)),
            "approval_reminded" => Event::ApprovalReminded(self.reminded(serde_json::from_str(text)?)?),
            "reservation_answered" => {
                let Some(event) = self.reserved(serde_json::from_str(text)?)? else { return Ok(None) };
                Event::ReservationAnswered(event)
            }
            "outcome_refused" => Event::OutcomeRefused(self.refused(serde_json::from_str(text)?)?),
            "run_ended" => Event::RunEnded(self.run_ended(serde_json::from_str(text)?)),
            _ => return Ok(None),
        }))
    }

    fn call(&self) -> Result<CallId, serde_json::Error> {
        self.call_id.clone().ok_or_else(|| serde::de::Error::missing_field("call_id"))
    }

    fn started(&self, run: Run) -> RunStarted {
        RunStarted {
            run: self.run,
            rules_version: run.rules_version,
            schema_engine: run.schema_engine,
            limits: run.limits,
            deadline_at: run.deadline_at.0,
        }
    }

    fn counted(&self, count: Count) -> Result<ConsensusDecided, serde_json::Error> {
        let ballot = count.ballot.unwrap_or_default();
        let result = match count.result.as_str() {
            "agreed" => ConsensusResult::Agreed { ballot },
            "escalated" => ConsensusResult::Escalated { ballot },
            "retry" => ConsensusResult::Retry,
            "rejected" => ConsensusResult::Rejected,
            other => return Err(serde::de::Error::custom(format!("`{other}` is no result of a vote"))),
        };
        let tally = Tally { groups: count.groups, unreadable: count.unreadable };
        Ok(ConsensusDecided {
            run: self.run,
            step: self.step,
            round: count.round,
            n: count.n,
            rule: count.rule,
            k: count.k,
            tally,
            cancelled: count.cancelled,
            result,
        })
    }

    fn decided(&self, decided: DecidedLine) -> Result<CallDecided, serde_json::Error> {
        let content = decided.content;
        let admission = match decided.admission {
            None => None,
            Some(opened) => Some(AdmissionOpened {
                hooks: opened.hooks.iter().map(|hook| word(hook)).collect::<Result<_, _>>()?,
                answer_by: opened.answer_by.0,
                digest: None,
            }),
        };
        Ok(CallDecided {
            call: self.call()?,
            run: self.run,
            step: self.step,
            index: decided.index,
            decided_at: self.at.0,
            edited_from: decided.edited_from,
            edited_by: decided.edited_by,
            rewritten_by: decided.rewritten_by.as_deref().map(word).transpose()?,
            granted_by: decided.granted_by,
            admission,
            tool: decided.tool,
            tool_version: decided.tool_version,
            venue: decided.venue,
            class: decided.class,
            tags: decided.tags,
            decision: decided.decision,
            reason: decided.reason,
            layer: decided.layer,
            rules: decided.rules,
            replay_of: decided.replay_of,
            dispatch: decided.dispatch.map(Dispatch::from),
            approval: decided.approval.map(|asked| self.asked(asked)),
            policy: decided.policy.map(PolicyRecord::from),
            ends_run: decided.ends_run,
            args_bytes: decided.args_bytes,
            content: CallContent {
                tool: content.tool,
                args: Exact::json(content.args),
                args_hash: content.args_hash,
                redacted: content.redacted,
                derived: Exact::json(content.derived),
                charges: content.charges,
                idempotency_key: content.idempotency_key,
                detail: content.detail,
            },
            sealed: BTreeMap::new(),
        })
    }

    fn ended(&self, ended: Ended) -> Result<CallEnded, serde_json::Error> {
        let status = ended.status.as_str();
        let (end, outcome) = if ended.dispatched {
            let status: OutcomeStatus = word(status)?;
            let outcome = Outcome { status, output: None, detail: ended.content.outcome_detail };
            (CallEnd::Outcome(status), Some(outcome))
        } else {
            (CallEnd::NotExecuted(word(status)?), None)
        };
        let cause = match (ended.cause.as_str(), ended.reporter) {
            ("reported", Some(reporter)) => EndCause::Reported(reporter.read()?),
            ("reported", None) => return Err(serde::de::Error::missing_field("reporter")),
            (other, _) => word(other)?,
        };
        Ok(CallEnded {
            call: self.call()?,
            run: self.run,
            step: self.step,
            attempt: ended.attempt,
            end,
            cause,
            reason: ended.reason,
            replaced_by: ended.replaced_by,
            output_bytes: ended.output_bytes,
            content: EndedContent { outcome, detail: ended.content.detail },
        })
    }

    fn answered(&self, answer: AnswerLine) -> Result<ApprovalDecided, serde_json::Error> {
        Ok(ApprovalDecided {
            approval: answer.approval_id,
            call: self.call()?,
            by: answer.by,
            digest: answer.digest,
            decision: answer.decision,
            missing: answer.missing,
            grant: answer.grant.map(|grant| GrantGiven { open: grant.open, expires_at: grant.expires_at.0 }),
            raises: Vec::new(),
            content: ApprovalContent {
                message: answer.content.message,
                args: Exact::json(answer.content.args),
                redacted: answer.content.redacted,
            },
            sealed: BTreeMap::new(),
        })
    }

    fn asked(&self, asked: Asked) -> ApprovalOpened {
        ApprovalOpened {
            id: asked.id,
            requested_at: self.at.0,
            expires_at: asked.expires_at.0,
            digest: asked.digest,
            remind_ms: None,
            approvers: asked.approvers,
            approved_by: asked.approved_by,
        }
    }

    fn admitted(&self, answer: Admission) -> Result<AdmissionAnswered, serde_json::Error> {
        Ok(AdmissionAnswered {
            call: self.call()?,
            run: self.run,
            step: self.step,
            hook: word(&answer.hook)?,
            attempt: answer.attempt,
            verdict: answer.verdict,
            next_by: answer.next_by.map(|at| at.0),
            approval: answer.approval.map(|asked| self.asked(asked)),
            content: AdmissionContent {
                reason: answer.content.reason,
                args: Exact::json(answer.content.args),
                redacted: answer.content.redacted,
            },
            sealed: BTreeMap::new(),
        })
    }

    fn reminded(&self, reminded: Reminded) -> Result<ApprovalReminded, serde_json::Error> {
        Ok(ApprovalReminded {
            approval: reminded.approval_id,
            call: self.call()?,
            run: self.run,
            step: self.step,
            reminder: reminded.reminder,
            expires_at: reminded.expires_at.0,
        })
    }

    /// What the ledger answered about a call; none where it was asked about a round.
    fn reserved(&self, answer: Reservation) -> Result<Option<ReservationAnswered>, serde_json::Error> {
        let Some(call) = self.call_id.clone() else { return Ok(None) };
        let found = match (answer.answer.as_str(), answer.counter, answer.used, answer.limit) {
            ("granted", _, _, _) => LedgerAnswer::Granted,
            ("refused", Some(counter), Some(used), Some(limit)) => LedgerAnswer::Refused { counter, used, limit },
            (other, _, _, _) => {
                return Err(serde::de::Error::custom(format!("`{other}` is no whole answer of a ledger")));
            }
        };
        Ok(Some(ReservationAnswered { purpose: Purpose::Call { call }, answer: found, settled: answer.settled }))
    }

    fn refused(&self, refused: Refused) -> Result<OutcomeRefused, serde_json::Error> {
        Ok(OutcomeRefused {
            run: self.run,
            call: self.call()?,
            code: refused.code,
            reporter: refused.reporter.read()?,
            claimed: refused.claimed,
        })
    }

    fn run_ended(&self, ended: RunEnd) -> RunEnded {
        RunEnded {
            run: self.run,
            ending: ended.ending,
            steps: ended.steps,
            tool_calls: ended.tool_calls,
            model_calls: ended.model_calls,
            wrapped_up: ended.wrapped_up,
            shadow: ended.shadow,
            content: RunContent { output: None, detail: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = r#"{"seq":1,"session_id":"ses_018f3c7a000070008000000000000001","at":"2026-01-01T00:00:00.123Z","type":"ticked"}"#;

    fn refused(text: &str) -> String {
        read_export(text).err().map(|fault| fault.to_string()).unwrap_or_default()
    }

    #[test]
    fn what_is_no_whole_export_is_refused_with_its_line() {
        assert_eq!(read_export(&format!("{FIRST}\n\n")), Ok(Vec::new()), "kinds that explain nothing are only counted");
        assert!(refused("").contains("line 1: there is no event"));
        assert!(refused(&format!("{FIRST}\nnonsense")).starts_with("line 2: "));
        let third = FIRST.replace("\"seq\":1", "\"seq\":3");
        assert!(refused(&format!("{FIRST}\n\n{third}")).starts_with("line 3: sequence 3 follows 1"));
        let other = FIRST.replace("\"seq\":1", "\"seq\":2").replace("0001\"", "0002\"");
        assert!(refused(&format!("{FIRST}\n{other}")).contains("another session"));
        let bad = FIRST.replace("ticked", "call_decided");
        assert!(refused(&bad).starts_with("line 1: missing field"));
    }
}
