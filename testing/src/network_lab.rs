// SPDX-License-Identifier: MIT OR Apache-2.0
//! Idle cells on one network, whose rings the test writes.

use crate::asm::Asm;
use crate::asm::Register::{Rax, Rbx, Rcx};
use crate::lab::Lab;
use pando_abi::frame::{self, Frames};
use pando_abi::layout::{NETWORK_RINGS, VIRTUAL_REGISTERS};
use pando_abi::limits::NETWORK_DESCRIPTORS;
use pando_abi::ring::{Descriptor, NetworkRings};
use pando_abi::{Event, EventSet, Hypercall, MapFlags, Permissions};
use pando_kernel::RunState;
use pando_kernel::cell::traffic::Traffic;
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, End, NetworkConfig, NetworkId};
use pando_machine::{Nanos, PageCount};
use std::mem::offset_of;

/// Transmit memory of a cell: 8 MiB.
pub const SENT: u64 = 0x2000_0000;
/// Receive memory of a cell: 8 MiB.
pub const RECEIVED: u64 = 0x3000_0000;
/// Where a cell records the events that woke it: the last word of its transmit memory.
const HEARD: u64 = SENT + (8 << 20) - 8;
/// Bytes of one receive descriptor.
pub const ROOM: u32 = 1 << 18;

/// One of a card's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestRing {
    /// From the cell.
    Transmit,
    /// To the cell.
    Receive,
}

impl TestRing {
    /// Its address in the cell.
    #[must_use]
    pub fn address(self) -> u64 {
        let offset = match self {
            TestRing::Transmit => offset_of!(NetworkRings, transmit),
            TestRing::Receive => offset_of!(NetworkRings, receive),
        };
        NETWORK_RINGS + offset as u64
    }

    fn place(self, index: u64) -> u64 {
        self.address() + 16 + index % NETWORK_DESCRIPTORS as u64 * Descriptor::SIZE as u64
    }
}

/// The cells with their addresses.
pub struct NetworkLab {
    /// The kernel.
    pub lab: Lab,
    /// The network.
    pub network: NetworkId,
    /// The cells.
    pub cells: Vec<(CellId, Addresses)>,
    /// Number of receive descriptors of each cell that were read.
    seen: Vec<u64>,
    free: PageCount,
}

/// Packs frames into a batch.
pub fn batch(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for frame in frames {
        let end = bytes.len() + frame::room(frame.len());
        bytes.extend(frame::header(frame.len()));
        bytes.extend(frame);
        bytes.resize(end, 0);
    }
    bytes
}

/// An IPv4 frame of `length` bytes, filled with `mark`.
pub fn packet(from: &Addresses, to: &Addresses, length: usize, mark: u8) -> Vec<u8> {
    let mut bytes = vec![mark; length.max(34)];
    bytes[..6].copy_from_slice(&to.mac.0);
    bytes[6..12].copy_from_slice(&from.mac.0);
    bytes[12..14].copy_from_slice(&[8, 0]);
    bytes[26..30].copy_from_slice(&from.v4.octets());
    bytes[30..34].copy_from_slice(&to.v4.octets());
    bytes
}

impl NetworkLab {
    /// A bench with `cells` cells on every machine.
    pub fn both(cells: usize) -> Vec<NetworkLab> {
        NetworkLab::with(cells, NetworkConfig::default(), Link::default())
    }

    /// A bench with this kind of network and links.
    pub fn with(cells: usize, config: NetworkConfig, link: Link) -> Vec<NetworkLab> {
        NetworkLab::on(Lab::both(), cells, config, link)
    }

    /// A bench with `cells` cells on every machine, which fall asleep whenever they idle.
    pub fn sleep_when_idle(cells: usize) -> Vec<NetworkLab> {
        NetworkLab::on(Lab::sleep_when_idle(), cells, NetworkConfig::default(), Link::default())
    }

    fn on(labs: Vec<Lab>, cells: usize, config: NetworkConfig, link: Link) -> Vec<NetworkLab> {
        let build = |mut lab: Lab| {
            let free = lab.kernel.free();
            let network = lab.kernel.add_network(config.clone()).expect("there are few");
            let seen = vec![0; cells];
            let cells = (0..cells).map(|_| start(&mut lab, network, link)).collect();
            NetworkLab { lab, network, cells, seen, free }
        };
        labs.into_iter().map(build).collect()
    }

    /// Adds another cell. Returns its index.
    pub fn add(&mut self, link: Link) -> usize {
        self.cells.push(start(&mut self.lab, self.network, link));
        self.seen.push(0);
        self.cells.len() - 1
    }

    /// Removes a cell from the bench and returns it.
    pub fn remove(&mut self, cell: usize) -> (CellId, Addresses) {
        self.seen.remove(cell);
        self.cells.remove(cell)
    }

    /// The addresses of a cell.
    #[must_use]
    pub fn addresses(&self, cell: usize) -> Addresses {
        self.cells[cell].1
    }

    /// Writes a cell's memory.
    pub fn write(&self, cell: usize, address: u64, bytes: &[u8]) {
        self.lab.kernel.write(self.cells[cell].0, address, bytes).expect("it idles, and the memory is mapped");
    }

    /// Reads a cell's memory.
    #[must_use]
    pub fn read(&self, cell: usize, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.lab.kernel.read(self.cells[cell].0, address, &mut bytes).expect("it idles, and the memory is mapped");
        bytes
    }

