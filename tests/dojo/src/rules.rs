//! The rules of the strict tiers, made from tool schemas alone. What is not here: any task or any attack: this file reads
//! neither, so that no rule can have been written for one.
//!
//! An operator who is handed a list of tools asks the same few questions of each one that acts: who receives something,
//! where does it go, what is destroyed, what is booked, how much is spent, what leaves the house. Arguments are sorted
//! into these roles by their names, and each role has one rule, the same for every tool and suite:
//!
//! - whoever or whatever an action is aimed at must have been named by the user, or by a look-up that outsiders cannot
//!   write to ([`LOOKUPS`]: the address book, the workspace's own list of members); else a human is asked;
//! - what is to be destroyed must have been named by the user: a look-up proves that it exists, not that it may go;
//! - text that is sent to somebody carries no links and no payment card numbers, unless a human agrees;
//! - payments of a session have a sum, messages a number, beyond which a human is asked;
//! - in the strictest tier, what is created carries a name that the user said, and what acts without any argument that a
//!   rule could look at needs approval.

use serde_json::{Map, Value, json};

use crate::suite::{Suite, ToolSpec};
use crate::tier::Tier;

/// What an argument is to an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// E-mail addresses that receive something.
    Address,
    /// A person, room or account that receives something, by name or number.
    Receiver,
    /// Where data is fetched from or sent to.
    Link,
    /// A secret that is set.
    Secret,
    /// What is booked.
    Booking,
    /// An existing thing that is changed or destroyed.
    Object,
    /// How much is spent.
    Amount,
    /// Text that somebody else will read.
    Text,
    /// The name of what is created.
    Name,
}

/// Sorts an argument by its name, as people name such things.
fn role(argument: &str) -> Option<Role> {
    match argument {
        "recipients" | "cc" | "bcc" | "participants" | "email" | "user_email" => Some(Role::Address),
        "recipient" | "user" | "channel" | "iban" | "account" => Some(Role::Receiver),
        "url" => Some(Role::Link),
        "password" => Some(Role::Secret),
        "hotel" | "restaurant" | "company" => Some(Role::Booking),
        "amount" => Some(Role::Amount),
        "body" | "content" | "subject" | "description" => Some(Role::Text),
        "title" | "filename" => Some(Role::Name),
        "id" => Some(Role::Object),
        other => other.ends_with("_id").then_some(Role::Object),
    }
}

impl Role {
    /// How a value of this role is found in a text; `None` where its origin says nothing.
    const fn found_as(self) -> Option<&'static str> {
        match self {
            Self::Address => Some("email"),
            Self::Link => Some("url"),
            Self::Object => Some("id"),
            Self::Receiver | Self::Secret | Self::Booking | Self::Name => Some("text"),
            Self::Amount | Self::Text => None,
        }
    }

    const fn is_destination(self) -> bool {
        matches!(self, Self::Address | Self::Receiver | Self::Link)
    }
}

/// Results that outsiders cannot write to, with the field that holds the value: the address book; members, rooms and
/// authors as the workspace itself records them; standing orders; ids as the system gives them. Never a subject, a body,
/// a page or a file: those hold what anybody wrote.
const LOOKUPS: [(&str, &str, &str); 17] = [
    ("recipients", "search_contacts_by_name", "/*/email"),
    ("recipients", "search_contacts_by_email", "/*/email"),
    ("participants", "search_contacts_by_name", "/*/email"),
    ("participants", "search_contacts_by_email", "/*/email"),
    ("recipient", "get_users_in_channel", "/*"),
    ("recipient", "read_channel_messages", "/*/sender"),
    ("user", "get_users_in_channel", "/*"),
    ("channel", "get_channels", "/*"),
    ("recipient", "get_scheduled_transactions", "/*/recipient"),
    ("id", "get_scheduled_transactions", "/*/id"),
    ("file_id", "search_files", "/*/id_"),
    ("file_id", "search_files_by_filename", "/*/id_"),
    ("file_id", "list_files", "/*/id_"),
    ("file_id", "create_file", "/id_"),
    ("event_id", "search_calendar_events", "/*/id_"),
    ("event_id", "get_day_calendar_events", "/*/id_"),
    ("event_id", "create_calendar_event", "/id_"),
];

/// Money that a session may move without a human, in units of the account.
const PAYMENTS: u32 = 1_000;
/// Actions towards others that a session may take without a human.
const MESSAGES: u32 = 10;

/// An address on the web, with or without its scheme, or letters written so that one would not be seen: percent-encoded
/// or full-width.
const LINKS: &str = concat!(
    r"(?i)://|\bwww\.|%[0-9a-f]{2}|[\u{FF01}-\u{FF5E}]|",
    r"\b[a-z0-9-]+\.(com|net|org|info|biz|io|ly|co|me|app|dev|xyz|top|link|site|online|shop)\b",
);
/// A payment card number: 13 to 19 digits, alone or in groups.
const CARDS: &str = r"\b[0-9](?:[ -]?[0-9]){12,18}\b";

/// Whether a tool only reads, by its name.
#[must_use]
pub fn reads(tool: &str) -> bool {
    ["get_", "search_", "list_", "read_", "check_"].iter().any(|prefix| tool.starts_with(prefix))
}

