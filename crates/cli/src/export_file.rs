//! An export of a session in a file, or on standard input as `-`. What is not here: the form of exports
//! (`toolgate-server`).

use std::io::Read;
use std::path::Path;

use toolgate_core::event::Recorded;
use toolgate_server::wire::event::read_export;

use crate::failure::CommandError;

/// Reads an export. Fails where the file cannot be read or is no export, and says which line is wrong.
pub(crate) fn read(file: &Path) -> Result<Vec<Recorded>, CommandError> {
    let name = file.display();
    let unreadable = |error: std::io::Error| CommandError::new(format!("`{name}` cannot be read: {error}"));
    let text = if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map_err(unreadable)?;
        text
    } else {
        std::fs::read_to_string(file).map_err(unreadable)?
    };
    read_export(&text).map_err(|fault| CommandError::new(format!("`{name}` is no export: {fault}")))
}