    /// Reads a word of a cell's memory.
    #[must_use]
    pub fn word(&self, cell: usize, address: u64) -> u64 {
        u64::from_le_bytes(self.read(cell, address, 8).try_into().expect("eight bytes"))
    }

    /// The number of descriptors that the kernel has taken from a ring.
    #[must_use]
    pub fn taken(&self, cell: usize, ring: TestRing) -> u64 {
        self.word(cell, ring.address() + 8)
    }

    /// A descriptor of a ring.
    #[must_use]
    pub fn descriptor(&self, cell: usize, ring: TestRing, index: u64) -> Descriptor {
        Descriptor::from_words([self.word(cell, ring.place(index)), self.word(cell, ring.place(index) + 8)])
    }

    /// Posts the next descriptor; returns its index.
    pub fn post(&self, cell: usize, ring: TestRing, address: u64, length: u32) -> u64 {
        let index = self.word(cell, ring.address());
        let bytes: Vec<u8> = Descriptor { address, length, tag: 0 }.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
        self.write(cell, ring.place(index), &bytes);
        self.write(cell, ring.address(), &index.wrapping_add(1).to_le_bytes());
        index
    }

    /// Posts receive descriptors for batches, consecutive in memory.
    pub fn listen(&self, cell: usize, descriptors: u64) {
        for _ in 0..descriptors {
            let index = self.word(cell, TestRing::Receive.address());
            self.post(cell, TestRing::Receive, RECEIVED + index % NETWORK_DESCRIPTORS as u64 * u64::from(ROOM), ROOM);
        }
    }

    /// Makes the kernel serve a cell's rings, and runs all cells that are woken by that.
    pub fn kick(&mut self, cell: usize) {
        self.lab.kernel.raise(self.cells[cell].0, Event::Terminate);
        self.lab.run_all();
        let (state, ..) = self.lab.kernel.inspect(self.cells[cell].0).expect("nothing that stands in a ring ends a cell");
        assert!(matches!(state, RunState::Idle { until: Nanos::NEVER } | RunState::Asleep { until: Nanos::NEVER }), "{state}");
    }

    /// The events that last woke a cell.
    pub fn wake_events(&self, cell: usize) -> EventSet {
        EventSet(self.word(cell, HEARD))
    }

    /// Posts frames as one batch, which is sent when the cell next runs.
    pub fn post_frames(&self, cell: usize, frames: &[Vec<u8>]) {
        let bytes = batch(frames);
        self.write(cell, SENT, &bytes);
        self.post(cell, TestRing::Transmit, SENT, bytes.len() as u32);
        self.lab.kernel.raise(self.cells[cell].0, Event::Terminate);
    }

    /// Sends frames as one batch.
    pub fn send(&mut self, cell: usize, frames: &[Vec<u8>]) {
        self.post_frames(cell, frames);
        self.kick(cell);
    }

    /// The frames that a cell has received since the last call, grouped by descriptor.
    pub fn received(&mut self, cell: usize) -> Vec<Vec<Vec<u8>>> {
        let taken = self.taken(cell, TestRing::Receive);
        let seen = std::mem::replace(&mut self.seen[cell], taken);
        let batches = (seen..taken).map(|index| {
            let Descriptor { address, length, .. } = self.descriptor(cell, TestRing::Receive, index);
            let bytes = self.read(cell, address, length as usize);
            let mut inside = Frames::of(&bytes);
            let frames = inside.by_ref().map(|place| bytes[place].to_vec()).collect();
            assert!(inside.is_over(), "the kernel made no batch of frames");
            frames
        });
        batches.collect()
    }

    /// Receives frames until none is left; posts a new descriptor for each that is filled.
    pub fn receive_all(&mut self, cell: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        loop {
            let more = self.received(cell);
            if more.is_empty() {
                return frames;
            }
            self.listen(cell, more.len() as u64);
            frames.extend(more.concat());
            self.kick(cell);
        }
    }

    /// The traffic of a cell's card.
    #[must_use]
    pub fn traffic(&self, cell: usize) -> Traffic {
        self.lab.kernel.traffic(self.cells[cell].0).expect("it lives").expect("it has a card")
    }

    /// Ends the cells, and checks that all memory comes back.
    pub fn close(self) {
        for (id, _) in &self.cells {
            self.lab.kernel.end(*id, End::Killed).expect("it idles");
        }
        self.lab.kernel.free_unused_frames();
        assert_eq!(self.lab.kernel.free(), self.free);
    }
}

/// A cell that clears its events and idles, over and over.
fn start(lab: &mut Lab, network: NetworkId, link: Link) -> (CellId, Addresses) {
    let mut asm = Asm::new();
    let again = asm.here();
    asm.mov_imm(Rbx, VIRTUAL_REGISTERS)
        .store_imm(Rbx, 0, 0)
        .call_kernel(Hypercall::Idle { deadline: u64::MAX })
        .mov_imm(Rcx, HEARD)
        .store(Rcx, 0, Rax)
        .jmp(again);
    let id = lab.cell(&asm.finish());
    for memory in [SENT, RECEIVED] {
        lab.kernel.map(id, memory, PageCount(2048), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its memory");
    }
    let addresses = lab.kernel.plug(id, network, link).expect("it is not running");
    lab.kernel.start(id).expect("it was not started before");
    lab.run_all();
    (id, addresses)
}
