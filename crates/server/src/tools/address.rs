//! Which addresses a tool may live at: the guard against requests to the inside of a network. What is not here: the
//! requests (`http`).
//!
//! Every address that a name resolves to must pass, and the connection goes to exactly those addresses, so that a second
//! answer of a name server changes nothing.

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Where HTTP tools may live.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddressPolicy {
    /// Only at addresses of the public internet.
    #[default]
    Public,
    /// Also on this machine and in private networks; never at link-local (cloud metadata), multicast or unspecified
    /// addresses.
    Private,
}

/// A tool's address that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadAddress {
    /// Neither `http` nor `https`, or no host.
    #[error("the tool's URL must be http or https with a host")]
    NotHttp,
    /// The URL carries a user name or password.
    #[error("the tool's URL holds credentials; name a variable in `bearer_env` instead")]
    Credentials,
    /// The address is not one that tools may live at.
    #[error("the tool's address is not allowed here")]
    Refused,
    /// The name has no address.
    #[error("the tool's host name has no address")]
    NoAddress,
}

impl AddressPolicy {
    /// Whether a tool may live at this address. An IPv6 address that carries an IPv4 address is judged by both.
    #[must_use]
    pub fn permits(self, ip: IpAddr) -> bool {
        match ip {
            IpAddr::V4(v4) => self.permits_v4(v4),
            IpAddr::V6(v6) => self.permits_v6(v6),
        }
    }

    /// Checks what can be checked of a URL before its name is resolved.
    pub fn check(self, url: &Url) -> Result<(), BadAddress> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(BadAddress::NotHttp);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(BadAddress::Credentials);
        }
        let permitted = match url.host() {
            None => return Err(BadAddress::NotHttp),
            Some(Host::Domain(name)) => !name.trim_end_matches('.').is_empty(),
            Some(Host::Ipv4(ip)) => self.permits_v4(ip),
            Some(Host::Ipv6(ip)) => self.permits_v6(ip),
        };
        if permitted { Ok(()) } else { Err(BadAddress::Refused) }
    }

    fn permits_v4(self, ip: Ipv4Addr) -> bool {
        let [a, b, c, _] = ip.octets();
        let never = a == 0                                   // "this network"
            || a >= 224                                      // multicast, reserved, broadcast
            || ip.is_link_local()                            // also cloud metadata
            || ip == Ipv4Addr::new(168, 63, 129, 16)         // a cloud's metadata at a public-looking address
            || (a == 100 && b == 100 && c == 100); // another cloud's
        let inside = ip.is_loopback()
            || ip.is_private()
            || (a == 100 && (64..128).contains(&b))          // carrier-grade NAT
            || (a == 192 && b == 0 && (c == 0 || c == 2))    // protocol assignments, documentation
            || (a == 192 && b == 88 && c == 99)              // 6to4 relays
            || (a == 198 && (b == 18 || b == 19))            // benchmarking
            || ip.is_documentation();
        !never && (self == Self::Private || !inside)
    }

    fn permits_v6(self, ip: Ipv6Addr) -> bool {
        if let Some(carried) = carried_v4(ip) {
            return self.permits_v4(carried);
        }
        let [first, second, ..] = ip.segments();
        let never = ip.is_unspecified()
            || ip.is_multicast()
            || (first & 0xffc0) == 0xfe80                    // link-local
            || (first & 0xffc0) == 0xfec0                    // the old site-local
            || ip == Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254); // cloud metadata
        if never {
            return false;
        }
        let inside = ip.is_loopback() || (first & 0xfe00) == 0xfc00;
        let global = (first & 0xe000) == 0x2000
            && !(first == 0x2001 && second < 0x200)          // protocol assignments, Teredo, benchmarking
            && !(first == 0x2001 && second == 0xdb8)         // documentation
            && first != 0x3fff; // documentation
        global || (self == Self::Private && inside)
    }
}

/// The IPv4 address inside an IPv6 address, in each of the forms a router or kernel may take apart.
fn carried_v4(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = ip.segments();
    let joined = |high: u16, low: u16| Ipv4Addr::from((u32::from(high) << 16) | u32::from(low));
    match (a, b, c, d, e, f) {
        // Mapped, translated, and the old compatible form; `::` and `::1` are IPv6's own.
        (0, 0, 0, 0, 0, 0xffff) | (0, 0, 0, 0, 0xffff, 0) => Some(joined(g, h)),
        (0, 0, 0, 0, 0, 0) if g != 0 || h > 1 => Some(joined(g, h)),
        // NAT64, the well-known prefix.
        (0x64, 0xff9b, 0, 0, 0, 0) => Some(joined(g, h)),
        // NAT64 with a local prefix: where the address stands is the network's own choice, so it never passes.
        (0x64, 0xff9b, 1, ..) => Some(Ipv4Addr::UNSPECIFIED),
        // 6to4.
        (0x2002, high, low, ..) => Some(joined(high, low)),
        // ISATAP.
        (_, _, _, _, 0 | 0x200, 0x5efe) => Some(joined(g, h)),
        _ => None,
    }
}

/// Resolves names, and refuses a name of which any address is not permitted.
#[derive(Debug, Clone, Copy)]
pub(super) struct CheckedResolver {
    pub(super) policy: AddressPolicy,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let policy = self.policy;
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let checked = checked(policy, found)?;
            let addresses: Addrs = Box::new(checked.into_iter());
            Ok(addresses)
        })
    }
}

