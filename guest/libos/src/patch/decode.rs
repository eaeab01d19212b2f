// SPDX-License-Identifier: MIT OR Apache-2.0
//! A minimal instruction decoder: the length of an instruction, whether its operand is relative to its address, and where execution
//! continues.
//!
//! It knows the encodings without vector prefixes and rejects all others, which costs no more than a patch. A library's tables would be
//! larger than the rest of the libOS's code; tests compare this decoder with such a library over millions of instructions. (Intel's
//! manual, volume 2, appendix A: the opcode maps.)

/// Maximum length of an instruction in bytes.
pub const LONGEST: usize = 15;

/// Where execution continues after an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// At the next instruction. It may raise an exception.
    Next,
    /// At the next instruction, without any effect.
    Padding,
    /// At an address in a register, in memory or on the stack; or nowhere.
    Leaves,
    /// At this distance from its end or, if it has a condition and that is false, at the next instruction.
    Jump {
        /// The condition's code.
        condition: Option<u8>,
        /// Bytes from the instruction's end.
        distance: i32,
    },
}

/// A decoded instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// Its length in bytes.
    pub length: u8,
    /// Where execution continues.
    pub flow: Flow,
    /// Offset of the four-byte displacement of its RIP-relative operand, if it has one.
    pub relative_operand: Option<u8>,
}

/// The bytes that follow an opcode.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Nothing.
    Plain,
    /// A ModRM byte and the bytes that it requires.
    Modrm,
    /// A ModRM byte and its bytes, then an immediate of one byte.
    ModrmByte,
    /// A ModRM byte and its bytes, then an immediate of four bytes, or of two with an operand-size prefix.
    ModrmWord,
    /// So many bytes.
    Bytes(u8),
    /// Four bytes, or two with an operand-size prefix.
    Word,
    /// Eight, four or two bytes, the size of the loaded register.
    Full,
    /// An address: eight bytes, or four with an address-size prefix.
    Address,
    /// A jump distance of so many bytes, under this condition.
    Distance(u8, Option<u8>),
}

/// The prefixes that matter.
#[derive(Clone, Copy, Default)]
struct Prefixes {
    operand_size: bool,
    address_size: bool,
    repeat: bool,
    /// There is a REX prefix.
    extended: bool,
    /// With its W bit.
    wide: bool,
}

/// Decodes the instruction at the start of `code`. `None`: it is unknown, or depends on its address in a way that cannot be corrected.
#[must_use]
pub fn decode(code: &[u8]) -> Option<Instruction> {
    let code = &code[..code.len().min(LONGEST)];
    let (prefixes, mut at) = prefixes(code);
    let mut map = 0;
    let mut opcode = *code.get(at)?;
    if opcode == 0x0f {
        at += 1;
        (map, opcode) = (1, *code.get(at)?);
        if matches!(opcode, 0x38 | 0x3a) {
            at += 1;
            (map, opcode) = (if opcode == 0x38 { 2 } else { 3 }, *code.get(at)?);
        }
    }
    at += 1;
    let modrm = code.get(at).copied();
    let shape = match map {
        0 => one_byte(opcode, modrm)?,
        1 => two_bytes(opcode, modrm, prefixes.repeat)?,
        2 => Shape::Modrm,
        _ => Shape::ModrmByte,
    };
    let mut relative_operand = None;
    if matches!(shape, Shape::Modrm | Shape::ModrmByte | Shape::ModrmWord) {
        let operand = operand(code, at)?;
        relative_operand = operand.relative.then(|| operand.end as u8 - 4);
        at = operand.end;
    }
    // Relative to the low 32 bits of its address: compilers do not emit it.
    if relative_operand.is_some() && prefixes.address_size {
        return None;
    }
    let immediate = immediate(shape, prefixes);
    let bytes = code.get(at..at + immediate)?;
    let length = (at + immediate) as u8;
    let flow = match (map, opcode, shape) {
        (_, _, Shape::Distance(_, condition)) => Flow::Jump { condition, distance: distance(bytes)? },
        (0, 0xc2 | 0xc3 | 0xca | 0xcb | 0xcf | 0xf4, _) | (1, 0x0b, _) => Flow::Leaves,
        (0, 0xff, _) if matches!(digit(modrm), 4 | 5) => Flow::Leaves,
        (0, 0x90, _) if prefixes.extended => Flow::Next,
        (1, 0x1f, _) if digit(modrm) == 0 => Flow::Padding,
        (0, 0x90 | 0xcc, _) => Flow::Padding,
        _ => Flow::Next,
    };
    // With such a prefix AMD's CPUs jump within 64 KiB, Intel's do not.
    if prefixes.operand_size && matches!(flow, Flow::Leaves | Flow::Jump { .. }) {
        return None;
    }
    Some(Instruction { length, flow, relative_operand })
}

/// The prefixes, and the offset of the opcode.
fn prefixes(code: &[u8]) -> (Prefixes, usize) {
    let mut prefixes = Prefixes::default();
    for (at, byte) in code.iter().enumerate() {
        match byte {
            0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf0 => {}
            0xf2 | 0xf3 => prefixes.repeat = *byte == 0xf3,
            0x66 => prefixes.operand_size = true,
            0x67 => prefixes.address_size = true,
            0x40..=0x4f => {
                (prefixes.extended, prefixes.wide) = (true, byte & 8 != 0);
                continue;
            }
            _ => return (prefixes, at),
        }
        // A REX prefix has an effect only as the last prefix.
        (prefixes.extended, prefixes.wide) = (false, false);
    }
    (prefixes, code.len())
}

