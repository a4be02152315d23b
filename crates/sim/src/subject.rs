//! A session as the world sees it from outside: its key; and the people around it, who say more, answer
//! approvals, cancel and close. What is not here: how their inputs travel (`errand`).

use std::collections::{BTreeMap, BTreeSet};

use toolgate_core::event::ApprovalOpened;
use toolgate_core::id::{ActorId, ApprovalId, ProfileName};
use toolgate_core::input::{ApprovalAnswer, ApprovalDecision, GrantAsked, Input, Message, Narrowed, Open, Stop};
use toolgate_core::json::Json;
use toolgate_core::session::{Awaited, CallState, Session, Status};
use toolgate_store::SessionKey;

use crate::world::{Happening, World};

/// A session from outside.
#[derive(Debug)]
pub(crate) struct Subject {
    alias: String,
    pub(crate) key: Option<SessionKey>,
    asked_to_open: bool,
    answered: BTreeSet<ApprovalId>,
    messages: u32,
}

impl Subject {
    pub(crate) fn new(number: usize) -> Self {
        Self {
            alias: format!("subject-{number}"),
            key: None,
            asked_to_open: false,
            answered: BTreeSet::new(),
            messages: 0,
        }
    }
}

impl World {
    /// The key of a session, once it was created.
    pub(crate) fn key_of(&mut self, s: usize) -> Option<SessionKey> {
        let subject = self.subjects.get_mut(s)?;
        if subject.key.is_none() {
            let row = self.database.by_alias(&self.tenant, &subject.alias)?;
            subject.key = Some(SessionKey { tenant: row.tenant, session: row.session });
        }
        subject.key.clone()
    }

    /// People look at a session and do what they think fit.
    pub(crate) fn people_look(&mut self, s: usize) {
        let wait = self.rng.u64(50..2_500);
        self.at_ms(wait, Happening::People { subject: s });
        let Some(key) = self.key_of(s) else {
            if self.subjects.get_mut(s).is_some_and(|subject| !std::mem::replace(&mut subject.asked_to_open, true)) {
                let input = self.opening(s);
                self.set_out(s, input);
            }
            return;
        };
        if self.is_calm() && self.people_leave {
            return;
        }
        self.answer_approvals(s, &key);
        let calm = self.is_calm();
        let (Some(subject), Ok(by)) = (self.subjects.get_mut(s), ActorId::new("ann")) else { return };
        let status = self.database.state(&key).map_or(Status::Closed, Session::status);
        if status == Status::Idle && subject.messages > 0 && !calm {
            subject.messages -= 1;
            self.set_out(s, Input::Message(Message { by: by.clone(), text: "go on".to_owned() }));
        }
        if !calm && self.one_in(60) {
            self.set_out(s, Input::Cancel(Stop { by: by.clone(), reason: None }));
        }
        if !calm && status == Status::Running && self.one_in(80) {
            self.set_out(s, Input::Message(Message { by: by.clone(), text: "too early".to_owned() }));
        }
        if !calm && self.one_in(150) {
            self.set_out(s, Input::Close(Stop { by, reason: None }));
        }
    }

    fn opening(&mut self, s: usize) -> Input {
        if let Some(subject) = self.subjects.get_mut(s) {
            subject.messages = self.rng.u32(0..4);
        }
        let by = ActorId::new("ann").ok();
        let classifies = self.bundle.classification().is_some();
        let Some(by) = by else { return Input::Tick };
        Input::Open(Box::new(Open {
            tenant: self.tenant.clone(),
            by,
            alias: Some(format!("subject-{s}")),
            bundle: self.bundle.digest(),
            profile: ProfileName::new("p").ok().filter(|_| !classifies),
            label: None,
            ceiling: None,
            capabilities: BTreeSet::new(),
            limits: Narrowed::default(),
            control: None,
            dry_run: false,
            output_schema: None,
            prompt: "do it".to_owned(),
            trace: None,
            metadata: BTreeMap::new(),
        }))
    }

    fn answer_approvals(&mut self, s: usize, key: &SessionKey) {
        let (Some(subject), Some(state)) = (self.subjects.get(s), self.database.state(key)) else { return };
        let waiting = state.calls().iter().filter_map(|call| match &call.state {
            CallState::Waiting(Awaited::Approval(awaited)) => Some(awaited.opened.clone()),
            _ => None,
        });
        let paused = state.pause().map(|pause| pause.approval.opened.clone());
        let open: Vec<ApprovalOpened> =
            waiting.chain(paused).filter(|opened| !subject.answered.contains(&opened.id)).collect();
        for opened in open {
            if !self.is_calm() && !self.one_in(3) {
                continue;
            }
            if let Some(subject) = self.subjects.get_mut(s) {
                subject.answered.insert(opened.id.clone());
            }
            let people = if self.one_in(5) { &["boss", "chief"][..] } else { &["boss"] };
            for by in people {
                let input = self.approval(&opened, by);
                self.set_out(s, input);
            }
        }
    }

    fn approval(&mut self, opened: &ApprovalOpened, by: &str) -> Input {
        let decision = match self.rng.u8(0..10) {
            0 | 1 => ApprovalDecision::Deny { message: None },
            2 => match Json::parse("{\"n\":4242}") {
                Ok(args) => ApprovalDecision::Edit { args },
                Err(_) => ApprovalDecision::Deny { message: None },
            },
            3 => ApprovalDecision::Approve { grant: Some(GrantAsked::default()) },
            _ => ApprovalDecision::Approve { grant: None },
        };
        let Ok(by) = ActorId::new(by) else { return Input::Tick };
        let (approval, digest) = (opened.id.clone(), opened.digest);
        Input::Approval(ApprovalAnswer { approval, by, digest, bundle: None, decision })
    }
}
