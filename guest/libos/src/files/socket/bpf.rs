// SPDX-License-Identifier: MIT OR Apache-2.0
//! Classic BPF packet filters of sockets (`SO_ATTACH_FILTER`): small programs that decide how many bytes of a packet are received.
//!
//! A program is checked when it is attached: it jumps only forward, to valid instructions, and ends with a return. So each run takes at
//! most as many steps as the program has instructions.

use alloc::vec::Vec;

use crate::errno::Errno;
use crate::uapi::{
    BPF_A, BPF_ABS, BPF_ADD, BPF_ALU, BPF_AND, BPF_B, BPF_DIV, BPF_H, BPF_IMM, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JGT, BPF_JMP,
    BPF_JSET, BPF_K, BPF_LD, BPF_LDX, BPF_LEN, BPF_LSH, BPF_MAXINSNS, BPF_MEM, BPF_MEMWORDS, BPF_MOD, BPF_MSH, BPF_MUL, BPF_NEG, BPF_OR,
    BPF_RET, BPF_RSH, BPF_ST, BPF_STX, BPF_SUB, BPF_TAX, BPF_TXA, BPF_W, BPF_X, BPF_XOR, SKF_LL_OFF,
};

/// The parts of an opcode: its class, and within it the size and mode of a load, or the operation.
const CLASS: u16 = 0x07;
const SIZE: u16 = 0x18;
const MODE: u16 = 0xe0;
const OPERATION: u16 = 0xf0;
const MISC_OPERATION: u16 = 0xf8;

/// Size of an instruction in bytes.
pub const INSTRUCTION: usize = 8;

/// An instruction: opcode, jump offsets for true and false, and a constant.
#[derive(Clone, Copy, Debug)]
struct Instruction {
    code: u16,
    jt: u8,
    jf: u8,
    k: u32,
}

/// A checked program.
#[derive(Clone, Debug)]
pub struct PacketFilter(Vec<Instruction>);

impl PacketFilter {
    /// Decodes and checks a program, in the layout of `struct sock_filter`.
    ///
    /// # Errors
    /// `EINVAL`: it is too long or too short, does not end with a return, or reads ancillary data.
    pub fn new(bytes: &[u8]) -> Result<PacketFilter, Errno> {
        let instructions: Vec<Instruction> = bytes
            .chunks_exact(INSTRUCTION)
            .map(|bytes| Instruction {
                code: u16::from_le_bytes([bytes[0], bytes[1]]),
                jt: bytes[2],
                jf: bytes[3],
                k: u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
            })
            .collect();
        let ends = instructions.last().is_some_and(|last| last.code & CLASS == BPF_RET);
        let is_sound = |(at, instruction): (usize, &Instruction)| instruction.is_sound(instructions.len() - at - 1);
        if !ends || instructions.len() > BPF_MAXINSNS || !instructions.iter().enumerate().all(is_sound) {
            return Err(Errno::EINVAL);
        }
        Ok(PacketFilter(instructions))
    }

    /// The number of bytes of a packet to receive; 0: drop it.
    #[must_use]
    pub fn run(&self, packet: &[u8]) -> usize {
        let mut machine = Machine { packet, a: 0, x: 0, words: [0; BPF_MEMWORDS] };
        let mut at = 0;
        // Reading beyond the packet drops it.
        while let Some(instruction) = self.0.get(at) {
            match machine.step(*instruction) {
                Some(Step::Jump(more)) => at += 1 + more as usize,
                Some(Step::Return(bytes)) => return bytes as usize,
                None => return 0,
            }
        }
        0
    }
}

