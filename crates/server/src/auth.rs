//! Who calls: API keys, their check and what they allow. Tenant and actor come from here and from nowhere else. What is
//! not here: the form of a key (`auth::key`), the routes that manage keys (`routes::api_keys`).

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::{header, request::Parts};
use toolgate_core::id::ProfileName;
use toolgate_core::time::Timestamp;
use toolgate_store::{ApiKeyRow, Store, StoreError};

use crate::app::App;
use crate::caller::{Caller, Scope};
use crate::clock::SharedClock;
use crate::error::{ApiError, ErrorCode};

mod key;

pub use key::{KeyRequest, MintError, Pepper, is_key_id, mint};

/// How long a looked-up key is believed, in microseconds: a revocation reaches every node within this time.
const FRESH_US: i64 = 5_000_000;
/// Keys remembered at once; beyond, all are looked up again.
const REMEMBERED_KEYS: usize = 10_000;
/// The scope words that form the ceiling begin with this.
const PROFILE_WORD: &str = "profile:";

/// Why a credential was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// No credential came with the request.
    #[error("no credential")]
    Missing,
    /// The text is no key, or no key that is known; which of the two is not told.
    #[error("unknown credential")]
    Unknown,
    /// The key is past its end.
    #[error("the key has expired")]
    Expired,
    /// The key was revoked.
    #[error("the key was revoked")]
    Revoked,
    /// The key could not be looked up; nobody is let in meanwhile.
    #[error("the key could not be looked up")]
    Store(#[from] StoreError),
}

impl From<AuthError> for ApiError {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Missing => Self::new(ErrorCode::Unauthenticated, "send `Authorization: Bearer <key>`"),
            AuthError::Unknown => Self::new(ErrorCode::Unauthenticated, "the key is not known"),
            AuthError::Expired => Self::new(ErrorCode::CredentialExpired, "make a new key"),
            AuthError::Revoked => Self::new(ErrorCode::CredentialRevoked, "make a new key"),
            AuthError::Store(error) => error.into(),
        }
    }
}

/// Checks API keys against the store. Cheap to share.
#[derive(Debug)]
pub struct Authenticator {
    store: Arc<dyn Store>,
    clock: SharedClock,
    pepper: Pepper,
    seen: Mutex<HashMap<String, Seen>>,
}

#[derive(Debug)]
struct Seen {
    row: ApiKeyRow,
    at: Timestamp,
}

impl Authenticator {
    /// An authenticator over this store.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, clock: SharedClock, pepper: Pepper) -> Self {
        Self { store, clock, pepper, seen: Mutex::default() }
    }

    /// The secret that stored digests are made with.
    #[must_use]
    pub const fn pepper(&self) -> &Pepper {
        &self.pepper
    }

    /// Checks the key as it was printed and tells whose it is.
    pub async fn authenticate(&self, printed: &str) -> Result<Caller, AuthError> {
        let key = key::read(printed).ok_or(AuthError::Unknown)?;
        let row = self.row(key.id).await?;
        // Known or not, the same work is done.
        let matches = self.pepper.matches(&key, row.as_ref().map(|row| &row.secret_digest));
        let row = row.filter(|_| matches).ok_or(AuthError::Unknown)?;
        self.usable(&row)?;
        Ok(caller(row))
    }

    /// Whether a credential that was accepted before still is: for connections that stay open. At most 5 s stale.
    pub async fn recheck(&self, credential: &str) -> Result<(), AuthError> {
        let row = self.row(credential).await?.ok_or(AuthError::Unknown)?;
        self.usable(&row)
    }

    /// Forgets what is remembered of a key, so that this node sees its revocation at once.
    pub fn forget(&self, credential: &str) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).remove(credential);
    }

    fn usable(&self, row: &ApiKeyRow) -> Result<(), AuthError> {
        if row.revoked_at.is_some() {
            Err(AuthError::Revoked)
        } else if row.expires_at.is_some_and(|end| end <= self.clock.now()) {
            Err(AuthError::Expired)
        } else {
            Ok(())
        }
    }

    async fn row(&self, key_id: &str) -> Result<Option<ApiKeyRow>, StoreError> {
        let now = self.clock.now();
        let fresh = |seen: &Seen| (0..FRESH_US).contains(&now.as_micros().saturating_sub(seen.at.as_micros()));
        let known = {
            let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            seen.get(key_id).filter(|seen| fresh(seen)).map(|seen| seen.row.clone())
        };
        if known.is_some() {
            return Ok(known);
        }
        let row = self.store.api_key_find(key_id).await?;
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match &row {
            Some(row) => {
                if seen.len() >= REMEMBERED_KEYS {
                    seen.clear();
                }
                seen.insert(key_id.to_owned(), Seen { row: row.clone(), at: now });
            }
            // Unknown ids are not remembered: anybody can make them up.
            None => {
                seen.remove(key_id);
            }
        }
        Ok(row)
    }
}

/// Reads the stored words. A word that is not known gives nothing, and one that begins `profile:` always narrows.
fn caller(row: ApiKeyRow) -> Caller {
    let scopes = row.scopes.iter().filter_map(|word| Scope::parse(word)).collect();
    Caller { ceiling: ceiling_of(&row.scopes), tenant: row.tenant, actor: row.actor, credential: row.key_id, scopes }
}

/// The profiles that stored words allow; none means all.
pub(crate) fn ceiling_of(words: &[String]) -> Option<BTreeSet<ProfileName>> {
    let mut named = words.iter().filter_map(|word| word.strip_prefix(PROFILE_WORD)).peekable();
    named.peek()?;
    Some(named.filter_map(|name| ProfileName::new(name).ok()).collect())
}

/// An authenticated request. The caller is given out only together with the scope that the operation needs.
#[derive(Debug)]
pub struct Authenticated(Caller);

impl Authenticated {
    /// The caller, if it has the scope.
    pub fn with(self, scope: Scope) -> Result<Caller, ApiError> {
        self.with_any(&[scope])
    }

    /// The caller, if it has one of the scopes.
    pub fn with_any(self, scopes: &[Scope]) -> Result<Caller, ApiError> {
        if scopes.iter().any(|scope| self.0.scopes.contains(scope)) {
            return Ok(self.0);
        }
        let words: Vec<String> = scopes.iter().map(|scope| format!("`{}`", scope.word())).collect();
        Err(ApiError::new(ErrorCode::InsufficientScope, format!("the key needs the scope {}", words.join(" or "))))
    }
}

/// The key in an `Authorization` header.
fn bearer(parts: &Parts) -> Result<&str, AuthError> {
    let mut values = parts.headers.get_all(header::AUTHORIZATION).iter();
    let value = values.next().ok_or(AuthError::Missing)?;
    if values.next().is_some() {
        return Err(AuthError::Unknown);
    }
    let text = value.to_str().map_err(|_| AuthError::Unknown)?;
    let (scheme, key) = text.split_once(' ').ok_or(AuthError::Unknown)?;
    if scheme.eq_ignore_ascii_case("bearer") { Ok(key.trim()) } else { Err(AuthError::Unknown) }
}

impl FromRequestParts<App> for Authenticated {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let caller = app.auth().authenticate(bearer(parts)?).await?;
        tracing::Span::current().record("tenant", caller.tenant.as_str());
        Ok(Self(caller))
    }
}
