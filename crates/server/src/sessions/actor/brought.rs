//! What other nodes bring to a session through the database: inputs, and requests for the session itself. What is not
//! here: deciding (`actor`), where it is stored (`letter`), who fetches it (`inbox`).

use toolgate_core::id::InputId;
use toolgate_core::input::Stamped;
use toolgate_store::{Fate, HandOver, SessionKey};

use super::{Actor, Committed, Exit};
use crate::failure::Failure;
use crate::sessions::inbox::Delivered;
use crate::sessions::letter::{Answer, Letter};

impl Actor<'_> {
    /// The request for the session that can be granted now: no tool of the server is at work whose outcome would be lost. A
    /// client that is here keeps it here.
    pub(super) async fn due_hand_over(&mut self) -> Option<Box<HandOver>> {
        let request = self.wanted.take()?;
        if self.attached.as_ref().is_some_and(|here| !here.is_gone()) {
            if let Err(error) = self.deps.store.hand_over_refuse(&request).await {
                tracing::warn!(session = %self.state.id, %error, "a request for the session could not be refused");
            }
            return None;
        }
        if self.effects.running_tool() {
            self.wanted = Some(request);
            return None;
        }
        Some(request)
    }

    /// Takes an input that another node brought. Its row goes with the events that record it; one that leaves none, and
    /// one that was refused, gets its answer there.
    pub(super) async fn letter(&mut self, delivered: &Delivered) -> Result<(), Exit> {
        let id = delivered.row.id.clone();
        let letter = match Letter::open(&self.journal.codec, &delivered.row.body) {
            Ok(letter) => letter,
            Err(error) => {
                tracing::error!(session = %self.state.id, %error, "an input in the inbox cannot be read");
                return self.reply(&id, &Answer::Unreadable).await;
            }
        };
        let (input, idempotency) = letter.into_parts();
        let (input, blobs) = self.spilled(input);
        self.consuming = Some(id.clone());
        let stamped = Stamped { at: self.deps.clock.now(), id: Some(id.clone()), input };
        let committed = self.commit(stamped, blobs, idempotency.as_ref()).await;
        self.consuming = None;
        match committed {
            Ok(Committed::Taken { events }) if events.is_empty() => self.reply(&id, &Answer::Unchanged).await,
            Ok(Committed::Taken { .. }) => Ok(()),
            Ok(Committed::Already { seq }) => self.reply(&id, &Answer::Already { seq }).await,
            Ok(Committed::Refused(refusal)) => self.reply(&id, &refusal.into()).await,
            Err((failure, exit)) => {
                match failure {
                    Failure::Repeated { seq } => self.reply(&id, &Answer::Already { seq }).await?,
                    Failure::IdempotencyReused => self.reply(&id, &Answer::IdempotencyReused).await?,
                    // It waits on, for whoever owns the session then.
                    other => tracing::warn!(session = %self.state.id, error = %other, "an input waits on"),
                }
                Err(exit)
            }
        }
    }

    /// A repeated input may not fit any more because it was taken the first time: the log tells. `head` was the head before
    /// it was decided; one whose refusal is recorded now is no repetition.
    pub(super) async fn unless_recorded(
        &self,
        committed: Result<Committed, (Failure, Exit)>,
        head: u64,
        id: Option<&InputId>,
    ) -> Result<Committed, (Failure, Exit)> {
        let (Ok(Committed::Refused(_)), Some(id)) = (&committed, id) else { return committed };
        if self.state.head != head {
            return committed;
        }
        match self.deps.store.inbox_fate(&self.journal.tenant, self.journal.session, id).await {
            Ok(Fate::Recorded { seq }) => Ok(Committed::Already { seq }),
            _ => committed,
        }
    }

    /// Answers an input in the inbox.
    pub(super) async fn reply(&self, id: &InputId, answer: &Answer) -> Result<(), Exit> {
        let key = SessionKey { tenant: self.journal.tenant.clone(), session: self.journal.session };
        let sealed = match answer.seal(&self.journal.codec) {
            Ok(sealed) => sealed,
            Err(error) => {
                tracing::error!(session = %self.state.id, %error, "an answer could not be sealed");
                return Ok(());
            }
        };
        let (epoch, now) = (self.journal.next.epoch, self.deps.clock.now());
        // Without it the input waits on, and is looked at again.
        if let Err(error) = self.deps.store.inbox_answer(&key, epoch, id, &sealed, now).await {
            tracing::warn!(session = %self.state.id, %error, "an answer could not be written");
        }
        Ok(())
    }
}
