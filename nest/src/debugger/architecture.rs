// SPDX-License-Identifier: MIT OR Apache-2.0
//! The registers of x86-64 in the order in which the target description names them.

use crate::threads::ThreadState;
use gdbstub::arch::Arch;
use pando_abi::watch::VECTOR_BYTES;
use std::fmt::Write;
use std::sync::LazyLock;

/// x86-64 with SSE and AVX.
#[derive(Debug)]
pub(crate) enum X86_64 {}

impl Arch for X86_64 {
    type Usize = u64;
    type Registers = ThreadState;
    type BreakpointKind = usize;
    type RegId = ();

    fn target_description_xml() -> Option<&'static str> {
        static DESCRIPTION: LazyLock<String> = LazyLock::new(description);
        Some(&DESCRIPTION)
    }
}

/// The general registers in gdb's order, and their types.
const GENERAL: [(&str, &str); 17] = [
    ("rax", "int64"),
    ("rbx", "int64"),
    ("rcx", "int64"),
    ("rdx", "int64"),
    ("rsi", "int64"),
    ("rdi", "int64"),
    ("rbp", "data_ptr"),
    ("rsp", "data_ptr"),
    ("r8", "int64"),
    ("r9", "int64"),
    ("r10", "int64"),
    ("r11", "int64"),
    ("r12", "int64"),
    ("r13", "int64"),
    ("r14", "int64"),
    ("r15", "int64"),
    ("rip", "code_ptr"),
];
/// Segment registers with the selectors that a program in a cell has.
const SEGMENTS: [(&str, u32); 6] = [("cs", 0x33), ("ss", 0x2b), ("ds", 0), ("es", 0), ("fs", 0), ("gs", 0)];
const X87_CONTROL: [&str; 8] = ["fctrl", "fstat", "ftag", "fiseg", "fioff", "foseg", "fooff", "fop"];

/// The feature of the vector registers, with the types of gdb.
const VECTOR_TYPES: &str = "<vector id=\"v4f\" type=\"ieee_single\" count=\"4\"/><vector id=\"v2d\" type=\"ieee_double\" count=\"2\"/>\
<vector id=\"v16i8\" type=\"int8\" count=\"16\"/><vector id=\"v8i16\" type=\"int16\" count=\"8\"/>\
<vector id=\"v4i32\" type=\"int32\" count=\"4\"/><vector id=\"v2i64\" type=\"int64\" count=\"2\"/>\
<union id=\"vec128\"><field name=\"v4_float\" type=\"v4f\"/><field name=\"v2_double\" type=\"v2d\"/><field name=\"v16_int8\" type=\"v16i8\"/>\
<field name=\"v8_int16\" type=\"v8i16\"/><field name=\"v4_int32\" type=\"v4i32\"/><field name=\"v2_int64\" type=\"v2i64\"/>\
<field name=\"uint128\" type=\"uint128\"/></union>\
<flags id=\"i386_mxcsr\" size=\"4\"><field name=\"IE\" start=\"0\" end=\"0\"/><field name=\"DE\" start=\"1\" end=\"1\"/>\
<field name=\"ZE\" start=\"2\" end=\"2\"/><field name=\"OE\" start=\"3\" end=\"3\"/><field name=\"UE\" start=\"4\" end=\"4\"/>\
<field name=\"PE\" start=\"5\" end=\"5\"/><field name=\"DAZ\" start=\"6\" end=\"6\"/><field name=\"IM\" start=\"7\" end=\"7\"/>\
<field name=\"DM\" start=\"8\" end=\"8\"/><field name=\"ZM\" start=\"9\" end=\"9\"/><field name=\"OM\" start=\"10\" end=\"10\"/>\
<field name=\"UM\" start=\"11\" end=\"11\"/><field name=\"PM\" start=\"12\" end=\"12\"/><field name=\"FZ\" start=\"15\" end=\"15\"/></flags>";
const FLAG_TYPE: &str = "<flags id=\"i386_eflags\" size=\"4\"><field name=\"CF\" start=\"0\" end=\"0\"/><field name=\"\" start=\"1\" end=\"1\"/>\
<field name=\"PF\" start=\"2\" end=\"2\"/><field name=\"AF\" start=\"4\" end=\"4\"/><field name=\"ZF\" start=\"6\" end=\"6\"/>\
<field name=\"SF\" start=\"7\" end=\"7\"/><field name=\"TF\" start=\"8\" end=\"8\"/><field name=\"IF\" start=\"9\" end=\"9\"/>\
<field name=\"DF\" start=\"10\" end=\"10\"/><field name=\"OF\" start=\"11\" end=\"11\"/><field name=\"AC\" start=\"18\" end=\"18\"/>\
<field name=\"ID\" start=\"21\" end=\"21\"/></flags>";

