// SPDX-License-Identifier: MIT OR Apache-2.0
//! The DNS resolvers that the host uses.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

const PORT: u16 = 53;

/// The host's present resolvers.
pub fn of_host() -> Vec<SocketAddr> {
    listed(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default())
}

/// The resolvers in a `resolv.conf`; without any, one on this host, as resolv.conf(5) says.
fn listed(text: &str) -> Vec<SocketAddr> {
    let named = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        // A link-local address has a zone index (`%eth0`), which other processes cannot use.
        words.next().filter(|word| *word == "nameserver").and_then(|_| words.next()?.parse::<IpAddr>().ok())
    });
    let named: Vec<SocketAddr> = named.map(|address| SocketAddr::new(address, PORT)).collect();
    if named.is_empty() { vec![SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT)] } else { named }
}

#[cfg(test)]
mod tests {
    use super::listed;

    #[test]
    fn resolvers_are_those_that_are_named() {
        let is = |text: &str, expected: &[&str]| {
            assert_eq!(listed(text).iter().map(ToString::to_string).collect::<Vec<_>>(), expected, "{text:?}");
        };
        is("# a comment\nsearch example.org\nnameserver 10.0.0.53\n nameserver\t::1 \noptions edns0\n", &["10.0.0.53:53", "[::1]:53"]);
        is("nameserver fe80::1%eth0\nnameserver nonsense\nnameserver\n", &["127.0.0.1:53"]);
        is("", &["127.0.0.1:53"]);
    }
}
