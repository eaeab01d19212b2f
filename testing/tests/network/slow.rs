// SPDX-License-Identifier: MIT OR Apache-2.0
//! Receivers that take nothing do not block a sender's other connections.

use crate::world::CellNetwork;
use pando_abi::Hypercall;
use pando_kernel::NetworkConfig;
use pando_kernel::network::link::Link;
use pando_testing::asm::Asm;
use pando_testing::lab::repetitions;

#[test]
fn a_receiver_that_takes_nothing_does_not_hold_up_one_that_does() {
    let Some(mut world) = CellNetwork::with_peer(NetworkConfig::default()) else { return };
    // A program that accepts and never reads, and a cell that never provides receive buffers.
    let deaf = world.serve("exec /peer deaf 5000", Link::default());
    let mut asm = Asm::new();
    let again = asm.here();
    asm.call_kernel(Hypercall::Idle { deadline: u64::MAX }).jmp(again);
    let dead = world.lab.cell(&asm.finish());
    let dead_at = world.lab.kernel.plug(dead, world.network, Link::default()).expect("it does not run yet");
    world.lab.kernel.start(dead).expect("it was not started before");

    let bytes = repetitions(100_000, 5_000_000, 100_000_000);
    let quick = world.serve(&format!("exec /peer hear 5000 {bytes} {bytes}"), Link::default());
    let sender = format!(
        "/peer tell {} 5000 100000000 0 & one=$!; /peer flood {} & two=$!; /peer tell {} 5000 {bytes} {bytes}; kill $one $two",
        deaf.addresses.v4, dead_at.v4, quick.addresses.v4
    );
    let sender = world.start(&sender, Link::default());
    let said = world.output_of(&sender);
    assert!(said.starts_with("whole:"), "{said}");
    assert!(world.output_of(&quick).starts_with("whole:"));
    print!("beside two receivers that read nothing: {said}");
    let traffic = world.lab.kernel.traffic(dead).expect("it lives").expect("it has a card");
    assert_eq!(traffic.received.frames, 0);
    world.end(&deaf);
}
