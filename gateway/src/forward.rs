// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forwards: ports of the host that lead into a cell.

use crate::Protocol;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// A port of the host, and the port of the cell to which it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Where the host listens; port 0 leaves the choice to the host.
    pub host: SocketAddr,
    /// The port of the cell.
    pub cell: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
}

impl FromStr for Forward {
    type Err = String;

    /// Reads `[ADDR:]HOST:CELL[/udp]`.
    fn from_str(text: &str) -> Result<Forward, String> {
        let (ports, protocol) = match text.rsplit_once('/') {
            None | Some((_, "tcp")) => (text.trim_end_matches("/tcp"), Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some((_, other)) => return Err(format!("after the slash `udp` or `tcp` may stand, not `{other}`")),
        };
        let (host, cell) = ports
            .rsplit_once(':')
            .ok_or_else(|| format!("`{text}` names one port: give HOST:CELL, such as 8080:80, the host's port and the cell's"))?;
        let (address, host) = match host.rsplit_once(':') {
            Some((address, port)) => (self::address(address)?, port),
            None => (IpAddr::V4(Ipv4Addr::LOCALHOST), host),
        };
        let cell = match port(cell)? {
            0 => return Err("no program listens at port 0 of a cell: give the port that it listens at".into()),
            cell => cell,
        };
        Ok(Forward { host: SocketAddr::new(address, port(host)?), cell, protocol })
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("`{text}` is no port: give a number up to 65535"))
}

/// An address of the host; IPv6 stands in brackets, because it has colons itself.
fn address(text: &str) -> Result<IpAddr, String> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let parsed = match bracketed {
        Some(address) => address.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().map(IpAddr::V4),
    };
    parsed.ok_or_else(|| format!("`{text}` is no address: give one of the host's, such as 0.0.0.0 for all, or [::1]"))
}

#[cfg(test)]
mod tests {
    use super::{Forward, Protocol};

    #[test]
    fn forwards_are_read_as_people_write_them() {
        let forward = |text: &str| {
            text.parse().map(|Forward { host, cell, protocol }| (host.to_string(), cell, protocol)).map_err(|error: String| error)
        };
        let is = |host: &str, cell, protocol| Ok((host.to_owned(), cell, protocol));
        assert_eq!(forward("8080:80"), is("127.0.0.1:8080", 80, Protocol::Tcp));
        assert_eq!(forward("8080:80/tcp"), is("127.0.0.1:8080", 80, Protocol::Tcp));
        assert_eq!(forward("0.0.0.0:8080:80"), is("0.0.0.0:8080", 80, Protocol::Tcp));
        assert_eq!(forward("[::]:53:53/udp"), is("[::]:53", 53, Protocol::Udp));
        assert_eq!(forward("0:80"), is("127.0.0.1:0", 80, Protocol::Tcp));
        for text in
            ["", "80", "80:", ":80", "80:0", "80:65536", "a:80", "80:b", "80:80/sctp", "::1:80:80", "host:80:80", "[1.2.3.4]:1:1", "1:2:3"]
        {
            assert!(forward(text).is_err(), "{text}");
        }
    }
}
