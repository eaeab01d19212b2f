// SPDX-License-Identifier: MIT OR Apache-2.0
//! The tables of sockets in `/proc/net`, in the columns of Linux's `tcp4_seq_show`, `udp4_seq_show` and `unix_seq_show`.
//!
//! Timers, retransmissions and congestion windows are those of an idle socket. Closed TCP connections that hold their ports follow the
//! sockets, in the columns of `get_timewait4_sock`.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};

use crate::files::socket::address::Address;
use crate::files::socket::time_wait::TimeWaitSocket;
use crate::files::socket::{Family, SockType, Socket, Sockets, State};
use crate::uapi::{TCP_CLOSE, TCP_ESTABLISHED};

/// Characters of a row of IPv4 sockets without its newline. Rows of IPv6 sockets are not padded.
const TCP_WIDTH: usize = 149;
const UDP_WIDTH: usize = 127;

const TCP: &str = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
const TCP6: &str = concat!(
    "  sl  local_address                         remote_address                        ",
    "st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
);
const UDP: &str = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops";
const UDP6: &str = concat!(
    "  sl  local_address                         remote_address                        ",
    "st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n"
);

/// The sockets of TCP in a family.
pub(super) fn tcp(sockets: &Sockets, family: Family) -> String {
    let mut text = if family == Family::Inet6 { TCP6.into() } else { format!("{TCP:TCP_WIDTH$}\n") };
    let local_sockets = sockets.all().filter(|socket| socket.is_tcp() && socket.family == family && socket.remote_end.is_none());
    let listed = local_sockets.filter_map(|socket| {
        let (state, queued) = tcp_columns(socket)?;
        let rest = if socket.listens() { "100 0 0 10 0" } else { "20 4 0 10 -1" };
        Some(format!("{} 1 0000000000000000 {rest}", columns(socket, state, queued)))
    });
    let now = sockets.monotonic_time();
    let closed = sockets.in_time_wait(now).filter(|(entry, _)| entry.family == family);
    let closed = closed.map(|(entry, state)| time_wait_columns(entry, state, now));
    for (index, columns) in listed.chain(closed).enumerate() {
        let row = format!("{index:4}: {columns}");
        text += &if family == Family::Inet6 { format!("{row}\n") } else { format!("{row:TCP_WIDTH$}\n") };
    }
    text
}

/// The columns of a closed connection that holds its port. Its timer counts hundredths of a second.
fn time_wait_columns(entry: &TimeWaitSocket, state: u8, now: u64) -> String {
    const NANOSECONDS_PER_TICK: u64 = 10_000_000;
    let [local, remote] = [entry.local, entry.remote].map(|address| end(entry.family, Some(address)));
    let ticks = entry.remaining(now) / NANOSECONDS_PER_TICK;
    format!("{local} {remote} {state:02X} 00000000:00000000 03:{ticks:08X} 00000000 {0:5} {0:8} 0 3 0000000000000000", 0)
}

/// A TCP socket's state, and the length of its receive queue: bytes, or connections of a listener. `None`: it is in no table.
fn tcp_columns(socket: &Socket) -> Option<(u8, usize)> {
    let queued = match &socket.state {
        State::Idle | State::Closed => return None,
        State::Listening { accept_queue, .. } => accept_queue.len(),
        State::Connecting(_) | State::Connected(_) => socket.queue.length(true),
    };
    Some((socket.tcp_state(), queued))
}

/// The sockets of UDP in a family: those that have a port.
pub(super) fn udp(sockets: &Sockets, family: Family) -> String {
    let mut text = if family == Family::Inet6 { UDP6.into() } else { format!("{UDP:UDP_WIDTH$}\n") };
    let has_port = |socket: &&Socket| matches!(socket.local, Address::Inet(local) if local.port() != 0);
    let listed = sockets.all().filter(|socket| socket.is_udp() && socket.family == family && socket.remote_end.is_none()).filter(has_port);
    for (index, socket) in listed.enumerate() {
        let state = if socket.remote.is_some() { TCP_ESTABLISHED } else { TCP_CLOSE };
        let row = format!("{index:5}: {} 2 0000000000000000 0", columns(socket, state, socket.queue.used()));
        text += &if family == Family::Inet6 { format!("{row}\n") } else { format!("{row:UDP_WIDTH$}\n") };
    }
    text
}

/// The columns of an Internet socket from its addresses to its inode number.
fn columns(socket: &Socket, state: u8, queued: usize) -> String {
    let local = if let Address::Inet(local) = &socket.local { Some(*local) } else { None };
    let remote = if let Some(Address::Inet(remote)) = &socket.remote { Some(*remote) } else { None };
    let [local, remote] = [local, remote].map(|address| end(socket.family, address));
    let (user, number) = (socket.credentials.user, socket.number);
    format!("{local} {remote} {state:02X} 00000000:{queued:08X} 00:00000000 00000000 {user:5}        0 {number}")
}

