//! Conditions on commands: programs by name with rules for their arguments. What allows matches narrowly, what denies
//! matches broadly. What is not here: splitting a text into words (`derive::command`).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Miss;
use crate::derive::{Command, Refused};
use crate::fault::{Faults, escape};

/// What a command must be. At least one of the two lists is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArgvForm {
    /// Its first word is one of these, letter for letter, and its further words fit the rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executables: Option<BTreeMap<String, ExecutableForm>>,
    /// Its program is none of these, whatever its folder, case and ending. Weak alone: `env`, `sh` and their like run
    /// other programs.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub not_executables: BTreeSet<String>,
}

/// What the words after the program must be. An empty form allows any.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExecutableForm {
    /// They are exactly one of these lists; `[[]]` allows the bare program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exact: Option<Vec<Vec<String>>>,
    /// The first of them is one of these (a subcommand).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<BTreeSet<String>>,
    /// Every flag is one of these: `-s` (also bundled, `-sb`), `--long` (also `--long=value`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flags_allowed: Option<BTreeSet<String>>,
    /// No flag is one of these, nor a bundle with one, an attached value or a shortened form of one, also after `--`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub flags_denied: BTreeSet<String>,
    /// At most so many words after the program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_args: Option<u32>,
}

pub(super) fn compile(form: &ArgvForm, at: &str, faults: &mut Faults) {
    if form.executables.is_none() && form.not_executables.is_empty() {
        faults.add(at, "argv", "name `executables` that are allowed, or `not_executables`");
    }
    if form.executables.as_ref().is_some_and(BTreeMap::is_empty) {
        faults.add(format!("{at}/executables"), "argv", "an empty list would refuse every command");
    }
    for (name, rule) in form.executables.iter().flatten() {
        let here = format!("{at}/executables/{}", escape(name));
        if Command::of(&Value::Array(vec![Value::String(name.clone())])).is_err() {
            faults.add(&here, "argv", "is no name of a program: one word without `=`, spaces or hidden characters");
        }
        if form.not_executables.iter().any(|denied| denied.to_lowercase() == program(name)) {
            faults.add(&here, "contradiction", "is in `not_executables` too");
        }
        for (key, flags) in [("flags_allowed", rule.flags_allowed.as_ref()), ("flags_denied", Some(&rule.flags_denied))]
        {
            for flag in flags.into_iter().flatten() {
                if !flag.starts_with('-') || flag.contains('=') || flag == "-" || flag == "--" {
                    faults.add(format!("{here}/{key}"), "flag", format!("`{flag}` is no flag; write `-s` or `--long`"));
                }
            }
        }
        if let Some(flag) = rule.flags_allowed.iter().flatten().find(|flag| denies(&rule.flags_denied, flag)) {
            faults.add(format!("{here}/flags_denied"), "contradiction", format!("denies `{flag}`, which is allowed"));
        }
        let others = rule.first.is_some() || rule.flags_allowed.is_some() || !rule.flags_denied.is_empty();
        if rule.exact.is_some() && (others || rule.max_args.is_some()) {
            faults.add(&here, "contradiction", "`exact` says everything; leave the other keys out");
        }
    }
    if form.not_executables.iter().any(String::is_empty) {
        faults.add(format!("{at}/not_executables"), "argv", "has an empty name");
    }
}

fn program(name: &str) -> String {
    Command::of(&Value::Array(vec![Value::String(name.to_owned())])).map_or_else(|_| String::new(), |c| c.program())
}

/// Whether a command keeps to the form.
pub(super) fn check(form: &ArgvForm, value: &Value) -> Result<(), Miss> {
    let command = Command::of(value).map_err(|refused| match refused {
        // A text that is not one simple command fits no rule; that is an answer, not a fault.
        Refused::Shell(_) | Refused::Hidden => Miss::Fails(refused.to_string()),
        other => Miss::Unreadable(other.to_string()),
    })?;
    let program = command.program();
    if form.not_executables.iter().any(|denied| denied.to_lowercase() == program) {
        let names: Vec<&str> = form.not_executables.iter().map(String::as_str).collect();
        return Err(Miss::Fails(format!("the program must not be {}", names.join(", "))));
    }
    let Some(allowed) = &form.executables else { return Ok(()) };
    let Some(rule) = allowed.get(command.argv0()) else {
        let names: Vec<&str> = allowed.keys().map(String::as_str).collect();
        return Err(Miss::Fails(format!("the program must be {}", names.join(", "))));
    };
    arguments(rule, command.rest()).map_err(|what| Miss::Fails(format!("`{}` {what}", command.argv0())))
}

