// SPDX-License-Identifier: MIT OR Apache-2.0
//! iperf3: TCP streams and UDP datagrams, in each direction, several at once.

use crate::world::CellNetwork;

#[test]
fn iperf3_measures_between_cells() {
    let Some(world) = CellNetwork::new(&["/usr/bin/iperf3"]) else { return };
    let server = world.serve("exec iperf3 -s --forceflush", "Server listening on 5201");
    let (four, six) = (server.addresses.v4, server.addresses.v6);
    for words in ["", "-R", "-P 4", "--bidir"] {
        let told = world.run(&format!("iperf3 -c {four} -n 200M {words}"));
        assert!(told.contains("receiver") && told.ends_with("iperf Done.\n"), "{words}: {told}");
    }
    let told = world.run(&format!("iperf3 -c {six} -n 200M"));
    assert!(told.ends_with("iperf Done.\n"), "{told}");
    // A rate that a loaded machine can carry; some datagrams may still be lost.
    for (host, words) in [(four.to_string(), ""), (four.to_string(), "-R"), (six.to_string(), "-P 2")] {
        let told = world.run(&format!("iperf3 -c {host} -u -l 1400 -b 4M -n 1M {words}"));
        let last = told.lines().rfind(|line| line.contains("receiver")).unwrap_or_default();
        let counts = last
            .split_whitespace()
            .find_map(|word| word.split_once('/')?.0.parse::<u32>().ok().zip(word.split_once('/')?.1.parse::<u32>().ok()));
        assert!(counts.is_some_and(|(lost, all)| all >= 700 && lost < all / 2), "{words}: {told}");
    }
}
