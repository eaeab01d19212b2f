// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which destinations cells may reach: rules as an operator writes them, and what they come to for an address.

use crate::address::{Kind, Network, kind};
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// Destinations that cells may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(crate) target: Target,
    /// At this port alone, of TCP and of UDP. Otherwise echoes may be asked for too.
    pub(crate) port: Option<u16>,
}

/// What a rule opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// The world: every public address, and every name.
    Public,
    /// Private networks that the host reaches.
    Private,
    /// The host's loopback, at the gateway's own address.
    Host,
    /// Asking for any name.
    Names,
    /// A network.
    Network(Network),
    /// The addresses of this name.
    Name(String, Scope),
    /// The addresses of the names below this one; it begins with a dot.
    Below(String, Scope),
}

/// Which of a name's addresses its rule opens: the name's owner says which there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Public ones.
    Public,
    /// Those of private networks too.
    Private,
}

impl Rule {
    /// The world, and nothing that is near the host.
    pub const PUBLIC: Rule = Rule { target: Target::Public, port: None };

    /// Whether it is about a name of the domain name system, in lower case. (A name with a backslash has a dot where others have none.)
    pub(crate) fn names(&self, name: &str) -> bool {
        match &self.target {
            _ if name.contains('\\') => false,
            Target::Name(own, _) => own == name,
            Target::Below(own, _) => name.len() > own.len() && name.ends_with(own.as_str()),
            _ => false,
        }
    }

    fn is_for_port(&self, port: u16) -> bool {
        self.port.is_none_or(|own| own == port)
    }
}

impl FromStr for Rule {
    type Err = String;

    /// Reads `TARGET[:PORT]`: a word, an address, a network, or a name.
    fn from_str(text: &str) -> Result<Rule, String> {
        if let Some((_, rest)) = text.split_once("://") {
            let host = rest.split_once('/').map_or(rest, |(host, _)| host);
            return Err(format!("`{text}` is no destination: leave out what is not the host and its port, such as {host}:443"));
        }
        // An address of IPv6 has colons itself, so a port needs brackets around it.
        let (target, port) = match text.strip_prefix('[').map(|rest| rest.split_once(']')) {
            Some(Some((target, ""))) => (target, None),
            Some(Some((target, port))) => {
                (target, Some(port.strip_prefix(':').ok_or_else(|| format!("`{port}` is no port: give [ADDRESS]:PORT"))?))
            }
            Some(None) => return Err(format!("`{text}` lacks a closing bracket")),
            None if text.matches(':').count() == 1 => text.split_once(':').map_or((text, None), |(target, port)| (target, Some(port))),
            None => (text, None),
        };
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port != 0 => Some(port),
            Some(_) => {
                return Err(format!("`{text}` ends in no port: give TARGET:PORT with a number up to 65535, such as example.org:443"));
            }
        };
        Ok(Rule { target: self::target(target)?, port })
    }
}

fn target(text: &str) -> Result<Target, String> {
    match text {
        "public" => return Ok(Target::Public),
        "private" => return Ok(Target::Private),
        "host" => return Ok(Target::Host),
        "dns" => return Ok(Target::Names),
        _ => {}
    }
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    if let Ok(address) = address.parse::<IpAddr>() {
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Some(all), |bits| bits.parse().ok());
        let network = bits
            .and_then(|bits| Network::new(address, bits))
            .ok_or_else(|| format!("`{text}` is no network: give ADDRESS/BITS with at most {all} bits"))?;
        if address.is_loopback() {
            return Err(format!(
                "`{address}` is the cell's own loopback: `host` (or host:PORT) opens the host's, at the gateway's address"
            ));
        }
        return Ok(Target::Network(network));
    }
    name(text).ok_or_else(|| {
        format!("`{text}` is no destination: give public, private, host or dns, an address, a network such as 10.0.0.0/8, a name such as example.org or *.example.org, or example.org/private for its private addresses too; :PORT may follow")
    })
}

