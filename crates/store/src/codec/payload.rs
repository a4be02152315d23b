//! The payload's framing: a version byte, then parts of key name and sealed bytes. What is not here: sealing.

use crate::name::KeyId;

const VERSION: u8 = 1;

/// A sealed piece and the key that opens it.
pub(super) struct Part {
    pub(super) key: KeyId,
    pub(super) bytes: Vec<u8>,
}

/// Writes parts; none at all is the empty payload.
pub(super) fn write(parts: &[Part]) -> Vec<u8> {
    if parts.is_empty() {
        return Vec::new();
    }
    let mut bytes = vec![VERSION];
    for part in parts {
        for piece in [part.key.as_str().as_bytes(), &part.bytes] {
            bytes.extend((piece.len() as u64).to_be_bytes());
            bytes.extend(piece);
        }
    }
    bytes
}

/// Reads what `write` wrote; none when it is something else.
pub(super) fn read(payload: &[u8]) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    if payload.is_empty() {
        return Some(parts);
    }
    let (version, mut rest) = payload.split_first()?;
    if *version != VERSION {
        return None;
    }
    while !rest.is_empty() {
        let (key, after) = piece(rest)?;
        let (bytes, after) = piece(after)?;
        let key = KeyId::parse(std::str::from_utf8(key).ok()?).ok()?;
        parts.push(Part { key, bytes: bytes.to_vec() });
        rest = after;
    }
    Some(parts)
}

fn piece(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_at_checked(8)?;
    let length = usize::try_from(u64::from_be_bytes(length.try_into().ok()?)).ok()?;
    rest.split_at_checked(length)
}
