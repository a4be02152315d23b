//! What a node keeps in its own directory: the lock, its name, the master key. What is not here: the database.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use toolgate_store::{MasterKey, NodeId};

use crate::config::StorageSettings;

/// The variable that holds the master key as 64 hex digits; needed where several nodes share a database.
pub const MASTER_KEY_VARIABLE: &str = "TOOLGATE_MASTER_KEY";

/// Why the directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A file cannot be read or written.
    #[error("`{path}` cannot be used")]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Another server runs on the same directory.
    #[error("another server uses `{0}`; two may not share a data directory")]
    Locked(PathBuf),
    /// The master key is no key.
    #[error("the master key in {place} is not 64 hex digits")]
    BadKey {
        /// Where it stands.
        place: String,
    },
    /// The stored name is no name.
    #[error("`{0}` does not hold a node name")]
    BadName(PathBuf),
    /// The operating system gave no randomness.
    #[error("no randomness from the operating system")]
    Randomness,
}

/// A node's directory, locked for this process.
#[derive(Debug)]
pub struct Local {
    /// Held until the process ends; the operating system releases it also after a kill.
    _lock: File,
    /// The node's persistent name.
    pub node: NodeId,
    /// The key that wraps all content keys.
    pub master: MasterKey,
}

impl Local {
    /// Opens the directory, making what is missing.
    pub fn open(settings: &StorageSettings) -> Result<Self, LocalError> {
        let dir = settings.data_dir.as_path();
        make_private(dir).map_err(|source| LocalError::Io { path: dir.to_owned(), source })?;
        let lock_path = dir.join("lock");
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&lock_path)
            .map_err(|source| LocalError::Io { path: lock_path.clone(), source })?;
        match fs4::fs_std::FileExt::try_lock_exclusive(&lock) {
            Ok(true) => {}
            Ok(false) => return Err(LocalError::Locked(dir.to_owned())),
            Err(source) => return Err(LocalError::Io { path: lock_path, source }),
        }
        let name_path = dir.join("node-id");
        let name = read_or_make(&name_path, || random_hex(8).map(|hex| format!("node-{hex}")))?;
        let node = NodeId::new(name.trim()).map_err(|_| LocalError::BadName(name_path))?;
        let master = master_key(settings)?;
        Ok(Self { _lock: lock, node, master })
    }
}

/// Makes the directory for its owner alone; one that exists keeps its rights.
fn make_private(dir: &Path) -> io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(dir)
}

/// The master key: from the environment, else from the file that the settings name, else from the directory, else made
/// there. A file that the settings name is never made: another node must have its very content.
pub fn master_key(settings: &StorageSettings) -> Result<MasterKey, LocalError> {
    if let Ok(text) = std::env::var(MASTER_KEY_VARIABLE) {
        return parse_key(&text, format!("the variable {MASTER_KEY_VARIABLE}"));
    }
    let named = &settings.master_key_file;
    if !named.as_os_str().is_empty() {
        let text = std::fs::read_to_string(named).map_err(|source| LocalError::Io { path: named.clone(), source })?;
        return parse_key(&text, format!("`{}`", named.display()));
    }
    let path = settings.data_dir.join("master.key");
    let text = read_or_make(&path, || random_hex(32))?;
    parse_key(&text, format!("`{}`", path.display()))
}

fn parse_key(text: &str, place: String) -> Result<MasterKey, LocalError> {
    let mut bytes = [0_u8; 32];
    hex::decode_to_slice(text.trim(), &mut bytes).map_err(|_| LocalError::BadKey { place })?;
    Ok(MasterKey::from_bytes(bytes))
}

fn random_hex(bytes: usize) -> Result<String, LocalError> {
    let mut buffer = vec![0_u8; bytes];
    getrandom::fill(&mut buffer).map_err(|_| LocalError::Randomness)?;
    Ok(hex::encode(buffer))
}

/// Reads a small file; makes it, readable for its owner alone, when it is not there. It appears under its name only when
/// it is whole, so that a full disk or a crash in the middle leaves nothing that the next start stumbles over. One that
/// is there and is cut is never replaced: it may be all that is left of a key.
fn read_or_make(path: &Path, make: impl FnOnce() -> Result<String, LocalError>) -> Result<String, LocalError> {
    let io_error = |source| LocalError::Io { path: path.to_owned(), source };
    match std::fs::read_to_string(path) {
        Ok(text) => return Ok(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_error(error)),
    }
    let text = make()?;
    let mut begun = path.as_os_str().to_owned();
    begun.push(".new");
    let begun = PathBuf::from(begun);
    let mut options = OpenOptions::new();
    options.create(true).truncate(true).write(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let mut file = options.open(&begun).map_err(io_error)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io_error)?;
    std::fs::rename(&begun, path).map_err(io_error)?;
    // The name must be as durable as what is sealed under the key.
    if let Some(dir) = path.parent() {
        File::open(dir).and_then(|dir| dir.sync_all()).map_err(io_error)?;
    }
    Ok(text)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;
    use crate::config::Settings;

    fn storage(dir: &Path) -> StorageSettings {
        let flags = [("storage.data_dir", dir.display().to_string())];
        Settings::load(None, &flags).unwrap().storage
    }

    #[test]
    fn nodes_that_name_the_same_file_have_the_same_key() {
        let (one, two) = (tempfile::TempDir::new().unwrap(), tempfile::TempDir::new().unwrap());
        let file = one.path().join("shared.key");
        let named = |dir: &Path| StorageSettings { master_key_file: file.clone(), ..storage(dir) };
        assert!(matches!(Local::open(&named(one.path())), Err(LocalError::Io { .. })));
        assert!(!file.exists(), "a key that others must have is not made");
        std::fs::write(&file, format!("{}\n", "ab".repeat(32))).unwrap();
        let (first, second) = (Local::open(&named(one.path())).unwrap(), Local::open(&named(two.path())).unwrap());
        assert_eq!(first.master.derive("test"), second.master.derive("test"));
        assert_ne!(first.node, second.node);
        assert!(!two.path().join("master.key").exists());
    }

    #[test]
    fn a_first_start_that_was_cut_off_is_begun_anew() {
        let dir = tempfile::TempDir::new().unwrap();
        // What a full disk leaves: begun, and nothing in it.
        for name in ["node-id.new", "master.key.new"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let first = Local::open(&storage(dir.path())).unwrap();
        let (name, key) = (first.node.clone(), std::fs::read(dir.path().join("master.key")).unwrap());
        assert_eq!(key.len(), 64);
        assert!(matches!(Local::open(&storage(dir.path())), Err(LocalError::Locked(_))));
        drop(first);
        assert_eq!(Local::open(&storage(dir.path())).unwrap().node, name);
        assert_eq!(std::fs::read(dir.path().join("master.key")).unwrap(), key);
        assert!(!dir.path().join("master.key.new").exists());
    }

    #[test]
    fn a_key_that_is_cut_is_refused_and_never_replaced() {
        let dir = tempfile::TempDir::new().unwrap();
        for cut in ["abcd", ""] {
            std::fs::write(dir.path().join("master.key"), cut).unwrap();
            assert!(matches!(Local::open(&storage(dir.path())), Err(LocalError::BadKey { .. })));
            assert_eq!(std::fs::read_to_string(dir.path().join("master.key")).unwrap(), cut);
        }
    }
}
