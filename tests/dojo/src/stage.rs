//! One session driven as the server drives it: decide, append, apply, and only what `outstanding` names is done. What
//! is not here: which calls are proposed and what they return (`play`).

use std::collections::BTreeMap;

use serde_json::Value;
use toolgate_core::bundle::Bundle;
use toolgate_core::event::{ApprovalOpened, Event, Recorded};
use toolgate_core::id::{ActorId, CallId, ProfileName, SessionId, TenantId};
use toolgate_core::input::{
    ApprovalAnswer, ApprovalDecision, BallotCast, Input, Narrowed, Open, OutcomeReport, Reporter, Stamped,
};
use toolgate_core::json::Json;
use toolgate_core::output::{Outcome, OutcomeStatus, Output};
use toolgate_core::pipeline::Decision;
use toolgate_core::proposal::{Ballot, BallotVerdict, Proposal, ProposedArgs, ProposedCall, Usage};
use toolgate_core::session::Session;
use toolgate_core::time::Timestamp;
use toolgate_core::{Effect, Reply, decide, fold, outstanding, verify};

use crate::error::DojoError;

/// When every session starts: 2024-05-15, the day on which the environments play.
const START: Timestamp = Timestamp(1_715_774_400_000_000);

/// What was decided about one proposed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ruling {
    /// The call.
    pub call: CallId,
    /// Allowed, to be approved, or rejected.
    pub decision: Decision,
    /// Why, unless allowed: the reason's code and what would change the answer.
    pub why: String,
    approval: Option<ApprovalOpened>,
}

/// A session and its log.
#[derive(Debug)]
pub struct Stage<'a> {
    bundle: &'a Bundle,
    session: Session,
    log: Vec<Recorded>,
    now: Timestamp,
}

impl<'a> Stage<'a> {
    /// Opens a session: the user's words are its first message. `number` tells sessions apart.
    pub fn open(bundle: &'a Bundle, number: u128, profile: &ProfileName, prompt: &str) -> Result<Self, DojoError> {
        let id = SessionId::from_uuid(uuid::Uuid::from_u128(number));
        let mut stage = Self { bundle, session: Session::new(id), log: Vec::new(), now: START };
        stage.send(Input::Open(Box::new(Open {
            tenant: TenantId::new("dojo")?,
            by: ActorId::new("user")?,
            alias: None,
            bundle: bundle.digest(),
            profile: Some(profile.clone()),
            label: None,
            ceiling: None,
            capabilities: std::collections::BTreeSet::new(),
            limits: Narrowed::default(),
            control: None,
            dry_run: false,
            output_schema: None,
            prompt: prompt.to_owned(),
            trace: None,
            metadata: BTreeMap::new(),
        })))?;
        Ok(stage)
    }

    /// The model proposes one call.
    pub fn propose(&mut self, tool: &str, args: &Value) -> Result<Ruling, DojoError> {
        let args = Json::from_value(args);
        let raw_args = args.as_str().to_owned();
        let call =
            ProposedCall { tool: tool.to_owned(), provider_id: None, args: ProposedArgs::Readable(args), raw_args };
        let decided = self
            .ballot(Proposal::Calls(vec![call]))?
            .into_iter()
            .find_map(|event| if let Event::CallDecided(decided) = event { Some(decided) } else { None })
            .ok_or_else(|| DojoError::Stuck(format!("nothing was decided about `{tool}`")))?;
        let reason = decided.reason.map_or("", toolgate_core::reason::RejectReason::code);
        let why = format!("{reason}: {}", decided.content.detail.unwrap_or_default());
        Ok(Ruling { call: decided.call, decision: decided.decision, why, approval: decided.approval })
    }

    /// The approver answers an escalated call.
    pub fn answer(&mut self, ruling: &Ruling, decision: ApprovalDecision) -> Result<(), DojoError> {
        let opened =
            ruling.approval.as_ref().ok_or_else(|| DojoError::Stuck("nobody was asked about this call".to_owned()))?;
        let answer = ApprovalAnswer {
            approval: opened.id.clone(),
            by: ActorId::new("approver")?,
            digest: opened.digest,
            bundle: None,
            decision,
        };
        self.send(Input::Approval(answer)).map(|_| ())
    }

    /// Runs an allowed or approved call: it must be under way, with these very arguments. It comes back with what the
    /// data says it returned.
    pub fn run(&mut self, ruling: &Ruling, args: &Value, output: &Value, error: Option<&str>) -> Result<(), DojoError> {
        let order = outstanding(&self.session, self.bundle)
            .into_iter()
            .find_map(|effect| match effect {
                Effect::RunTool(order) if order.call == ruling.call => Some(order),
                _ => None,
            })
            .ok_or_else(|| DojoError::Stuck("the call is not under way".to_owned()))?;
        if order.args != Json::from_value(args) {
            return Err(DojoError::Stuck("the call runs with other arguments than proposed".to_owned()));
        }
        let outcome = match error {
            Some(error) => Outcome::bare(OutcomeStatus::Failed, error),
            None => Outcome { status: OutcomeStatus::Ok, output: Some(shown(output)), detail: None },
        };
        let report = OutcomeReport { call: order.call, attempt: order.attempt, reporter: Reporter::Server, outcome };
        self.send(Input::Outcome(report)).map(|_| ())
    }

    /// The model says it is done; the log must verify to the state that the session is in. Gives the log's length.
    pub fn finish(mut self) -> Result<usize, DojoError> {
        self.ballot(Proposal::Done { output: Json::string("done") })?;
        let verified = verify(self.session.id, &self.log, self.bundle)?;
        if verified.session == self.session { Ok(self.log.len()) } else { Err(DojoError::Drifted) }
    }

    fn ballot(&mut self, proposal: Proposal) -> Result<Vec<Event>, DojoError> {
        let seat = outstanding(&self.session, self.bundle)
            .into_iter()
            .find_map(|effect| match effect {
                Effect::AskModel { seat, .. } => Some(seat),
                _ => None,
            })
            .ok_or_else(|| {
                DojoError::Stuck(format!(
                    "no model is asked after `{}`",
                    self.log.last().map_or("nothing", |last| last.event.kind())
                ))
            })?;
        let ballot = Ballot {
            verdict: BallotVerdict::Proposal(proposal),
            text: String::new(),
            normalised: Vec::new(),
            opaque: None,
            usage: Usage::default(),
            model: None,
            fingerprint: None,
            cut: None,
        };
        self.send(Input::Ballot(Box::new(BallotCast { seat, ballot })))
    }

    fn send(&mut self, input: Input) -> Result<Vec<Event>, DojoError> {
        self.now = self.now.plus_ms(1_000);
        let decided = decide(&self.session, self.bundle, &Stamped { at: self.now, id: None, input });
        if decided.reply != Reply::Accepted {
            return Err(DojoError::Stuck(format!("an input was not taken: {:?}", decided.reply)));
        }
        for event in &decided.events {
            let seq = self.session.head + 1;
            let recorded = Recorded { seq, epoch: 1, at: self.now, input_id: None, event: event.clone() };
            fold(&mut self.session, &recorded);
            self.log.push(recorded);
        }
        Ok(decided.events)
    }
}

/// What a tool returns, as the runner would report it.
fn shown(output: &Value) -> Output {
    match output {
        Value::String(text) => Output::text("text/plain", text.clone()),
        other => Output::text("application/json", other.to_string()),
    }
}
