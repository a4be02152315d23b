//! The shape of the repository, as far as a program can check it: what the core may depend on, how files are laid out
//! and opened. Prints the ten largest files, so that growth is seen.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Every Rust file of the crates and tests, as path from the root and text.
fn rust_files() -> Vec<(String, String)> {
    let mut found = Vec::new();
    for folder in ["crates", "tests"] {
        walk(&root().join(folder), &mut found);
    }
    assert!(found.len() > 60, "the files are found");
    found
}

fn walk(folder: &Path, found: &mut Vec<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            walk(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let shown = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
            found.push((shown, std::fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The names in the dependency tables of a manifest.
fn dependencies(manifest: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut inside = false;
    for line in manifest.lines() {
        if let Some(table) = line.strip_prefix('[') {
            inside = table.contains("dependencies]");
        } else if let Some((name, _)) = line.split_once(['.', '=', ' ']).filter(|_| inside) {
            found.push(name.trim().to_owned());
        }
    }
    found
}

#[test]
fn the_core_stays_pure() {
    let banned = [
        "tokio",
        "async",
        "futures",
        "sqlx",
        "reqwest",
        "hyper",
        "axum",
        "rand",
        "getrandom",
        "time",
        "chrono",
        "jiff",
        "tracing",
        "log",
        "toolgate",
    ];
    // The policy engine decides with the core and is as pure; it knows nothing of the core.
    for (package, allowed) in [("core", Some("toolgate-policy")), ("policy", None)] {
        let path = root().join("crates").join(package).join("Cargo.toml");
        let found = dependencies(&std::fs::read_to_string(path).unwrap());
        assert!(found.contains(&"serde".to_owned()), "the manifest is read: {found:?}");
        for name in found.iter().filter(|name| Some(name.as_str()) != allowed) {
            let bad = banned.iter().find(|ban| name == *ban || name.starts_with(&format!("{ban}-")));
            assert_eq!(bad, None, "{package} may not depend on `{name}`");
        }
    }
}

#[test]
fn dependencies_point_inwards() {
    for (package, allowed) in
        [("store", &["toolgate-core"][..]), ("proposers", &["toolgate-core"]), ("client", &["toolgate-core"])]
    {
        let path = root().join("crates").join(package).join("Cargo.toml");
        let manifest = std::fs::read_to_string(path).unwrap();
        let normal = manifest.split("[dev-dependencies]").next().unwrap();
        for name in dependencies(normal).iter().filter(|name| name.starts_with("toolgate")) {
            assert!(allowed.contains(&name.as_str()), "{package} may not depend on `{name}`");
        }
    }
}

#[test]
fn files_are_laid_out_alike() {
    let drawers = ["utils", "util", "common", "helpers", "helper", "types", "misc"];
    for (path, text) in rust_files() {
        let name = path.rsplit('/').next().unwrap().trim_end_matches(".rs");
        assert_ne!(name, "mod", "{path}: write `foo.rs` and `foo/`");
        assert!(!drawers.contains(&name), "{path}: name the thing");
        for drawer in drawers {
            assert!(!text.contains(&format!("mod {drawer} {{")), "{path}: name the thing");
        }
        assert!(text.starts_with("//!"), "{path}: opens with what lives here and what does not");
    }
}

#[test]
fn nothing_waits_in_an_unbounded_queue() {
    let names = ["unbounded_channel", "channel::unbounded", "mpsc::channel()"].map(|name| format!("{name}("));
    for (path, text) in rust_files().into_iter().filter(|(path, _)| !path.ends_with("architecture.rs")) {
        for name in &names {
            assert!(!text.contains(name.as_str()), "{path}: `{name}` grows without bound");
        }
    }
}

#[test]
fn sizes_are_seen() {
    let mut sizes: Vec<(usize, String)> =
        rust_files().into_iter().map(|(path, text)| (text.lines().count(), path)).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    println!("largest files:");
    for (lines, path) in sizes.iter().take(10) {
        println!("{lines:6} {path}");
    }
    let generated = |path: &str| path.contains("/generated/");
    for (lines, path) in sizes.iter().filter(|(_, path)| !generated(path)) {
        assert!(*lines <= 800, "{path} has {lines} lines: split it");
    }
}
