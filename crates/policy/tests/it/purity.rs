//! What the engine may depend on: nothing with a clock, I/O, randomness or tasks, and nothing of Toolgate, so that the
//! core can depend on it.

#[test]
fn the_engine_stays_pure() {
    let manifest = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
    let section = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    let names: Vec<&str> =
        section.lines().filter_map(|line| line.split(['.', ' ', '=']).next()).filter(|n| !n.is_empty()).collect();
    let allowed =
        ["cedar-policy", "hex", "regex", "serde", "serde_json", "sha2", "thiserror", "unicode-normalization", "url"];
    assert_eq!(names, allowed);
}