/// An address in the format of the tables: the words of the address in memory order as hexadecimal numbers, and the port.
fn end(family: Family, address: Option<SocketAddr>) -> String {
    let word = |bytes: &[u8]| bytes.iter().rev().map(|byte| format!("{byte:02X}")).collect::<String>();
    let port = address.map_or(0, |address| address.port());
    let host = match (family, address.map(|address| address.ip())) {
        (Family::Inet6, Some(IpAddr::V4(host))) => host.to_ipv6_mapped().octets().chunks(4).map(word).collect(),
        (_, Some(IpAddr::V4(host))) => word(&host.octets()),
        (_, Some(IpAddr::V6(host))) => host.octets().chunks(4).map(word).collect(),
        (Family::Inet6, None) => word(&[0; 16]),
        (_, None) => word(&[0; 4]),
    };
    format!("{host}:{port:04X}")
}

/// The counters of the protocols (`/proc/net/snmp`): the number of TCP connections. Events are not counted and stay at 0.
pub(super) fn protocols(sockets: &Sockets) -> String {
    /// Of each protocol: its name, its first values, and the names of all its values.
    const PROTOCOLS: [(&str, &str, &str); 4] = [
        (
            "Ip",
            "2 64",
            "Forwarding DefaultTTL InReceives InHdrErrors InAddrErrors ForwDatagrams InUnknownProtos InDiscards InDelivers OutRequests \
             OutDiscards OutNoRoutes ReasmTimeout ReasmReqds ReasmOKs ReasmFails FragOKs FragFails FragCreates",
        ),
        (
            "Icmp",
            "",
            "InMsgs InErrors InCsumErrors InDestUnreachs InTimeExcds InParmProbs InSrcQuenchs InRedirects InEchos InEchoReps \
             InTimestamps InTimestampReps InAddrMasks InAddrMaskReps OutMsgs OutErrors OutDestUnreachs OutTimeExcds OutParmProbs \
             OutSrcQuenchs OutRedirects OutEchos OutEchoReps OutTimestamps OutTimestampReps OutAddrMasks OutAddrMaskReps",
        ),
        (
            "Tcp",
            "1 200 120000 -1 0 0 0 0 CONNECTIONS",
            "RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs RetransSegs \
             InErrs OutRsts InCsumErrors",
        ),
        ("Udp", "", "InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors IgnoredMulti MemErrors"),
    ];
    let connections =
        sockets.all().filter(|socket| socket.is_tcp() && socket.remote_end.is_none() && socket.tcp_state() == TCP_ESTABLISHED).count();
    let mut text = String::new();
    for (protocol, first, names) in PROTOCOLS {
        let first = first.replace("CONNECTIONS", &format!("{connections}"));
        let zeros = names.split_whitespace().skip(first.split_whitespace().count()).map(|_| "0");
        let values: Vec<&str> = first.split_whitespace().chain(zeros).collect();
        text += &format!("{protocol}: {names}\n{protocol}: {}\n", values.join(" "));
    }
    text
}

/// The Unix sockets.
pub(super) fn unix(sockets: &Sockets) -> String {
    /// `__SO_ACCEPTCON` of `net.h`, and Linux's `socket_state`.
    const SO_ACCEPTCON: u32 = 1 << 16;
    const SS_UNCONNECTED: u8 = 1;
    const SS_CONNECTED: u8 = 3;
    let mut text = String::from("Num       RefCount Protocol Flags    Type St Inode Path\n");
    for socket in sockets.all().filter(|socket| socket.family == Family::Unix) {
        let is_connected = socket.peer().is_some() || socket.socket_type == SockType::Datagram && socket.remote.is_some();
        let (state, holders) = if is_connected { (SS_CONNECTED, 3) } else { (SS_UNCONNECTED, 2) };
        let flags = if socket.listens() { SO_ACCEPTCON } else { 0 };
        let name = match &socket.local {
            Address::Path(path) => format!(" {}", String::from_utf8_lossy(path)),
            Address::Abstract(name) => format!(" @{}", String::from_utf8_lossy(name).replace('\0', "@")),
            _ => String::new(),
        };
        let (socket_type, number) = (socket.socket_type.number(), socket.number);
        text += &format!("{:016x}: {holders:08X} 00000000 {flags:08X} {socket_type:04X} {state:02X} {number:5}{name}\n", 0);
    }
    text
}
