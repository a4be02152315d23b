//! Events and rows: the only place that knows stored forms. A row's header is the event without its content; `content`
//! is sealed under the session's key, each entry of `sealed` under its call's own key, which is destroyed when the call
//! ends. What is not here: the chain's rules (`chain`), keys (`keys`).
//!
//! Compatibility: unknown fields of a known kind are ignored; an unknown kind or a newer stored form is refused by name.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use toolgate_core::event::{AdmissionVerb, ApprovalVerb, Event, Recorded};
use toolgate_core::id::{CallId, InputId, SessionId, Sha256Digest, TenantId};
use toolgate_core::pipeline::Decision;
use toolgate_core::time::Timestamp;

use crate::append::Sealed;
use crate::chain::Position;
use crate::error::StoreError;
use crate::header::{FORMAT, Header, PayloadMeta};
use crate::keys::{ContentKey, KeyError, MasterKey, WrappedKey, place};
use crate::name::KeyId;
use crate::row::{Marks, Row};

mod approval;
mod fields;
mod held;
mod hidden;
mod payload;
mod snapshot;

pub use approval::ApprovalBody;

use held::HeldKeys;
use hidden::Private;
use payload::Part;

/// Why events could not be written or rows not be read.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// A key did not do.
    #[error("sequence {seq}: {source}")]
    Key {
        /// The row.
        seq: u64,
        /// Why.
        #[source]
        source: KeyError,
    },
    /// The session's key is destroyed: its content is erased.
    #[error("sequence {seq}: the content was erased")]
    Erased {
        /// The row.
        seq: u64,
    },
    /// The stored bytes are not what this release or an older one writes.
    #[error("sequence {seq}: {detail}")]
    Corrupt {
        /// The row.
        seq: u64,
        /// What is wrong.
        detail: String,
    },
    /// The row is of a kind that this release does not know.
    #[error("sequence {seq}: unknown kind `{kind}` in stored form {form}")]
    UnknownKind {
        /// The row.
        seq: u64,
        /// Its kind.
        kind: String,
        /// Its stored form.
        form: u32,
    },
    /// The row was written by a newer release.
    #[error("sequence {seq}: stored form {form} is newer than this release reads")]
    NewerForm {
        /// The row.
        seq: u64,
        /// Its stored form.
        form: u32,
    },
    /// The row could not be made.
    #[error("the row could not be made")]
    Row(#[source] StoreError),
}

/// Writes and reads the rows of one session.
#[derive(Debug)]
pub struct Codec {
    tenant: TenantId,
    session: SessionId,
    master: MasterKey,
    keys: HeldKeys,
}

/// Rows made from the events of one batch, and what must be stored with them.
#[derive(Debug)]
pub struct Encoded {
    /// The rows in order.
    pub rows: Vec<Row>,
    /// Keys first used by them.
    pub new_keys: Vec<WrappedKey>,
    /// Keys that end with them.
    pub destroyed_keys: Vec<KeyId>,
    /// Where the next row goes.
    pub next: Position,
}

impl Codec {
    /// The codec of a new session, with the key that must be stored with its first rows.
    pub fn create(tenant: TenantId, session: SessionId, master: MasterKey) -> Result<(Self, WrappedKey), KeyError> {
        let key = ContentKey::generate()?;
        let wrapped = master.wrap(&tenant, session, KeyId::session(), &key)?;
        Ok((Self { tenant, session, master, keys: HeldKeys::from_iter([(KeyId::session(), key)]) }, wrapped))
    }

    /// The codec of a stored session with the keys that still exist.
    pub fn open(
        tenant: TenantId,
        session: SessionId,
        master: MasterKey,
        stored: &[WrappedKey],
    ) -> Result<Self, KeyError> {
        let mut keys = HeldKeys::default();
        for wrapped in stored {
            keys.insert(wrapped.id.clone(), master.unwrap(&tenant, session, wrapped)?);
        }
        Ok(Self { tenant, session, master, keys })
    }

    /// The session whose rows it makes.
    #[must_use]
    pub const fn session(&self) -> SessionId {
        self.session
    }

    /// Makes the rows of one batch; the first records the input.
    ///
    /// The codec goes on to keys and rows that are not stored yet: when the append is refused, open it again.
    pub fn encode(
        &mut self,
        events: &[Event],
        input_id: Option<&InputId>,
        at: Timestamp,
        mut next: Position,
    ) -> Result<Encoded, CodecError> {
        let mut new_keys = BTreeMap::new();
        let mut destroyed_keys = Vec::new();
        let mut rows = Vec::with_capacity(events.len());
        for (idx, event) in events.iter().enumerate() {
            let input_id = input_id.filter(|_| idx == 0).cloned();
            let row = self.row(event, input_id, at, &next, &mut new_keys)?;
            next = Position::after(&row);
            rows.push(row);
            for ended in self.ended_by(event) {
                self.keys.remove(&ended);
                // A key that lives and dies in one batch is never stored.
                if new_keys.remove(&ended).is_none() {
                    destroyed_keys.push(ended);
                }
            }
        }
        Ok(Encoded { rows, new_keys: new_keys.into_values().collect(), destroyed_keys, next })
    }

