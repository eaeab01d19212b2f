// SPDX-License-Identifier: MIT OR Apache-2.0
//! What cells may reach: which of the host's destinations stands behind one of theirs.

use crate::Inside;
use crate::address::{Network, is_the_hosts};
use crate::limits::{LEAST_LEARNED, MAX_LEARNED, MOST_LEARNED, TOLD};
use crate::rules::{Rule, Rules};
use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

/// The port of the domain name system.
pub(crate) const DNS: u16 = 53;

/// What stands behind a destination of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The gateway itself, which passes questions about names on.
    Resolver,
    /// This, where a socket of the host can go.
    Host(SocketAddr),
}

/// Rules, and what is needed to apply them.
#[derive(Debug)]
pub(crate) struct World {
    rules: Rules,
    own: [IpAddr; 2],
    networks: [Option<Network>; 2],
    learned: Learned,
    /// How many destinations were refused, and the first of them.
    refused: (u64, Vec<Refused>),
    /// The host asks nobody for echoes, and that was told.
    is_mute: bool,
    /// The first names that were.
    names: Vec<String>,
    /// What of these was not told yet.
    untold: VecDeque<Refused>,
}

/// What a cell wanted and could not have: no rule opens it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// To speak with somebody.
    Destination(SocketAddr),
    /// To ask somebody for an echo.
    Echo(IpAddr),
    /// To ask anybody for one: it is the host that does not let its user.
    Echoes,
    /// To ask which addresses a name has. The name is one that can be shown.
    Name(String),
}

impl std::fmt::Display for Refused {
    /// Where to; of a question, what it was about.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Refused::Destination(to) => to.fmt(formatter),
            Refused::Echo(to) => write!(formatter, "ping {to}"),
            Refused::Echoes => formatter.write_str("ping"),
            Refused::Name(name) => formatter.write_str(name),
        }
    }
}

impl World {
    pub(crate) fn new(rules: Rules, inside: &Inside) -> World {
        let own = [inside.address4.into(), inside.address6.into()];
        let networks = [Network::new(own[0], inside.prefix4), Network::new(own[1], inside.prefix6)];
        World {
            rules,
            own,
            networks,
            learned: Learned::default(),
            refused: (0, Vec::new()),
            is_mute: false,
            names: Vec::new(),
            untold: VecDeque::new(),
        }
    }

    /// What stands behind a destination, if a cell may reach it. What it may not is noted.
    pub(crate) fn way(&mut self, to: SocketAddr, now: u64) -> Option<Way> {
        let way = self.look(to, now);
        if way.is_none() {
            self.refuse(Refused::Destination(to));
        }
        way
    }

    /// Whether a cell may ask somebody for an echo: where no port is named, so that a rule about one does not open it. What it may not is noted.
    pub(crate) fn admit_echo(&mut self, to: IpAddr, now: u64) -> bool {
        let admitted = self.is_open(SocketAddr::new(to, 0), now);
        if !admitted {
            self.refuse(Refused::Echo(to));
        }
        admitted
    }

    /// The host lets this user ask nobody for an echo.
    pub(crate) fn cannot_ask(&mut self) {
        if !std::mem::replace(&mut self.is_mute, true) {
            self.untold.push_back(Refused::Echoes);
        }
    }

    fn refuse(&mut self, what: Refused) {
        let (count, told) = &mut self.refused;
        *count += 1;
        if told.len() < TOLD && !told.contains(&what) {
            told.push(what.clone());
            self.untold.push_back(what);
        }
    }

    /// Whether that is where the gateway takes questions about names.
    pub(crate) fn is_resolver(&self, to: SocketAddr) -> bool {
        to.port() == DNS && self.own.contains(&to.ip())
    }

    fn look(&self, to: SocketAddr, now: u64) -> Option<Way> {
        let address = to.ip();
        if self.is_resolver(to) {
            return Some(Way::Resolver);
        }
        if self.own.contains(&address) {
            let loopback = if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() };
            return self.rules.admit_host(to.port()).then(|| Way::Host(SocketAddr::new(loopback, to.port())));
        }
        (to.port() != 0 && self.is_open(to, now)).then_some(Way::Host(to))
    }

    fn is_open(&self, to: SocketAddr, now: u64) -> bool {
        let address = to.ip();
        // Who lives next door has no need of the gateway.
        let is_inside = self.networks.iter().flatten().any(|network| network.contains(address));
        let is_named = |rule: &Rule| self.learned.has(address, now, rule);
        !is_inside && self.rules.admit(to, is_named, is_the_hosts)
    }

    /// Whether a cell may ask for a name. One that it may not is noted, if it is somebody's and can be shown.
    pub(crate) fn admit_name(&mut self, name: &str) -> bool {
        let admitted = self.rules.admit_name(name);
        let is_plain = || name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) && !name.ends_with(".arpa");
        if !admitted && self.names.len() < TOLD && is_plain() && !self.names.iter().any(|told| told == name) {
            self.names.push(name.into());
            self.untold.push_back(Refused::Name(name.into()));
        }
        admitted
    }

    /// Remembers which addresses a name has.
    pub(crate) fn learn(&mut self, name: &str, addresses: &[(IpAddr, u32)], now: u64) {
        if self.rules.name(name) {
            for (address, seconds) in addresses {
                let time = Duration::from_secs((*seconds).into()).clamp(LEAST_LEARNED, MOST_LEARNED);
                self.learned.add(*address, name, now.saturating_add(time.as_nanos() as u64));
            }
        }
    }

    /// The next of what was refused first, if it was not told yet.
    pub(crate) fn untold(&mut self) -> Option<Refused> {
        self.untold.pop_front()
    }

    /// How many destinations were refused, and the first of them.
    pub(crate) fn refused(&self) -> (u64, Vec<Refused>) {
        self.refused.clone()
    }
}

