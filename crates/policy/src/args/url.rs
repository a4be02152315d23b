//! Conditions on URLs. What is not here: reading them (`derive::link`); what a name resolves to, which the connection
//! must check.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Miss;
use crate::derive::{Link, parse_host, private_name, text};
use crate::fault::Faults;

/// What a URL must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UrlForm {
    /// Its scheme is one of these; absent means `https` alone.
    #[serde(default = "https")]
    pub schemes: BTreeSet<String>,
    /// Its host is one of these: a name or address, `*.name` for the names below it (not itself), or `*` for any name
    /// that is not of this machine or a private network.
    pub hosts: BTreeSet<String>,
    /// Its host is none of these, written the same way (without `*`).
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub not_hosts: BTreeSet<String>,
    /// Its port is one of these; absent means the scheme's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ports: Option<BTreeSet<u16>>,
    /// It may carry a user name or password before the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_userinfo: bool,
}

fn https() -> BTreeSet<String> {
    BTreeSet::from(["https".to_owned()])
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Pattern {
    Any,
    Exact(String),
    /// With its leading dot.
    Below(String),
}

#[derive(Debug, Clone)]
pub(super) struct Urls {
    hosts: Vec<Pattern>,
    not_hosts: Vec<Pattern>,
    form: UrlForm,
}

pub(super) fn compile(form: &UrlForm, at: &str, faults: &mut Faults) -> Option<Urls> {
    let before = faults.count();
    if form.hosts.is_empty() {
        faults.add(format!("{at}/hosts"), "hosts", "names no host, so every URL would be refused");
    }
    for scheme in &form.schemes {
        let plain = scheme.starts_with(|c: char| c.is_ascii_lowercase())
            && scheme.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.'));
        if !plain {
            faults.add(
                format!("{at}/schemes"),
                "scheme",
                format!("`{scheme}` is no scheme; write `https` without `://`"),
            );
        }
    }
    if form.schemes.is_empty() || form.ports.as_ref().is_some_and(BTreeSet::is_empty) {
        faults.add(at, "url", "an empty list of schemes or ports would refuse every URL");
    }
    let mut all = |list: &BTreeSet<String>, key: &str, any: bool| {
        let mut found = Vec::new();
        for text in list {
            match pattern(text) {
                Some(Pattern::Any) if !any => {
                    faults.add(format!("{at}/{key}"), "host", "`*` here would refuse every URL");
                }
                Some(pattern) => found.push(pattern),
                None => faults.add(
                    format!("{at}/{key}"),
                    "host",
                    format!("`{text}` is no host; write `example.com`, `*.example.com` or an address, without port"),
                ),
            }
        }
        found
    };
    let hosts = all(&form.hosts, "hosts", true);
    let not_hosts = all(&form.not_hosts, "not_hosts", false);
    (faults.count() == before).then(|| Urls { hosts, not_hosts, form: form.clone() })
}

fn pattern(text: &str) -> Option<Pattern> {
    if text == "*" {
        return Some(Pattern::Any);
    }
    match text.strip_prefix("*.") {
        None => parse_host(text).map(|(host, _)| Pattern::Exact(host)),
        Some(below) => match parse_host(below)? {
            // A single label (`*.com`) would stand for names of everybody.
            (host, None) if host.contains('.') && !host.contains('*') => Some(Pattern::Below(format!(".{host}"))),
            _ => None,
        },
    }
}

impl Pattern {
    fn matches(&self, link: &Link) -> bool {
        match self {
            Self::Any => link.ip().is_none() && !link.is_private() && !private_name(link.host()),
            Self::Exact(host) => host == link.host(),
            Self::Below(end) => link.ip().is_none() && link.host().ends_with(end.as_str()),
        }
    }
}

impl Urls {
    pub(super) fn check(&self, value: &Value) -> Result<(), Miss> {
        let unreadable = |refused: crate::derive::Refused| Miss::Unreadable(refused.to_string());
        let link = Link::parse(text(value).map_err(unreadable)?).map_err(unreadable)?;
        let joined = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(", ");
        let fails = |detail: String| Err(Miss::Fails(detail));
        if !self.form.schemes.contains(link.scheme()) {
            return fails(format!("must have the scheme {}", joined(&self.form.schemes)));
        }
        if link.userinfo() && !self.form.allow_userinfo {
            return fails("must not carry a user name or password".to_owned());
        }
        let port_fits = match &self.form.ports {
            None => link.is_default_port(),
            Some(ports) => link.port().is_some_and(|port| ports.contains(&port)),
        };
        if !port_fits {
            return fails("must use the port that is allowed".to_owned());
        }
        if self.not_hosts.iter().any(|pattern| pattern.matches(&link)) {
            return fails(format!("the host must not be {}", joined(&self.form.not_hosts)));
        }
        if !self.hosts.iter().any(|pattern| pattern.matches(&link)) {
            return fails(format!("the host must be {}", joined(&self.form.hosts)));
        }
        Ok(())
    }
}
