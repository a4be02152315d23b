//! The decision pipeline: one call, one fixed order of layers, the first failure wins and says what would change the
//! answer. What is not here: what a rejection leads to (`decide`), and what the policies say (`toolgate-policy`, asked
//! in `policy`).

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toolgate_policy::grant::{GrantCall, GrantMiss};

use crate::bundle::{Bundle, Tool, find_identity_key};
use crate::event::{Charge, Limits, PolicyRecord};
use crate::id::{ApprovalId, CallId, Capability, Sha256Digest, ToolId};
use crate::json::Json;
use crate::profile::{ApprovalMode, ControlMode, Profile};
use crate::proposal::{ProposedArgs, ProposedCall};
use crate::reason::RejectReason;
use crate::schema::describe;
use crate::session::{KeyedSuccess, Session};
use crate::time::Timestamp;
use crate::tool::{Risk, Venue};

mod budget;
mod policy;

pub(crate) use policy::missing_evidence;

/// The answer to "may this call run"; the strictest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// It may run.
    Allow,
    /// A human must approve it.
    Escalate,
    /// It may not run.
    Reject,
}

impl Decision {
    /// The code used in log and API.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Escalate => "escalate",
            Self::Reject => "reject",
        }
    }
}

/// The layers, in the order in which they are asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// Can the arguments be read?
    Form,
    /// Does the tool exist?
    Registry,
    /// Does the profile have it?
    Allowlist,
    /// Does it leave identity alone?
    Identity,
    /// Do the arguments match the schema?
    Schema,
    /// Can the venue execute it?
    Venue,
    /// Do the tenant's policies let it pass?
    Policy,
    /// Has its key succeeded before?
    Idempotency,
    /// Was it proposed too often?
    Repetition,
    /// Is there budget left?
    Budget,
    /// Must a human approve?
    Approval,
    /// Every layer was passed.
    Passed,
}

impl Layer {
    /// The code used in log and API; also the name of the layer's rule.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Form => "form",
            Self::Registry => "registry",
            Self::Allowlist => "allowlist",
            Self::Identity => "identity",
            Self::Schema => "schema",
            Self::Venue => "venue",
            Self::Policy => "policy",
            Self::Idempotency => "idempotency",
            Self::Repetition => "repetition",
            Self::Budget => "budget",
            Self::Approval => "approval",
            Self::Passed => "passed",
        }
    }
}

/// Everything that a decision about a call may read.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The pinned bundle.
    pub bundle: &'a Bundle,
    /// The session's profile.
    pub profile: &'a Profile,
    /// What the session's client can do.
    pub capabilities: &'a BTreeSet<Capability>,
    /// The run's bounds.
    pub limits: &'a Limits,
    /// Tool calls counted so far.
    pub tool_calls: u32,
    /// How often each canonical call was proposed so far.
    pub repeats: &'a BTreeMap<Sha256Digest, u32>,
    /// Earlier successes by caller key.
    pub idempotency: &'a BTreeMap<ToolId, BTreeMap<String, KeyedSuccess>>,
    /// The session so far, for rules that read it; absent for a call that stands alone.
    pub session: Option<&'a Session>,
    /// When the call is judged.
    pub at: Timestamp,
    /// Which calls a human is asked about besides those whose tool or rule asks.
    pub control: ControlMode,
    /// Why a human must approve whatever the tool says.
    pub escalate: Option<RejectReason>,
    /// An approver wrote these very arguments.
    pub approved_by_edit: bool,
}

/// What the pipeline found about one call.
#[derive(Debug, Clone)]
pub struct Verdict<'a> {
    /// The decision.
    pub decision: Decision,
    /// Why, unless allowed.
    pub reason: Option<RejectReason>,
    /// The layer that decided.
    pub layer: Layer,
    /// Every rule looked at, in order.
    pub rules: Vec<String>,
    /// What would change the answer.
    pub detail: Option<String>,
    /// The tool, once the registry knows it.
    pub tool: Option<&'a Tool>,
    /// The arguments, if readable.
    pub args: Option<Json>,
    /// The caller's key, where the contract names one.
    pub idempotency_key: Option<String>,
    /// The earlier call whose outcome is returned.
    pub replay_of: Option<CallId>,
    /// What the policies found.
    pub policy: Option<PolicyRecord>,
    /// Fields that the contract derives from the arguments.
    pub derived: Option<Json>,
    /// What the tenant's ledger must grant.
    pub charges: Vec<Charge>,
    /// The earlier approval that covers it.
    pub granted_by: Option<ApprovalId>,
    /// The rejection ends the run whatever the profile says of its reason: the model goes round in circles.
    pub ends_run: bool,
}

