// SPDX-License-Identifier: MIT OR Apache-2.0
//! Port forwards: ports of the host that lead to a cell.

use crate::Protocol;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;

/// A port of the host, and the cell's port to which it leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PortForward {
    /// The address at which the host listens; port 0 lets the host choose.
    pub host: SocketAddr,
    /// The port of the cell.
    pub cell: u16,
    /// TCP or UDP.
    pub protocol: Protocol,
}

impl fmt::Display for PortForward {
    /// Writes it as [`FromStr`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}/{}", self.host, self.cell, self.protocol)
    }
}

impl FromStr for PortForward {
    type Err = String;

    /// Parses `[ADDR:]HOST:CELL[/udp]`.
    fn from_str(text: &str) -> Result<PortForward, String> {
        let (ports, protocol) = match text.rsplit_once('/') {
            None | Some((_, "tcp")) => (text.trim_end_matches("/tcp"), Protocol::Tcp),
            Some((ports, "udp")) => (ports, Protocol::Udp),
            Some((_, other)) => return Err(format!("only `udp` or `tcp` may follow the slash, not `{other}`")),
        };
        let (host, cell) = ports
            .rsplit_once(':')
            .ok_or_else(|| format!("`{text}` names one port: give HOST:CELL, such as 8080:80, the host's port and the cell's"))?;
        let (address, host) = match host.rsplit_once(':') {
            Some((address, port)) => (self::address(address)?, port),
            None => (IpAddr::V4(Ipv4Addr::LOCALHOST), host),
        };
        let cell = match port(cell)? {
            0 => return Err("port 0 of a cell is invalid: give the port at which the program listens".into()),
            cell => cell,
        };
        Ok(PortForward { host: SocketAddr::new(address, port(host)?), cell, protocol })
    }
}

/// How a port of a cell is published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Publication {
    /// At a port of the host.
    Forward(PortForward),
    /// At the address of the service for all cells, where a client chooses the cell by name. TCP only.
    ByName(u16),
}

impl fmt::Display for Publication {
    /// Writes it as [`FromStr`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Publication::Forward(forward) => forward.fmt(f),
            Publication::ByName(port) => port.fmt(f),
        }
    }
}

impl FromStr for Publication {
    type Err = String;

    /// Parses `[ADDR:]HOST:CELL[/udp]` or `PORT`.
    fn from_str(text: &str) -> Result<Publication, String> {
        if text.contains(':') {
            return text.parse().map(Publication::Forward);
        }
        match port(text.strip_suffix("/tcp").unwrap_or(text)) {
            Ok(0) => Err("port 0 of a cell is invalid: give the port at which the program listens".into()),
            Ok(port) => Ok(Publication::ByName(port)),
            Err(error) if text.ends_with("/udp") => {
                Err(format!("{error}; a name leads to TCP ports only: give HOST:CELL/udp, the host's port and the cell's"))
            }
            Err(error) => Err(format!("{error}, or HOST:CELL, such as 8080:80, the host's port and the cell's")),
        }
    }
}

fn port(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("`{text}` is not a port: give a number up to 65535"))
}

/// Parses an address of the host; IPv6 needs brackets because it contains colons.
fn address(text: &str) -> Result<IpAddr, String> {
    let bracketed = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let parsed = match bracketed {
        Some(address) => address.parse().ok().map(IpAddr::V6),
        None => text.parse().ok().map(IpAddr::V4),
    };
    parsed.ok_or_else(|| format!("`{text}` is not an address: give one of the host's, such as 0.0.0.0 for all, or [::1]"))
}

#[cfg(test)]
mod tests {
    use super::{PortForward, Protocol, Publication};

    #[test]
    fn a_port_alone_is_published_by_name() {
        assert_eq!("80".parse(), Ok(Publication::ByName(80)));
        assert_eq!("80/tcp".parse(), Ok(Publication::ByName(80)));
        for text in ["8080:80", "0.0.0.0:1:2/udp"] {
            let parsed = text.parse::<Publication>();
            assert_eq!(parsed.map(|published| matches!(published, Publication::Forward(_))), Ok(true), "{text}");
        }
        for text in ["", "0", "65536", "80/udp", "x", "80:", "-1"] {
            assert!(text.parse::<Publication>().is_err(), "{text}");
        }
    }

    #[test]
    fn forwards_are_read_as_people_write_them() {
        let forward = |text: &str| {
            text.parse().map(|PortForward { host, cell, protocol }| (host.to_string(), cell, protocol)).map_err(|error: String| error)
        };
        let is = |host: &str, cell, protocol| Ok((host.to_owned(), cell, protocol));
        assert_eq!(forward("8080:80"), is("127.0.0.1:8080", 80, Protocol::Tcp));
        assert_eq!(forward("8080:80/tcp"), is("127.0.0.1:8080", 80, Protocol::Tcp));
        assert_eq!(forward("0.0.0.0:8080:80"), is("0.0.0.0:8080", 80, Protocol::Tcp));
        assert_eq!(forward("[::]:53:53/udp"), is("[::]:53", 53, Protocol::Udp));
        assert_eq!(forward("0:80"), is("127.0.0.1:0", 80, Protocol::Tcp));
        for text in ["127.0.0.1:8080:80/tcp", "[::]:53:53/udp"] {
            assert_eq!(text.parse::<PortForward>().expect("it is one").to_string(), text);
        }
        for text in
            ["", "80", "80:", ":80", "80:0", "80:65536", "a:80", "80:b", "80:80/sctp", "::1:80:80", "host:80:80", "[1.2.3.4]:1:1", "1:2:3"]
        {
            assert!(forward(text).is_err(), "{text}");
        }
    }
}
