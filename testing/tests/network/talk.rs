// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers and clients of busybox.

use crate::world::CellNetwork;
use pando_kernel::network::link::{Link, PerMillion};
use std::time::Duration;

/// Prints a file that is larger than any packet.
const NUMBERS: &str = "seq 1 200000";

#[test]
fn a_web_server_answers_a_client_in_another_cell() {
    let Some(mut world) = CellNetwork::new() else { return };
    let server =
        world.serve(&format!("mkdir www; echo hello > www/index.html; {NUMBERS} > www/numbers; httpd -f -p 80 -h www"), Link::default());
    let (four, six) = (server.addresses.v4, server.addresses.v6);
    assert_eq!(world.run(&format!("wget -qO- http://{four}/")), "hello\n");
    assert_eq!(world.run(&format!("wget -qO- http://[{six}]/")), "hello\n");
    let sums = world.run(&format!("wget -qO- http://{four}/numbers | sha256sum; {NUMBERS} | sha256sum"));
    let sums: Vec<&str> = sums.lines().collect();
    assert_eq!(sums[0], sums[1]);
}

#[test]
fn transfers_larger_than_all_buffers_arrive_whole() {
    let Some(mut world) = CellNetwork::new() else { return };
    let server = world.serve("mkdir www; seq 1 1000000 > www/numbers; httpd -f -p 80 -h www", Link::default());
    let fetch = format!("wget -qO- http://{}/numbers | sha256sum", server.addresses.v4);
    let sums = world.run(&format!("seq 1 1000000 | sha256sum; for round in 1 2 3 4 5; do {fetch}; done"));
    let sums: Vec<&str> = sums.lines().collect();
    assert_eq!(sums, [sums[0]; 6]);
}

#[test]
fn a_closed_port_refuses_and_an_unused_address_has_no_route() {
    let Some(mut world) = CellNetwork::new() else { return };
    let server = world.serve("sleep 1000", Link::default());
    let told = world.run(&format!("wget -qO- http://{}/ 2>&1; echo $?", server.addresses.v4));
    assert!(told.contains("Connection refused") && told.ends_with("1\n"), "{told}");
    let told = world.run("wget -qO- http://10.77.9.9/ 2>&1; echo $?");
    assert!(told.contains("No route to host") && told.ends_with("1\n"), "{told}");
}

#[test]
fn a_link_that_loses_doubles_and_reorders_changes_no_byte() {
    let Some(mut world) = CellNetwork::new() else { return };
    let link = Link {
        delay: Duration::from_micros(200),
        jitter: Duration::from_micros(500),
        loss: PerMillion(20_000),
        duplication: PerMillion(20_000),
        ..Link::default()
    };
    let server = world.serve(&format!("mkdir www; {NUMBERS} > www/numbers; httpd -f -p 80 -h www"), link);
    let client = format!("wget -qO- http://{}/numbers | sha256sum; {NUMBERS} | sha256sum", server.addresses.v4);
    let client = world.start(&client, link);
    let sums = world.output_of(&client);
    let sums: Vec<&str> = sums.lines().collect();
    assert_eq!(sums[0], sums[1]);
    assert!(world.lab.kernel.traffic(server.id).expect("it lives").expect("it has a card").lost > 0);
}
