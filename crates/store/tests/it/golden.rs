//! The log that release 0.1 wrote, kept in the repository. It is never written anew: stored forms stay readable.

use serde::{Deserialize, Serialize};
use toolgate_core::event::Event;
use toolgate_core::id::SessionId;
use toolgate_core::time::Timestamp;
use toolgate_store::chain::Position;
use toolgate_store::{Codec, Header, KeyId, MasterKey, Row, WrappedKey};
use uuid::Uuid;

use crate::sample::tenant;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/v1.json");

/// Rows and keys in a text form.
#[derive(Serialize, Deserialize)]
struct File {
    master: String,
    session: String,
    wrapped_session_key: String,
    rows: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    seq: u64,
    epoch: u64,
    recorded_at: i64,
    header: String,
    payload: String,
    prev_hash: String,
    hash: String,
}

pub(crate) struct Golden {
    pub(crate) codec: Codec,
    pub(crate) rows: Vec<Row>,
}

fn hash(text: &str) -> [u8; 32] {
    hex::decode(text).unwrap().try_into().unwrap()
}

pub(crate) fn read() -> Golden {
    parse(&std::fs::read_to_string(FILE).unwrap())
}

pub(crate) fn parse(text: &str) -> Golden {
    let file: File = serde_json::from_str(text).unwrap();
    let key = WrappedKey { id: KeyId::session(), wrapped: hex::decode(&file.wrapped_session_key).unwrap() };
    let session: SessionId = file.session.parse().unwrap();
    let codec = Codec::open(tenant("acme"), session, MasterKey::from_bytes(hash(&file.master)), &[key]).unwrap();
    let rows = file.rows.iter().map(|line| {
        let header = Header::read(line.header.as_bytes()).unwrap();
        Row {
            seq: line.seq,
            epoch: line.epoch,
            kind: header.kind,
            run: header.run,
            step: header.step,
            call: header.call,
            marks: header.marks,
            input_id: header.input_id,
            recorded_at: Timestamp(line.recorded_at),
            header: line.header.clone().into_bytes(),
            payload: hex::decode(&line.payload).unwrap(),
            prev_hash: hash(&line.prev_hash),
            hash: hash(&line.hash),
        }
    });
    Golden { codec, rows: rows.collect() }
}

/// A log as this release writes it, in the text form of the golden file.
pub(crate) fn write(events: &[(u64, Event)]) -> String {
    let session = SessionId::from_uuid(Uuid::from_u128(0x0192_0000_0000_7000_8000_0000_0000_0001));
    let master = [0x5a; 32];
    let (mut codec, key) = Codec::create(tenant("acme"), session, MasterKey::from_bytes(master)).unwrap();
    let mut next = Position::FIRST;
    let mut rows = Vec::new();
    for (epoch, event) in events {
        next.epoch = *epoch;
        let encoded = codec.encode(std::slice::from_ref(event), None, Timestamp(1_764_000_000_000_000), next).unwrap();
        next = encoded.next;
        rows.extend(encoded.rows.iter().map(|row| Line {
            seq: row.seq,
            epoch: row.epoch,
            recorded_at: row.recorded_at.0,
            header: String::from_utf8(row.header.clone()).unwrap(),
            payload: hex::encode(&row.payload),
            prev_hash: hex::encode(row.prev_hash),
            hash: hex::encode(row.hash),
        }));
    }
    let file = File {
        master: hex::encode(master),
        session: session.to_string(),
        wrapped_session_key: hex::encode(key.wrapped),
        rows,
    };
    serde_json::to_string_pretty(&file).unwrap()
}
