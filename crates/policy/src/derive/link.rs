//! URLs by their parts, read by the URL standard's own parser; spellings that other readers split differently are
//! refused first. What is not here: which hosts are good (`args`).

use std::net::IpAddr;

use url::{Host, Url};

use super::Refused;
use crate::shown::is_hidden;

const MAX_BYTES: usize = 8_192;

/// An absolute URL by its parts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    scheme: String,
    /// Lower case, punycode, without a final dot; an IP address in its plain form, IPv6 without brackets.
    host: String,
    ip: Option<IpAddr>,
    port: Option<u16>,
    default_port: bool,
    userinfo: bool,
}

impl Link {
    /// Reads an absolute URL with a host.
    pub(crate) fn parse(text: &str) -> Result<Self, Refused> {
        if text.is_empty() {
            return Err(Refused::Empty);
        }
        if text.len() > MAX_BYTES {
            return Err(Refused::Long(MAX_BYTES));
        }
        if text.chars().any(|c| is_hidden(c) || c == ' ') {
            // The standard cuts tabs, line breaks and outer spaces; others do not.
            return Err(Refused::Hidden);
        }
        if text.contains('\\') {
            return Err(Refused::Url("a backslash is a slash to some readers"));
        }
        let rest = text.split_once("://").map(|(_, rest)| rest).ok_or(Refused::Url("needs `scheme://host`"))?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.is_empty() {
            return Err(Refused::Url("has no host after `://`"));
        }
        if authority.contains('%') {
            return Err(Refused::Url("a percent sign in the host is decoded by some readers"));
        }
        if authority.matches('@').count() > 1 {
            return Err(Refused::Url("more than one `@` before the host"));
        }
        let url = Url::parse(text).map_err(|_| Refused::Url("cannot be read"))?;
        if authority.chars().any(|c| {
            matches!(
                c,
                '\u{ff0f}' | '\u{ff20}' | '\u{ff1a}' | '\u{2044}' | '\u{2215}' | '\u{ff1f}' | '\u{ff03}' | '\u{ff3c}'
            )
        }) {
            return Err(Refused::Url("a character in the host that some readers fold into a delimiter"));
        }
        let (host, ip) = match url.host() {
            Some(Host::Domain(name)) => domain(name)?,
            Some(Host::Ipv4(ip)) => (ip.to_string(), Some(IpAddr::V4(ip))),
            Some(Host::Ipv6(ip)) => (ip.to_string(), Some(IpAddr::V6(ip))),
            None => return Err(Refused::Url("has no host")),
        };
        Ok(Self {
            scheme: url.scheme().to_owned(),
            host,
            ip,
            port: url.port_or_known_default(),
            default_port: url.port().is_none(),
            userinfo: authority.contains('@'),
        })
    }

    pub(crate) fn scheme(&self) -> &str {
        &self.scheme
    }

    pub(crate) fn host(&self) -> &str {
        &self.host
    }

    pub(crate) const fn ip(&self) -> Option<IpAddr> {
        self.ip
    }

    pub(crate) const fn port(&self) -> Option<u16> {
        self.port
    }

    pub(crate) const fn is_default_port(&self) -> bool {
        self.default_port
    }

    pub(crate) const fn userinfo(&self) -> bool {
        self.userinfo
    }

    /// Whether the host is, by its spelling, of this machine or a private network.
    pub(crate) fn is_private(&self) -> bool {
        self.ip.map_or_else(|| private_name(&self.host), private_ip)
    }
}

/// A host from a policy or a URL: its plain form, and the address if it is one. `text` has no port.
pub(crate) fn parse_host(text: &str) -> Option<(String, Option<IpAddr>)> {
    if text.is_empty() || text.contains(['/', '@', '?', '#', '\\', '%', ' ', '*']) {
        return None;
    }
    let bracketed = match text.parse::<std::net::Ipv6Addr>() {
        Ok(ip) => format!("[{ip}]"),
        Err(_) if text.contains(':') => return None,
        Err(_) => text.to_owned(),
    };
    let link = Link::parse(&format!("https://{bracketed}/")).ok()?;
    Some((link.host, link.ip))
}

/// A domain in its plain form. Schemes that the standard does not know keep their host as written, so that numbers are
/// looked at here too.
fn domain(name: &str) -> Result<(String, Option<IpAddr>), Refused> {
    let name = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() || name.split('.').any(str::is_empty) {
        return Err(Refused::Url("an empty part in the host"));
    }
    if !name.is_ascii() || name.contains('%') {
        return Err(Refused::Url("a host beyond ASCII under a scheme that does not encode it"));
    }
    let name = name.to_ascii_lowercase();
    let last = name.rsplit('.').next().unwrap_or_default();
    let numeric = last.bytes().all(|b| b.is_ascii_digit()) || last.starts_with("0x");
    if numeric {
        return match Host::parse(&name) {
            Ok(Host::Ipv4(ip)) => Ok((ip.to_string(), Some(IpAddr::V4(ip)))),
            _ => Err(Refused::Url("a host that ends in a number and is no address")),
        };
    }
    Ok((name, None))
}

