//! Who calls: tenant, actor and scopes, from the credential alone. What is not here: how a key is checked (`auth`).

use std::collections::BTreeSet;

use toolgate_core::id::{ActorId, ProfileName, TenantId};

/// An authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The tenant of the credential.
    pub tenant: TenantId,
    /// The principal of the credential.
    pub actor: ActorId,
    /// The public part of the key.
    pub credential: String,
    /// What it may do.
    pub scopes: BTreeSet<Scope>,
    /// Profiles it may use; absent means all.
    pub ceiling: Option<BTreeSet<ProfileName>>,
}

/// What a credential may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// Read sessions and their events.
    SessionsRead,
    /// Start, continue, cancel and close sessions.
    SessionsWrite,
    /// Execute approved calls as a client.
    ClientExecute,
    /// Decide approvals.
    ApprovalsWrite,
    /// Read logs, security log included, and verify them.
    AuditRead,
    /// Put bundles.
    RegistryWrite,
    /// Make and revoke keys.
    KeysAdmin,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 7] = [
        Self::SessionsRead,
        Self::SessionsWrite,
        Self::ClientExecute,
        Self::ApprovalsWrite,
        Self::AuditRead,
        Self::RegistryWrite,
        Self::KeysAdmin,
    ];

    /// The word stored with a key and shown to people.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::SessionsRead => "sessions:read",
            Self::SessionsWrite => "sessions:write",
            Self::ClientExecute => "client:execute",
            Self::ApprovalsWrite => "approvals:write",
            Self::AuditRead => "audit:read",
            Self::RegistryWrite => "registry:write",
            Self::KeysAdmin => "keys:admin",
        }
    }

    /// Reads the word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.word() == word)
    }
}