/// Whether a tool carries data out although it reads: the address that it fetches may hold anything.
#[must_use]
pub fn is_egress(tool: &str) -> bool {
    tool == "get_webpage"
}

/// Whether a call of this tool has an effect that somebody would mind.
#[must_use]
pub fn acts(tool: &str) -> bool {
    !reads(tool) || is_egress(tool)
}

fn destroys(tool: &str) -> bool {
    ["delete_", "cancel_", "remove_"].iter().any(|prefix| tool.starts_with(prefix))
}

/// The policy section of a suite's bundle; `None` where the tier has no rules.
#[must_use]
pub fn policies(suite: &Suite, tier: Tier) -> Option<Value> {
    if !tier.has_rules() {
        return None;
    }
    let mut origins = Map::new();
    let mut arguments = Map::new();
    for tool in suite.tools.iter().filter(|tool| acts(&tool.name)) {
        for argument in ranked(tool) {
            if let Some(rule) = origin(suite, tool, &argument, tier) {
                origins.insert(format!("{}.{}", tool.name, argument.name), rule);
            }
            if argument.role == Role::Text && sends(tool) {
                for (what, pattern) in [("links", LINKS), ("cards", CARDS)] {
                    let rule = json!({"on": {"tools": [tool.name]}, "argument": argument.place(), "not_regex": pattern,
                        "absent": "pass", "effect": "ask"});
                    arguments.insert(format!("{what}.{}.{}", tool.name, argument.name), rule);
                }
            }
        }
    }
    let section = json!({"origins": origins, "arguments": arguments, "totals": totals(suite)});
    Some(section)
}

/// Whether a human must approve every call of a tool: in the strictest tier, where it acts and no rule looks at it.
#[must_use]
pub fn needs_approval(suite: &Suite, tool: &ToolSpec, tier: Tier) -> bool {
    let looked_at = || ranked(tool).iter().any(|argument| origin(suite, tool, argument, tier).is_some());
    tier == Tier::Strictest && acts(&tool.name) && !looked_at()
}

fn origin(suite: &Suite, tool: &ToolSpec, argument: &Argument, tier: Tier) -> Option<Value> {
    let found_as = argument.role.found_as()?;
    if argument.role == Role::Name && !(tier == Tier::Strictest && tool.name.starts_with("create_")) {
        return None;
    }
    let results: Vec<Value> = LOOKUPS
        .iter()
        .filter(|(name, source, _)| {
            *name == argument.name && !destroys(&tool.name) && suite.tools.iter().any(|tool| tool.name == *source)
        })
        .map(|(_, source, at)| json!({"tool": source, "at": at}))
        .collect();
    let absent = if argument.required { "deny" } else { "pass" };
    Some(json!({"on": {"tools": [tool.name]}, "argument": argument.place(), "as": found_as, "absent": absent,
        "from": {"user": true, "results": results}}))
}

/// Whether a tool brings something to somebody.
fn sends(tool: &ToolSpec) -> bool {
    ranked(tool).iter().any(|argument| argument.role.is_destination())
}

fn totals(suite: &Suite) -> Map<String, Value> {
    let acting = || suite.tools.iter().filter(|tool| !reads(&tool.name));
    let pays = |tool: &&ToolSpec| {
        sends(tool) && ranked(tool).iter().any(|argument| argument.role == Role::Amount && argument.required)
    };
    let names = |tools: Vec<&ToolSpec>| tools.into_iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
    let paying = names(acting().filter(pays).collect());
    let sending = names(acting().filter(|tool| sends(tool)).collect());
    let mut rules = Map::new();
    if !paying.is_empty() {
        let rule = json!({"on": {"tools": paying}, "sum": {"argument": "/amount", "max": PAYMENTS}, "scope": "session",
            "effect": "ask"});
        rules.insert("payments".to_owned(), rule);
    }
    if !sending.is_empty() {
        let rule = json!({"on": {"tools": sending}, "max_count": MESSAGES, "scope": "session", "effect": "ask"});
        rules.insert("messages".to_owned(), rule);
    }
    rules
}

/// An argument that has a role.
struct Argument {
    name: String,
    role: Role,
    required: bool,
    is_list: bool,
}

impl Argument {
    fn place(&self) -> String {
        let each = if self.is_list { "/*" } else { "" };
        format!("/{}{each}", self.name)
    }
}

fn ranked(tool: &ToolSpec) -> Vec<Argument> {
    let required = tool.parameters.get("required").and_then(Value::as_array);
    let properties = tool.parameters.get("properties").and_then(Value::as_object);
    properties
        .into_iter()
        .flatten()
        .filter_map(|(name, schema)| {
            let is_required = required.is_some_and(|names| names.iter().any(|found| found == name));
            Some(Argument { name: name.clone(), role: role(name)?, required: is_required, is_list: is_list(schema) })
        })
        .collect()
}

fn is_list(schema: &Value) -> bool {
    let says = |schema: &Value| schema.get("type").is_some_and(|kind| kind == "array");
    let any = schema.get("anyOf").and_then(Value::as_array);
    says(schema) || any.is_some_and(|branches| branches.iter().any(says))
}
