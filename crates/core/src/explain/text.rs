//! An explanation as lines for people: one `name: value` a line, always in this order, a line left out where there is
//! nothing to say. What is not here: what is said (`explain`).

use toolgate_policy::shown::shown;

use super::{Answer, Explanation, RefusedReport};
use crate::event::{ConsensusResult, FindingRecord, LedgerAnswer, PolicyRecord, WidenedBy};
use crate::input::Reporter;
use crate::pipeline::Layer;
use crate::profile::ControlMode;
use crate::time::Timestamp;
use crate::tool::{ToolClass, Venue};

/// How points in time are written.
type Times = fn(Timestamp) -> String;

struct Lines {
    text: String,
    time: Times,
}

impl Explanation {
    /// The explanation as text, each line ended by a line feed. What people, models and tools wrote has its line breaks
    /// and invisible characters escaped, so that it cannot be taken for a line of its own.
    #[must_use]
    pub fn text(&self, time: fn(Timestamp) -> String) -> String {
        let mut lines = Lines { text: String::new(), time };
        lines.head(self);
        lines.basis(self);
        for layer in &self.layers {
            let inputs = listed(&layer.inputs);
            lines.line("layer", &format!("{} {}; looked at {inputs}", layer.layer, layer.answer.code()));
        }
        if let Some(policy) = &self.policy {
            lines.policy(policy);
        }
        lines.links(self);
        lines.execution(self);
        lines.text
    }
}

impl Lines {
    fn line(&mut self, name: &str, value: &str) {
        self.text.push_str(name);
        self.text.push_str(": ");
        self.text.push_str(&shown(value).text);
        self.text.push('\n');
    }

    fn optional(&mut self, name: &str, value: Option<&String>) {
        if let Some(value) = value {
            self.line(name, value);
        }
    }

    fn when(&self, seq: u64, at: Timestamp) -> String {
        format!("at {} sequence {seq}", (self.time)(at))
    }

    fn head(&mut self, e: &Explanation) {
        self.line("call", &format!("{} run {} step {} index {}", e.call, e.run, e.step, e.index));
        let reason = e.decided.reason.map(|reason| format!(" {}", reason.code())).unwrap_or_default();
        let ends = if e.decided.ends_run { ", ends the run" } else { "" };
        let when = self.when(e.decided.seq, e.decided.at);
        self.line("decision", &format!("{}{reason}{ends}, {when}", e.decided.decision.code()));
        self.line("cause", &e.decided.cause);
        self.optional("change", e.decided.change.as_ref());
        let asked = &e.asked;
        match (&asked.tool, &asked.tool_version) {
            (Some(tool), Some(version)) => {
                let venue = asked.venue.map_or("-", venue_word);
                let class = asked.class.map_or("-", class_word);
                let tags = listed(&asked.tags);
                self.line("tool", &format!("{tool} version {version} venue {venue} class {class} tags {tags}"));
            }
            // Arguments that cannot be read are refused before anybody looks for the tool.
            _ if e.decided.layer == Layer::Form => {
                self.line("tool", &format!("`{}`, which was not looked for", asked.name));
            }
            _ => self.line("tool", &format!("`{}`, which does not exist", asked.name)),
        }
        match (&asked.args, asked.args_hash) {
            (Some(args), Some(hash)) => {
                self.line("arguments", args.as_str());
                let cut = if asked.redacted { ", shown redacted" } else { "" };
                self.line("arguments in full", &format!("{} bytes, hash {hash}{cut}", asked.args_bytes));
            }
            _ => self.line("arguments", "cannot be read"),
        }
        self.optional("derived", asked.derived.as_ref().map(|derived| derived.as_str().to_owned()).as_ref());
        self.optional("idempotency key", asked.idempotency_key.as_ref());
    }

