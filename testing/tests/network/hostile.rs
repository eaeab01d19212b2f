// SPDX-License-Identifier: MIT OR Apache-2.0
//! Hostile cells that flood and send false or malformed frames, and a hostile host port: other cells keep exchanging data and serving.

use crate::host_peer::HostPeer;
use crate::world::{CellNetwork, Running};
use bytes::Bytes;
use fastrand::Rng;
use pando_abi::layout::{NETWORK_RINGS, VIRTUAL_REGISTERS};
use pando_abi::limits::NETWORK_DESCRIPTORS;
use pando_abi::ring::{Descriptor, NetworkRings};
use pando_abi::{Event, Hypercall, MapFlags, Permissions};
use pando_kernel::RunState;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, End, HostPort, NetworkConfig};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{Rax, Rbx};
use pando_testing::lab::repetitions;
use pando_testing::mutate::mutate;
use pando_testing::network_lab::batch;
use std::mem::offset_of;
use std::net::IpAddr;

/// The frame memory of a hostile cell: 1 MiB.
const FRAMES: u64 = 0x2000_0000;
const TRANSMIT: u64 = NETWORK_RINGS + offset_of!(NetworkRings, transmit) as u64;
/// Frames of one batch.
const BATCH: usize = 48;
/// Ports reserved before any cell: no single change of a frame turns another's address into a cell's.
const TAKEN: usize = 200;

/// Two cells that exchange data.
struct Pair {
    server: Running,
    client: Running,
    bytes: u32,
    _taken: Vec<HostPort>,
}

impl Pair {
    fn new(bytes: u32) -> Option<(CellNetwork, Pair)> {
        let mut world = CellNetwork::with_peer(NetworkConfig::default())?;
        let taken =
            (0..TAKEN).map(|_| world.lab.kernel.host_port(world.network, Link::default(), || {}).expect("there are ports")).collect();
        let server = world.serve(
            &format!("echo well > index.html; httpd -p 80 -h /tmp; /peer hear 5000 {bytes} {bytes}; exec httpd -f -p 81 -h /tmp"),
            Link::default(),
        );
        let client = world.start(&format!("exec /peer tell {} 5000 {bytes} {bytes}", server.addresses.v4), Link::default());
        Some((world, Pair { server, client, bytes, _taken: taken }))
    }

    /// Checks that all data was exchanged, and that the server still serves.
    fn is_well(&self, world: &mut CellNetwork) {
        let said = world.output_of(&self.client);
        assert!(said.starts_with(&format!("whole: said {0}, heard {0}", self.bytes)), "{said}");
        print!("beside hostile cells: {said}");
        assert_eq!(world.run(&format!("wget -qO- http://{}/", self.server.addresses.v4)), "well\n");
        assert_eq!(world.run(&format!("wget -qO- http://[{}]/", self.server.addresses.v6)), "well\n");
        assert!(world.pages(&self.server).0 < 4096, "{:?}", world.pages(&self.server));
    }
}

