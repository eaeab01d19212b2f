// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules about the destinations that cells may reach: their syntax and their evaluation.

use crate::address::{AddressClass, Subnet, classify};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Destinations that cells may reach.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub(crate) target: RuleTarget,
    /// Only this port, of TCP and of UDP. Without it, all ports and ICMP echo requests.
    pub(crate) port: Option<u16>,
}

/// The destinations of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum RuleTarget {
    /// Every public address, and every name.
    Public,
    /// All private networks.
    Private,
    /// The host's loopback, at the gateway's own address.
    Host,
    /// DNS queries for any name.
    Names,
    /// A network.
    Network(Subnet),
    /// The addresses of this name.
    Name(String, Scope),
    /// The addresses of the names below this one; it starts with a dot.
    Subdomains(String, Scope),
}

/// The addresses of a name that its rule allows: the name's owner controls which there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Scope {
    /// Public ones.
    Public,
    /// Private ones, too.
    Private,
}

impl Rule {
    /// All public addresses, and none near the host.
    pub const PUBLIC: Rule = Rule { target: RuleTarget::Public, port: None };

    /// Whether it covers a DNS name, in lower case. (A name with a backslash contains an escaped dot.)
    pub(crate) fn covers_name(&self, name: &str) -> bool {
        match &self.target {
            _ if name.contains('\\') => false,
            RuleTarget::Name(own, _) => own == name,
            RuleTarget::Subdomains(own, _) => name.len() > own.len() && name.ends_with(own.as_str()),
            _ => false,
        }
    }

    fn is_for_port(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }
}

impl FromStr for Rule {
    type Err = String;

    /// Parses `TARGET[:PORT]`: a word, an address, a network, or a name.
    fn from_str(text: &str) -> Result<Rule, String> {
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split_once('/').map_or(rest, |(host, _)| host);
            return Err(format!("`{text}` is not a destination: give only the host and its port, such as {host}:443"));
        }
        // IPv6 addresses contain colons, so a port needs brackets around them.
        let (target, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((target, ""))) => (target, None),
            Some(Some((target, port))) => {
                (target, Some(port.strip_prefix(':').ok_or_else(|| format!("`{port}` is not a port: give [ADDRESS]:PORT"))?))
            }
            Some(None) => return Err(format!("`{text}` lacks a closing bracket")),
            None if text.matches(':').count() == 1 => text.split_once(':').map_or((text, None), |(target, port)| (target, Some(port))),
            None => (text, None),
        };
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port != 0 => Some(port),
            Some(_) => {
                return Err(format!("`{text}` has an invalid port: give TARGET:PORT with a number up to 65535, such as example.org:443"));
            }
        };
        Ok(Rule { target: self::target(target)?, port })
    }
}

fn target(text: &str) -> Result<RuleTarget, String> {
    match text {
        "public" => return Ok(RuleTarget::Public),
        "private" => return Ok(RuleTarget::Private),
        "host" => return Ok(RuleTarget::Host),
        "dns" => return Ok(RuleTarget::Names),
        _ => {}
    }
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    if let Ok(address) = address.parse::<IpAddr>() {
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(all), |bits| bits.parse().ok());
        let network = bits
            .and_then(|bits| Subnet::new(address, bits))
            .ok_or_else(|| format!("`{text}` is not a network: give ADDRESS/BITS with at most {all} bits"))?;
        if address.is_loopback() {
            return Err(format!(
                "`{address}` is the cell's own loopback: `host` (or host:PORT) opens the host's, at the gateway's address"
            ));
        }
        return Ok(RuleTarget::Network(network));
    }
    name(text).ok_or_else(|| {
        format!("`{text}` is not a destination: give public, private, host or dns, an address, a network such as 10.0.0.0/8, a name such as example.org or *.example.org, or example.org/private for its private addresses too; :PORT may follow")
    })
}

/// Parses a host name, or `*.` and one; `/private` may follow.
fn name(text: &str) -> Option<RuleTarget> {
    let (text, scope) = text.strip_suffix("/private").map_or((text, Scope::Public), |name| (name, Scope::Private));
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        (1..64).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
    };
    let plain = name.strip_prefix("*.").unwrap_or(&name);
    // A name whose last part is a number is an incomplete address.
    let is_name =
        plain.len() < 254 && plain.split('.').all(is_label) && !plain.rsplit('.').next()?.bytes().all(|byte| byte.is_ascii_digit());
    is_name.then(|| {
        name.strip_prefix('*').map_or_else(|| RuleTarget::Name(name.clone(), scope), |below| RuleTarget::Subdomains(below.into(), scope))
    })
}

