//! `toolgate apply` against a server: the first version, the same again, another one. What is not here: the rules of
//! bundles.

use std::path::PathBuf;

use tempfile::TempDir;
use toolgate_tests::{Backend, TestServer};

use crate::lint::config;
use crate::program::run;

async fn apply(server: &TestServer, file: PathBuf, more: &'static [&'static str]) -> (bool, String) {
    let (url, key) = (server.url(), server.key().to_owned());
    let output = tokio::task::spawn_blocking(move || {
        let file = file.display().to_string();
        run(&[&["apply", &file, "--url", &url, "--key", &key], more].concat())
    });
    let output = output.await.unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.success(), text)
}

#[tokio::test]
async fn the_bundle_that_is_current_may_be_applied_again() {
    let server = TestServer::start(Backend::Sqlite).await;
    let (good, text) = apply(&server, config("relayops.yaml"), &[]).await;
    assert!(good && text.contains(" is current: sha256:"), "{text}");
    let (good, text) = apply(&server, config("relayops.yaml"), &[]).await;
    assert!(good && text.contains(" is already current: sha256:"), "{text}");

    let dir = TempDir::new().unwrap();
    let other = dir.path().join("other.yaml");
    let text = std::fs::read_to_string(config("relayops.yaml")).unwrap();
    std::fs::write(&other, text.replacen("max_steps: 6", "max_steps: 7", 1)).unwrap();
    let (good, text) = apply(&server, other.clone(), &[]).await;
    assert!(!good && text.contains("precondition_required") && text.contains("--replaces sha256:"), "{text}");
    let (good, text) = apply(&server, other.clone(), &["--replaces", "*"]).await;
    assert!(good && text.contains(" is current: sha256:"), "{text}");
    let (good, text) = apply(&server, config("relayops.yaml"), &[]).await;
    assert!(!good && text.contains("--replaces"), "an older version is not current: {text}");
    server.stop().await;
}