fn checked(
    policy: AddressPolicy,
    found: impl Iterator<Item = SocketAddr>,
) -> Result<Vec<SocketAddr>, Box<dyn Error + Send + Sync>> {
    let found: Vec<SocketAddr> = found.collect();
    if found.is_empty() {
        return Err(BadAddress::NoAddress.into());
    }
    if found.iter().any(|address| !policy.permits(address.ip())) {
        return Err(BadAddress::Refused.into());
    }
    Ok(found)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests fail loudly")]
mod tests {
    use super::*;

    /// Addresses inside a network in the many ways to write them.
    const INSIDE: [&str; 37] = [
        "http://127.0.0.1/",
        "http://127.1/",
        "http://127.255.255.254:8080/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://017700000001/",
        "http://127.0.0.1./",
        "http://10.0.0.1/",
        "http://10.255.255.255/",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.168.1.1/",
        "http://0xc0a80101/",
        "http://100.64.0.1/",
        "http://100.127.255.255/",
        "http://192.0.0.1/",
        "http://192.0.2.1/",
        "http://192.88.99.1/",
        "http://198.18.0.1/",
        "http://198.51.100.7/",
        "http://203.0.113.9/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::ffff:10.0.0.1]/",
        "http://[::127.0.0.1]/",
        "http://[::ffff:0:127.0.0.1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[64:ff9b::10.0.0.1]/",
        "http://[2002:7f00:1::]/",
        "http://[2002:c0a8:101::1]/",
        "http://[fc00::1]/",
        "http://[fd12:3456::1]/",
        "http://[2607:f8b0::5efe:10.0.0.1]/",
        "http://１２７.０.０.１/",
    ];

    /// Addresses that no tool may ever live at.
    const NEVER: [&str; 24] = [
        "http://0.0.0.0/",
        "http://0/",
        "http://0.1.2.3/",
        "http://169.254.169.254/latest/meta-data",
        "http://0xa9fea9fe/",
        "http://2852039166/",
        "http://169.254.170.2/",
        "http://100.100.100.200/",
        "http://168.63.129.16/",
        "http://224.0.0.1/",
        "http://239.255.255.255/",
        "http://240.0.0.1/",
        "http://255.255.255.255/",
        "http://[::]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[::ffff:0.0.0.0]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[64:ff9b:1::1]/",
        "http://[2002:a9fe:a9fe::]/",
        "http://[fe80::1]/",
        "http://[fec0::1]/",
        "http://[ff02::1]/",
        "http://[fd00:ec2::254]/",
        "http://[::169.254.169.254]/",
    ];

    const OUTSIDE: [&str; 8] = [
        "https://93.184.216.34/",
        "http://8.8.8.8/",
        "http://172.15.0.1/",
        "http://172.32.0.1/",
        "http://100.63.0.1/",
        "https://[2606:4700:4700::1111]/",
        "https://[::ffff:8.8.8.8]/",
        "https://[64:ff9b::808:808]/",
    ];

    fn check(policy: AddressPolicy, text: &str) -> Result<(), BadAddress> {
        policy.check(&Url::parse(text).unwrap())
    }

    #[test]
    fn forms_of_addresses_are_judged_by_where_they_lead() {
        for text in INSIDE {
            assert_eq!(check(AddressPolicy::Public, text), Err(BadAddress::Refused), "{text}");
        }
        for text in NEVER {
            assert_eq!(check(AddressPolicy::Public, text), Err(BadAddress::Refused), "{text}");
            assert_eq!(check(AddressPolicy::Private, text), Err(BadAddress::Refused), "{text}");
        }
        for text in OUTSIDE {
            assert_eq!(check(AddressPolicy::Public, text), Ok(()), "{text}");
        }
        for text in ["http://127.0.0.1/", "http://10.0.0.1/", "http://[::1]/", "http://[::ffff:192.168.0.1]/"] {
            assert_eq!(check(AddressPolicy::Private, text), Ok(()), "{text}");
        }
        for text in ["http://[2001::1]/", "http://[2001:db8::1]/", "http://[3fff::1]/", "http://[4000::1]/"] {
            assert_eq!(check(AddressPolicy::Private, text), Err(BadAddress::Refused), "{text}");
        }
    }

    #[test]
    fn only_plain_http_urls_pass() {
        for policy in [AddressPolicy::Public, AddressPolicy::Private] {
            assert_eq!(check(policy, "file:///etc/passwd"), Err(BadAddress::NotHttp));
            assert_eq!(check(policy, "gopher://8.8.8.8/"), Err(BadAddress::NotHttp));
            assert_eq!(check(policy, "http://user@8.8.8.8/"), Err(BadAddress::Credentials));
            assert_eq!(check(policy, "http://user:word@8.8.8.8/"), Err(BadAddress::Credentials));
        }
    }

    #[test]
    fn one_bad_answer_spoils_a_name() {
        let answers = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<SocketAddr>>();
        let good = answers(&["8.8.8.8:0", "[2606:4700::1]:0"]);
        assert_eq!(checked(AddressPolicy::Public, good.clone().into_iter()).unwrap(), good);
        let mixed = answers(&["8.8.8.8:0", "127.0.0.1:0"]);
        assert!(checked(AddressPolicy::Public, mixed.clone().into_iter()).is_err());
        assert!(checked(AddressPolicy::Private, mixed.into_iter()).is_ok());
        assert!(checked(AddressPolicy::Private, answers(&["169.254.169.254:0"]).into_iter()).is_err());
        assert!(checked(AddressPolicy::Private, std::iter::empty()).is_err());
    }

    #[tokio::test]
    async fn the_name_of_this_machine_is_refused() {
        let resolver = CheckedResolver { policy: AddressPolicy::Public };
        let error = resolver.resolve("localhost".parse().unwrap()).await.err().unwrap();
        assert_eq!(error.downcast_ref::<BadAddress>(), Some(&BadAddress::Refused));
    }
}