/// Which addresses names have, and until when.
#[derive(Debug, Default)]
struct Learned {
    until: BTreeMap<(IpAddr, String), u64>,
}

impl Learned {
    fn add(&mut self, address: IpAddr, name: &str, until: u64) {
        let entry = (address, name.to_owned());
        if self.until.len() >= MAX_LEARNED && !self.until.contains_key(&entry) {
            let first = self.until.iter().min_by_key(|(_, until)| **until).map(|(entry, _)| entry.clone());
            first.map(|first| self.until.remove(&first));
        }
        let own = self.until.entry(entry).or_default();
        *own = (*own).max(until);
    }

    /// Whether a name that a rule is about has this address.
    fn has(&self, address: IpAddr, now: u64, rule: &Rule) -> bool {
        let names = self.until.range((address, String::new())..).take_while(|((own, _), _)| *own == address);
        names.into_iter().any(|((_, name), until)| *until > now && rule.names(name))
    }
}

#[cfg(test)]
mod tests {
    use super::{DNS, Refused, Way, World};
    use crate::Inside;
    use crate::rules::Rules;

    fn world(rules: &[&str]) -> World {
        World::new(Rules::new(rules.iter().map(|text| text.parse().expect("a rule")).collect()), &Inside::example())
    }

    fn way(world: &mut World, to: &str, now: u64) -> Option<Way> {
        world.way(to.parse().expect("a destination"), now)
    }

    #[test]
    fn the_gateways_own_address_is_its_resolver_and_the_hosts_loopback() {
        let mut world = world(&["host:80", "8.0.0.0/8"]);
        let host = |text: &str| Some(Way::Host(text.parse().expect("a destination")));
        assert_eq!(way(&mut world, "10.77.0.1:53", 0), Some(Way::Resolver));
        assert_eq!(way(&mut world, "10.77.0.1:80", 0), host("127.0.0.1:80"));
        assert_eq!(way(&mut world, "[fd70::1]:80", 0), host("[::1]:80"));
        assert_eq!(way(&mut world, "10.77.0.1:81", 0), None);
        assert_eq!(way(&mut world, "127.0.0.1:80", 0), None);
        assert_eq!(way(&mut world, &format!("8.8.8.8:{DNS}"), 0), host("8.8.8.8:53"));
        let (count, told) = world.refused();
        assert_eq!((count, told.len()), (2, 2));
        assert!(!world.admit_name("a\u{1b}[2Jb") && !world.admit_name("1.0.0.10.in-addr.arpa"));
        assert_eq!(std::iter::from_fn(|| world.untold()).collect::<Vec<_>>(), told);
    }

    #[test]
    fn a_rule_about_a_port_opens_no_echoes() {
        let mut world = world(&["8.8.8.8:443", "1.1.1.1", "host"]);
        let mut echo = |to: &str| world.admit_echo(to.parse().expect("an address"), 0);
        assert!(echo("1.1.1.1") && !echo("8.8.8.8") && !echo("127.0.0.1") && !echo("10.77.0.9"));
        assert_eq!(world.untold(), Some(Refused::Echo([8, 8, 8, 8].into())));
    }

    #[test]
    fn a_name_that_is_refused_is_told_once() {
        let mut world = world(&["example.org"]);
        assert!(world.admit_name("example.org") && !world.admit_name("other.org") && !world.admit_name("other.org"));
        assert_eq!((world.untold(), world.untold()), (Some(Refused::Name("other.org".into())), None));
    }

    #[test]
    fn neighbours_are_not_outside() {
        assert_eq!(way(&mut world(&["10.0.0.0/8"]), "10.77.0.9:80", 0), None);
        assert!(way(&mut world(&["10.0.0.0/8"]), "10.78.0.9:80", 0).is_some());
    }

    #[test]
    fn names_are_known_by_what_was_answered() {
        let mut world = world(&["*.example.org:443"]);
        assert!(way(&mut world, "8.8.8.8:443", 0).is_none());
        world.learn("www.example.org", &[("8.8.8.8".parse().expect("an address"), 900)], 0);
        world.learn("other.org", &[("9.9.9.9".parse().expect("an address"), 900)], 0);
        assert!(way(&mut world, "8.8.8.8:443", 1).is_some() && way(&mut world, "8.8.8.8:80", 1).is_none());
        assert!(way(&mut world, "9.9.9.9:443", 1).is_none());
        assert!(way(&mut world, "8.8.8.8:443", 900_000_000_000).is_none(), "its time is over");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut world = world(&["*.example.org"]);
        for number in 0..3 * super::MAX_LEARNED as u32 {
            world.learn("www.example.org", &[(std::net::Ipv4Addr::from_bits(number).into(), 900)], number.into());
        }
        assert_eq!(world.learned.until.len(), super::MAX_LEARNED);
    }
}