fn private_ip(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => {
            let [a, b, c, _] = ip.octets();
            ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || ip.is_unspecified()
                || ip.is_broadcast()
                || ip.is_multicast()
                || ip.is_documentation()
                || a == 0
                || a >= 240
                || (a == 100 && (64..128).contains(&b))
                || (a == 192 && b == 0 && c == 0)
                || (a == 198 && (18..20).contains(&b))
        }
        IpAddr::V6(ip) => {
            let [a, b, c, ..] = ip.segments();
            let embedded = ip.to_ipv4().is_some_and(|ip| private_ip(IpAddr::V4(ip)));
            // Translated (64:ff9b::/96) and tunnelled (2002::/16, 2001::/32) addresses carry another one inside.
            let carries = (a == 0x64 && b == 0xff9b) || a == 0x2002 || (a == 0x2001 && b == 0);
            ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_multicast()
                || embedded
                || carries
                || (a & 0xfe00) == 0xfc00
                || (a & 0xffc0) == 0xfe80
                || (a & 0xffc0) == 0xfec0
                || (a == 0x2001 && b == 0x0db8)
                || (a == 0x0100 && b == 0 && c == 0)
        }
    }
}

/// Whether a name is, by its ending or lack of one, of this machine or a private network.
pub(crate) fn private_name(name: &str) -> bool {
    let ends = ["localhost", "local", "internal", "intranet", "lan", "home", "corp", "home.arpa", "localdomain"];
    !name.contains('.')
        || ends.iter().any(|end| name.strip_suffix(end).is_some_and(|rest| rest.is_empty() || rest.ends_with('.')))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    #[test]
    fn hosts_have_one_form() {
        for (text, host, port) in [
            ("https://Example.COM./x", "example.com", Some(443)),
            ("https://münchen.de", "xn--mnchen-3ya.de", Some(443)),
            ("http://2130706433/", "127.0.0.1", Some(80)),
            ("http://0x7f.1/", "127.0.0.1", Some(80)),
            ("http://017700000001:8080/", "127.0.0.1", Some(8080)),
            ("http://[::1]/", "::1", Some(80)),
            ("http://①②⑦.0.0.1/", "127.0.0.1", Some(80)),
            ("foo://2130706433/", "127.0.0.1", None),
            ("https://user:pw@a.example/", "a.example", Some(443)),
        ] {
            let link = Link::parse(text).unwrap();
            assert_eq!((link.host(), link.port()), (host, port), "{text}");
        }
        assert!(Link::parse("https://user@a.example/").unwrap().userinfo());
        assert!(!Link::parse("https://a.example/@b").unwrap().userinfo());
    }

    #[test]
    fn spellings_that_readers_split_differently_are_refused() {
        for text in [
            "",
            "a.example",
            "//a.example",
            "https:a.example",
            "https:///a.example",
            "https:\\\\a.example",
            "https://a.example\\@b.example",
            "https://a%2eexample",
            "https://a.example\t/",
            " https://a.example",
            "https://a@b@c.example",
            "https://",
            "https://a..example/",
            "javascript:alert(1)",
            "data:text/plain,x",
            "https://a.example\u{ff0f}.b.example",
            "mailto:a@b.example",
            "https://1.2.3.4.5/",
            "foo://ex\u{e4}mple/",
        ] {
            assert!(Link::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn private_hosts_are_known() {
        for text in [
            "127.0.0.1",
            "10.1.2.3",
            "169.254.169.254",
            "100.64.0.1",
            "::1",
            "fe80::1",
            "::ffff:10.0.0.1",
            "fd00::1",
            "localhost",
            "metadata.google.internal",
            "printer",
            "64:ff9b::7f00:1",
            "0.0.0.0",
        ] {
            let shown = if text.contains(':') { format!("http://[{text}]/") } else { format!("http://{text}/") };
            assert!(Link::parse(&shown).unwrap().is_private(), "{text}");
        }
        for text in ["8.8.8.8", "example.com", "locallhost.example", "[2606:4700::1111]"] {
            assert!(!Link::parse(&format!("http://{text}/")).unwrap().is_private(), "{text}");
        }
    }
}
