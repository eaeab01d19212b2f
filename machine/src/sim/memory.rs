// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory accesses of instructions: fetch, read, write, also across pages.
//!
//! A faulting access changes nothing: both pages are translated before anything is written.

use super::decode;
use super::execute::{Cpu, exception, is_canonical, protection, vector};
use super::instruction::{Instruction, OperandLocation};
use super::tables::Kind;
use crate::{Exit, FRAME_SIZE, FrameId};

/// The longest instruction.
const LONGEST: usize = 15;

impl Cpu<'_> {
    /// The instruction at `rip` and its length.
    pub(super) fn fetch(&mut self) -> Result<(Instruction, usize), Exit> {
        let rip = self.registers.rip;
        if !is_canonical(rip) {
            return Err(protection());
        }
        let mut bytes = [0; LONGEST];
        let offset = rip as usize % FRAME_SIZE;
        let here = LONGEST.min(FRAME_SIZE - offset);
        let frame = self.mmu.translate(self.hardware, rip, Kind::Fetch)?;
        self.hardware.arena.read(frame, offset, &mut bytes[..here]);
        if let Ok(decoded) = decode::decode(&bytes[..here]) {
            return Ok(decoded);
        }
        if here < LONGEST {
            let rest = rip.wrapping_add(here as u64);
            if !is_canonical(rest) {
                return Err(protection());
            }
            let frame = self.mmu.translate(self.hardware, rest, Kind::Fetch)?;
            self.hardware.arena.read(frame, 0, &mut bytes[here..]);
        }
        decode::decode(&bytes).map_err(|_| protection())
    }

    /// Eight bytes.
    pub(super) fn load(&mut self, from: OperandLocation) -> Result<u64, Exit> {
        let mut bytes = [0; 8];
        self.read(self.address(from), &mut bytes, from.base.is_stack())?;
        Ok(u64::from_le_bytes(bytes))
    }

    pub(super) fn push(&mut self, value: u64) -> Result<(), Exit> {
        let top = self.registers.rsp.wrapping_sub(8);
        self.write(top, &value.to_le_bytes(), true)?;
        self.registers.rsp = top;
        Ok(())
    }

    /// The value on top of the stack.
    pub(super) fn top(&mut self) -> Result<u64, Exit> {
        let mut bytes = [0; 8];
        self.read(self.registers.rsp, &mut bytes, true)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// The frames of `length` bytes, which span two pages at most, and the number of bytes in the first.
    fn frames(&mut self, address: u64, length: usize, kind: Kind, is_stack: bool) -> Result<(FrameId, usize, Option<FrameId>), Exit> {
        let mut frame = |address| {
            if is_canonical(address) {
                self.mmu.translate(self.hardware, address, kind)
            } else {
                Err(exception(if is_stack { vector::STACK } else { vector::PROTECTION }, 0))
            }
        };
        let first = frame(address)?;
        let room = FRAME_SIZE - address as usize % FRAME_SIZE;
        if length <= room {
            return Ok((first, length, None));
        }
        let second = frame(address.wrapping_add(room as u64))?;
        Ok((first, room, Some(second)))
    }

    pub(super) fn read(&mut self, address: u64, bytes: &mut [u8], is_stack: bool) -> Result<(), Exit> {
        let (first, here, second) = self.frames(address, bytes.len(), Kind::Read, is_stack)?;
        let (head, tail) = bytes.split_at_mut(here);
        self.hardware.arena.read(first, address as usize % FRAME_SIZE, head);
        if let Some(second) = second {
            self.hardware.arena.read(second, 0, tail);
        }
        Ok(())
    }

    pub(super) fn write(&mut self, address: u64, bytes: &[u8], is_stack: bool) -> Result<(), Exit> {
        let (first, here, second) = self.frames(address, bytes.len(), Kind::Write, is_stack)?;
        let (head, tail) = bytes.split_at(here);
        self.hardware.arena.write(first, address as usize % FRAME_SIZE, head);
        if let Some(second) = second {
            self.hardware.arena.write(second, 0, tail);
        }
        Ok(())
    }
}