/// All rules of a gateway.
#[derive(Clone, Debug)]
pub(crate) struct Rules {
    list: Vec<Rule>,
}

impl Rules {
    pub(crate) fn new(list: Vec<Rule>) -> Rules {
        Rules { list }
    }

    /// Whether a cell may query a name, in lower case: a query itself transmits data to the name's servers.
    pub(crate) fn admit_name(&self, name: &str) -> bool {
        self.list.iter().any(|rule| matches!(rule.target, RuleTarget::Public | RuleTarget::Names) || rule.covers_name(name))
    }

    /// Whether a port of the host's loopback is allowed.
    pub(crate) fn admit_host(&self, port: u16) -> bool {
        self.list.iter().any(|rule| rule.target == RuleTarget::Host && rule.is_for_port(port))
    }

    /// Whether an address is allowed. `is_named` tells whether the name of a rule has it. The host's own addresses need a rule for each.
    pub(crate) fn admit(&self, to: SocketAddr, is_named: impl Fn(&Rule) -> bool, is_host_address: impl Fn(IpAddr) -> bool) -> bool {
        let address = to.ip();
        let kind = classify(address);
        let opens = |rule: &&Rule| {
            rule.is_for_port(to.port())
                && match &rule.target {
                    RuleTarget::Public => kind == AddressClass::Public,
                    RuleTarget::Private => kind == AddressClass::Private,
                    RuleTarget::Network(network) => network.contains(address),
                    RuleTarget::Name(_, scope) | RuleTarget::Subdomains(_, scope) => {
                        let is_in_scope = kind == AddressClass::Public || kind == AddressClass::Private && *scope == Scope::Private;
                        is_in_scope && is_named(rule)
                    }
                    RuleTarget::Host | RuleTarget::Names => false,
                }
        };
        let exact = |rule: &Rule| matches!(rule.target, RuleTarget::Network(network) if network.is_exactly(address));
        let mut opening = self.list.iter().filter(opens).peekable();
        kind != AddressClass::Reserved && opening.peek().is_some() && (opening.any(exact) || !is_host_address(address))
    }

    /// Whether a rule covers this name, so that its addresses must be cached.
    pub(crate) fn covers_name(&self, name: &str) -> bool {
        self.list.iter().any(|rule| rule.covers_name(name))
    }

    /// The ports of all rules; `None` if any port.
    pub(crate) fn ports(&self) -> Option<Vec<u16>> {
        self.list.iter().filter(|rule| rule.target != RuleTarget::Names).map(|rule| rule.port).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Rule, RuleTarget, Rules, Scope};
    use std::net::SocketAddr;

    fn rules(texts: &[&str]) -> Rules {
        Rules::new(texts.iter().map(|text| text.parse().expect("a rule")).collect())
    }

    /// Whether a destination is allowed, on a host that has 192.168.1.5 and 5.5.5.5, where `named.org` has every address.
    fn admit(texts: &[&str], to: &str) -> bool {
        let to: SocketAddr = to.parse().expect("a destination");
        rules(texts).admit(to, |rule| rule.covers_name("named.org"), |address| ["192.168.1.5", "5.5.5.5"].contains(&&*address.to_string()))
    }

    #[test]
    fn rules_open_the_named_destinations_only() {
        assert!(admit(&["public"], "8.8.8.8:53") && admit(&["public"], "[2606:4700::1111]:443"));
        for to in [
            "10.0.0.1:80",
            "192.168.1.5:80",
            "5.5.5.5:80",
            "127.0.0.1:80",
            "169.254.169.254:80",
            "224.0.0.1:80",
            "0.0.0.0:80",
            "[::1]:80",
            "[fd00::1]:80",
        ] {
            assert!(!admit(&["public"], to), "{to}");
            assert!(!admit(&[], to), "{to}");
        }
        assert!(admit(&["private"], "10.0.0.1:80") && !admit(&["private"], "8.8.8.8:53"));
        assert!(
            admit(&["10.0.0.0/8"], "10.9.9.9:1")
                && !admit(&["10.0.0.0/8:5432"], "10.9.9.9:1")
                && admit(&["10.0.0.0/8:5432"], "10.9.9.9:5432")
        );
        assert!(admit(&["[fd00::/8]:443"], "[fd00::1]:443") && admit(&["fd00::/8"], "[fd00::1]:443"));
        for to in ["168.63.129.16:80", "100.100.100.200:80", "[fd00:ec2::254]:80", "[fd20:ce::254]:80"] {
            assert!(!admit(&["public", "private", "named.org"], to), "{to}");
        }
        assert!(admit(&["169.254.169.254"], "169.254.169.254:80") && !admit(&["private"], "169.254.169.254:80"));
    }

