//! The form of an API key and how its secret is stored. What is not here: looking keys up (`auth`).
//!
//! Printed: `tg_live_<id>_<secret><check>`: 20 hex digits of id, 64 of secret (256 bits), 8 of check over both. The check
//! lets scanners and this server tell a key from other text without asking the database; it protects nothing.

use std::collections::BTreeSet;
use std::fmt;

use hmac::{Hmac, Mac};
use secrecy::{ExposeSecret, SecretBox, SecretString};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use toolgate_core::id::{ActorId, ProfileName, Sha256Digest, TenantId};
use toolgate_core::time::Timestamp;
use toolgate_store::ApiKeyRow;

use super::PROFILE_WORD;
use crate::caller::Scope;

const PREFIX: &str = "tg_live_";
const ID_BYTES: usize = 10;
const SECRET_BYTES: usize = 32;
const CHECK_HEX: usize = 8;
/// The least length of a pepper in bytes.
const MIN_PEPPER: usize = 32;

/// The server's own secret: stored digests of keys, and the marks on cursors, are made with it.
#[derive(Clone)]
pub struct Pepper(std::sync::Arc<SecretBox<[u8]>>);

impl fmt::Debug for Pepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pepper")
    }
}

impl Pepper {
    /// Takes the secret; refuses fewer than 32 bytes.
    pub fn new(bytes: &[u8]) -> Result<Self, MintError> {
        if bytes.len() < MIN_PEPPER {
            return Err(MintError::ShortPepper);
        }
        Ok(Self(std::sync::Arc::new(SecretBox::new(bytes.into()))))
    }

    /// HMAC-SHA256 over parts, each framed by its length, for one purpose.
    pub(crate) fn mark(&self, purpose: &str, parts: &[&[u8]]) -> [u8; 32] {
        // HMAC takes keys of any length; the fallback cannot be reached and would only refuse every key.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.0.expose_secret()) else { return [0; 32] };
        for part in std::iter::once(purpose.as_bytes()).chain(parts.iter().copied()) {
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part);
        }
        mac.finalize().into_bytes().into()
    }

    /// What is stored of a key's secret.
    fn digest(&self, id: &str, secret: &str) -> Sha256Digest {
        Sha256Digest::from_bytes(self.mark("toolgate.api-key.v1", &[id.as_bytes(), secret.as_bytes()]))
    }

    /// Whether the secret is the stored one, in a time that does not depend on where they differ.
    pub(super) fn matches(&self, key: &ReadKey<'_>, stored: Option<&Sha256Digest>) -> bool {
        let given = self.digest(key.id, key.secret);
        let stored_bytes = stored.map_or(&[0; 32], Sha256Digest::as_bytes);
        bool::from(given.as_bytes().ct_eq(stored_bytes)) && stored.is_some()
    }
}

/// A key whose form is right.
#[derive(Debug)]
pub(super) struct ReadKey<'a> {
    pub(super) id: &'a str,
    secret: &'a str,
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// Whether a text has the form of a key's public part.
#[must_use]
pub fn is_key_id(text: &str) -> bool {
    text.len() == ID_BYTES * 2 && is_hex(text)
}

/// Takes a printed key apart; none if its form or check is wrong.
pub(super) fn read(printed: &str) -> Option<ReadKey<'_>> {
    let (id, rest) = printed.strip_prefix(PREFIX)?.split_once('_')?;
    let (secret, check) = rest.split_at_checked(SECRET_BYTES * 2)?;
    let formed = is_key_id(id) && is_hex(secret);
    (formed && check == check_of(id, secret)).then_some(ReadKey { id, secret })
}

fn check_of(id: &str, secret: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(id.as_bytes());
    hash.update(secret.as_bytes());
    let mut text = hex::encode(hash.finalize());
    text.truncate(CHECK_HEX);
    text
}

/// A key to be made.
#[derive(Debug, Clone)]
pub struct KeyRequest {
    /// The tenant it acts for.
    pub tenant: TenantId,
    /// The principal it stands for.
    pub actor: ActorId,
    /// What it may do.
    pub scopes: BTreeSet<Scope>,
    /// Profiles it may use; absent means all.
    pub ceiling: Option<BTreeSet<ProfileName>>,
    /// A name for people; at most 1,024 bytes.
    pub label: String,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
}

/// Why a key could not be made.
#[derive(Debug, thiserror::Error)]
pub enum MintError {
    /// The machine gave no random bytes.
    #[error("no random bytes")]
    Random(#[source] getrandom::Error),
    /// An empty ceiling would be stored as no ceiling at all.
    #[error("a ceiling names at least one profile")]
    EmptyCeiling,
    /// The pepper is too short to protect anything.
    #[error("the pepper needs at least {MIN_PEPPER} bytes")]
    ShortPepper,
}

/// Makes a key: the row to store, and the text that is shown once and never again.
pub fn mint(pepper: &Pepper, request: KeyRequest, now: Timestamp) -> Result<(ApiKeyRow, SecretString), MintError> {
    if request.ceiling.as_ref().is_some_and(BTreeSet::is_empty) {
        return Err(MintError::EmptyCeiling);
    }
    let id = random_hex::<ID_BYTES>()?;
    let secret = random_hex::<SECRET_BYTES>()?;
    let printed = SecretString::from(format!("{PREFIX}{id}_{secret}{}", check_of(&id, &secret)));
    let ceiling = request.ceiling.into_iter().flatten().map(|name| format!("{PROFILE_WORD}{name}"));
    let row = ApiKeyRow {
        tenant: request.tenant,
        secret_digest: pepper.digest(&id, &secret),
        key_id: id,
        actor: request.actor,
        scopes: request.scopes.into_iter().map(|scope| scope.word().to_owned()).chain(ceiling).collect(),
        label: request.label,
        created_at: now,
        expires_at: request.expires_at,
        revoked_at: None,
    };
    Ok((row, printed))
}

fn random_hex<const N: usize>() -> Result<String, MintError> {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).map_err(MintError::Random)?;
    Ok(hex::encode(bytes))
}