/// Frames of all kinds between two cells: valid ones, and ones that only `as_another` may send.
fn frames(own: &Addresses, to: &Addresses, as_another: &Addresses) -> Vec<Vec<u8>> {
    let ethernet = |from: &Addresses, kind: [u8; 2], packet: &[u8]| [&to.mac.0[..], &from.mac.0, &kind, packet].concat();
    let v4 = |protocol: u8, payload: &[u8]| {
        let length = (20 + payload.len() as u16).to_be_bytes();
        let header = [0x45, 0, length[0], length[1], 0, 1, 0, 0, 64, protocol, 0, 0];
        move |from: &Addresses| [&header[..], &from.v4.octets(), &to.v4.octets()].concat()
    };
    let v6 = |from: &Addresses, next: u8, payload: &[u8]| {
        let length = (payload.len() as u16).to_be_bytes();
        [&[0x60, 0, 0, 0, length[0], length[1], next, 255][..], &from.v6.octets(), &to.v6.octets(), payload].concat()
    };
    let udp = [&[0x13, 0x88, 0, 9, 0, 72, 0, 0][..], &[7; 64]].concat();
    let tcp = |flags: u8| [&[0x13, 0x88, 0x13, 0x88, 1, 2, 3, 4, 5, 6, 7, 8, 0x50, flags, 1, 0, 0, 0, 0, 0][..], &[7; 64]].concat();
    let ping = [&[8, 0, 0xf7, 0xff, 0, 0, 0, 0][..]].concat();
    let arp = |operation: u8, from: &Addresses| {
        [&[0, 1, 8, 0, 6, 4, 0, operation][..], &from.mac.0, &from.v4.octets(), &to.mac.0, &to.v4.octets()].concat()
    };
    let claim = |from: &Addresses| [&[136, 0, 0, 0, 0x60, 0, 0, 0][..], &from.v6.octets(), &[2, 1], &from.mac.0].concat();
    let mut frames = Vec::new();
    for from in [own, as_another] {
        for (protocol, payload) in [(17, &udp), (6, &tcp(2)), (6, &tcp(0x10)), (6, &tcp(4)), (1, &ping)] {
            frames.push(ethernet(from, [8, 0], &[v4(protocol, payload)(from), payload.clone()].concat()));
            frames.push(ethernet(from, [0x86, 0xdd], &v6(from, protocol, payload)));
        }
        frames.extend([1, 2].map(|operation| ethernet(from, [8, 6], &arp(operation, from))));
        frames.push(ethernet(from, [0x86, 0xdd], &v6(from, 58, &claim(from))));
        frames.push(ethernet(from, [0x88, 0xcc], &[1; 60]));
    }
    // The same frames to the broadcast address.
    let everybody = frames.clone().into_iter().map(|mut frame| {
        frame[..6].fill(0xff);
        frame
    });
    frames.extend(everybody.collect::<Vec<_>>());
    frames
}

/// A cell on the network with this code and memory for frames, not yet started.
fn hostile(world: &CellNetwork, code: &[u8]) -> (CellId, Addresses) {
    let kernel = &world.lab.kernel;
    let id = world.lab.cell(code);
    kernel.map(id, FRAMES, PageCount(256), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its memory");
    let addresses = kernel.plug(id, world.network, Link::default()).expect("it does not run yet");
    (id, addresses)
}

fn post(world: &CellNetwork, id: CellId, slots: u64, descriptor: Descriptor) {
    let words: Vec<u8> = descriptor.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
    for slot in 0..slots {
        world.lab.kernel.write(id, TRANSMIT + 16 + slot * Descriptor::SIZE as u64, &words).expect("it is at rest");
    }
}

#[test]
fn hostile_senders_do_not_disturb_other_cells() {
    let Some((mut world, pair)) = Pair::new(repetitions(100_000, 3_000_000, 100_000_000)) else { return };
    let mut asm = Asm::new();
    // All descriptors at once, over and over, without a pause.
    asm.mov_imm(Rbx, TRANSMIT);
    let again = asm.here();
    asm.load(Rax, Rbx, 8).add_imm(Rax, NETWORK_DESCRIPTORS as i32).store(Rbx, 0, Rax).call_kernel(Hypercall::Doorbell {}).jmp(again);
    let (id, own) = hostile(&world, &asm.finish());
    let all = frames(&own, &pair.server.addresses, &pair.client.addresses);
    let bytes = batch(&all);
    world.lab.kernel.write(id, FRAMES, &bytes).expect("it is at rest");
    post(&world, id, NETWORK_DESCRIPTORS as u64, Descriptor { address: FRAMES, length: bytes.len() as u32, tag: 0 });
    world.lab.kernel.start(id).expect("it was not started before");
    // And one that floods through its libOS.
    let flood = world.start(&format!("exec /peer flood {}", pair.server.addresses.v4), Link::default());
    pair.is_well(&mut world);
    let traffic = world.lab.kernel.traffic(id).expect("it lives").expect("it has a card");
    println!("{} frames sent, {} of them with another's address", traffic.sent.frames, traffic.spoofed);
    assert!(traffic.spoofed > 0 && traffic.sent.frames > traffic.spoofed);
    world.lab.kernel.end(id, End::Killed).expect("it lives");
    world.end(&flood);
}

#[test]
fn invalid_frames_and_rings_disturb_no_other_cell() {
    let seed = 1;
    let Some((mut world, pair)) = Pair::new(repetitions(100_000, 3_000_000, 100_000_000)) else { return };
    let mut asm = Asm::new();
    let again = asm.here();
    asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0).call_kernel(Hypercall::Idle { deadline: u64::MAX }).jmp(again);
    let (id, own) = hostile(&world, &asm.finish());
    world.lab.kernel.start(id).expect("it was not started before");
    let templates = frames(&own, &pair.server.addresses, &pair.client.addresses);
    let mut random = Rng::with_seed(seed);
    let (mut rounds, least) = (0_u32, repetitions(50, 1000, 50_000));
    while rounds < least {
        if !matches!(world.lab.kernel.inspect(id), Ok((RunState::Idle { .. }, ..))) {
            assert!(world.lab.turn(0), "seed {seed}, round {rounds}: no cell makes progress");
            continue;
        }
        rounds += 1;
        let batch = batch(&(0..BATCH).map(|_| mutate(&templates[random.usize(..templates.len())], &mut random)).collect::<Vec<_>>());
        world.lab.kernel.write(id, FRAMES, &batch).expect("it idles");
        let mut any = |sound: u64| match random.u8(0..16) {
            0 => random.u64(..),
            1 => sound.wrapping_add(random.u64(0..4096)),
            2 => random.u64(0..1 << 20),
            _ => sound,
        };
        let descriptor = Descriptor { address: any(FRAMES), length: any(batch.len() as u64) as u32, tag: any(0) as u32 };
        post(&world, id, NETWORK_DESCRIPTORS as u64, descriptor);
        let mut taken = [0; 8];
        world.lab.kernel.read(id, TRANSMIT + 8, &mut taken).expect("it idles");
        let posted = u64::from_le_bytes(taken).wrapping_add(any(1) % 80);
        world.lab.kernel.write(id, TRANSMIT, &posted.to_le_bytes()).expect("it idles");
        world.lab.kernel.raise(id, Event::Terminate);
    }
    pair.is_well(&mut world);
    let traffic = world.lab.kernel.traffic(id).expect("it lives").expect("it has a card");
    println!("{rounds} rounds, {} frames, {} of them with another's address", traffic.sent.frames, traffic.spoofed);
}