/// The target description: the registers in the order of [`Packet`].
fn description() -> String {
    let mut text = String::from("<?xml version=\"1.0\"?><!DOCTYPE target SYSTEM \"gdb-target.dtd\"><target version=\"1.0\">");
    text.push_str("<architecture>i386:x86-64</architecture><osabi>GNU/Linux</osabi>");
    let mut feature = |name: &str, types: &str, registers: &[(String, u32, &str)]| {
        let _ = write!(text, "<feature name=\"org.gnu.gdb.i386.{name}\">{types}");
        for (register, bits, kind) in registers {
            let _ = write!(text, "<reg name=\"{register}\" bitsize=\"{bits}\" type=\"{kind}\"/>");
        }
        text.push_str("</feature>");
    };
    let mut core: Vec<(String, u32, &str)> = GENERAL.iter().map(|(name, kind)| ((*name).into(), 64, *kind)).collect();
    core.push(("eflags".into(), 32, "i386_eflags"));
    core.extend(SEGMENTS.iter().map(|(name, _)| ((*name).into(), 32, "int32")));
    core.extend((0..8).map(|index| (format!("st{index}"), 80, "i387_ext")));
    core.extend(X87_CONTROL.iter().map(|name| ((*name).into(), 32, "int")));
    feature("core", FLAG_TYPE, &core);
    let mut sse: Vec<(String, u32, &str)> = (0..16).map(|index| (format!("xmm{index}"), 128, "vec128")).collect();
    sse.push(("mxcsr".into(), 32, "i386_mxcsr"));
    feature("sse", VECTOR_TYPES, &sse);
    feature("linux", "", &[("orig_rax".into(), 64, "int")]);
    feature("segments", "", &[("fs_base".into(), 64, "int"), ("gs_base".into(), 64, "int")]);
    let avx: Vec<(String, u32, &str)> = (0..16).map(|index| (format!("ymm{index}h"), 128, "uint128")).collect();
    feature("avx", "", &avx);
    text.push_str("</target>");
    text
}

/// Offsets in an `XSAVE` area.
mod area {
    pub(super) const STATUS: usize = 2;
    pub(super) const TAGS: usize = 4;
    pub(super) const OPCODE: usize = 6;
    pub(super) const INSTRUCTION: usize = 8;
    pub(super) const OPERAND: usize = 16;
    pub(super) const MXCSR: usize = 24;
    pub(super) const X87: usize = 32;
    pub(super) const XMM: usize = 160;
    pub(super) const COMPONENTS: usize = 512;
    pub(super) const YMM_HIGH: usize = 576;
}
/// Bits of the components in the area.
const X87_COMPONENT: u8 = 1;
const SSE_COMPONENT: u8 = 2;
const AVX_COMPONENT: u8 = 4;
/// The initial x87 control word and MXCSR.
const INITIAL_CONTROL: u16 = 0x37f;
const INITIAL_MXCSR: u32 = 0x1f80;

/// The vector state with initial values for absent components.
fn complete(vectors: &[u8]) -> Vec<u8> {
    let mut whole = vec![0; VECTOR_BYTES];
    let count = vectors.len().min(VECTOR_BYTES);
    whole[..count].copy_from_slice(&vectors[..count]);
    let present = whole[area::COMPONENTS];
    if present & X87_COMPONENT == 0 {
        whole[..area::MXCSR].fill(0);
        whole[area::X87..area::XMM].fill(0);
        whole[..2].copy_from_slice(&INITIAL_CONTROL.to_le_bytes());
    }
    if present & SSE_COMPONENT == 0 {
        whole[area::XMM..area::XMM + 256].fill(0);
        if present & AVX_COMPONENT == 0 {
            whole[area::MXCSR..area::MXCSR + 4].copy_from_slice(&INITIAL_MXCSR.to_le_bytes());
        }
    }
    if present & AVX_COMPONENT == 0 {
        whole[area::YMM_HIGH..area::YMM_HIGH + 256].fill(0);
    }
    whole
}

