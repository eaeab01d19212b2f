// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets: `socket.h`, and the headers of protocols (`in.h`, `in6.h`, `tcp.h`, `udp.h`, `errqueue.h`, `if_packet.h`, `netlink.h`).

constants! { if_ether as u32 {
    ETH_P_ALL,
} }

constants! { if_packet as u32 {
    PACKET_ADD_MEMBERSHIP, PACKET_AUXDATA, TP_STATUS_CSUMNOTREADY, TP_STATUS_USER,
} }

constants! { net as u16 {
    AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_UNIX, AF_UNSPEC,
} }

constants! { net as u32 {
    IPPROTO_ICMP, IPPROTO_ICMPV6, IPPROTO_RAW, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_UDPLITE, IPV6_2292HOPLIMIT, IPV6_ADD_MEMBERSHIP,
    IPV6_CHECKSUM, IPV6_DROP_MEMBERSHIP, IPV6_HOPLIMIT, IPV6_MTU_DISCOVER, IPV6_MULTICAST_HOPS, IPV6_MULTICAST_IF, IPV6_MULTICAST_LOOP,
    IPV6_PKTINFO, IPV6_RECVERR, IPV6_RECVHOPLIMIT, IPV6_RECVPKTINFO, IPV6_RECVTCLASS, IPV6_TCLASS, IPV6_UNICAST_HOPS, IPV6_V6ONLY,
    IP_ADD_MEMBERSHIP, IP_BIND_ADDRESS_NO_PORT, IP_DROP_MEMBERSHIP, IP_FREEBIND, IP_MTU_DISCOVER, IP_MULTICAST_ALL, IP_MULTICAST_IF,
    IP_MULTICAST_LOOP, IP_MULTICAST_TTL, IP_OPTIONS, IP_PKTINFO, IP_RECVERR, IP_RECVTOS, IP_RECVTTL, IP_RETOPTS, IP_TOS, IP_TTL,
    MSG_CMSG_CLOEXEC, MSG_CTRUNC, MSG_DONTWAIT, MSG_ERRQUEUE, MSG_MORE, MSG_NOSIGNAL, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL,
    SCM_CREDENTIALS, SCM_RIGHTS, SOCK_DGRAM, SOCK_RAW, SOCK_SEQPACKET, SOCK_STREAM, SOL_ICMPV6, SOL_IP, SOL_IPV6, SOL_NETLINK,
    SOL_PACKET, SOL_RAW, SOL_SOCKET, SOL_TCP, SOL_UDP, SOL_UDPLITE, SO_ACCEPTCONN, SO_ATTACH_FILTER, SO_BINDTODEVICE, SO_BROADCAST,
    SO_BUSY_POLL, SO_DEBUG, SO_DETACH_FILTER, SO_DOMAIN, SO_DONTROUTE, SO_ERROR, SO_INCOMING_NAPI_ID, SO_KEEPALIVE, SO_LINGER,
    SO_LOCK_FILTER, SO_MARK, SO_NO_CHECK, SO_OOBINLINE, SO_PASSCRED, SO_PEERCRED, SO_PRIORITY, SO_PROTOCOL, SO_RCVBUF, SO_RCVBUFFORCE,
    SO_RCVLOWAT, SO_RCVTIMEO_OLD, SO_REUSEADDR, SO_REUSEPORT, SO_RXQ_OVFL, SO_SNDBUF, SO_SNDBUFFORCE, SO_SNDTIMEO_OLD,
    SO_TIMESTAMPING_OLD, SO_TIMESTAMPNS_OLD, SO_TIMESTAMP_OLD, SO_TYPE, SO_ZEROCOPY, TCP_CONGESTION, TCP_CORK, TCP_DEFER_ACCEPT,
    TCP_FASTOPEN, TCP_FASTOPEN_CONNECT, TCP_INFO, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_LINGER2, TCP_MAXSEG, TCP_NODELAY,
    TCP_NOTSENT_LOWAT, TCP_QUICKACK, TCP_SYNCNT, TCP_THIN_DUPACK, TCP_THIN_LINEAR_TIMEOUTS, TCP_ULP, TCP_USER_TIMEOUT, TCP_WINDOW_CLAMP,
} }

constants! { netlink as u32 {
    NETLINK_ADD_MEMBERSHIP, NETLINK_CAP_ACK, NETLINK_EXT_ACK, NETLINK_GET_STRICT_CHK, NETLINK_PKTINFO,
} }

// Constants that the crate lacks or has as another type; each names its header.

/// `UDP_CORK` of `udp.h`: parts of a datagram are assembled until it is cleared.
pub const UDP_CORK: u32 = 1;
/// `SO_EE_ORIGIN_ICMP` of `errqueue.h`: the error came by ICMP.
pub const SO_EE_ORIGIN_ICMP: u8 = 2;
/// `SO_EE_ORIGIN_ICMP6` of `errqueue.h`: the error came by ICMPv6.
pub const SO_EE_ORIGIN_ICMP6: u8 = 3;
/// `UDP_SEGMENT` of `udp.h`: the size of segments into which a datagram is cut.
pub const UDP_SEGMENT: u32 = 103;
/// `UDP_GRO` of `udp.h`: datagrams of a flow may be received together.
pub const UDP_GRO: u32 = 104;
/// `UDPLITE_SEND_CSCOV` of `net/udplite.h`: bytes that the checksum of sent datagrams covers.
pub const UDPLITE_SEND_CSCOV: u32 = 10;
/// `UDPLITE_RECV_CSCOV` of `net/udplite.h`: bytes that the checksum of received datagrams covers at least.
pub const UDPLITE_RECV_CSCOV: u32 = 11;
/// `TCP_ESTABLISHED` of `net/tcp_states.h`.
pub const TCP_ESTABLISHED: u8 = 1;
/// `TCP_SYN_SENT` of `net/tcp_states.h`.
pub const TCP_SYN_SENT: u8 = 2;
/// `TCP_FIN_WAIT2` of `net/tcp_states.h`.
pub const TCP_FIN_WAIT2: u8 = 5;
/// `TCP_TIME_WAIT` of the same header.
pub const TCP_TIME_WAIT: u8 = 6;
/// `TCP_CLOSE` of `net/tcp_states.h`.
pub const TCP_CLOSE: u8 = 7;
/// `TCP_CLOSE_WAIT` of `net/tcp_states.h`.
pub const TCP_CLOSE_WAIT: u8 = 8;
/// `TCP_LISTEN` of `net/tcp_states.h`.
pub const TCP_LISTEN: u8 = 10;
/// `SOCK_TYPE_MASK` of `include/linux/net.h`: the bits of a socket's type without its flags.
pub const SOCK_TYPE_MASK: u64 = 0xf;
/// `MSG_WAITFORONE` of `include/linux/socket.h`: wait for the first message only.
pub const MSG_WAITFORONE: u32 = 0x10000;
/// `ICMP_FILTER` of `icmp.h`; `ICMPV6_FILTER` of `icmpv6.h` has the same number.
pub const ICMP_FILTER: u32 = 1;
/// `SOCK_PACKET` of `include/linux/net.h`: the last type.
pub const SOCK_PACKET: u32 = 10;