#[test]
fn invalid_frames_of_a_host_port_crash_no_libos() {
    let seed = 2;
    let Some((mut world, pair)) = Pair::new(repetitions(100_000, 3_000_000, 100_000_000)) else { return };
    let to = pair.server.addresses;
    let mut host_peer = HostPeer::new(&world, world.network);
    let (router, _) = world.lab.kernel.router(world.network).expect("the network is there");
    // Frames of a regular exchange as templates, and frames that nobody should send.
    let listener = world.lab.kernel.capture_packets(world.network, || {}).expect("there are ports");
    for host in [IpAddr::from(to.v4), to.v6.into()] {
        let heard = host_peer.ask(&mut world, (host, 80).into(), b"GET / HTTP/1.0\r\n\r\n");
        assert!(heard.ends_with(b"well\n"));
    }
    let said = listener.receive(usize::MAX);
    let mut templates: Vec<Vec<u8>> = said.iter().map(|(_, frame)| frame.to_vec()).filter(|frame| frame[6..12] == router.mac.0).collect();
    drop(listener);
    assert!(templates.len() > 8, "the station receives its traffic");
    templates.extend(frames(&router, &to, &router));
    let mut random = Rng::with_seed(seed);
    let (mut sent, least) = (0_u32, repetitions(1000, 100_000, 3_000_000));
    while sent < least {
        let frames = (0..BATCH).map(|_| Bytes::from(mutate(&templates[random.usize(..templates.len())], &mut random)));
        host_peer.host_port.send(frames.collect::<Vec<_>>());
        sent += BATCH as u32;
        // Its responses are discarded.
        host_peer.host_port.receive(usize::MAX);
        world.lab.turn(0);
        assert!(world.lab.kernel.inspect(pair.server.id).is_ok(), "seed {seed}, after {sent}: {}", world.output_of(&pair.server));
    }
    println!("{sent} frames");
    pair.is_well(&mut world);
}
