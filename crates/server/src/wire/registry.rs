//! What belongs to a tenant as callers see it: bundles, API keys, the security log. What is not here: sessions.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use toolgate_core::id::{ActorId, ProfileName};
use toolgate_store::{ApiKeyRow, BundleRow, SecurityRow};
use utoipa::ToSchema;

use super::page::Moment;
use super::time_text;
use crate::auth::ceiling_of;
use crate::caller::Scope;
use crate::error::ApiError;

/// A stored bundle.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct BundleView {
    /// Its name: the digest of its canonical form.
    pub digest: String,
    /// Who brought it in.
    pub created_by: String,
    /// When it was first brought in.
    pub created_at: String,
    /// Tools by name.
    pub tools: Vec<String>,
    /// Profiles by name.
    pub profiles: Vec<String>,
}

impl BundleView {
    /// The bundle as it is stored.
    #[must_use]
    pub fn of(row: &BundleRow, bundle: &toolgate_core::bundle::Bundle) -> Self {
        Self {
            digest: row.digest.to_string(),
            created_by: row.created_by.to_string(),
            created_at: time_text(row.created_at),
            tools: bundle.tools().map(|tool| tool.id.to_string()).collect(),
            profiles: bundle.profiles().map(|(name, _)| name.to_string()).collect(),
        }
    }
}

/// Makes an API key.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateApiKey {
    /// The principal it stands for: 1 to 128 visible ASCII characters.
    #[schema(value_type = String, min_length = 1, max_length = 128)]
    pub actor: ActorId,
    /// What it may do: `sessions:read`, `sessions:write`, `client:execute`, `approvals:write`, `audit:read`,
    /// `registry:write`, `keys:admin`.
    #[schema(min_items = 1)]
    pub scopes: Vec<String>,
    /// Profiles it may use; absent means all that the maker may use.
    #[serde(default)]
    #[schema(value_type = Option<Vec<String>>)]
    pub profiles: Option<BTreeSet<ProfileName>>,
    /// A name for people; at most 200 characters.
    #[serde(default)]
    #[schema(max_length = 200)]
    pub label: String,
    /// When it stops working; absent means never.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Moment>,
}

impl CreateApiKey {
    /// The scopes, each known and at least one.
    pub fn checked_scopes(&self) -> Result<BTreeSet<Scope>, ApiError> {
        if self.scopes.is_empty() {
            return Err(ApiError::invalid("/scopes", "needs at least one scope"));
        }
        let read = self.scopes.iter().enumerate().map(|(idx, word)| {
            Scope::parse(word).ok_or_else(|| {
                let known: Vec<&str> = Scope::ALL.into_iter().map(Scope::word).collect();
                ApiError::invalid(&format!("/scopes/{idx}"), format!("must be one of {}", known.join(", ")))
            })
        });
        read.collect()
    }
}

/// An API key without its secret.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct ApiKeyView {
    /// Its public part.
    pub id: String,
    /// The principal it stands for.
    pub actor: String,
    /// What it may do.
    pub scopes: Vec<String>,
    /// Profiles it may use; null means all.
    pub profiles: Option<Vec<String>>,
    /// A name for people.
    pub label: String,
    /// When it was made.
    pub created_at: String,
    /// When it stops working.
    pub expires_at: Option<String>,
    /// When it was revoked.
    pub revoked_at: Option<String>,
    /// The key itself: in the answer that makes it, never again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

impl From<&ApiKeyRow> for ApiKeyView {
    fn from(row: &ApiKeyRow) -> Self {
        Self {
            id: row.key_id.clone(),
            actor: row.actor.to_string(),
            scopes: row.scopes.iter().filter(|word| Scope::parse(word).is_some()).cloned().collect(),
            profiles: ceiling_of(&row.scopes).map(|names| names.iter().map(ToString::to_string).collect()),
            label: row.label.clone(),
            created_at: time_text(row.created_at),
            expires_at: row.expires_at.map(time_text),
            revoked_at: row.revoked_at.map(time_text),
            key: None,
        }
    }
}

/// An entry of the tenant's security log.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct SecurityEventView {
    /// Its id.
    pub id: String,
    /// When it happened.
    pub at: String,
    /// What happened: `cross_tenant_denied`, `unknown_session_id`, `bundle_changed`, `api_key_created`,
    /// `api_key_revoked`, ...
    pub code: String,
    /// Who did it, as far as the credential says.
    pub actor: Option<String>,
    /// The session it happened in, or that was asked for.
    pub session_id: Option<String>,
    /// Details that are safe to show.
    #[schema(value_type = Object)]
    pub detail: Value,
}

impl From<&SecurityRow> for SecurityEventView {
    fn from(row: &SecurityRow) -> Self {
        let text = String::from_utf8_lossy(&row.detail);
        Self {
            id: row.id.clone(),
            at: time_text(row.at),
            code: row.code.clone(),
            actor: row.actor.as_ref().map(ToString::to_string),
            session_id: row.session.as_ref().map(ToString::to_string),
            detail: serde_json::from_str(&text).unwrap_or_else(|_| serde_json::json!({ "text": text })),
        }
    }
}
