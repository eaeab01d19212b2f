// SPDX-License-Identifier: MIT OR Apache-2.0
//! iperf3: streams and datagrams, each way, several at once.

use crate::world::World;

#[test]
fn iperf3_measures_between_cells() {
    let Some(world) = World::new(&["/usr/bin/iperf3"]) else { return };
    let server = world.serve("exec iperf3 -s --forceflush", "Server listening on 5201");
    let (four, six) = (server.addresses.v4, server.addresses.v6);
    for words in ["", "-R", "-P 4", "--bidir"] {
        let told = world.run(&format!("iperf3 -c {four} -n 200M {words}"));
        assert!(told.contains("receiver") && told.ends_with("iperf Done.\n"), "{words}: {told}");
    }
    let told = world.run(&format!("iperf3 -c {six} -n 200M"));
    assert!(told.ends_with("iperf Done.\n"), "{told}");
    // A rate that a loaded machine carries: nothing is lost on a switch that has room.
    for (host, words) in [(four.to_string(), ""), (four.to_string(), "-R"), (six.to_string(), "-P 2")] {
        let told = world.run(&format!("iperf3 -c {host} -u -l 1400 -b 20M -n 2M {words}"));
        let lost = told.lines().rfind(|line| line.contains("receiver")).map(|line| line.to_owned()).unwrap_or_default();
        assert!(lost.contains("(0%)"), "{words}: {told}");
    }
}
