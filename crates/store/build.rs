//! Rebuilds the crate when a migration is added: the embedded migrator notices changed files, not new ones.

fn main() {
    for folder in ["postgres", "sqlite"] {
        println!("cargo::rerun-if-changed=../../migrations/{folder}");
    }
}
