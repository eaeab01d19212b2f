// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments and environment of a process, as they are in its memory now: programs write their titles there.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use pando_abi::PAGE_SIZE;
use pando_rt::hypercall::{self, NextSpace};
use pando_rt::user;

use crate::memory::AddressSpace;
use crate::system::System;

/// The arguments, each with a zero byte at its end; or the title that a program has written over them, and perhaps over the start
/// of its environment.
pub(super) fn command_line(system: &System, memory: &AddressSpace) -> Vec<u8> {
    let (arguments, environment) = (&memory.strings.arguments, &memory.strings.environment);
    let mut line = read(system, memory, arguments.clone());
    if line.last().is_some_and(|last| *last != 0) {
        let most = environment.end.min(arguments.start.saturating_add(PAGE_SIZE));
        line = read(system, memory, arguments.start..most);
        let title = line.iter().position(|byte| *byte == 0).map_or(line.len(), |end| end + 1);
        line.truncate(title);
    }
    line
}

/// The variables, each with a zero byte at its end.
pub(super) fn environment(system: &System, memory: &AddressSpace) -> Vec<u8> {
    read(system, memory, memory.strings.environment.clone())
}

/// Reads memory of an address space, as far as it is readable.
fn read(system: &System, memory: &AddressSpace, range: Range<u64>) -> Vec<u8> {
    let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
    let switch = |space| {
        if memory.space != system.memory.space {
            hypercall::space_switch(NextSpace::Existing(space), None).expect("a space is there as long as its memory is");
        }
    };
    switch(memory.space);
    let count = user::read_some(range.start, &mut bytes);
    switch(system.memory.space);
    bytes.truncate(count);
    bytes
}