/// Judges one call.
#[must_use]
pub fn judge<'a>(situation: &Situation<'a>, proposed: &ProposedCall) -> Verdict<'a> {
    let mut judge = Judge {
        situation: *situation,
        proposed,
        verdict: Verdict {
            decision: Decision::Allow,
            reason: None,
            layer: Layer::Passed,
            rules: Vec::new(),
            detail: None,
            tool: None,
            args: None,
            idempotency_key: None,
            replay_of: None,
            policy: None,
            derived: None,
            charges: Vec::new(),
            granted_by: None,
            ends_run: false,
        },
        key: OnceCell::new(),
        ask: None,
        beyond: None,
    };
    let result = judge.run();
    if let Err((reason, detail)) = judge.or_ended_loop(result) {
        let waits = reason == RejectReason::NeedsHumanApproval && situation.profile.approval.mode == ApprovalMode::Wait;
        let asks = waits || (situation.escalate == Some(reason) && judge.verdict.layer == Layer::Approval);
        judge.verdict.decision = if asks { Decision::Escalate } else { Decision::Reject };
        judge.verdict.reason = Some(reason);
        judge.verdict.detail = Some(detail);
    }
    judge.verdict
}

/// The key under which repetitions of a call are counted: its name and the hash of its canonical arguments.
#[must_use]
pub fn repeat_key(tool: &str, args_hash: Sha256Digest) -> Sha256Digest {
    let mut hash = Sha256::new();
    hash.update((tool.len() as u64).to_be_bytes());
    hash.update(tool.as_bytes());
    hash.update(args_hash.as_bytes());
    Sha256Digest::from_bytes(hash.finalize().into())
}

type Stop = (RejectReason, String);

struct Judge<'a, 'p> {
    situation: Situation<'a>,
    proposed: &'p ProposedCall,
    verdict: Verdict<'a>,
    /// The key of the call, once it is needed: hashing the arguments is a good part of a cheap decision.
    key: OnceCell<Sha256Digest>,
    /// Why a policy wants a human to be asked.
    ask: Option<String>,
    /// The bound that the call would pass, where a human may let it.
    beyond: Option<String>,
}

