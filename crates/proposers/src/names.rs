//! Tool names on the wire: providers allow `[a-zA-Z0-9_-]{1,64}`, tool ids also have dots. One to one in both
//! directions. What is not here: whether a tool may be used (the core's).

use std::collections::BTreeMap;

use toolgate_core::ask::ToolView;
use toolgate_core::id::Sha256Digest;

use crate::quote::clip;

/// Longest name a provider takes.
const MAX: usize = 64;
/// The namespace some models put in front of every name.
const PREFIX: &str = "functions.";

/// The two directions of the map, for the tools of one request.
#[derive(Debug)]
pub(crate) struct WireNames {
    to_wire: BTreeMap<String, String>,
    from_wire: BTreeMap<String, String>,
}

impl WireNames {
    pub(crate) fn new(tools: &[ToolView]) -> Self {
        let mut names = Self { to_wire: BTreeMap::new(), from_wire: BTreeMap::new() };
        // Ids that need no change keep their name, whatever the order of the tools.
        let (plain, changed): (Vec<&str>, Vec<&str>) =
            tools.iter().map(|tool| tool.id.as_str()).partition(|id| replaced(id) == *id);
        for id in plain {
            names.insert(id, id.to_owned());
        }
        let mut bases: BTreeMap<String, u32> = BTreeMap::new();
        for id in &changed {
            *bases.entry(replaced(id)).or_default() += 1;
        }
        for id in changed {
            let base = replaced(id);
            let collides = names.from_wire.contains_key(&base) || bases.get(&base).is_some_and(|n| *n > 1);
            names.insert(id, if collides { with_hash(&base, id) } else { base });
        }
        names
    }

    fn insert(&mut self, id: &str, wire: String) {
        self.from_wire.insert(wire.clone(), id.to_owned());
        self.to_wire.insert(id.to_owned(), wire);
    }

    /// The wire name of a tool. A name that is no tool's (a model invented it) gets one that no tool has.
    pub(crate) fn to_wire(&self, tool: &str) -> String {
        if let Some(wire) = self.to_wire.get(tool) {
            return wire.clone();
        }
        let base = replaced(tool);
        if base == tool && !self.from_wire.contains_key(&base) { base } else { with_hash(&base, tool) }
    }

    /// The tool's id for a name that a model wrote; a name that was not offered is kept as it is.
    pub(crate) fn resolve(&self, name: &str, lenient: bool, notes: &mut Vec<String>) -> String {
        if let Some(id) = self.from_wire.get(name) {
            return id.clone();
        }
        if self.to_wire.contains_key(name) {
            notes.push("name_as_id".to_owned());
            return name.to_owned();
        }
        let bare = name.strip_prefix(PREFIX).filter(|_| lenient);
        if let Some(id) = bare.and_then(|bare| self.from_wire.get(bare)) {
            notes.push(format!("functions_prefix:{}", clip(name, 80)));
            return id.clone();
        }
        name.to_owned()
    }

    /// Whether a name was offered, in either spelling.
    pub(crate) fn is_offered(&self, name: &str) -> bool {
        self.from_wire.contains_key(name) || self.to_wire.contains_key(name)
    }
}

fn replaced(id: &str) -> String {
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let name: String = id.chars().take(MAX).map(|c| if allowed(c) { c } else { '_' }).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}

fn with_hash(base: &str, id: &str) -> String {
    let digest = Sha256Digest::of(id.as_bytes()).to_string();
    let hash: String = digest.chars().skip("sha256:".len()).take(12).collect();
    let kept: String = base.chars().take(MAX - 13).collect();
    format!("{kept}_{hash}")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use toolgate_core::id::ToolId;
    use toolgate_core::json::Json;

    use super::*;

    fn names(ids: &[&str]) -> WireNames {
        let view = |id: &&str| ToolView {
            id: ToolId::new(*id).unwrap(),
            description: String::new(),
            parameters: Json::empty_object(),
        };
        WireNames::new(&ids.iter().map(view).collect::<Vec<_>>())
    }

    #[test]
    fn the_map_is_one_to_one_whatever_the_order() {
        let long_a = format!("{}.a", "x".repeat(62));
        let ids = ["a.b", "a_b", "a.c", "c.d.e", "c.d_e", "plain-1", long_a.as_str()];
        let forward = names(&ids);
        let mut reversed = ids;
        reversed.reverse();
        let backward = names(&reversed);
        for id in ids {
            let wire = forward.to_wire(id);
            assert!(wire.len() <= 64 && wire.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c)), "{wire}");
            assert_eq!(forward.resolve(&wire, false, &mut Vec::new()), id);
            assert_eq!(wire, backward.to_wire(id));
        }
        assert_eq!(forward.to_wire("a_b"), "a_b");
        assert_eq!(forward.to_wire("a.c"), "a_c");
    }

    #[test]
    fn invented_names_stay_what_they_are_and_hit_no_tool_on_the_way_back() {
        let names = names(&["a.b", "get_time"]);
        let mut notes = Vec::new();
        for name in ["A.B", "get_time ", "functions.get_time", "g\u{435}t_time", ""] {
            assert_eq!(names.resolve(name, false, &mut notes), name);
            assert!(!names.from_wire.contains_key(&names.to_wire(name)), "{name}");
        }
        assert!(notes.is_empty());
        assert_eq!(names.resolve("functions.get_time", true, &mut notes), "get_time");
        assert_eq!(names.resolve("functions.rm", true, &mut notes), "functions.rm");
        assert_eq!(names.resolve("a.b", false, &mut notes), "a.b");
        assert_eq!(notes, ["functions_prefix:functions.get_time", "name_as_id"]);
    }
}
