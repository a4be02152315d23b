//! Known traps in rules on commands: programs whose arguments are code, flags that run other programs. What is not here:
//! programs nobody thought of; rules with exact arguments need no list.

use super::argv::ExecutableForm;
use super::{ArgumentRule, ArgvForm};
use crate::derive::Command;
use crate::fault::{Fault, Faults, escape};
use crate::rule::{Mode, RuleId, at};

/// Programs that run what their arguments say.
const INTERPRETERS: [&str; 62] = [
    "ash",
    "awk",
    "bash",
    "bun",
    "busybox",
    "chroot",
    "cmd",
    "command",
    "csh",
    "dash",
    "deno",
    "docker",
    "doas",
    "env",
    "eval",
    "exec",
    "expect",
    "fish",
    "flock",
    "gawk",
    "gdb",
    "ionice",
    "irb",
    "java",
    "julia",
    "ksh",
    "kubectl",
    "lua",
    "make",
    "mawk",
    "nice",
    "node",
    "nodejs",
    "nohup",
    "npm",
    "npx",
    "parallel",
    "perl",
    "php",
    "pip",
    "pip3",
    "pnpm",
    "powershell",
    "pwsh",
    "python",
    "python2",
    "python3",
    "rscript",
    "ruby",
    "script",
    "setsid",
    "sh",
    "source",
    "ssh",
    "stdbuf",
    "strace",
    "sudo",
    "time",
    "timeout",
    "watch",
    "xargs",
    "zsh",
];

/// Flags of harmless-looking programs that run or write something else.
const TRAPS: [(&str, &[&str]); 14] = [
    ("find", &["-exec", "-execdir", "-ok", "-okdir", "-delete", "-fprint", "-fprint0", "-fprintf", "-fls"]),
    (
        "git",
        &[
            "-c",
            "--exec-path",
            "--upload-pack",
            "--receive-pack",
            "--ext-diff",
            "--config-env",
            "--open-files-in-pager",
            "-O",
        ],
    ),
    (
        "tar",
        &[
            "--checkpoint-action",
            "--to-command",
            "--use-compress-program",
            "-I",
            "--rsh-command",
            "-F",
            "--info-script",
        ],
    ),
    ("rsync", &["-e", "--rsh", "--rsync-path"]),
    ("curl", &["-o", "-O", "--output", "--remote-name", "-K", "--config", "-T", "--upload-file", "-d", "--data"]),
    ("wget", &["-O", "--output-document", "--use-askpass", "--post-file", "--body-file", "-i", "--execute", "-e"]),
    ("sort", &["-o", "--output", "--compress-program"]),
    ("sed", &["-i", "--in-place", "-e", "--expression", "-f", "--file"]),
    ("rg", &["--pre", "--hostname-bin"]),
    ("zip", &["-T", "-TT", "--unzip-command"]),
    ("man", &["-P", "--pager", "-H", "--html"]),
    ("less", &["-o", "-O", "-k"]),
    ("cargo", &["--config", "-Z"]),
    ("vim", &["-c", "--cmd", "-S", "-s"]),
];

/// The traps of a rule: places and sentences, as warnings.
pub(crate) fn lint(id: &RuleId, rule: &ArgumentRule) -> Vec<Fault> {
    let mut found = Faults::default();
    if let Some(form) = rule.argv.as_ref().filter(|_| rule.mode != Mode::Off) {
        commands(form, &format!("{}/argv", at("arguments", id)), &mut found);
    }
    found.into_sorted()
}

fn commands(form: &ArgvForm, at: &str, found: &mut Faults) {
    if form.executables.is_none() {
        let detail = "denies programs by name and allows all others; `env`, `sh` and their like run the denied ones too, \
                      so name the `executables` that are allowed";
        found.add(format!("{at}/not_executables"), "denies_by_name", detail);
    }
    for (name, rule) in form.executables.iter().flatten().filter(|(_, rule)| rule.exact.is_none()) {
        let here = format!("{at}/executables/{}", escape(name));
        let word = serde_json::Value::Array(vec![serde_json::Value::String(name.clone())]);
        let program = Command::of(&word).map(|command| command.program()).unwrap_or_default();
        let base = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
        if INTERPRETERS.contains(&program.as_str()) || INTERPRETERS.contains(&base) {
            let detail = format!("`{name}` runs what its arguments say; list its `exact` arguments");
            found.add(&here, "allows_interpreter", detail);
        }
        for (_, flags) in TRAPS.iter().filter(|(trap, _)| *trap == program) {
            let open: Vec<&str> = flags.iter().copied().filter(|flag| may_pass(rule, flag)).collect();
            if !open.is_empty() {
                let detail =
                    format!("`{name}` runs or writes something else with {}; deny these flags", open.join(", "));
                found.add(&here, "allows_trap_flag", detail);
            }
        }
    }
}

fn may_pass(rule: &ExecutableForm, flag: &str) -> bool {
    match &rule.flags_allowed {
        Some(allowed) => allowed.contains(flag),
        None => !rule.flags_denied.contains(flag),
    }
}
