//! The stored form of a snapshot: the state as JSON, sealed under the session's key for its place in the log. What is not
//! here: keeping it (`crate::snapshot`).

use toolgate_core::event::RULES_VERSION;
use toolgate_core::session::Session;

use super::{Codec, CodecError};
use crate::limits::MAX_CONTENT;
use crate::snapshot::Snapshot;

/// Raised when a field of the state comes, goes or means something else within one release.
const FORM: u32 = 1;

fn form() -> String {
    format!("{}/{RULES_VERSION}/{FORM}", env!("CARGO_PKG_VERSION"))
}

/// What it is sealed for: no snapshot of another place can stand in for it.
fn what(seq: u64, hash: &[u8; 32]) -> String {
    format!("snapshot {seq} {}", hex::encode(hash))
}

impl Codec {
    /// The snapshot of a state as the log tells it up to the row with this hash. None when it would be too large to keep, and
    /// while the contents of a call stand under a key of their own: they must go with it.
    pub fn snapshot(&self, state: &Session, hash: [u8; 32]) -> Result<Option<Snapshot>, CodecError> {
        if self.keys.holds_more_than_the_sessions() {
            return Ok(None);
        }
        let seq = state.head;
        let plain = serde_json::to_vec(state)
            .map_err(|error| CodecError::Corrupt { seq, detail: format!("snapshot: {error}") })?;
        if plain.len() > MAX_CONTENT / 2 {
            return Ok(None);
        }
        let state = self.seal(&what(seq, &hash), &plain)?;
        Ok(Some(Snapshot { seq, hash, form: form(), state }))
    }

    /// The state in a snapshot; none when it is of another form or cannot be read, for then the log tells it.
    #[must_use]
    pub fn restore(&self, snapshot: &Snapshot) -> Option<Session> {
        if snapshot.form != form() {
            return None;
        }
        let plain = self.unseal(&what(snapshot.seq, &snapshot.hash), &snapshot.state).ok()?;
        let state: Session = serde_json::from_slice(&plain).ok()?;
        (state.id == self.session && state.head == snapshot.seq).then_some(state)
    }
}