/// Puts the x87, SSE and AVX registers of a state into a whole one; its other components stay.
pub(super) fn merge(whole: &mut Vec<u8>, vectors: &[u8]) {
    *whole = complete(whole);
    let source = complete(vectors);
    let end = area::XMM + 256;
    // MXCSR's mask is the CPU's.
    let mask = area::MXCSR + 4..area::X87;
    whole[..mask.start].copy_from_slice(&source[..mask.start]);
    whole[mask.end..end].copy_from_slice(&source[mask.end..end]);
    whole[area::YMM_HIGH..area::YMM_HIGH + 256].copy_from_slice(&source[area::YMM_HIGH..area::YMM_HIGH + 256]);
    let all = X87_COMPONENT | SSE_COMPONENT | AVX_COMPONENT;
    whole[area::COMPONENTS] = whole[area::COMPONENTS] & !all | source[area::COMPONENTS] & all;
}

/// The x87 tag word from the abridged one: empty, zero, special or valid.
fn tag_word(whole: &[u8]) -> u32 {
    let top = usize::from(whole[area::STATUS + 1] >> 3 & 7);
    (0..8).fold(0, |word, physical| {
        let register = &whole[area::X87 + (physical + 8 - top) % 8 * 16..][..10];
        let exponent = u16::from_le_bytes([register[8], register[9]]) & 0x7fff;
        let tag = match (whole[area::TAGS] >> physical & 1, exponent) {
            (0, _) => 3,
            (_, 0) if register[..8].iter().all(|byte| *byte == 0) => 1,
            (_, 0 | 0x7fff) => 2,
            _ if register[7] & 0x80 == 0 => 2,
            _ => 0,
        };
        word | tag << (physical * 2)
    })
}

/// The registers as a packet.
fn packet(state: &ThreadState) -> Vec<u8> {
    let registers = &state.registers;
    let whole = complete(&state.vectors);
    let half = |at: usize| u32::from(u16::from_le_bytes([whole[at], whole[at + 1]]));
    let word = |at: usize| u32::from_le_bytes([whole[at], whole[at + 1], whole[at + 2], whole[at + 3]]);
    let first = [registers.rax, registers.rbx, registers.rcx, registers.rdx, registers.rsi, registers.rdi, registers.rbp, registers.rsp];
    let further = [registers.r8, registers.r9, registers.r10, registers.r11, registers.r12, registers.r13, registers.r14, registers.r15];
    let mut bytes: Vec<u8> = first.into_iter().chain(further).chain([registers.rip]).flat_map(u64::to_le_bytes).collect();
    bytes.extend((registers.rflags as u32).to_le_bytes());
    bytes.extend(SEGMENTS.iter().flat_map(|(_, selector)| selector.to_le_bytes()));
    for index in 0..8 {
        bytes.extend(&whole[area::X87 + index * 16..][..10]);
    }
    let (instruction, operand) = (area::INSTRUCTION, area::OPERAND);
    let control = [
        half(0),
        half(area::STATUS),
        tag_word(&whole),
        half(instruction + 4),
        word(instruction),
        half(operand + 4),
        word(operand),
        half(area::OPCODE),
    ];
    bytes.extend(control.into_iter().flat_map(u32::to_le_bytes));
    bytes.extend(&whole[area::XMM..area::XMM + 256]);
    bytes.extend(&whole[area::MXCSR..area::MXCSR + 4]);
    bytes.extend(u64::MAX.to_le_bytes());
    bytes.extend(state.bases.into_iter().flat_map(u64::to_le_bytes));
    bytes.extend(&whole[area::YMM_HIGH..area::YMM_HIGH + 256]);
    bytes
}

/// Reads a packet from its start on.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], ()> {
        let (bytes, rest) = self.0.split_at_checked(count).ok_or(())?;
        self.0 = rest;
        Ok(bytes)
    }

    fn word(&mut self) -> Result<u64, ()> {
        self.bytes(8)?.try_into().map(u64::from_le_bytes).map_err(|_| ())
    }

    fn half(&mut self) -> Result<u32, ()> {
        self.bytes(4)?.try_into().map(u32::from_le_bytes).map_err(|_| ())
    }
}