/// The middle bits of a ModRM byte, which distinguish instructions that share an opcode.
fn digit(modrm: Option<u8>) -> u8 {
    modrm.map_or(u8::MAX, |modrm| modrm >> 3 & 7)
}

/// The bytes after a one-byte opcode.
fn one_byte(opcode: u8, modrm: Option<u8>) -> Option<Shape> {
    use Shape::{Address, Bytes, Distance, Full, Modrm, ModrmByte, ModrmWord, Plain, Word};
    let digit = digit(modrm);
    Some(match opcode {
        0x00..=0x3f => match opcode & 7 {
            0..=3 => Modrm,
            4 => Bytes(1),
            5 => Word,
            _ => return None,
        },
        // Not 0x9d, `popfq`: it may enable single steps, which would count a jump that the program does not know.
        0x50..=0x5f
        | 0x6c..=0x6f
        | 0x90..=0x99
        | 0x9b
        | 0x9c
        | 0x9e
        | 0x9f
        | 0xa4..=0xa7
        | 0xaa..=0xaf
        | 0xc3
        | 0xc9
        | 0xcb
        | 0xcc
        | 0xcf
        | 0xd7 => Plain,
        0xec..=0xef | 0xf4 | 0xf5 | 0xf8..=0xfd => Plain,
        0x63 | 0x84..=0x8e | 0xd0..=0xd3 | 0xd8..=0xdf => Modrm,
        0x68 | 0xa9 => Word,
        0x69 | 0x81 => ModrmWord,
        0x6a | 0xa8 | 0xb0..=0xb7 | 0xcd | 0xe4..=0xe7 => Bytes(1),
        0x6b | 0x80 | 0x83 | 0xc0 | 0xc1 => ModrmByte,
        0x70..=0x7f => Distance(1, Some(opcode & 0xf)),
        // With another digit these are prefixes, or start and end a transaction.
        0x8f if digit == 0 => Modrm,
        0xc6 if digit == 0 => ModrmByte,
        0xc7 if digit == 0 => ModrmWord,
        0xa0..=0xa3 => Address,
        0xb8..=0xbf => Full,
        0xc2 | 0xca => Bytes(2),
        0xc8 => Bytes(3),
        0xe9 => Distance(4, None),
        0xeb => Distance(1, None),
        0xf6 => {
            if digit < 2 {
                ModrmByte
            } else {
                Modrm
            }
        }
        0xf7 => {
            if digit < 2 {
                ModrmWord
            } else {
                Modrm
            }
        }
        0xfe if digit < 2 => Modrm,
        // 2 and 3 are calls.
        0xff if matches!(digit, 0 | 1 | 4..=6) => Modrm,
        _ => return None,
    })
}

/// The bytes after a two-byte opcode, whose first byte is 0x0f.
fn two_bytes(opcode: u8, modrm: Option<u8>, repeat: bool) -> Option<Shape> {
    use Shape::{Distance, Modrm, ModrmByte, Plain};
    Some(match opcode {
        0x01 if matches!(modrm, Some(0xd0 | 0xf9)) => Modrm,
        0x0b | 0x31 | 0x77 | 0xa0 | 0xa1 | 0xa8 | 0xa9 | 0xc8..=0xcf => Plain,
        0x0d | 0x10..=0x1f | 0x28..=0x2f | 0x40..=0x6f | 0x74..=0x76 | 0x7c..=0x7f | 0x90..=0x9f => Modrm,
        0xa3 | 0xa5 | 0xab | 0xad..=0xb7 | 0xbb..=0xc1 | 0xc3 | 0xc7 | 0xd0..=0xfe => Modrm,
        0xb8 if repeat => Modrm,
        0x70..=0x73 | 0xa4 | 0xac | 0xba | 0xc2 | 0xc4..=0xc6 => ModrmByte,
        0x80..=0x8f => Distance(4, Some(opcode & 0xf)),
        _ => return None,
    })
}

/// Bytes behind the operand.
fn immediate(shape: Shape, prefixes: Prefixes) -> usize {
    let word = if prefixes.operand_size && !prefixes.wide { 2 } else { 4 };
    match shape {
        Shape::Plain | Shape::Modrm => 0,
        Shape::ModrmByte => 1,
        Shape::Bytes(count) | Shape::Distance(count, _) => count.into(),
        Shape::ModrmWord | Shape::Word => word,
        Shape::Full => {
            if prefixes.wide {
                8
            } else {
                word
            }
        }
        Shape::Address => {
            if prefixes.address_size {
                4
            } else {
                8
            }
        }
    }
}

/// The operand of a ModRM byte.
struct Operand {
    /// The offset of the byte after it.
    end: usize,
    /// It is relative to the instruction's end, by the four bytes before `end`.
    relative: bool,
}

fn operand(code: &[u8], at: usize) -> Option<Operand> {
    let modrm = *code.get(at)?;
    let (mode, base) = (modrm >> 6, modrm & 7);
    if mode == 3 {
        return Some(Operand { end: at + 1, relative: false });
    }
    let (mut end, mut base_of_index) = (at + 1, 0);
    if base == 4 {
        base_of_index = *code.get(end)? & 7;
        end += 1;
    }
    let relative = mode == 0 && base == 5;
    end += match mode {
        1 => 1,
        2 => 4,
        _ if relative || base == 4 && base_of_index == 5 => 4,
        _ => 0,
    };
    Some(Operand { end, relative })
}

/// A jump's distance.
fn distance(bytes: &[u8]) -> Option<i32> {
    match *bytes {
        [byte] => Some(byte.cast_signed().into()),
        _ => bytes.first_chunk().map(|bytes| i32::from_le_bytes(*bytes)),
    }
}