    fn basis(&mut self, e: &Explanation) {
        let basis = &e.basis;
        self.optional("session of", basis.by.as_ref().map(ToString::to_string).as_ref());
        self.optional("bundle", basis.bundle.map(|bundle| bundle.to_string()).as_ref());
        if let Some(profile) = &basis.profile {
            let label = basis.label.as_ref().map(|label| format!(" by label {label}")).unwrap_or_default();
            self.line("profile", &format!("{profile}{label}"));
        }
        let rules = basis.rules_version.map_or_else(|| "-".to_owned(), |version| version.to_string());
        let schema = basis.schema_engine.as_deref().unwrap_or("-");
        self.line("versions", &format!("rules {rules}, schema engine {schema}"));
        if basis.dry_run {
            self.line("dry run", "nothing is executed");
        }
        self.optional("control", basis.control.map(|mode| control_word(mode).to_owned()).as_ref());
        if let Some(limits) = &basis.limits {
            let text = format!(
                "max_steps {}, max_tool_calls {}, max_model_calls {}, deadline_ms {}, repeat_limit {}",
                limits.max_steps,
                limits.max_tool_calls,
                limits.max_model_calls,
                limits.deadline_ms,
                limits.repeat_limit,
            );
            self.line("limits", &text);
        }
        if let Some(consensus) = &e.consensus {
            let groups: Vec<String> = consensus.groups.iter().map(listed).collect();
            let result = match consensus.result {
                ConsensusResult::Agreed { ballot } => format!("agreed on ballot {ballot}"),
                ConsensusResult::Escalated { ballot } => format!("escalated ballot {ballot}"),
                ConsensusResult::Retry => "retry".to_owned(),
                ConsensusResult::Rejected => "rejected".to_owned(),
            };
            let (round, n, k, rule) = (consensus.round, consensus.n, consensus.k, consensus.rule.code());
            let (unreadable, cancelled) = (listed(&consensus.unreadable), listed(&consensus.cancelled));
            let groups = groups.join(" / ");
            self.line(
                "ballots",
                &format!(
                    "round {round}, {k} of {n} needed by {rule}, groups {groups}, unreadable {unreadable}, cancelled \
                     {cancelled}, {result}"
                ),
            );
            if let Some((tool, why)) = &consensus.widened {
                let of = match why {
                    WidenedBy::Tool => "the tool",
                    WidenedBy::Risk => "its risk",
                };
                self.line("larger vote", &format!("held over {tool}: the profile asks for it by {of}"));
            }
        }
    }

    fn policy(&mut self, policy: &PolicyRecord) {
        let rule = policy.rule.as_deref().map(|rule| format!(" by {rule}")).unwrap_or_default();
        let code = policy.code.as_deref().map(|code| format!(" {code}")).unwrap_or_default();
        self.line("policy", &format!("{}{code}{rule}, {} rules looked at", policy.decision, policy.findings.len()));
        for finding in &policy.findings {
            self.finding(finding);
        }
        if let Some(cedar) = &policy.cedar {
            let (deciding, failed) = (listed(&cedar.deciding), listed(&cedar.failed));
            self.line("cedar", &format!("deciding {deciding}; failed {failed}"));
            let hashes =
                format!("policies {}; schema {}; engine {}", cedar.policy_hash, cedar.schema_hash, cedar.engine);
            self.line("cedar version", &hashes);
        }
    }

    fn finding(&mut self, finding: &FindingRecord) {
        let shadow = if finding.shadow { " (shadow, not enforced)" } else { "" };
        let code = finding.code.as_deref().map(|code| format!(" {code}")).unwrap_or_default();
        let detail = finding.detail.as_deref().map(|detail| format!("; {detail}")).unwrap_or_default();
        let inputs = listed(finding.looked_at.iter());
        self.line("rule", &format!("{}{shadow} {}{code}; looked at {inputs}{detail}", finding.rule, finding.outcome));
    }

    fn links(&mut self, e: &Explanation) {
        self.optional("edited from", e.edited_from.as_ref().map(ToString::to_string).as_ref());
        self.optional("edited by", e.edited_by.as_ref().map(ToString::to_string).as_ref());
        self.optional("rewritten by hook", e.rewritten_by.as_ref().map(ToString::to_string).as_ref());
        if let Some(edit) = &e.edit {
            self.answer("arguments by", edit);
        }
        self.optional("replay of", e.replay_of.as_ref().map(ToString::to_string).as_ref());
        self.optional("granted by", e.granted_by.as_ref().map(ToString::to_string).as_ref());
        self.admission(e);
        if let Some(asking) = &e.approval {
            let expires = (self.time)(asking.expires_at);
            let (people, reminders) = (asking.approvers, asking.reminders);
            let text = format!(
                "{} of digest {}, {people} to approve, {reminders} reminders, lapses at {expires}",
                asking.id, asking.digest
            );
            self.line("approval", &text);
        }
        for answer in &e.answers {
            self.answer("answer", answer);
        }
        self.optional("edited into", e.replaced_by.as_ref().map(ToString::to_string).as_ref());
    }

