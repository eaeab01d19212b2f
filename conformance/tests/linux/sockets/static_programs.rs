// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets and their messages: each part of a static program gives the same results as on the host.

use crate::case::Input;
use crate::parts::{GLIBC, check, check_in_directory};

parts! {
    tables_of_sockets: "listed" GLIBC ["all"];
    ends_that_close_first_stay: "time_wait" GLIBC ["rows"];
    reset_connections_leave_nothing: "time_wait" GLIBC ["resets"];
    closed_connections_hold_their_ports: "time_wait" GLIBC ["ports"];
    ports_of_closed_connections_are_used_again: "time_wait" GLIBC ["again"];
}

parts_in_directory! {
    sockets_are_pairs: "sockets" "pairs";
    sockets_are_of_kinds: "sockets" "kinds";
    sockets_have_names: "sockets" "names";
    sockets_speak_tcp: "sockets" "tcp";
    sockets_speak_tcp_over_ipv6: "sockets" "six";
    sockets_speak_udp: "sockets" "udp";
    urgent_bytes_are_beside_a_stream: "urgent" "beside";
    urgent_bytes_are_in_a_stream: "urgent" "in-line";
    sets_of_select: "urgent" "sets";
    sockets_pass_descriptors: "messages" "passing";
    sockets_send_messages: "messages" "messages";
    packets_say_where_they_were_sent: "messages" "packets";
    sockets_have_options: "messages" "options";
    sockets_are_bound_to_interfaces: "messages" "bound";
}