fn arguments(rule: &ExecutableForm, words: &[String]) -> Result<(), String> {
    if let Some(lists) = &rule.exact {
        return if lists.iter().any(|list| list == words) {
            Ok(())
        } else {
            Err("takes only the arguments that its rule lists".to_owned())
        };
    }
    if rule.max_args.is_some_and(|max| u32::try_from(words.len()).map_or(true, |count| count > max)) {
        return Err(format!("takes at most {} words", rule.max_args.unwrap_or_default()));
    }
    if let Some(first) = &rule.first
        && !words.first().is_some_and(|word| first.contains(word))
    {
        let names: Vec<&str> = first.iter().map(String::as_str).collect();
        return Err(format!("must be followed by {}", names.join(", ")));
    }
    for word in words.iter().filter(|word| is_flag(word)) {
        if denies(&rule.flags_denied, word) {
            return Err("may not be given a flag that its rule denies".to_owned());
        }
        if rule.flags_allowed.as_ref().is_some_and(|allowed| !allows(allowed, word)) {
            return Err("may only be given the flags that its rule allows".to_owned());
        }
    }
    Ok(())
}

fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-') && word != "--"
}

fn name_of(word: &str) -> &str {
    word.split_once('=').map_or(word, |(name, _)| name)
}

/// Narrow: the flag itself, `--long=value` of a listed `--long`, or a bundle of listed letters.
fn allows(allowed: &BTreeSet<String>, word: &str) -> bool {
    if allowed.contains(word) {
        return true;
    }
    if word.starts_with("--") {
        return allowed.contains(name_of(word));
    }
    let letters = word.get(1..).unwrap_or_default();
    letters.chars().all(|letter| allowed.contains(&format!("-{letter}")))
}

/// Broad: the flag, an attached value, a shortened long form, or a bundle that has the letter.
fn denies(denied: &BTreeSet<String>, word: &str) -> bool {
    denied.iter().any(|flag| {
        let name = name_of(word);
        if name == flag {
            return true;
        }
        match (flag.strip_prefix("--"), word.starts_with("--")) {
            (Some(_), true) => name.len() > 2 && flag.starts_with(name),
            (Some(long), false) => name.strip_prefix('-') == Some(long),
            (None, double) => {
                let short = flag.get(1..).unwrap_or_default();
                let one_letter = short.chars().count() == 1;
                if double { name.strip_prefix("--") == Some(short) } else { one_letter && word.contains(short) }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(flags: &[&str]) -> BTreeSet<String> {
        flags.iter().map(|flag| (*flag).to_owned()).collect()
    }

    #[test]
    fn denied_flags_are_found_in_every_spelling() {
        for (flag, word) in [
            ("-c", "-c"),
            ("-c", "-cfoo"),
            ("-c", "-xc"),
            ("-exec", "-exec"),
            ("-exec", "--exec"),
            ("--checkpoint-action", "--checkpoint-action=exec=sh"),
            ("--checkpoint-action", "--checkpoint-act=exec=sh"),
            ("--output", "--out"),
            ("--exec", "-exec"),
        ] {
            assert!(denies(&set(&[flag]), word), "{flag} {word}");
        }
        for (flag, word) in
            [("-c", "-x"), ("-exec", "-e"), ("--output", "--other"), ("--output", "--outputs"), ("-c", "--cc")]
        {
            assert!(!denies(&set(&[flag]), word), "{flag} {word}");
        }
    }

    #[test]
    fn allowed_flags_are_found_narrowly() {
        let allowed = set(&["-s", "-b", "--short", "-name"]);
        for word in ["-s", "-sb", "--short", "--short=1", "-name"] {
            assert!(allows(&allowed, word), "{word}");
        }
        for word in ["-sx", "--sho", "--shorter", "-names", "-S", "--s"] {
            assert!(!allows(&allowed, word), "{word}");
        }
    }
}
