//! Keys of content: the master key wraps session and call keys, which seal content. What is not here: where the master
//! key comes from (the server's settings), and where wrapped keys are stored (the backends).

use std::fmt;

use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::Sha256;
use toolgate_core::id::{SessionId, TenantId};

use crate::name::KeyId;

const NONCE_BYTES: usize = 24;

/// A content key as it is stored: wrapped by the master key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrappedKey {
    /// Its name in the session.
    pub id: KeyId,
    /// Nonce and ciphertext.
    pub wrapped: Vec<u8>,
}

/// Why something could not be sealed or opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The operating system gave no randomness.
    #[error("no randomness from the operating system")]
    Randomness,
    /// The bytes were sealed under another key, for another place, or were changed.
    #[error("the sealed bytes do not open: wrong key, or changed")]
    DoesNotOpen,
}

/// The key that wraps all others. Never stored by this crate.
#[derive(Clone)]
pub struct MasterKey([u8; 32]);

/// A key that seals content of one session or one call.
#[derive(Clone, PartialEq, Eq)]
pub struct ContentKey([u8; 32]);

/// Secrets have no text form.
impl fmt::Debug for MasterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterKey(..)")
    }
}

impl fmt::Debug for ContentKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ContentKey(..)")
    }
}

impl MasterKey {
    /// Wraps 32 secret bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A secret for another purpose, derived so that it tells nothing about this key.
    #[must_use]
    pub fn derive(&self, purpose: &str) -> [u8; 32] {
        keyed_hash(&self.0, &[b"toolgate.derive.v1", purpose.as_bytes()])
    }

    /// What a database keeps to know this key again; tells nothing else about it.
    pub(crate) fn check_value(&self) -> [u8; 32] {
        self.derive("master key check")
    }

    /// Wraps a content key for storage.
    pub fn wrap(
        &self,
        tenant: &TenantId,
        session: SessionId,
        id: KeyId,
        key: &ContentKey,
    ) -> Result<WrappedKey, KeyError> {
        let place = place(tenant, session, &["key", id.as_str()]);
        let wrapped = seal(&self.0, &place, &key.0)?;
        Ok(WrappedKey { id, wrapped })
    }

    /// Opens a stored content key.
    pub fn unwrap(&self, tenant: &TenantId, session: SessionId, wrapped: &WrappedKey) -> Result<ContentKey, KeyError> {
        let place = place(tenant, session, &["key", wrapped.id.as_str()]);
        let bytes = open(&self.0, &place, &wrapped.wrapped)?;
        bytes.try_into().map(ContentKey).map_err(|_| KeyError::DoesNotOpen)
    }
}

impl ContentKey {
    /// Draws a fresh key.
    pub fn generate() -> Result<Self, KeyError> {
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|_| KeyError::Randomness)?;
        Ok(Self(bytes))
    }

    /// Seals bytes for one place; they open nowhere else.
    pub fn seal(&self, place: &[u8], plain: &[u8]) -> Result<Vec<u8>, KeyError> {
        seal(&self.0, place, plain)
    }

    /// Seals bytes so that the same bytes for the same place give the same result: the nonce is a keyed hash of both.
    /// Tells whoever sees two results that their contents are equal, and nothing else.
    pub fn seal_same(&self, place: &[u8], plain: &[u8]) -> Result<Vec<u8>, KeyError> {
        let hash = self.commitment(&[b"toolgate.nonce.v1", place, plain]);
        let mut nonce = [0_u8; NONCE_BYTES];
        nonce.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
        seal_with(&self.0, nonce, place, plain)
    }

    /// Opens sealed bytes.
    pub fn open(&self, place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, KeyError> {
        open(&self.0, place, sealed)
    }

    /// A keyed hash: proves equality to whoever has the key, tells nothing to others.
    #[must_use]
    pub fn commitment(&self, parts: &[&[u8]]) -> [u8; 32] {
        keyed_hash(&self.0, parts)
    }
}

/// The associated data that ties sealed bytes to their place: length-framed tenant, session and further parts.
#[must_use]
pub fn place(tenant: &TenantId, session: SessionId, parts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let session = session.to_string();
    for part in ["toolgate.seal.v1", tenant.as_str(), &session].into_iter().chain(parts.iter().copied()) {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(part.as_bytes());
    }
    bytes
}

fn seal(key: &[u8; 32], place: &[u8], plain: &[u8]) -> Result<Vec<u8>, KeyError> {
    let mut nonce = [0_u8; NONCE_BYTES];
    getrandom::fill(&mut nonce).map_err(|_| KeyError::Randomness)?;
    seal_with(key, nonce, place, plain)
}

fn seal_with(key: &[u8; 32], nonce: [u8; NONCE_BYTES], place: &[u8], plain: &[u8]) -> Result<Vec<u8>, KeyError> {
    let cipher = XChaCha20Poly1305::new(key.into());
    let sealed = cipher
        .encrypt(XNonce::from_slice(&nonce), Payload { msg: plain, aad: place })
        .map_err(|_| KeyError::DoesNotOpen)?;
    let mut bytes = nonce.to_vec();
    bytes.extend(sealed);
    Ok(bytes)
}

fn open(key: &[u8; 32], place: &[u8], sealed: &[u8]) -> Result<Vec<u8>, KeyError> {
    let (nonce, sealed) = sealed.split_at_checked(NONCE_BYTES).ok_or(KeyError::DoesNotOpen)?;
    let cipher = XChaCha20Poly1305::new(key.into());
    cipher.decrypt(XNonce::from_slice(nonce), Payload { msg: sealed, aad: place }).map_err(|_| KeyError::DoesNotOpen)
}

fn keyed_hash(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC takes keys of any length; the error type is there for other MACs.
    let Ok(mut mac) = <Hmac<Sha256> as Mac>::new_from_slice(key) else { return [0; 32] };
    for part in parts {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}
