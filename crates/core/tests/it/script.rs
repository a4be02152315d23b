//! Runs the sessions in `tests/scripts/*.txt`: inputs above the `----` line, what follows below it. `UPDATE_GOLDEN=1`
//! writes what follows anew. The language stands in `tests/scripts/README.md`; the words of an input in `words`.
//!
//! After every session the runner also checks that its log verifies, folds to the same state, gives the same
//! outstanding work, and still verifies once the seals of its ended calls are destroyed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde_json::Value;
use toolgate_core::bundle::Bundle;
use toolgate_core::event::Event;
use toolgate_core::id::InputId;
use toolgate_core::{Effect, Reply, next_wake, outstanding, transcript};

use crate::render::{self, Names};
use crate::words::{self, Words};
use crate::world::World;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts")
}

/// The bundle of the scripts, with a JSON merge patch (RFC 7396) over it.
fn bundle(patch: &Value) -> Bundle {
    let mut base: Value = serde_json::from_str(include_str!("../scripts/bundle.json")).unwrap();
    merge(&mut base, patch);
    Bundle::load(&base.to_string()).unwrap_or_else(|faults| panic!("{faults:#?}"))
}

pub(crate) fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

#[test]
fn scripts_do_what_they_say() {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "txt"))
        .collect();
    paths.sort();
    assert!(paths.len() > 20, "the scripts are found");
    let rewrite = std::env::var_os("UPDATE_GOLDEN").is_some();
    let mut wrong = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let ran = std::panic::catch_unwind(|| run(&text));
        match ran {
            Err(_) => wrong.push(format!("{name}: panicked, see above")),
            Ok(found) if found == text => {}
            Ok(found) if rewrite => std::fs::write(&path, found).unwrap(),
            Ok(found) => wrong.push(format!("{name}: {}", first_difference(&text, &found))),
        }
    }
    assert!(wrong.is_empty(), "{}\n(UPDATE_GOLDEN=1 writes the scripts anew)", wrong.join("\n"));
}

/// Each rejection has its script.
#[test]
fn every_reason_has_a_script() {
    for reason in toolgate_core::reason::RejectReason::ALL {
        let path = folder().join(format!("{}.txt", reason.code()));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|_| panic!("{} is missing", path.display()));
        assert!(text.contains(&format!("run_ended run=1 {} ", reason.code())), "{}: no end", reason.code());
        assert!(text.contains("> ask_model step=2"), "{}: no feedback", reason.code());
    }
}

/// Each ending is reached by a script.
#[test]
fn every_ending_is_reached() {
    let all: String = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    for ending in toolgate_core::reason::Ending::ALL {
        let reached = (1..3).any(|run| all.contains(&format!("run_ended run={run} {} ", ending.code())));
        assert!(reached, "no script ends with {}", ending.code());
    }
}

fn first_difference(expected: &str, found: &str) -> String {
    let mut lines = expected.lines().zip(found.lines()).enumerate();
    match lines.find(|(_, (a, b))| a != b) {
        Some((number, (a, b))) => format!("line {}:\n  expected {a}\n  found    {b}", number + 1),
        None => "one is longer than the other".to_owned(),
    }
}

/// Runs a script and gives its text with what followed.
fn run(script: &str) -> String {
    let mut out = String::new();
    let mut stage = Stage::new(&Value::Null);
    for block in script.split("\n\n") {
        let block = block.trim_matches('\n');
        if block.is_empty() {
            continue;
        }
        if !out.is_empty() {
            out.push('\n');
        }
        let (input, _) = block.split_once("\n----").unwrap_or((block, ""));
        out.push_str(input);
        out.push('\n');
        let commands: String = input.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
        if commands.trim().is_empty() {
            continue;
        }
        if let Some(patch) = commands.strip_prefix("session") {
            stage.finish();
            let patch = patch.trim();
            let patch = if patch.is_empty() { Value::Null } else { serde_json::from_str(patch).unwrap() };
            stage = Stage::new(&patch);
            continue;
        }
        out.push_str("----\n");
        for command in commands.lines() {
            for line in stage.play(command) {
                writeln!(out, "{line}").unwrap();
            }
        }
    }
    stage.finish();
    out
}

/// The session after some lines, for tests that go on from there.
pub(crate) fn played(patch: &Value, lines: &str) -> World {
    let mut stage = Stage::new(patch);
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        for said in stage.play(line) {
            assert!(!said.starts_with("refused"), "{line}: {said}");
        }
    }
    stage.finish();
    stage.world
}