impl Instruction {
    /// Whether it is a known instruction with operands in bounds. `left`: the number of instructions after it.
    fn is_sound(self, left: usize) -> bool {
        let (size, mode) = (self.code & SIZE, self.code & MODE);
        let is_word = (self.k as usize) < BPF_MEMWORDS;
        match self.code & CLASS {
            // From the packet at an absolute or indexed offset, a constant, a word of scratch memory, the packet's length.
            BPF_LD => match mode {
                BPF_ABS | BPF_IND => size != SIZE && self.k < SKF_LL_OFF,
                BPF_IMM | BPF_LEN => size == BPF_W,
                BPF_MEM => size == BPF_W && is_word,
                _ => false,
            },
            BPF_LDX => match mode {
                BPF_IMM | BPF_LEN => size == BPF_W,
                BPF_MEM => size == BPF_W && is_word,
                BPF_MSH => size == BPF_B && self.k < SKF_LL_OFF,
                _ => false,
            },
            BPF_ST | BPF_STX => self.code & !CLASS == 0 && is_word,
            BPF_ALU => match self.code & OPERATION {
                BPF_DIV | BPF_MOD => self.code & BPF_X != 0 || self.k != 0,
                BPF_LSH | BPF_RSH => self.code & BPF_X != 0 || self.k < 32,
                BPF_ADD..=BPF_XOR => true,
                _ => false,
            },
            BPF_JMP => match self.code & OPERATION {
                BPF_JA => (self.k as usize) < left,
                BPF_JEQ..=BPF_JSET => usize::from(self.jt) < left && usize::from(self.jf) < left,
                _ => false,
            },
            BPF_RET => matches!(self.code & SIZE, BPF_K | BPF_A),
            // Transfers between the registers.
            _ => matches!(self.code & MISC_OPERATION, BPF_TAX | BPF_TXA),
        }
    }
}

/// The control flow after an instruction.
enum Step {
    /// Continue, after skipping so many instructions.
    Jump(u32),
    /// Return.
    Return(u32),
}

struct Machine<'a> {
    packet: &'a [u8],
    a: u32,
    x: u32,
    words: [u32; BPF_MEMWORDS],
}

