// SPDX-License-Identifier: MIT OR Apache-2.0
//! Busybox's ping: of the cell itself, of another cell, of an unused address.

use crate::world::CellNetwork;
use pando_kernel::network::link::Link;

/// Whether one echo request was answered, by a host with no router in between.
fn is_answered(told: &str) -> bool {
    told.contains("1 packets transmitted, 1 packets received, 0% packet loss") && told.contains("ttl=64")
}

#[test]
fn a_cell_answers_itself_and_others() {
    let Some(mut world) = CellNetwork::new() else { return };
    let other = world.serve("sleep 1000", Link::default());
    let (four, six) = (other.addresses.v4, other.addresses.v6);
    for (ping, host) in [("ping", "127.0.0.1".into()), ("ping6", "::1".into()), ("ping", four.to_string()), ("ping6", six.to_string())] {
        // Also the longest that fit into a packet.
        for length in [56, 65_535 - 20 - 8 - 40] {
            let told = world.run(&format!("{ping} -c 1 -s {length} {host}"));
            assert!(is_answered(&told), "{host} {length}: {told}");
        }
    }
}

#[test]
fn an_unused_address_is_not_answered_for() {
    let Some(mut world) = CellNetwork::new() else { return };
    let told = world.run("ping -c 1 -W 1 10.77.9.9; echo $?");
    assert!(told.contains("1 packets transmitted, 0 packets received, 100% packet loss") && told.ends_with("\n1\n"), "{told}");
}
