// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routing of cells' destinations: the host address behind each, as far as the rules allow.

use crate::GatewayAddresses;
use crate::address::{Subnet, is_host_address};
use crate::limits::{MAX_NAME_LIFETIME, MAX_REPORTED, MAX_RESOLVED_NAMES, MIN_NAME_LIFETIME};
use crate::rules::{Rule, Rules};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The DNS port.
pub(crate) const DNS: u16 = 53;

/// The target of a cell's destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    /// The gateway's DNS proxy.
    Resolver,
    /// An address to which a socket of the host connects.
    Host(SocketAddr),
}

/// The rules and the state to apply them.
#[derive(Debug)]
pub(crate) struct Routes {
    rules: Rules,
    gateway: [IpAddr; 2],
    networks: [Option<Subnet>; 2],
    resolved: ResolvedNames,
    /// The number of refused destinations, and the first of them.
    refused: (u64, Vec<RefusedDestination>),
    /// The host does not allow pings, and that was reported.
    is_echo_forbidden: bool,
    /// The first refused names.
    names: Vec<String>,
    /// Refusals that were not reported yet.
    unreported: VecDeque<RefusedDestination>,
}

/// A refused destination or name: no rule allows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusedDestination {
    /// A TCP or UDP destination.
    Destination(SocketAddr),
    /// A ping.
    Echo(IpAddr),
    /// Any ping: the host does not allow its user to ping.
    Echoes,
    /// A DNS query for a name, which is safe to print.
    Name(String),
}

impl std::fmt::Display for RefusedDestination {
    /// The destination, or the name.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RefusedDestination::Destination(to) => to.fmt(formatter),
            RefusedDestination::Echo(to) => write!(formatter, "ping {to}"),
            RefusedDestination::Echoes => formatter.write_str("ping"),
            RefusedDestination::Name(name) => formatter.write_str(name),
        }
    }
}

impl Routes {
    pub(crate) fn new(rules: Rules, addresses: &GatewayAddresses) -> Routes {
        let gateway = [addresses.address4.into(), addresses.address6.into()];
        let networks = [Subnet::new(gateway[0], addresses.prefix4), Subnet::new(gateway[1], addresses.prefix6)];
        Routes {
            rules,
            gateway,
            networks,
            resolved: ResolvedNames::default(),
            refused: (0, Vec::new()),
            is_echo_forbidden: false,
            names: Vec::new(),
            unreported: VecDeque::new(),
        }
    }

    /// The target of a destination, if it is allowed. Records refusals.
    pub(crate) fn route(&mut self, to: SocketAddr, now: u64) -> Option<Destination> {
        let route = self.find_route(to, now);
        if route.is_none() {
            self.refuse(RefusedDestination::Destination(to));
        }
        route
    }

    /// Whether a cell may ping an address: pings have no port, so a rule with a port does not allow them. Records refusals.
    pub(crate) fn admit_echo(&mut self, to: IpAddr, now: u64) -> bool {
        let admitted = self.is_allowed(SocketAddr::new(to, 0), now);
        if !admitted {
            self.refuse(RefusedDestination::Echo(to));
        }
        admitted
    }

    /// Records that the host does not allow pings.
    pub(crate) fn note_echo_forbidden(&mut self) {
        if !std::mem::replace(&mut self.is_echo_forbidden, true) {
            self.unreported.push_back(RefusedDestination::Echoes);
        }
    }

    fn refuse(&mut self, target: RefusedDestination) {
        let (count, reported) = &mut self.refused;
        *count += 1;
        if reported.len() < MAX_REPORTED && !reported.contains(&target) {
            reported.push(target.clone());
            self.unreported.push_back(target);
        }
    }

    /// Whether a destination is the gateway's DNS proxy.
    pub(crate) fn is_resolver(&self, to: SocketAddr) -> bool {
        to.port() == DNS && self.gateway.contains(&to.ip())
    }

    fn find_route(&self, to: SocketAddr, now: u64) -> Option<Destination> {
        let address = to.ip();
        if self.is_resolver(to) {
            return Some(Destination::Resolver);
        }
        if self.gateway.contains(&address) {
            let loopback = if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
            return self.rules.admit_host(to.port()).then(|| Destination::Host(SocketAddr::new(loopback, to.port())));
        }
        (to.port() != 0 && self.is_allowed(to, now)).then_some(Destination::Host(to))
    }

    fn is_allowed(&self, to: SocketAddr, now: u64) -> bool {
        let address = to.ip();
        // Addresses in the cells' own network are not routed.
        let is_local_network = self.networks.iter().flatten().any(|network| network.contains(address));
        let is_named = |rule: &Rule| self.resolved.has(address, now, rule);
        !is_local_network && self.rules.admit(to, is_named, is_host_address)
    }

    /// Whether a cell may query a name. Records refusals of names that are safe to print, without reverse lookups.
    pub(crate) fn admit_name(&mut self, name: &str) -> bool {
        let admitted = self.rules.admit_name(name);
        let is_plain = || name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) && !name.ends_with(".arpa");
        if !admitted && self.names.len() < MAX_REPORTED && is_plain() && !self.names.iter().any(|reported| reported == name) {
            self.names.push(name.into());
            self.unreported.push_back(RefusedDestination::Name(name.into()));
        }
        admitted
    }

    /// Caches the addresses of a name.
    pub(crate) fn learn(&mut self, name: &str, addresses: &[(IpAddr, u32)], now: u64) {
        if self.rules.covers_name(name) {
            for (address, seconds) in addresses {
                let time = Duration::from_secs((*seconds).into()).clamp(MIN_NAME_LIFETIME, MAX_NAME_LIFETIME);
                self.resolved.add(*address, name, now.saturating_add(time.as_nanos() as u64));
            }
        }
    }

    /// The next refusal to report.
    pub(crate) fn unreported(&mut self) -> Option<RefusedDestination> {
        self.unreported.pop_front()
    }

    /// The number of refused destinations, and the first of them.
    pub(crate) fn refused(&self) -> (u64, Vec<RefusedDestination>) {
        self.refused.clone()
    }
}