impl Machine<'_> {
    /// So many bytes of the packet, big-endian.
    fn load(&self, at: u32, size: u16) -> Option<u32> {
        let bytes = match size {
            BPF_W => 4,
            BPF_H => 2,
            _ => 1,
        };
        let at = at as usize;
        Some(self.packet.get(at..at.checked_add(bytes)?)?.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)))
    }

    fn step(&mut self, Instruction { code, jt, jf, k }: Instruction) -> Option<Step> {
        let length = self.packet.len() as u32;
        let memory_word = |words: &[u32; BPF_MEMWORDS]| words.get(k as usize).copied();
        match code & CLASS {
            BPF_LD => {
                self.a = match code & MODE {
                    BPF_ABS => self.load(k, code & SIZE)?,
                    BPF_IND => self.load(self.x.checked_add(k)?, code & SIZE)?,
                    BPF_MEM => memory_word(&self.words)?,
                    BPF_LEN => length,
                    _ => k,
                }
            }
            BPF_LDX => {
                self.x = match code & MODE {
                    BPF_MEM => memory_word(&self.words)?,
                    BPF_LEN => length,
                    // The length of an IPv4 header, from its first byte.
                    BPF_MSH => 4 * (self.load(k, BPF_B)? & 0xf),
                    _ => k,
                }
            }
            BPF_ST => *self.words.get_mut(k as usize)? = self.a,
            BPF_STX => *self.words.get_mut(k as usize)? = self.x,
            BPF_ALU => self.a = self.alu(code, k)?,
            BPF_JMP => {
                let other = if code & BPF_X != 0 { self.x } else { k };
                let holds = match code & OPERATION {
                    BPF_JA => return Some(Step::Jump(k)),
                    BPF_JEQ => self.a == other,
                    BPF_JGT => self.a > other,
                    BPF_JGE => self.a >= other,
                    _ => self.a & other != 0,
                };
                return Some(Step::Jump(if holds { jt } else { jf }.into()));
            }
            BPF_RET => return Some(Step::Return(if code & BPF_A != 0 { self.a } else { k })),
            _ if code & BPF_TXA != 0 => self.a = self.x,
            _ => self.x = self.a,
        }
        Some(Step::Jump(0))
    }

    fn alu(&self, code: u16, k: u32) -> Option<u32> {
        let other = if code & BPF_X != 0 { self.x } else { k };
        Some(match code & OPERATION {
            BPF_ADD => self.a.wrapping_add(other),
            BPF_SUB => self.a.wrapping_sub(other),
            BPF_MUL => self.a.wrapping_mul(other),
            BPF_DIV => self.a.checked_div(other)?,
            BPF_OR => self.a | other,
            BPF_AND => self.a & other,
            BPF_LSH => self.a.checked_shl(other).unwrap_or_default(),
            BPF_RSH => self.a.checked_shr(other).unwrap_or_default(),
            BPF_NEG => self.a.wrapping_neg(),
            BPF_MOD => self.a.checked_rem(other)?,
            _ => self.a ^ other,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::PacketFilter;
    use crate::errno::Errno;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn bytes(instructions: &[(u16, u8, u8, u32)]) -> Vec<u8> {
        let each = |(code, jt, jf, k): &(u16, u8, u8, u32)| [&code.to_le_bytes()[..], &[*jt, *jf], &k.to_le_bytes()].concat();
        instructions.iter().flat_map(each).collect()
    }

    /// A DHCP client's filter: UDP in IPv4, not fragmented, to port 68.
    const DHCP: [(u16, u8, u8, u32); 11] = [
        (0x28, 0, 0, 12),
        (0x15, 0, 8, 0x0800),
        (0x30, 0, 0, 23),
        (0x15, 0, 6, 17),
        (0x28, 0, 0, 20),
        (0x45, 4, 0, 0x1fff),
        (0xb1, 0, 0, 14),
        (0x48, 0, 0, 16),
        (0x15, 0, 1, 68),
        (0x06, 0, 0, u32::MAX),
        (0x06, 0, 0, 0),
    ];

    #[test]
    fn a_filter_of_dhcp_hears_answers_and_nothing_else() {
        let program = PacketFilter::new(&bytes(&DHCP)).expect("it ends");
        let mut frame = [0; 60];
        (frame[12], frame[14], frame[23], frame[37]) = (8, 0x45, 17, 68);
        assert_eq!(program.run(&frame), u32::MAX as usize);
        for (at, byte) in [(12, 6), (23, 6), (21, 1), (37, 67), (14, 0x46)] {
            let mut other = frame;
            other[at] = byte;
            assert_eq!(program.run(&other), 0, "{at}");
        }
        assert_eq!(program.run(&frame[..36]), 0);
    }

    #[test]
    fn programs_without_a_return_are_refused() {
        let unsound: [&[(u16, u8, u8, u32)]; 6] = [
            &[],
            &[(0x00, 0, 0, 1)],
            &[(0x05, 0, 0, 1), (0x06, 0, 0, 0)],
            &[(0x15, 1, 0, 1), (0x06, 0, 0, 0)],
            &[(0x34, 0, 0, 0), (0x06, 0, 0, 0)],
            &[(0x20, 0, 0, 0xffff_f000), (0x06, 0, 0, 0)],
        ];
        for program in unsound {
            assert_eq!(PacketFilter::new(&bytes(program)).err(), Some(Errno::EINVAL), "{program:?}");
        }
        assert_eq!(PacketFilter::new(&bytes(&[(0x06, 0, 0, 0); 4097])).err(), Some(Errno::EINVAL));
    }

    proptest! {
        #[test]
        fn checked_programs_end(
            instructions in prop::collection::vec((0..0xb8u16, 0..4u8, 0..4u8, 0..64u32), 1..12),
            packet in prop::collection::vec(any::<u8>(), 0..80),
        ) {
            let whole = [instructions, alloc::vec![(0x16, 0, 0, 0)]].concat();
            if let Ok(program) = PacketFilter::new(&bytes(&whole)) {
                prop_assert!(program.run(&packet) <= u32::MAX as usize);
            }
        }
    }
}
