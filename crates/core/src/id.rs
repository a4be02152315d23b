//! Names and ids of the domain, each a type of its own. What is not here: how an id is drawn (the server makes session
//! ids, `call_id` derives call ids from their position).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// Why a text is not a valid name or id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a valid {what}: {rule}")]
pub struct InvalidName {
    /// What the text was meant to be, for example `tool id`.
    pub what: &'static str,
    /// The offending text, cut to 80 characters.
    pub text: String,
    /// The rule it breaks.
    pub rule: &'static str,
}

impl InvalidName {
    fn new(what: &'static str, text: &str, rule: &'static str) -> Self {
        Self { what, text: text.chars().take(80).collect(), rule }
    }
}

/// Declares a text newtype whose constructor checks a rule; comparing and ordering are by bytes.
macro_rules! name_type {
    ($(#[$meta:meta])* $name:ident, $what:literal, $check:path, $rule:literal) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Checks the text against the rule of this name.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidName> {
                let text = text.into();
                if $check(&text) { Ok(Self(text)) } else { Err(InvalidName::new($what, &text, $rule)) }
            }

            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::new(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

fn is_slug(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.' | b'-'))
}

fn is_token(text: &str) -> bool {
    (1..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
}

name_type!(
    /// A tool's name: exact ASCII match, so look-alike letters, case or spaces never reach a tool.
    ToolId, "tool id", is_slug, "1 to 64 characters of a-z, 0-9, `_`, `.` and `-`"
);
name_type!(
    /// A tenant's name. Comes from the credential alone.
    TenantId, "tenant id", is_slug, "1 to 64 characters of a-z, 0-9, `_`, `.` and `-`"
);
name_type!(
    /// A profile's name within its bundle.
    ProfileName, "profile name", is_slug, "1 to 64 characters of a-z, 0-9, `_`, `.` and `-`"
);
name_type!(
    /// A model's name within its bundle.
    ModelName, "model name", is_slug, "1 to 64 characters of a-z, 0-9, `_`, `.` and `-`"
);
name_type!(
    /// An evidence tag.
    Tag, "tag", is_slug, "1 to 64 characters of a-z, 0-9, `_`, `.` and `-`"
);
name_type!(
    /// A classification label.
    Label, "label", is_slug, "1 to 64 characters of a-z, 0-9, `_`, `.` and `-`"
);
name_type!(
    /// A capability a client declares, for example `terminal`.
    Capability, "capability", is_slug, "1 to 64 characters of a-z, 0-9, `_`, `.` and `-`"
);
name_type!(
    /// Who acts: the principal of a credential.
    ActorId, "actor id", is_token, "1 to 128 visible ASCII characters"
);
name_type!(
    /// One running instance of a client; a restarted client is another instance.
    ClientInstance, "client id", is_token, "1 to 128 visible ASCII characters"
);
name_type!(
    /// The id of one input, unique in its session; a repeated one is answered, not applied again.
    InputId, "input id", is_token, "1 to 128 visible ASCII characters"
);

/// A session's key: a UUIDv7 made by the server, printed `ses_` and 32 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Uuid);

impl SessionId {
    /// Wraps a UUID that the server made.
    #[must_use]
    pub const fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The UUID inside.
    #[must_use]
    pub const fn uuid(&self) -> Uuid {
        self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ses_{}", self.0.simple())
    }
}

impl FromStr for SessionId {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let rule = "`ses_` and 32 lower-case hex digits";
        let error = || InvalidName::new("session id", text, rule);
        let hex = text.strip_prefix("ses_").ok_or_else(error)?;
        if hex.len() != 32 || hex.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(error());
        }
        Uuid::try_parse(hex).map(Self).map_err(|_| error())
    }
}

impl Serialize for SessionId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SessionId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A call's id: opaque, derived from session, run, step and index, so it needs no randomness and replays.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(String);

impl CallId {
    /// The id of the call at this position (ruling 9 of the design).
    #[must_use]
    pub fn at(session: SessionId, run: u32, step: u32, index: u32) -> Self {
        Self(derived("call_", "toolgate.call.v1", session, run, step, index))
    }

    /// Reads an id that somebody sent; only its form is checked.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        parse_derived("call_", text)
            .map(Self)
            .ok_or_else(|| InvalidName::new("call id", text, "`call_` and 32 lower-case hex digits"))
    }

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// An approval's id, derived from the position of the call that waits for it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ApprovalId(String);

impl ApprovalId {
    /// The id of the approval that the call at this position waits for.
    #[must_use]
    pub fn at(session: SessionId, run: u32, step: u32, index: u32) -> Self {
        Self(derived("apr_", "toolgate.approval.v1", session, run, step, index))
    }

    /// Reads an id that somebody sent; only its form is checked.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        parse_derived("apr_", text)
            .map(Self)
            .ok_or_else(|| InvalidName::new("approval id", text, "`apr_` and 32 lower-case hex digits"))
    }

    /// The text itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

fn derived(prefix: &str, domain: &str, session: SessionId, run: u32, step: u32, index: u32) -> String {
    let mut hash = Sha256::new();
    hash.update(domain.as_bytes());
    hash.update(session.0.as_bytes());
    for part in [run, step, index] {
        hash.update(part.to_be_bytes());
    }
    let digest = hex::encode(hash.finalize());
    format!("{prefix}{}", digest.get(..32).unwrap_or_default())
}

fn parse_derived(prefix: &str, text: &str) -> Option<String> {
    let hex = text.strip_prefix(prefix)?;
    let valid = hex.len() == 32 && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    valid.then(|| text.to_owned())
}

/// Text form and serde for the two derived ids.
macro_rules! derived_id {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
            }
        }
    };
}

derived_id!(CallId);
derived_id!(ApprovalId);

/// A SHA-256 digest, printed `sha256:` and 64 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sha256Digest([u8; 32]);

impl Sha256Digest {
    /// Hashes bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Wraps a finished digest.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Sha256Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sha256:{}", hex::encode(self.0))
    }
}

impl FromStr for Sha256Digest {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = || InvalidName::new("digest", text, "`sha256:` and 64 hex digits");
        let mut bytes = [0_u8; 32];
        let hex_text = text.strip_prefix("sha256:").ok_or_else(error)?;
        hex::decode_to_slice(hex_text, &mut bytes).map_err(|_| error())?;
        Ok(Self(bytes))
    }
}

impl Serialize for Sha256Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