/// A name of hosts, or `*.` and one; `/private` may follow.
fn name(text: &str) -> Option<Target> {
    let (text, scope) = text.strip_suffix("/private").map_or((text, Scope::Public), |name| (name, Scope::Private));
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        (1..64).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
            && !label.starts_with('-')
    };
    let plain = name.strip_prefix("*.").unwrap_or(&name);
    // A number where a name's last part should stand is an address that was not finished.
    let is_name =
        plain.len() < 254 && plain.split('.').all(is_label) && !plain.rsplit('.').next()?.bytes().all(|byte| byte.is_ascii_digit());
    is_name.then(|| name.strip_prefix('*').map_or_else(|| Target::Name(name.clone(), scope), |below| Target::Below(below.into(), scope)))
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

    /// Whether a cell may ask for a name, in lower case: a question says something to whoever answers it.
    pub(crate) fn admit_name(&self, name: &str) -> bool {
        self.list.iter().any(|rule| matches!(rule.target, Target::Public | Target::Names) || rule.names(name))
    }

    /// Whether a port of the host's loopback is open.
    pub(crate) fn admit_host(&self, port: u16) -> bool {
        self.list.iter().any(|rule| rule.target == Target::Host && rule.is_for_port(port))
    }

    /// Whether an address may be reached, of which `is_named` says whether the name of a rule has it. The host's own addresses are open only where a rule names them one by one.
    pub(crate) fn admit(&self, to: SocketAddr, is_named: impl Fn(&Rule) -> bool, is_the_hosts: impl Fn(IpAddr) -> bool) -> bool {
        let address = to.ip();
        let kind = kind(address);
        let opens = |rule: &&Rule| {
            rule.is_for_port(to.port())
                && match &rule.target {
                    Target::Public => kind == Kind::Public,
                    Target::Private => kind == Kind::Private,
                    Target::Network(network) => network.contains(address),
                    Target::Name(_, scope) | Target::Below(_, scope) => {
                        let is_in_scope = kind == Kind::Public || kind == Kind::Private && *scope == Scope::Private;
                        is_in_scope && is_named(rule)
                    }
                    Target::Host | Target::Names => false,
                }
        };
        let exact = |rule: &Rule| matches!(rule.target, Target::Network(network) if network.is_exactly(address));
        let mut opening = self.list.iter().filter(opens).peekable();
        kind != Kind::Nowhere && opening.peek().is_some() && (opening.any(exact) || !is_the_hosts(address))
    }

    /// Whether some rule is about this name, so that its addresses are worth remembering.
    pub(crate) fn name(&self, name: &str) -> bool {
        self.list.iter().any(|rule| rule.names(name))
    }

    /// The ports to which connections can lead; nothing if to any.
    pub(crate) fn ports(&self) -> Option<Vec<u16>> {
        self.list.iter().filter(|rule| rule.target != Target::Names).map(|rule| rule.port).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Rule, Rules, Scope, Target};
    use std::net::SocketAddr;

    fn rules(texts: &[&str]) -> Rules {
        Rules::new(texts.iter().map(|text| text.parse().expect("a rule")).collect())
    }

    /// Whether a destination is open, on a host that has 192.168.1.5 and 5.5.5.5, where `named.org` has every address.
    fn admit(texts: &[&str], to: &str) -> bool {
        let to: SocketAddr = to.parse().expect("a destination");
        rules(texts).admit(to, |rule| rule.names("named.org"), |address| ["192.168.1.5", "5.5.5.5"].contains(&&*address.to_string()))
    }

    #[test]
    fn rules_open_what_they_say() {
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
        // Whoever owns a name must not open the host by it.
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
        assert_eq!(target("host:80"), Ok((Target::Host, Some(80))));
        assert_eq!(target("Example.org"), Ok((Target::Name("example.org".into(), Scope::Public), None)));
        assert_eq!(target("*.example.org:8"), Ok((Target::Below(".example.org".into(), Scope::Public), Some(8))));
        assert_eq!(target("db.example.org/private:5432"), Ok((Target::Name("db.example.org".into(), Scope::Private), Some(5432))));
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