    fn row(
        &mut self,
        event: &Event,
        input_id: Option<InputId>,
        at: Timestamp,
        next: &Position,
        new_keys: &mut BTreeMap<KeyId, WrappedKey>,
    ) -> Result<Row, CodecError> {
        let seq = next.seq;
        let corrupt = |detail: &str| CodecError::Corrupt { seq, detail: detail.to_owned() };
        let text = serde_json::to_string(event).map_err(|error| corrupt(&format!("event: {error}")))?;
        let fields::Parts { shown, private, of_calls } =
            fields::parts(&text).map_err(|error| corrupt(&format!("event: {error}")))?;
        let mut parts = Vec::new();
        let mut args_commitment = None;
        if !private.is_empty() {
            let id = KeyId::session();
            let key = self.keys.get(&id).ok_or(CodecError::Erased { seq })?;
            if let Some(hash) = private.args_hash() {
                args_commitment = Some(hex::encode(key.commitment(&[b"toolgate.args.v1", hash.as_bytes()])));
            }
            let private = serde_json::to_vec(&private).map_err(|error| corrupt(&format!("content: {error}")))?;
            parts.push(self.sealed_part(seq, event.kind(), id, &private)?);
        }
        for (call, value) in of_calls {
            let call = CallId::parse(call).map_err(|_| corrupt("a seal names no call"))?;
            let id = KeyId::call(&call);
            self.call_key(seq, &id, new_keys)?;
            parts.push(self.sealed_part(seq, event.kind(), id, value.get().as_bytes())?);
        }
        let payload = payload::write(&parts);
        let names = parts.iter().map(|part| part.key.as_str().to_owned()).collect();
        let (run, step) = event.position();
        let (call, marks) = marks(event);
        let header = Header {
            v: FORMAT,
            kind: event.kind().to_owned(),
            run,
            step,
            call,
            input_id,
            marks,
            payload: (!payload.is_empty()).then(|| PayloadMeta::of(&payload, names)),
            args_commitment,
            event: shown,
        };
        header.into_row(&self.tenant, self.session, next, at, payload).map_err(CodecError::Row)
    }

    /// Makes sure that the call has its key.
    fn call_key(&mut self, seq: u64, id: &KeyId, new_keys: &mut BTreeMap<KeyId, WrappedKey>) -> Result<(), CodecError> {
        if self.keys.contains(id) {
            return Ok(());
        }
        let key = ContentKey::generate().map_err(|source| CodecError::Key { seq, source })?;
        let wrapped = self
            .master
            .wrap(&self.tenant, self.session, id.clone(), &key)
            .map_err(|source| CodecError::Key { seq, source })?;
        new_keys.insert(id.clone(), wrapped);
        self.keys.insert(id.clone(), key);
        Ok(())
    }

    fn sealed_part(&self, seq: u64, kind: &str, id: KeyId, plain: &[u8]) -> Result<Part, CodecError> {
        let key = self.keys.get(&id).ok_or(CodecError::Erased { seq })?;
        let bytes =
            key.seal(&self.row_place(seq, kind, &id), plain).map_err(|source| CodecError::Key { seq, source })?;
        Ok(Part { key: id, bytes })
    }

    fn row_place(&self, seq: u64, kind: &str, key: &KeyId) -> Vec<u8> {
        place(&self.tenant, self.session, &["row", &seq.to_string(), kind, key.as_str()])
    }

    /// Call keys that end with an event: the call's own at its terminal record, all of them with the run.
    fn ended_by(&self, event: &Event) -> Vec<KeyId> {
        if let Event::RunEnded(_) = event {
            return self.keys.names().filter(|id| **id != KeyId::session()).cloned().collect();
        }
        let marks = event.marks();
        let ended = marks.call.filter(|_| marks.terminal).map(|call| KeyId::call(&call));
        ended.filter(|id| self.keys.contains(id)).into_iter().collect()
    }