    fn admission(&mut self, e: &Explanation) {
        if !e.hooks.is_empty() {
            self.line("hooks", &listed(&e.hooks));
        }
        for admitted in &e.admissions {
            let (verdict, when) = (admitted.verdict.code(), self.when(admitted.seq, admitted.at));
            let reason = admitted.reason.as_deref().map(|reason| format!("; {reason}")).unwrap_or_default();
            self.line("hook", &format!("{} {verdict}, attempt {}, {when}{reason}", admitted.hook, admitted.attempt));
        }
        for charge in &e.charges {
            let window = charge.window_ms.map(|ms| format!(" in {ms} ms")).unwrap_or_default();
            let (counter, amount, limit) = (&charge.counter, charge.amount, charge.limit);
            self.line("charge", &format!("{amount} on {counter}, at most {limit}{window}"));
        }
        for reserved in &e.ledger {
            let when = self.when(reserved.seq, reserved.at);
            let answer = match &reserved.answer {
                LedgerAnswer::Granted => "granted".to_owned(),
                LedgerAnswer::Refused { counter, used, limit } => format!("refused, {counter} has {used} of {limit}"),
            };
            self.line("ledger", &format!("{answer}, {when}"));
        }
    }

    fn answer(&mut self, name: &str, answer: &Answer) {
        let verb = answer.verb.code();
        let when = self.when(answer.seq, answer.at);
        self.line(name, &format!("{verb} by {}, {when}, seen digest {}", answer.by, answer.digest));
        if answer.missing > 0 {
            self.line("approvals missing", &answer.missing.to_string());
        }
        if let Some(grant) = &answer.grant {
            let until = (self.time)(grant.expires_at);
            self.line("grant", &format!("open arguments {}, until {until}", listed(&grant.open)));
        }
        self.optional("message", answer.message.as_ref());
    }

    fn execution(&mut self, e: &Explanation) {
        for sent in &e.dispatches {
            let to = sent.dispatch.instance.as_ref().map_or_else(|| "server".to_owned(), |to| format!("client {to}"));
            let (attempt, when) = (sent.dispatch.attempt, self.when(sent.seq, sent.at));
            let due = (self.time)(sent.dispatch.deadline_at);
            self.line("dispatch", &format!("attempt {attempt} to {to}, {when}, due at {due}"));
        }
        for ack in &e.acknowledged {
            let when = self.when(ack.seq, ack.at);
            self.line("acknowledged", &format!("attempt {} by client {}, {when}", ack.attempt, ack.instance));
        }
        for RefusedReport { seq, at, code, reporter, claimed } in &e.refused {
            let (who, when) = (reported_by(reporter), self.when(*seq, *at));
            self.line("refused report", &format!("{} by {who}, claimed {}, {when}", code.code(), claimed.code()));
        }
        match &e.end {
            None => self.line("end", "still open"),
            Some(end) => {
                let who = end.reporter.as_ref().map(|who| format!(" by {}", reported_by(who))).unwrap_or_default();
                let reason = end.reason.map(|reason| format!(" {}", reason.code())).unwrap_or_default();
                let (status, cause, when) = (end.end.code(), end.cause, self.when(end.seq, end.at));
                let (attempt, bytes) = (end.attempt, end.output_bytes);
                self.line("end", &format!("{status}, {cause}{reason}{who}, attempt {attempt}, {bytes} bytes, {when}"));
                self.optional("end detail", end.detail.as_ref());
            }
        }
        self.optional("run", e.run_ending.map(|ending| format!("ended {}", ending.code())).as_ref());
    }
}

/// Names in a row, or a dash.
fn listed<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    if items.is_empty() { "-".to_owned() } else { items.join(", ") }
}

fn reported_by(reporter: &Reporter) -> String {
    match reporter {
        Reporter::Server => "server".to_owned(),
        Reporter::Client { instance, by, fence: _, args_hash: _ } => format!("client {instance} of {by}"),
    }
}

const fn control_word(mode: ControlMode) -> &'static str {
    match mode {
        ControlMode::None => "none",
        ControlMode::Risky => "risky",
        ControlMode::All => "all",
    }
}

const fn venue_word(venue: Venue) -> &'static str {
    match venue {
        Venue::Server => "server",
        Venue::Client => "client",
    }
}

const fn class_word(class: ToolClass) -> &'static str {
    match class {
        ToolClass::Read => "read",
        ToolClass::Idempotent => "idempotent",
        ToolClass::Once => "once",
    }
}