/// The cache of names' addresses, with their expiry times.
#[derive(Debug, Default)]
struct ResolvedNames {
    expires: BTreeMap<(IpAddr, String), u64>,
}

impl ResolvedNames {
    fn add(&mut self, address: IpAddr, name: &str, expires: u64) {
        let entry = (address, name.to_owned());
        if self.expires.len() >= MAX_RESOLVED_NAMES && !self.expires.contains_key(&entry) {
            let first = self.expires.iter().min_by_key(|(_, expires)| **expires).map(|(entry, _)| entry.clone());
            first.map(|first| self.expires.remove(&first));
        }
        let latest = self.expires.entry(entry).or_default();
        *latest = (*latest).max(expires);
    }

    /// Whether a name that a rule covers has this address.
    fn has(&self, address: IpAddr, now: u64, rule: &Rule) -> bool {
        let names = self.expires.range((address, String::new())..).take_while(|((other, _), _)| *other == address);
        names.into_iter().any(|((_, name), expires)| *expires > now && rule.covers_name(name))
    }
}

#[cfg(test)]
mod tests {
    use super::{DNS, Destination, RefusedDestination, Routes};
    use crate::GatewayAddresses;
    use crate::rules::Rules;

    fn routes(rules: &[&str]) -> Routes {
        Routes::new(Rules::new(rules.iter().map(|text| text.parse().expect("a rule")).collect()), &GatewayAddresses::example())
    }

    fn route(routes: &mut Routes, to: &str, now: u64) -> Option<Destination> {
        routes.route(to.parse().expect("a destination"), now)
    }

    #[test]
    fn the_gateways_own_address_is_its_resolver_and_the_hosts_loopback() {
        let mut routes = routes(&["host:80", "8.0.0.0/8"]);
        let host = |text: &str| Some(Destination::Host(text.parse().expect("a destination")));
        assert_eq!(route(&mut routes, "10.77.0.1:53", 0), Some(Destination::Resolver));
        assert_eq!(route(&mut routes, "10.77.0.1:80", 0), host("127.0.0.1:80"));
        assert_eq!(route(&mut routes, "[fd70::1]:80", 0), host("[::1]:80"));
        assert_eq!(route(&mut routes, "10.77.0.1:81", 0), None);
        assert_eq!(route(&mut routes, "127.0.0.1:80", 0), None);
        assert_eq!(route(&mut routes, &format!("8.8.8.8:{DNS}"), 0), host("8.8.8.8:53"));
        let (count, reported) = routes.refused();
        assert_eq!((count, reported.len()), (2, 2));
        assert!(!routes.admit_name("a\u{1b}[2Jb") && !routes.admit_name("1.0.0.10.in-addr.arpa"));
        assert_eq!(std::iter::from_fn(|| routes.unreported()).collect::<Vec<_>>(), reported);
    }

    #[test]
    fn a_rule_about_a_port_opens_no_echoes() {
        let mut routes = routes(&["8.8.8.8:443", "1.1.1.1", "host"]);
        let mut echo = |to: &str| routes.admit_echo(to.parse().expect("an address"), 0);
        assert!(echo("1.1.1.1") && !echo("8.8.8.8") && !echo("127.0.0.1") && !echo("10.77.0.9"));
        assert_eq!(routes.unreported(), Some(RefusedDestination::Echo([8, 8, 8, 8].into())));
    }

    #[test]
    fn a_refused_name_is_reported_once() {
        let mut routes = routes(&["example.org"]);
        assert!(routes.admit_name("example.org") && !routes.admit_name("other.org") && !routes.admit_name("other.org"));
        assert_eq!((routes.unreported(), routes.unreported()), (Some(RefusedDestination::Name("other.org".into())), None));
    }

    #[test]
    fn neighbours_are_not_outside() {
        assert_eq!(route(&mut routes(&["10.0.0.0/8"]), "10.77.0.9:80", 0), None);
        assert!(route(&mut routes(&["10.0.0.0/8"]), "10.78.0.9:80", 0).is_some());
    }

    #[test]
    fn rules_for_names_open_the_resolved_addresses() {
        let mut routes = routes(&["*.example.org:443"]);
        assert!(route(&mut routes, "8.8.8.8:443", 0).is_none());
        routes.learn("www.example.org", &[("8.8.8.8".parse().expect("an address"), 900)], 0);
        routes.learn("other.org", &[("9.9.9.9".parse().expect("an address"), 900)], 0);
        assert!(route(&mut routes, "8.8.8.8:443", 1).is_some() && route(&mut routes, "8.8.8.8:80", 1).is_none());
        assert!(route(&mut routes, "9.9.9.9:443", 1).is_none());
        assert!(route(&mut routes, "8.8.8.8:443", 900_000_000_000).is_none(), "its time is over");
    }

    #[test]
    fn the_number_of_resolved_names_is_bounded() {
        let mut routes = routes(&["*.example.org"]);
        for number in 0..3 * super::MAX_RESOLVED_NAMES as u32 {
            routes.learn("www.example.org", &[(std::net::Ipv4Addr::from_bits(number).into(), 900)], number.into());
        }
        assert_eq!(routes.resolved.expires.len(), super::MAX_RESOLVED_NAMES);
    }
}