/// A session on which a script plays.
struct Stage {
    world: World,
    names: Names,
    under_way: Vec<Effect>,
}

impl Stage {
    fn new(patch: &Value) -> Self {
        let patch = if patch.is_null() { serde_json::json!({}) } else { patch.clone() };
        Self { world: World::new(bundle(&patch), 7), names: Names::default(), under_way: Vec::new() }
    }

    fn finish(&self) {
        if !self.world.log.is_empty() {
            self.world.check();
            self.world.check_redacted();
            self.world.check_explained();
        }
    }

    /// Plays one line and says what followed.
    fn play(&mut self, command: &str) -> Vec<String> {
        let mut words = Words::new(command);
        if let Some(span) = words.take_prefixed("+") {
            self.world.now = self.world.now.plus_ms(words::milliseconds(&span));
        }
        let before = self.world.log.len();
        let mut lines = Vec::new();
        match words.peek() {
            "ask" => {
                let ballot = words.option("ballot").map_or(1, |text| text.parse().unwrap());
                return self.ask(ballot);
            }
            "leaks" => return vec![self.leaks(&words.rest_after(1))],
            "wake" => return vec![self.wake()],
            "status" => return vec![self.world.session.status().code().to_owned()],
            "destroyed" => {
                return vec![format!("redacted at {:?}", self.world.check_redacted().redacted)];
            }
            "take_over" => self.world.take_over(),
            _ => {
                let id = words.option("id").map(|id| InputId::new(id).unwrap());
                let times: usize = words.option("times").map_or(1, |times| times.parse().unwrap());
                let input = words::input(&self.world, &self.names, &mut words);
                for _ in 0..times {
                    let decided = self.world.send(id.clone(), input.clone());
                    lines.extend(render::reply(&decided.reply));
                    assert!(
                        !matches!(decided.reply, Reply::Unchanged | Reply::Already { .. }) || decided.events.is_empty()
                    );
                }
                lines.dedup();
            }
        }
        let new = self.world.log[before..].to_vec();
        self.names.learn(&new);
        lines.extend(new.iter().map(|recorded| render::event(&self.names, recorded)));
        let now = outstanding(&self.world.session, &self.world.bundle);
        lines.extend(render::effects(&self.names, &self.under_way, &now));
        self.under_way = now;
        lines
    }

    /// What the model is asked now.
    fn ask(&self, ballot: u32) -> Vec<String> {
        let ask = transcript::ask(&self.world.session, &self.world.bundle, ballot);
        let mut lines: Vec<String> = ask.instructions.iter().map(|text| format!("instruction {text:?}")).collect();
        lines.extend(ask.transcript.iter().map(|entry| render::entry(&self.names, entry)));
        lines.extend(ask.output_schema.map(|schema| format!("output_schema {schema}")));
        lines
    }

    fn wake(&self) -> String {
        next_wake(&self.world.session).map_or_else(
            || "no wake".to_owned(),
            |wake| format!("wake in {}ms", (wake.0 - self.world.now.0).div_euclid(1_000)),
        )
    }

    /// Where a text stands in the log, in the state, or in what models are shown, seals and open arguments left out.
    fn leaks(&self, secret: &str) -> String {
        let mut places = Vec::new();
        for recorded in &self.world.log {
            let mut value = serde_json::to_value(&recorded.event).unwrap();
            value.as_object_mut().unwrap().remove("sealed");
            if value.to_string().contains(secret) {
                places.push(format!("{} {}", recorded.seq, recorded.event.kind()));
            }
        }
        let shown = serde_json::to_string(&transcript::ask(&self.world.session, &self.world.bundle, 1)).unwrap();
        if shown.contains(secret) {
            places.push("ask".to_owned());
        }
        let open = self.world.session.calls().iter().any(|call| call.args.is_some());
        if !open && serde_json::to_string(&self.world.session).unwrap().contains(secret) {
            places.push("state".to_owned());
        }
        let sealed = self.world.log.iter().any(|recorded| match &recorded.event {
            Event::BallotReceived(e) => format!("{:?}", e.sealed).contains(secret),
            _ => false,
        });
        let kept = if sealed { "sealed" } else { "nowhere sealed" };
        if places.is_empty() { format!("no leak, {kept}") } else { format!("LEAK in {}", places.join(", ")) }
    }
}
