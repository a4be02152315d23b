//! Somebody who wants an input taken: sends it to any node, and again until there is an answer, under the same id. What
//! is not here: who wants what (`subject`).

use toolgate_core::id::InputId;
use toolgate_core::input::Input;
use toolgate_store::SessionKey;

use crate::actor::{Asker, Mail};
use crate::faults::Fault;
use crate::node::ToNode;
use crate::said::Said;
use crate::world::{Happening, World};

/// What reaches the sender.
#[derive(Debug)]
pub(crate) enum ToErrand {
    /// It is time to send.
    Send,
    Answered {
        key: SessionKey,
        said: Said,
        id: Option<InputId>,
    },
    /// No answer came to this try.
    Unanswered {
        tries: u32,
    },
}

/// An input and what became of it.
#[derive(Debug)]
pub(crate) struct Errand {
    pub(crate) subject: usize,
    pub(crate) id: InputId,
    /// The caller's own name for the session that it opens.
    pub(crate) alias: String,
    pub(crate) input: Input,
    /// The first final answer.
    pub(crate) said: Option<Said>,
    pub(crate) tries: u32,
}

impl World {
    /// Somebody sets out with an input.
    pub(crate) fn set_out(&mut self, subject: usize, input: Input) {
        let place = self.errands.len();
        let Ok(id) = InputId::new(format!("in-{subject}-{place}")) else { return };
        let word = match &input {
            Input::Open(_) => "open",
            Input::Message(_) => "message",
            Input::Approval(_) => "approval",
            Input::Cancel(_) => "cancel",
            Input::Close(_) => "close",
            _ => "other",
        };
        self.figures.count("inputs", word);
        self.errands.push(Errand { subject, id, alias: format!("subject-{subject}"), input, said: None, tries: 0 });
        self.at_ms(1, Happening::Errand { errand: place, what: ToErrand::Send });
    }

    pub(crate) fn errand_receives(&mut self, e: usize, what: ToErrand) {
        match what {
            ToErrand::Send => self.send_errand(e),
            ToErrand::Answered { key, said, id } => self.errand_answered(e, &key, said, id.as_ref()),
            ToErrand::Unanswered { tries } => {
                if self.errands.get(e).is_some_and(|errand| errand.said.is_none() && errand.tries == tries) {
                    self.send_errand(e);
                }
            }
        }
    }

    fn send_errand(&mut self, e: usize) {
        let Some(errand) = self.errands.get_mut(e) else { return };
        errand.tries += 1;
        let (tries, subject, id, input) = (errand.tries, errand.subject, errand.id.clone(), errand.input.clone());
        let patience = self.rng.u64(2_000..9_000);
        self.at_ms(patience, Happening::Errand { errand: e, what: ToErrand::Unanswered { tries } });
        let node = self.rng.usize(0..self.nodes.len());
        let Some(life) = self.nodes.get(node).map(|node| node.life) else { return };
        let what = if matches!(input, Input::Open(_)) {
            ToNode::Open { errand: e }
        } else {
            let Some(key) = self.key_of(subject) else { return };
            ToNode::Mail { key, mail: Mail::Submit { id: Some(id), input: Box::new(input), asker: Asker::Errand(e) } }
        };
        let latency = self.rng.u64(1..20);
        self.at_ms(latency, Happening::Node { node, life, what });
    }

    fn errand_answered(&mut self, e: usize, key: &SessionKey, said: Said, id: Option<&InputId>) {
        let Some(errand) = self.errands.get(e) else { return };
        let (subject, before) = (errand.subject, errand.said);
        if !said.is_final() {
            if before.is_none() {
                let wait = self.rng.u64(100..1_500);
                self.at_ms(wait, Happening::Errand { errand: e, what: ToErrand::Send });
            }
            return;
        }
        let key = self.key_of(subject).unwrap_or_else(|| key.clone());
        self.heard(&key, id, said);
        if let (
            Some(Said::Taken { seq: first } | Said::Already { seq: first }),
            Said::Taken { seq } | Said::Already { seq },
        ) = (before, said)
            && first != seq
        {
            return self.fail(format!("{}: one input was answered twice: at {first} and at {seq}", key.session));
        }
        if let Some(errand) = self.errands.get_mut(e) {
            errand.said.get_or_insert(said);
        }
        if self.strikes(Fault::SentTwice) {
            let wait = self.rng.u64(1..20_000);
            self.at_ms(wait, Happening::Errand { errand: e, what: ToErrand::Send });
        }
    }
}