/// Sets the registers from a packet.
fn apply(state: &mut ThreadState, bytes: &[u8]) -> Result<(), ()> {
    let mut reader = Reader(bytes);
    let registers = &mut state.registers;
    for register in [
        &mut registers.rax,
        &mut registers.rbx,
        &mut registers.rcx,
        &mut registers.rdx,
        &mut registers.rsi,
        &mut registers.rdi,
        &mut registers.rbp,
        &mut registers.rsp,
        &mut registers.r8,
        &mut registers.r9,
        &mut registers.r10,
        &mut registers.r11,
        &mut registers.r12,
        &mut registers.r13,
        &mut registers.r14,
        &mut registers.r15,
        &mut registers.rip,
    ] {
        *register = reader.word()?;
    }
    registers.rflags = reader.half()?.into();
    reader.bytes(SEGMENTS.len() * 4)?;
    let mut whole = complete(&state.vectors);
    for index in 0..8 {
        whole[area::X87 + index * 16..][..10].copy_from_slice(reader.bytes(10)?);
    }
    let [control, status, tags, instruction_segment, instruction, operand_segment, operand, opcode] =
        [reader.half()?, reader.half()?, reader.half()?, reader.half()?, reader.half()?, reader.half()?, reader.half()?, reader.half()?];
    let halves = [
        (0, control),
        (area::STATUS, status),
        (area::OPCODE, opcode),
        (area::INSTRUCTION + 4, instruction_segment),
        (area::OPERAND + 4, operand_segment),
    ];
    for (at, value) in halves {
        whole[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }
    for (at, value) in [(area::INSTRUCTION, instruction), (area::OPERAND, operand)] {
        whole[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    whole[area::TAGS] = (0..8).fold(0, |bits, physical| bits | u8::from(tags >> (physical * 2) & 3 != 3) << physical);
    whole[area::XMM..area::XMM + 256].copy_from_slice(reader.bytes(256)?);
    whole[area::MXCSR..area::MXCSR + 4].copy_from_slice(reader.bytes(4)?);
    reader.word()?;
    state.bases = [reader.word()?, reader.word()?];
    // A CPU without AVX has no such component, and gdb writes back what it has read.
    let high = reader.bytes(256)?;
    let mut present = X87_COMPONENT | SSE_COMPONENT;
    if high.iter().any(|byte| *byte != 0) {
        whole[area::YMM_HIGH..area::YMM_HIGH + 256].copy_from_slice(high);
        present |= AVX_COMPONENT;
    } else {
        whole[area::COMPONENTS] &= !AVX_COMPONENT;
    }
    whole[area::COMPONENTS] |= present;
    state.vectors = whole;
    Ok(())
}

impl gdbstub::arch::Registers for ThreadState {
    type ProgramCounter = u64;

    fn pc(&self) -> u64 {
        self.registers.rip
    }

    fn gdb_serialize(&self, mut write_byte: impl FnMut(Option<u8>)) {
        packet(self).into_iter().for_each(|byte| write_byte(Some(byte)));
    }

    fn gdb_deserialize(&mut self, bytes: &[u8]) -> Result<(), ()> {
        apply(self, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{apply, complete, description, packet};
    use crate::threads::ThreadState;
    use pando_abi::Registers;

    /// A state with another value in every register.
    fn state() -> ThreadState {
        let mut words = [0; Registers::WORDS];
        words.iter_mut().zip(100..).for_each(|(word, value)| *word = value);
        let mut vectors = complete(&[]);
        vectors[512] = 7;
        (32..64).for_each(|at| vectors[at] = at as u8);
        (160..416).for_each(|at| vectors[at] = at as u8);
        (576..832).for_each(|at| vectors[at] = (at * 3) as u8);
        ThreadState { registers: Registers::from_words(words), bases: [7, 8], vectors }
    }

    #[test]
    fn a_packet_sets_the_state_that_it_was_made_from() {
        let (original, mut copy) = (state(), ThreadState::default());
        let bytes = packet(&original);
        assert_eq!(apply(&mut copy, &bytes), Ok(()));
        assert_eq!(packet(&copy), bytes);
        assert_eq!((copy.registers, copy.bases), (original.registers, original.bases));
        assert_eq!(apply(&mut copy, &bytes[1..]), Err(()));
    }

    /// The packet has as many bytes as the description has.
    #[test]
    fn the_description_fits_the_packet() {
        let text = description();
        let bits: usize =
            text.split("bitsize=\"").skip(1).map(|rest| rest.split('"').next().and_then(|bits| bits.parse().ok()).unwrap_or(0)).sum();
        assert_eq!(bits / 8, packet(&state()).len());
    }
}
