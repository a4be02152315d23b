//! What a command prints: lines on standard output, one-line errors on standard error. A closed pipe ends the printing,
//! not the program. What is not here: logs.

use std::io::{self, Write};

/// Prints a line.
pub(crate) fn line(text: &str) {
    let mut out = io::stdout().lock();
    // Whoever closed the pipe does not want to read more.
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// Prints an error.
pub(crate) fn error(text: &str) {
    let _ = writeln!(io::stderr().lock(), "toolgate: {text}");
}

/// Prints a text as it is.
pub(crate) fn text(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
