// SPDX-License-Identifier: MIT OR Apache-2.0
//! rtnetlink and interfaces: `rtnetlink.h`, `if_link.h`, `if_addr.h`, `if_arp.h`, `if.h`.

constants! { if_arp as u16 {
    ARPHRD_ETHER, ARPHRD_LOOPBACK,
} }

constants! { net as usize {
    IFNAMSIZ,
} }

constants! { net::net_device_flags as u32 {
    IFF_BROADCAST, IFF_LOOPBACK, IFF_LOWER_UP, IFF_MULTICAST, IFF_RUNNING, IFF_UP,
} }

constants! { netlink as u16 {
    IFA_ADDRESS, IFA_BROADCAST, IFA_LABEL, IFA_LOCAL, IFLA_ADDRESS, IFLA_BROADCAST, IFLA_IFNAME, IFLA_MTU, IFLA_OPERSTATE, IFLA_TXQLEN,
    NLMSG_DONE, NLMSG_ERROR, NLM_F_MULTI, RTM_DELADDR, RTM_DELLINK, RTM_DELNEIGH, RTM_DELROUTE, RTM_DELRULE, RTM_GETADDR, RTM_GETLINK,
    RTM_GETROUTE, RTM_NEWADDR, RTM_NEWLINK, RTM_NEWNEIGH, RTM_NEWROUTE, RTM_NEWRULE, RTM_SETLINK,
} }

constants! { netlink as u8 {
    IFA_F_PERMANENT, NLM_F_ACK, RTN_UNICAST, RTPROT_BOOT,
} }

constants! { netlink::rt_class_t as u8 {
    RT_TABLE_MAIN,
} }

constants! { netlink::rt_scope_t as u8 {
    RT_SCOPE_HOST,
} }

constants! { netlink::rtattr_type_t as u16 {
    RTA_GATEWAY, RTA_OIF,
} }
