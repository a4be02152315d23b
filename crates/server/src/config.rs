//! The settings: defaults from `config/default.toml`, then a file, then the environment, then flags. Validated once.
//! What is not here: secrets (`local` and the environment).

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{Config, ConfigError, Environment, File, FileFormat};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::sessions::SessionSettings;
use crate::tools::AddressPolicy;

/// The defaults, the one place where each setting is named.
const DEFAULTS: &str = include_str!("../../../config/default.toml");

/// All settings.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The listener.
    pub server: ServerSettings,
    /// Where things are kept.
    pub storage: StorageSettings,
    /// Server tools.
    pub tools: ToolSettings,
    /// The WebSocket channel.
    pub channel: ChannelSettings,
    /// Sessions in memory.
    pub sessions: SessionBounds,
}

/// Section `server`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerSettings {
    /// Where the server listens.
    pub bind: SocketAddr,
    /// Connections held at once.
    pub max_connections: usize,
    /// Where operators read the figures; empty means nowhere.
    #[serde(deserialize_with = "address_or_none")]
    pub metrics_bind: Option<SocketAddr>,
    /// Time for running tools when the server stops, in milliseconds.
    pub drain_ms: u64,
}

/// An address, or an empty text for none.
fn address_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SocketAddr>, D::Error> {
    let text = String::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|_| D::Error::custom("an IP address and a port, or nothing"))
}

/// Section `storage`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StorageSettings {
    /// The directory of this node.
    pub data_dir: PathBuf,
    /// A PostgreSQL URL; empty means SQLite.
    pub database_url: String,
    /// A file with the master key; empty means the node's own in its directory.
    pub master_key_file: PathBuf,
    /// Connections to PostgreSQL.
    pub database_connections: u32,
    /// Writes of the log under way at once; SQLite has one.
    pub writer_lanes: usize,
    /// Start on unsafe durability settings.
    pub allow_unsafe_durability: bool,
}

impl StorageSettings {
    /// Writes of the log under way at once.
    #[must_use]
    pub fn lanes(&self) -> NonZeroUsize {
        let lanes = if self.database_url.is_empty() { 1 } else { self.writer_lanes };
        NonZeroUsize::new(lanes).unwrap_or(NonZeroUsize::MIN)
    }
}

/// Section `tools`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolSettings {
    /// Where HTTP tools may be.
    pub addresses: Addresses,
}

/// Where HTTP tools may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    /// Only public addresses.
    Public,
    /// Any address.
    Private,
}

/// Section `channel`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelSettings {
    /// Exact origins of web pages that may connect.
    pub allowed_origins: Vec<String>,
}

/// Section `sessions`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SessionBounds {
    /// Milliseconds.
    pub idle_after_ms: u64,
    /// Inputs that wait for one session.
    pub mailbox: usize,
    /// Milliseconds.
    pub append_patience_ms: u64,
    /// Milliseconds.
    pub lease_ms: u64,
    /// Whether nodes wake each other.
    pub hints: bool,
}

/// Why the settings are unusable.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// A file, variable or flag does not fit.
    #[error("settings: {0}")]
    Unreadable(#[from] ConfigError),
    /// A value is out of its range.
    #[error("settings: `{key}` must be {rule}")]
    OutOfRange {
        /// The setting.
        key: &'static str,
        /// The rule.
        rule: &'static str,
    },
}

impl Settings {
    /// Layers the settings. `overrides` are flags: key and value as in the file, for example `server.bind`.
    pub fn load(file: Option<&Path>, overrides: &[(&str, String)]) -> Result<Self, SettingsError> {
        let mut layers = Config::builder().add_source(File::from_str(DEFAULTS, FileFormat::Toml));
        if let Some(file) = file {
            layers = layers.add_source(File::from(file).format(FileFormat::Toml));
        }
        layers = layers
            .add_source(Environment::with_prefix("TOOLGATE").prefix_separator("__").separator("__").try_parsing(true));
        for (key, value) in overrides {
            layers = layers.set_override(*key, value.as_str())?;
        }
        let settings: Self = layers.build()?.try_deserialize()?;
        settings.check()?;
        Ok(settings)
    }

    fn check(&self) -> Result<(), SettingsError> {
        let rules = [
            ("server.max_connections", self.server.max_connections >= 1, "at least 1"),
            ("storage.database_connections", (1..=1_000).contains(&self.storage.database_connections), "1 to 1,000"),
            ("storage.writer_lanes", (1..=64).contains(&self.storage.writer_lanes), "1 to 64"),
            ("sessions.mailbox", (1..=10_000).contains(&self.sessions.mailbox), "1 to 10,000"),
            ("sessions.lease_ms", (1_000..=600_000).contains(&self.sessions.lease_ms), "1,000 to 600,000"),
            ("sessions.idle_after_ms", self.sessions.idle_after_ms >= 100, "at least 100"),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            Some((key, _, rule)) => Err(SettingsError::OutOfRange { key, rule }),
            None => Ok(()),
        }
    }

    /// The bounds of the session machinery.
    #[must_use]
    pub fn session_settings(&self) -> SessionSettings {
        SessionSettings {
            mailbox: self.sessions.mailbox,
            idle_after: Duration::from_millis(self.sessions.idle_after_ms),
            append_patience: Duration::from_millis(self.sessions.append_patience_ms),
            lease: Duration::from_millis(self.sessions.lease_ms),
            hints: self.sessions.hints,
            ..SessionSettings::default()
        }
    }

    /// Where HTTP tools may be.
    #[must_use]
    pub const fn address_policy(&self) -> AddressPolicy {
        match self.tools.addresses {
            Addresses::Public => AddressPolicy::Public,
            Addresses::Private => AddressPolicy::Private,
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn flags_win_over_defaults_and_unknown_keys_are_refused() {
        let settings = Settings::load(None, &[("server.bind", "127.0.0.1:0".to_owned())]).unwrap();
        assert_eq!(settings.server.bind.port(), 0);
        assert_eq!(settings.tools.addresses, Addresses::Public);
        assert_eq!(settings.server.metrics_bind, None);
        let with = |bind: &str| Settings::load(None, &[("server.metrics_bind", bind.to_owned())]);
        assert_eq!(with("127.0.0.1:9464").unwrap().server.metrics_bind.map(|bind| bind.port()), Some(9464));
        assert!(with("everywhere").is_err());
        assert!(Settings::load(None, &[("server.bnid", "x".to_owned())]).is_err());
        assert!(Settings::load(None, &[("sessions.mailbox", "0".to_owned())]).is_err());
    }
}
