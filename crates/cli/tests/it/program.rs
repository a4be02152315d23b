//! Starts the program. What is not here: what is expected of it.

use std::path::Path;
use std::process::{Command, Output};

/// The program that was built for these tests.
pub(crate) const TOOLGATE: &str = env!("CARGO_BIN_EXE_toolgate");

/// Runs a command to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    Command::new(TOOLGATE).args(arguments).output().expect("the program runs")
}

/// `toolgate verify` over a database: whether it was content, and what it printed.
pub(crate) fn verify(data_dir: &Path, database_url: &str, session: &str) -> (bool, String) {
    let data_dir = data_dir.display().to_string();
    let mut arguments = vec!["verify", "--data-dir", &data_dir, "--session", session];
    if !database_url.is_empty() {
        arguments.extend(["--database-url", database_url]);
    }
    let output = Command::new(TOOLGATE)
        .args(&arguments)
        // The throw-away cluster runs without fsync, which the program would refuse.
        .env("TOOLGATE__STORAGE__ALLOW_UNSAFE_DURABILITY", "true")
        .output()
        .expect("the program runs");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}
