//! The table of a run. What is not here: what was found (`check`).

use std::fmt::Write as _;

use crate::check::Property;
use crate::stage::Outcome;

/// The table.
#[must_use]
pub fn table(outcome: &Outcome) -> String {
    let mut text = String::new();
    let mut line = |left: &str, right: String| {
        let _ = writeln!(text, "  {left:<58} {right}");
    };
    for (fault, times) in &outcome.done.times {
        line(fault.word(), times.to_string());
    }
    line("sessions", outcome.sessions.to_string());
    line("acknowledged requests", outcome.acks.to_string());
    line("events shown to somebody", outcome.seen.to_string());
    line("requests to tools", outcome.asked.to_string());
    let rows: u64 = outcome.findings.kinds.values().sum();
    let kind = |name: &str| outcome.findings.kinds.get(name).copied().unwrap_or_default();
    line("rows of logs", rows.to_string());
    line("changes of owner", kind("owner_changed").to_string());
    line("attempts after the first", outcome.findings.later_attempts.to_string());
    for ((class, status), times) in &outcome.findings.ends {
        line(&format!("`{class}` calls that ended {status}"), times.to_string());
    }
    line("answers of 500", outcome.defects.to_string());
    line("requests without an answer in time, by node", format!("{:?}", outcome.unanswered));
    line(
        "longest from the database's return to the next news",
        format!("{:.1} s", outcome.done.served_again.as_secs_f64()),
    );
    let [faults, healing, checking] = outcome.times.map(|time| format!("{:.0} s", time.as_secs_f64()));
    line("faults, healing, checking", format!("{faults}, {healing}, {checking}"));
    for property in Property::ALL {
        let found = outcome.findings.of(property);
        let _ = writeln!(text, "  {:<72} {:>6} of {}", property.fault(), found.wrong, found.looked);
        for example in found.examples {
            let short: String = example.chars().take(1_500).collect();
            let _ = writeln!(text, "      {short}");
        }
    }
    text
}
