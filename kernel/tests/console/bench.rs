// SPDX-License-Identifier: MIT OR Apache-2.0
//! An idle cell, and a test that writes its rings: each kick makes the kernel serve them.

use pando_abi::layout::{CONSOLE_RINGS, VIRTUAL_REGISTERS};
use pando_abi::limits::{CHANNEL_DESCRIPTORS, RECEIVE_DESCRIPTORS, TRANSMIT_DESCRIPTORS};
use pando_abi::ring::{ConsoleRings, ControlRings, Descriptor, Rings};
use pando_abi::{Event, Hypercall, MapFlags, Permissions};
use pando_kernel::RunState;
use pando_kernel::{CellId, ConsolePort, End, Stream};
use pando_machine::{Nanos, PageCount};
use pando_testing::asm::Asm;
use pando_testing::asm::Register::Rbx;
use pando_testing::lab::{Lab, repetitions};
use std::mem::offset_of;
use std::sync::Arc;

/// Buffer memory of the cell: 4 MiB.
pub const MEMORY: u64 = 0x2000_0000;
/// Length of a completed descriptor whose memory the cell may not use.
pub const FAULTED: u32 = u32::MAX;

/// One of the cell's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TestRing {
    /// From the cell.
    Transmit,
    /// To the cell.
    Receive,
    /// From the cell to its operator.
    Requests,
    /// The operator's answers.
    Answers,
    /// From the cell through the control channel.
    Reports,
    /// To the cell through the control channel.
    Orders,
}

impl TestRing {
    fn address(self) -> u64 {
        CONSOLE_RINGS
            + match self {
                TestRing::Transmit => offset_of!(ConsoleRings, transmit),
                TestRing::Receive => offset_of!(ConsoleRings, receive),
                TestRing::Requests => offset_of!(ConsoleRings, requests),
                TestRing::Answers => offset_of!(ConsoleRings, answers),
                TestRing::Reports => offset_of!(Rings, control) + offset_of!(ControlRings, reports),
                TestRing::Orders => offset_of!(Rings, control) + offset_of!(ControlRings, orders),
            } as u64
    }

    pub fn length(self) -> u64 {
        match self {
            TestRing::Transmit => TRANSMIT_DESCRIPTORS as u64,
            TestRing::Receive => RECEIVE_DESCRIPTORS as u64,
            TestRing::Requests | TestRing::Answers | TestRing::Reports | TestRing::Orders => CHANNEL_DESCRIPTORS as u64,
        }
    }

    fn place(self, index: u64) -> u64 {
        self.address() + 16 + index % self.length() * Descriptor::SIZE as u64
    }
}

/// The cell and its console.
pub struct Bench {
    pub lab: Lab,
    pub id: CellId,
    pub port: Arc<ConsolePort>,
    free: PageCount,
}

impl Bench {
    /// A bench on every machine.
    pub fn both() -> Vec<Bench> {
        // Cells that fall asleep whenever they idle, in long runs.
        let sleep_when_idle = if repetitions(0, 0, 1) > 0 { Lab::sleep_when_idle() } else { Vec::new() };
        Lab::both().into_iter().chain(sleep_when_idle).map(Bench::new).collect()
    }

    fn new(mut lab: Lab) -> Bench {
        let free = lab.kernel.free();
        let mut asm = Asm::new();
        let again = asm.here();
        asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, 0, 0).call_kernel(Hypercall::Idle { deadline: u64::MAX }).jmp(again);
        let id = lab.cell(&asm.finish());
        lab.kernel.map(id, MEMORY, PageCount(1024), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for its memory");
        let port = lab.kernel.console(id).expect("it lives");
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        Bench { lab, id, port, free }
    }

    pub fn write(&self, address: u64, bytes: &[u8]) {
        self.lab.kernel.write(self.id, address, bytes).expect("it idles, and the memory is mapped");
    }

    pub fn read(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.lab.kernel.read(self.id, address, &mut bytes).expect("it idles, and the memory is mapped");
        bytes
    }

    fn word(&self, address: u64) -> u64 {
        u64::from_le_bytes(self.read(address, 8).try_into().expect("eight bytes"))
    }

    pub fn set_posted(&self, ring: TestRing, posted: u64) {
        self.write(ring.address(), &posted.to_le_bytes());
    }

    pub fn set_taken(&self, ring: TestRing, taken: u64) {
        self.write(ring.address() + 8, &taken.to_le_bytes());
    }

    pub fn taken(&self, ring: TestRing) -> u64 {
        self.word(ring.address() + 8)
    }

    pub fn posted(&self, ring: TestRing) -> u64 {
        self.word(ring.address())
    }

    /// Writes a descriptor without posting it.
    pub fn set(&self, ring: TestRing, index: u64, descriptor: Descriptor) {
        let bytes: Vec<u8> = descriptor.to_words().into_iter().flat_map(u64::to_le_bytes).collect();
        self.write(ring.place(index), &bytes);
    }

    pub fn descriptor(&self, ring: TestRing, index: u64) -> Descriptor {
        Descriptor::from_words([self.word(ring.place(index)), self.word(ring.place(index) + 8)])
    }

    /// Posts the next descriptor; returns its index.
    pub fn post(&self, ring: TestRing, address: u64, length: u32, tag: u32) -> u64 {
        let index = self.posted(ring);
        self.set(ring, index, Descriptor { address, length, tag });
        self.set_posted(ring, index.wrapping_add(1));
        index
    }

    /// Makes the kernel serve the rings; the cell must be idle again afterwards.
    pub fn kick(&mut self) {
        self.lab.kernel.raise(self.id, Event::Terminate);
        self.lab.run_all();
        let (state, ..) = self.lab.kernel.inspect(self.id).expect("nothing that stands in a ring ends a cell");
        assert_eq!(state, RunState::Idle { until: Nanos::NEVER });
    }

    /// Sends input to the cell, which wakes it.
    pub fn send(&mut self, bytes: &[u8]) {
        assert!(self.port.send(bytes), "the cell ended");
        self.lab.run_all();
    }

    /// Receives `bytes` bytes of output, and checks that there is no more in the last piece.
    pub fn receive(&self, bytes: usize) -> Vec<(Stream, Vec<u8>)> {
        let mut received = Vec::new();
        let mut count = 0;
        while count < bytes {
            let (stream, piece) = self.port.receive().expect("the cell lives");
            count += piece.len();
            received.push((stream, piece));
        }
        assert_eq!(count, bytes, "more than was expected");
        received
    }

    /// Receives `bytes` bytes of output, all from one stream.
    pub fn receive_from(&self, stream: Stream, bytes: usize) -> Vec<u8> {
        let received = self.receive(bytes);
        assert!(received.iter().all(|(from, _)| *from == stream));
        received.into_iter().flat_map(|(_, bytes)| bytes).collect()
    }

    /// Ends the cell, and checks that no output is left and all memory comes back.
    pub fn close(self) {
        self.lab.kernel.end(self.id, End::Killed).expect("it idles");
        assert_eq!(self.port.receive(), None, "somebody said more");
        self.lab.kernel.free_unused_frames();
        assert_eq!(self.lab.kernel.free(), self.free);
    }
}