impl<'a> Judge<'a, '_> {
    /// Asks every layer in order; the first that objects stops.
    fn run(&mut self) -> Result<(), Stop> {
        self.enter(Layer::Form);
        let args = self.form()?;
        self.enter(Layer::Registry);
        let tool = self.registry()?;
        self.enter(Layer::Allowlist);
        self.allowlist(tool)?;
        let value = args.value();
        self.enter(Layer::Identity);
        if let Some(pointer) = find_identity_key(self.situation.bundle, &value) {
            return Err((
                RejectReason::CrossTenantDenied,
                format!("`{pointer}` names identity; identity comes from the credential alone"),
            ));
        }
        self.enter(Layer::Schema);
        let mismatches = tool.parameters.mismatches(&value, !tool.def.redact.is_empty());
        if !mismatches.is_empty() {
            return Err((RejectReason::SchemaInvalid, describe(&mismatches)));
        }
        self.enter(Layer::Venue);
        self.venue(tool)?;
        self.enter(Layer::Policy);
        self.policy(tool, &value)?;
        self.enter(Layer::Idempotency);
        self.idempotency(tool, &args, &value)?;
        self.enter(Layer::Repetition);
        self.repetition(&args)?;
        self.enter(Layer::Budget);
        self.budget(tool, &value)?;
        self.enter(Layer::Approval);
        self.approval(tool, &value)?;
        self.verdict.layer = Layer::Passed;
        Ok(())
    }

    fn enter(&mut self, layer: Layer) {
        self.verdict.layer = layer;
        self.verdict.rules.push(layer.code().to_owned());
    }

    fn form(&mut self) -> Result<Json, Stop> {
        match &self.proposed.args {
            ProposedArgs::Malformed { detail, .. } => Err((RejectReason::Malformed, detail.clone())),
            ProposedArgs::Readable(args) => {
                self.verdict.args = Some(args.clone());
                Ok(args.clone())
            }
        }
    }

    fn registry(&mut self) -> Result<&'a Tool, Stop> {
        let found = ToolId::new(self.proposed.tool.as_str()).ok().and_then(|id| self.situation.bundle.tool(&id));
        self.verdict.tool = found;
        found.ok_or_else(|| (RejectReason::UnknownTool, format!("no such tool; {}", self.available())))
    }

    fn allowlist(&self, tool: &Tool) -> Result<(), Stop> {
        if self.situation.profile.tools.contains(&tool.id) {
            return Ok(());
        }
        Err((RejectReason::ToolNotAllowlisted, format!("it is not allowed in this profile; {}", self.available())))
    }

    fn available(&self) -> String {
        let mut names: Vec<String> = self.situation.profile.tools.iter().map(|id| format!("`{id}`")).collect();
        names.sort();
        if names.is_empty() { "no tools are available".to_owned() } else { format!("available: {}", names.join(", ")) }
    }

    fn venue(&self, tool: &Tool) -> Result<(), Stop> {
        let Some(needed) = tool.def.capability.as_ref().filter(|_| tool.def.venue == Venue::Client) else {
            return Ok(());
        };
        if self.situation.capabilities.contains(needed) {
            return Ok(());
        }
        Err((RejectReason::VenueUnavailable, format!("the client has not declared the capability `{needed}`")))
    }

    fn idempotency(&mut self, tool: &Tool, args: &Json, value: &serde_json::Value) -> Result<(), Stop> {
        let Some(key) = key_of(tool, value) else { return Ok(()) };
        self.verdict.idempotency_key = Some(key.clone());
        let Some(earlier) = self.situation.idempotency.get(&tool.id).and_then(|keys| keys.get(&key)) else {
            return Ok(());
        };
        if earlier.args_hash != args.hash() {
            return Err((
                RejectReason::IdempotencyConflict,
                "this key succeeded before with other arguments; use a fresh key".to_owned(),
            ));
        }
        self.verdict.replay_of = Some(earlier.call.clone());
        Err((
            RejectReason::IdempotentReplay,
            "this key and these arguments succeeded before; the recorded outcome is returned".to_owned(),
        ))
    }

    /// The key under which repetitions of this call are counted.
    fn key_of_call(&self, args: &Json) -> Sha256Digest {
        *self.key.get_or_init(|| repeat_key(&self.proposed.tool, args.hash()))
    }

    fn repetition(&self, args: &Json) -> Result<(), Stop> {
        self.refused_loop()?;
        let limit = self.situation.limits.repeat_limit;
        let key = self.key_of_call(args);
        let seen = self.situation.repeats.get(&key).copied().unwrap_or(0);
        if seen < limit {
            return Ok(());
        }
        Err((
            RejectReason::RepeatedCall,
            format!("this very call was proposed {seen} times in this run; do something else or finish"),
        ))
    }

    fn approval(&mut self, tool: &Tool, args: &serde_json::Value) -> Result<(), Stop> {
        if self.situation.approved_by_edit {
            return Ok(());
        }
        if let Some(reason) = self.situation.escalate {
            return Err((reason, "a human must approve it".to_owned()));
        }
        // An earlier approval covers an equal call, but neither a call beyond a bound nor one that ballots disagree on.
        if let Some(detail) = self.beyond.take() {
            return Err((RejectReason::NeedsHumanApproval, detail));
        }
        let asked_always = match self.situation.control {
            ControlMode::All => true,
            ControlMode::Risky => tool.def.risk == Risk::High,
            ControlMode::None => false,
        };
        let why = if tool.def.requires_approval {
            "a human must approve it".to_owned()
        } else if let Some(detail) = self.ask.take() {
            detail
        } else if asked_always {
            "a human must approve it: the control mode asks about such calls".to_owned()
        } else {
            return Ok(());
        };
        match self.granted(tool, args) {
            Ok(approval) => {
                self.verdict.rules.push(format!("grant:{approval}"));
                self.verdict.granted_by = Some(approval);
                Ok(())
            }
            Err(None) => Err((RejectReason::NeedsHumanApproval, why)),
            Err(Some(miss)) => Err((RejectReason::NeedsHumanApproval, format!("{why}; an earlier one: {miss}"))),
        }
    }

    /// The earlier approval that covers the call, or why the nearest one does not.
    fn granted(&self, tool: &Tool, args: &serde_json::Value) -> Result<ApprovalId, Option<GrantMiss>> {
        let Some(session) = self.situation.session else { return Err(None) };
        let (bundle, id) = (self.situation.bundle.digest().to_string(), session.id.to_string());
        let call = GrantCall {
            tool: tool.id.as_str(),
            tool_version: "",
            bundle: &bundle,
            session: &id,
            args,
            at_micros: u64::try_from(self.situation.at.as_micros()).unwrap_or(0),
        };
        let mut nearest = None;
        for given in session.grants.iter().rev() {
            match given.grant.covers(&call) {
                Ok(()) => return Ok(given.approval.clone()),
                Err(GrantMiss::Tool) => {}
                Err(miss) => nearest = nearest.or(Some(miss)),
            }
        }
        Err(nearest)
    }
}

/// The caller's key in the arguments, where the tool's contract names the field.
fn key_of(tool: &Tool, value: &serde_json::Value) -> Option<String> {
    let field = tool.def.idempotency_key.as_ref()?;
    value.get(field)?.as_str().map(ToOwned::to_owned)
}
