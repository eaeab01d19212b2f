// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of socket calls, as far as strace prints them.

use alloc::format;
use alloc::string::String;
use core::net::SocketAddr;

use super::choices::Choices;
use super::flags::Flags;
use super::text::{copy, pointer, quoted};
use crate::files::socket::Family;
use crate::files::socket::address::{ADDRESS_MAX, Address, family_of};
use crate::user::word32;

pub(super) const FAMILY: Choices = Choices(
    &[(0, "AF_UNSPEC"), (1, "AF_UNIX"), (2, "AF_INET"), (10, "AF_INET6"), (16, "AF_NETLINK"), (17, "AF_PACKET"), (40, "AF_VSOCK")],
    "AF_???",
);

pub(super) const TYPE: Flags = Flags {
    choice: (0xf, &[(1, "SOCK_STREAM"), (2, "SOCK_DGRAM"), (3, "SOCK_RAW"), (4, "SOCK_RDM"), (5, "SOCK_SEQPACKET"), (10, "SOCK_PACKET")]),
    bits: &[(0o2_000_000, "SOCK_CLOEXEC"), (0o4000, "SOCK_NONBLOCK")],
    unknown: "SOCK_???",
};

/// Flags of a socket type, for calls without a type.
pub(super) const TYPE_FLAGS: Flags = Flags { choice: (0, &[]), bits: TYPE.bits, unknown: "SOCK_???" };

const PROTOCOL: Choices = Choices(
    &[(0, "IPPROTO_IP"), (1, "IPPROTO_ICMP"), (6, "IPPROTO_TCP"), (17, "IPPROTO_UDP"), (58, "IPPROTO_ICMPV6"), (136, "IPPROTO_UDPLITE")],
    "IPPROTO_???",
);

pub(super) const SHUT: Choices = Choices(&[(0, "SHUT_RD"), (1, "SHUT_WR"), (2, "SHUT_RDWR")], "SHUT_???");

pub(super) const MESSAGE: Flags = Flags {
    choice: (0, &[]),
    bits: &[
        (1, "MSG_OOB"),
        (2, "MSG_PEEK"),
        (4, "MSG_DONTROUTE"),
        (8, "MSG_CTRUNC"),
        (0x20, "MSG_TRUNC"),
        (0x40, "MSG_DONTWAIT"),
        (0x80, "MSG_EOR"),
        (0x100, "MSG_WAITALL"),
        (0x2000, "MSG_ERRQUEUE"),
        (0x4000, "MSG_NOSIGNAL"),
        (0x8000, "MSG_MORE"),
        (0x10000, "MSG_WAITFORONE"),
        (0x4000_0000, "MSG_CMSG_CLOEXEC"),
    ],
    unknown: "MSG_???",
};

pub(super) const LEVEL: Choices = Choices(
    &[
        (0, "SOL_IP"),
        (1, "SOL_SOCKET"),
        (6, "SOL_TCP"),
        (17, "SOL_UDP"),
        (41, "SOL_IPV6"),
        (58, "SOL_ICMPV6"),
        (136, "SOL_UDPLITE"),
        (255, "SOL_RAW"),
        (263, "SOL_PACKET"),
        (270, "SOL_NETLINK"),
    ],
    "SOL_???",
);

const OPTION: Choices = Choices(
    &[
        (1, "SO_DEBUG"),
        (2, "SO_REUSEADDR"),
        (3, "SO_TYPE"),
        (4, "SO_ERROR"),
        (5, "SO_DONTROUTE"),
        (6, "SO_BROADCAST"),
        (7, "SO_SNDBUF"),
        (8, "SO_RCVBUF"),
        (9, "SO_KEEPALIVE"),
        (10, "SO_OOBINLINE"),
        (12, "SO_PRIORITY"),
        (13, "SO_LINGER"),
        (15, "SO_REUSEPORT"),
        (16, "SO_PASSCRED"),
        (17, "SO_PEERCRED"),
        (18, "SO_RCVLOWAT"),
        (20, "SO_RCVTIMEO_OLD"),
        (21, "SO_SNDTIMEO_OLD"),
        (30, "SO_ACCEPTCONN"),
        (38, "SO_PROTOCOL"),
        (39, "SO_DOMAIN"),
    ],
    "SO_???",
);

/// Name of a family's protocol.
pub(super) fn protocol(family: u64, protocol: u64) -> String {
    if matches!(family, 2 | 10) { PROTOCOL.show(protocol) } else { format!("{protocol}") }
}

/// Name of a level's option.
pub(super) fn option(level: u64, option: u64) -> String {
    const SOCKET: u64 = 1;
    if level == SOCKET { OPTION.show(option) } else { format!("{option:#x}") }
}

/// Formats an address of so many bytes.
pub(super) fn address(at: u64, length: u64) -> String {
    describe_address(at, length).unwrap_or_else(|| pointer(at))
}

/// Formats an address whose length the call stores at `length`.
pub(super) fn returned_address(at: u64, length: u64) -> String {
    word32(length).ok().and_then(|length| describe_address(at, length.into())).unwrap_or_else(|| pointer(at))
}

fn describe_address(at: u64, length: u64) -> Option<String> {
    let bytes = copy(at, usize::try_from(length).ok()?.min(ADDRESS_MAX))?;
    let number = family_of(&bytes)?;
    let name = FAMILY.show(number.into());
    let family =
        [Family::Unix, Family::Inet, Family::Inet6, Family::Netlink, Family::Packet].into_iter().find(|family| family.number() == number);
    let rest = match family.and_then(|family| Address::decode(family, &bytes).ok()) {
        Some(Address::Path(path)) => format!(", sun_path={}", quoted(&path)),
        Some(Address::Abstract(name)) => format!(", sun_path=@{}", quoted(&name)),
        Some(Address::Inet(SocketAddr::V4(address))) => {
            format!(", sin_port=htons({}), sin_addr=inet_addr(\"{}\")", address.port(), address.ip())
        }
        Some(Address::Inet(SocketAddr::V6(address))) => {
            let (port, host) = (address.port(), address.ip());
            format!(", sin6_port=htons({port}), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, \"{host}\", &sin6_addr), sin6_scope_id=0")
        }
        Some(Address::Netlink(number)) => format!(", nl_pid={number}, nl_groups=00000000"),
        Some(Address::Link(link)) => format!(", sll_protocol=htons({:#x}), sll_ifindex={}", link.protocol, link.index),
        Some(Address::Unnamed) | None => String::new(),
    };
    Some(format!("{{sa_family={name}{rest}}}"))
}