    /// Reads a row. What was sealed under a destroyed call key is left out; without the session key there is nothing to read.
    pub fn decode(&self, row: &Row) -> Result<Recorded, CodecError> {
        let seq = row.seq;
        let corrupt = |detail: String| CodecError::Corrupt { seq, detail };
        let header = Header::read(&row.header).map_err(|error| corrupt(format!("header: {error}")))?;
        if header.v > FORMAT {
            return Err(CodecError::NewerForm { seq, form: header.v });
        }
        let mut fields = header.event;
        fields.insert("kind".to_owned(), Value::String(header.kind.clone()));
        let mut sealed = Map::new();
        for part in payload::read(&row.payload).ok_or_else(|| corrupt("payload: not a list of parts".to_owned()))? {
            let is_content = part.key == KeyId::session();
            let Some(key) = self.keys.get(&part.key) else {
                if is_content {
                    return Err(CodecError::Erased { seq });
                }
                continue;
            };
            let plain = key
                .open(&self.row_place(seq, &header.kind, &part.key), &part.bytes)
                .map_err(|source| CodecError::Key { seq, source })?;
            let unreadable = |error| corrupt(format!("content: {error}"));
            if is_content {
                serde_json::from_slice::<Private>(&plain).map_err(unreadable)?.restore(&mut fields);
            } else {
                let value: Value = serde_json::from_slice(&plain).map_err(unreadable)?;
                sealed.insert(part.key.as_str().to_owned(), value);
            }
        }
        if !sealed.is_empty() {
            fields.insert("sealed".to_owned(), Value::Object(sealed));
        }
        let event = serde_json::from_value(Value::Object(fields)).map_err(|error| {
            if is_unknown_kind(&header.kind) {
                CodecError::UnknownKind { seq, kind: header.kind.clone(), form: header.v }
            } else {
                corrupt(format!("event: {error}"))
            }
        })?;
        Ok(Recorded { seq, epoch: row.epoch, at: row.recorded_at, input_id: header.input_id, event })
    }

    /// Seals content that stands beside the log (an approval, a title, an answer) under the session's key.
    pub fn seal(&self, what: &str, plain: &[u8]) -> Result<Sealed, CodecError> {
        let id = KeyId::session();
        let key = self.keys.get(&id).ok_or(CodecError::Erased { seq: 0 })?;
        let bytes = key
            .seal(&place(&self.tenant, self.session, &["beside", what]), plain)
            .map_err(|source| CodecError::Key { seq: 0, source })?;
        Ok(Sealed { key: id, bytes })
    }

    /// Opens what [`Codec::seal`] sealed for the same purpose.
    pub fn unseal(&self, what: &str, sealed: &Sealed) -> Result<Vec<u8>, CodecError> {
        let key = self.keys.get(&sealed.key).ok_or(CodecError::Erased { seq: 0 })?;
        key.open(&place(&self.tenant, self.session, &["beside", what]), &sealed.bytes)
            .map_err(|source| CodecError::Key { seq: 0, source })
    }

    /// Seals an output that is too large for a row. Its name is the digest of the sealed bytes; the same output gets the
    /// same name, so that a repeated report is recognised.
    pub fn seal_blob(&self, plain: &[u8]) -> Result<(Sha256Digest, Sealed), CodecError> {
        let id = KeyId::session();
        let key = self.keys.get(&id).ok_or(CodecError::Erased { seq: 0 })?;
        let bytes = key
            .seal_same(&place(&self.tenant, self.session, &["beside", "blob"]), plain)
            .map_err(|source| CodecError::Key { seq: 0, source })?;
        Ok((Sha256Digest::of(&bytes), Sealed { key: id, bytes }))
    }

    /// Opens a blob.
    pub fn open_blob(&self, sealed: &Sealed) -> Result<Vec<u8>, CodecError> {
        self.unseal("blob", sealed)
    }
}

/// The row's marks: the core's, and whether it is the allow without which nothing is sent.
fn marks(event: &Event) -> (Option<CallId>, Marks) {
    let of_core = event.marks();
    // A call that hooks or people must let pass is allowed once the last of them has.
    let passed = match event {
        // Leave to go beyond a bound is no leave for a call.
        Event::ApprovalDecided(e) => e.decision == ApprovalVerb::Approve && e.missing == 0 && e.raises.is_empty(),
        Event::AdmissionAnswered(e) => e.verdict == AdmissionVerb::Allow && e.next_by.is_none() && e.approval.is_none(),
        Event::CallDecided(e) => e.decision == Decision::Allow && e.admission.is_none(),
        _ => false,
    };
    let marks = Marks {
        decision: of_core.decision.is_some(),
        allow: passed,
        dispatch_attempt: of_core.dispatch,
        terminal: of_core.terminal,
    };
    (of_core.call, marks)
}

/// Whether no event has this kind; asked only after an event could not be read.
fn is_unknown_kind(kind: &str) -> bool {
    // serde names the fault of an internally tagged enum: an unknown tag, or else a missing field.
    let probe: Result<Event, _> = serde_json::from_value(serde_json::json!({ "kind": kind }));
    probe.is_err_and(|error| error.to_string().starts_with("unknown variant"))
}