    #[test]
    fn the_hosts_own_addresses_are_open_only_one_by_one() {
        assert!(!admit(&["0.0.0.0/0", "public", "private"], "192.168.1.5:80") && admit(&["public", "192.168.1.5"], "192.168.1.5:80"));
        assert!(!admit(&["0.0.0.0/0"], "127.0.0.1:80") && !admit(&["0.0.0.0/0"], "127.255.0.1:80"));
        let host = rules(&["host:5432", "public"]);
        assert!(
            host.admit_host(5432)
                && !host.admit_host(5433)
                && !rules(&["public", "0.0.0.0/0"]).admit_host(80)
                && rules(&["host"]).admit_host(80)
        );
    }

    #[test]
    fn names_open_their_addresses() {
        assert!(
            admit(&["named.org:443"], "8.8.8.8:443") && !admit(&["named.org:443"], "8.8.8.8:80") && !admit(&["other.org"], "8.8.8.8:80")
        );
        // The owner of a name must not be able to allow the host by it.
        assert!(
            !admit(&["named.org"], "192.168.1.5:80")
                && !admit(&["named.org"], "127.0.0.1:80")
                && !admit(&["named.org"], "169.254.169.254:80")
        );
        let rules = rules(&["example.org:443", "*.Example.NET."]);
        assert!(rules.admit_name("example.org") && rules.admit_name("www.example.net") && rules.admit_name("a.b.example.net"));
        assert!(!rules.admit_name("www.example.org") && !rules.admit_name("example.net") && !rules.admit_name("badexample.net"));
        assert!(
            self::rules(&["public"]).admit_name("anything")
                && self::rules(&["dns"]).admit_name("anything")
                && !self::rules(&["10.0.0.0/8"]).admit_name("a.org")
        );
    }

    #[test]
    fn names_open_private_networks_only_where_their_rule_says_so() {
        for private in ["10.9.9.9:80", "192.168.1.1:80", "[fd00::1]:80", "100.64.0.1:80"] {
            assert!(!admit(&["named.org"], private) && !admit(&["named.org", "public", "dns", "*.org"], private), "{private}");
            assert!(admit(&["named.org/private"], private) && admit(&["named.org", "private"], private), "{private}");
            assert!(!admit(&["named.org/private:81"], private) && !admit(&["other.org/private"], private), "{private}");
        }
        assert!(admit(&["named.org", "10.9.9.9"], "10.9.9.9:80") && admit(&["named.org/private"], "8.8.8.8:80"));
        for nowhere in ["169.254.169.254:80", "127.0.0.1:80", "192.168.1.5:80", "[fd00:ec2::254]:80"] {
            assert!(!admit(&["named.org/private"], nowhere), "{nowhere}");
        }
    }

    #[test]
    fn rules_are_read_as_people_write_them() {
        let target = |text: &str| text.parse().map(|Rule { target, port }| (target, port));
        assert_eq!(target("host:80"), Ok((RuleTarget::Host, Some(80))));
        assert_eq!(target("Example.org"), Ok((RuleTarget::Name("example.org".into(), Scope::Public), None)));
        assert_eq!(target("*.example.org:8"), Ok((RuleTarget::Subdomains(".example.org".into(), Scope::Public), Some(8))));
        assert_eq!(target("db.example.org/private:5432"), Ok((RuleTarget::Name("db.example.org".into(), Scope::Private), Some(5432))));
        for text in [
            "",
            "host:",
            "host:0",
            "host:x",
            "1.2.3",
            "1.2.3.4/33",
            "1.2.3.4/x",
            "[::1",
            "[fd00::1]80",
            "127.0.0.1",
            "127.0.0.0/8",
            "::1",
            "a b",
            "*",
            "*.",
            "a..b",
            "http://example.org",
            "-v",
            "example.org/public",
            "/private",
            "1.2.3.4:5:6",
        ] {
            assert!(text.parse::<Rule>().is_err(), "{text}");
        }
    }

    #[test]
    fn ports_of_all_rules_are_known() {
        assert_eq!(rules(&["a.org:443", "host:80", "dns"]).ports(), Some(vec![443, 80]));
        assert_eq!((rules(&["a.org:443", "public"]).ports(), rules(&[]).ports()), (None, Some(vec![])));
    }
}
