// SPDX-License-Identifier: MIT OR Apache-2.0
//! A neighbour: a cell that checks isolation. After each run of an attacker, it runs on the same vCPU and reports,
//! from the inside, all its state.

use super::{Bare, CODE, DATA, READ_ONLY, TABLE};
use pando_machine::{Context, EntryIndex, Exit, FRAME_SIZE, FrameId, Machine, Root, SUPERVISOR_SLOT, VectorState};
use std::time::Duration;

/// Address of the neighbour's report, with the stack it uses for that.
const REPORT: u64 = 0x60_0000;
/// Address of its vector state.
const SAVED: u64 = 0x60_1000;
/// Offset of its program in the page of code. No-ops precede it, so that it can start at any address where another context stopped.
pub const PROBE: usize = 0x800;
/// Number of words of the report.
const WORDS: usize = 25;
/// CF, PF, SF, DF, AC, ID; and IF and the fixed bit, which are always set.
const FLAGS: u64 = 0x24_0485 | 0x202;
/// Bytes of the XSAVE area that do not belong to the cell: MXCSR's mask, and the part that belongs to software.
const MEANINGLESS: [std::ops::Range<usize>; 2] = [28..32, 464..512];

/// The cell that checks itself.
pub struct Victim {
    root: FrameId,
    data: FrameId,
    report: FrameId,
    saved: FrameId,
    context: Context,
    vector: VectorState,
    memory: Box<[u8; FRAME_SIZE]>,
    /// The end of its program.
    end: u64,
    /// CS, SS, DS, ES, FS and GS as `mov` reads them on a fresh machine.
    selectors: [u64; 6],
}

/// Code that stores every register to the report, and restores those that it used.
fn probe(bare: &Bare) -> Vec<u8> {
    let save = if has_xsave(bare) { crate::assemble!("xsave64 [0x601000]") } else { crate::assemble!("fxsave64 [0x601000]") };
    [store_registers(), save, crate::assemble!("mov rax, [0x600000]", "mov rdx, [0x600018]", "out 0x7e, al")].concat()
}

/// Whether cells have XSAVE; otherwise FXSAVE is used.
fn has_xsave(bare: &Bare) -> bool {
    bare.machine.cpuid().iter().any(|entry| entry.leaf == 1 && entry.answer[2] & 1 << 26 != 0)
}

/// Code that stores all but the vector state; it sets EAX and EDX to -1.
fn store_registers() -> &'static [u8] {
    crate::assemble!(
        "mov [0x600000], rax",
        "mov [0x600008], rbx",
        "mov [0x600010], rcx",
        "mov [0x600018], rdx",
        "mov [0x600020], rsi",
        "mov [0x600028], rdi",
        "mov [0x600030], rsp",
        "mov [0x600038], rbp",
        "mov [0x600040], r8",
        "mov [0x600048], r9",
        "mov [0x600050], r10",
        "mov [0x600058], r11",
        "mov [0x600060], r12",
        "mov [0x600068], r13",
        "mov [0x600070], r14",
        "mov [0x600078], r15",
        "pushfq",
        "pop qword ptr [0x600080]",
        "rdfsbase rax",
        "mov [0x600088], rax",
        "rdgsbase rax",
        "mov [0x600090], rax",
        "mov eax, cs",
        "mov [0x600098], rax",
        "mov eax, ss",
        "mov [0x6000a0], rax",
        "mov eax, ds",
        "mov [0x6000a8], rax",
        "mov eax, es",
        "mov [0x6000b0], rax",
        "mov eax, fs",
        "mov [0x6000b8], rax",
        "mov eax, gs",
        "mov [0x6000c0], rax",
        "mov eax, -1",
        "mov edx, -1",
    )
}

impl Victim {
    /// A neighbour on the machine of `bare`, in an address space of its own.
    pub fn new(bare: &mut Bare) -> Victim {
        let [root, code, data, report, saved] = [(); 5].map(|()| bare.frame());
        let arena = bare.machine.arena();
        arena.store(root, EntryIndex::new(SUPERVISOR_SLOT), bare.machine.supervisor_entry());
        arena.write(code, 0, &[0x90; FRAME_SIZE]);
        let program = probe(bare);
        arena.write(code, PROBE, &program);
        let mut memory = Box::new([0; FRAME_SIZE]);
        fastrand::Rng::with_seed(1).fill(&mut memory[..]);
        arena.write(data, 0, &memory[..]);
        bare.map(root, CODE, code, READ_ONLY);
        for (address, frame) in [(DATA, data), (REPORT, report), (SAVED, saved)] {
            bare.map(root, address, frame, TABLE);
        }
        let vector = distinct_vector_state(bare);
        let end = CODE + (PROBE + program.len()) as u64;
        let mut neighbour = Victim { root, data, report, saved, context: distinct_context(), vector, memory, end, selectors: [0; 6] };
        let exit = neighbour.run(bare, &mut neighbour.context.clone());
        assert_eq!(exit, Exit::Hypercall, "the neighbour on a fresh machine");
        neighbour.selectors = neighbour.words(bare)[19..].try_into().expect("six words");
        assert_eq!(neighbour.selectors[2..], [0; 4], "DS, ES, FS and GS on a fresh machine");
        neighbour
    }

    /// Runs the neighbour after another context that stopped at `rip`, and panics on any difference. `after` names the earlier context.
    pub fn check(&self, bare: &mut Bare, rip: u64, after: &str) {
        if let Err(felt) = self.feel(bare, rip) {
            panic!("after {after}: {felt}");
        }
    }

    /// The same, but returns the difference as an error.
    pub fn feel(&self, bare: &mut Bare, rip: u64) -> Result<(), String> {
        bare.vcpu.load_vector(Some(&self.vector)).map_err(|error| error.to_string())?;
        let mut context = self.context;
        context.registers.rip = if (CODE..CODE + PROBE as u64).contains(&rip) { rip } else { CODE };
        bare.machine.arena().zero(self.report, 1);
        bare.machine.arena().zero(self.saved, 1);
        let exit = self.run(bare, &mut context);
        same(&exit, &Exit::Hypercall, &format!("the neighbour's exit at {:#x}", context.registers.rip))?;
        let mut expected = self.context;
        expected.registers.rip = self.end;
        // Not state of a cell: RF, which only exception frames show, and `cr2`, which is the kernel's.
        context.registers.rflags &= !0x1_0000;
        context.fault_address = expected.fault_address;
        same(&context, &expected, "the neighbour's context")?;
        self.feel_report(bare)?;
        self.feel_memory(bare)
    }

    fn run(&self, bare: &mut Bare, context: &mut Context) -> Exit {
        // A late signal for the other context may interrupt this one.
        for _ in 0..4 {
            let deadline = bare.machine.now() + Duration::from_secs(5);
            let exit = bare.vcpu.run(Root { table: self.root, stamp: 0 }, context, deadline);
            if exit != Exit::Interrupted {
                return exit;
            }
        }
        Exit::Interrupted
    }

    fn words(&self, bare: &Bare) -> [u64; WORDS] {
        std::array::from_fn(|index| bare.machine.arena().load(self.report, EntryIndex::new(index)))
    }

    fn feel_report(&self, bare: &Bare) -> Result<(), String> {
        let words = self.words(bare);
        let registers = self.context.registers.to_words();
        same(&words[..16], &registers[..16], "the neighbour's general registers, seen from inside")?;
        same(&words[16], &FLAGS, "the neighbour's flags, seen from inside")?;
        same(&words[17..19], &[self.context.fs_base, self.context.gs_base], "the neighbour's bases, seen from inside")?;
        // Nested, CS and SS are the host's own, independent of the loaded ones.
        same(&words[19..25], &self.selectors[..], "the neighbour's selectors, seen from inside")?;
        let mut saved = bare.content(self.saved);
        if !has_xsave(bare) {
            // FXSAVE has no header: it saves x87 and SSE.
            saved[512] = 3;
        }
        let saved = meaningful(saved);
        same(&difference(&saved, &bytes_of(&self.vector)), &None, "first wrong byte of the neighbour's XSAVE area, seen from inside")
    }

    fn feel_memory(&self, bare: &Bare) -> Result<(), String> {
        same(&difference(&bare.content(self.data), &self.memory), &None, "first wrong byte of the neighbour's memory")
    }
}

fn same<T: PartialEq + std::fmt::Debug + ?Sized>(found: &T, wanted: &T, what: &str) -> Result<(), String> {
    if found == wanted { Ok(()) } else { Err(format!("{what}: {found:x?} instead of {wanted:x?}")) }
}

/// The first difference between two vector states that a cell can observe.
pub fn difference_of_states(left: &VectorState, right: &VectorState) -> Option<usize> {
    // A component that has its initial value may be marked as in use or not.
    let values = |state| {
        let mut bytes = bytes_of(state);
        bytes[512..520].fill(0);
        bytes
    };
    difference(&values(left), &values(right))
}

fn difference(left: &[u8; FRAME_SIZE], right: &[u8; FRAME_SIZE]) -> Option<usize> {
    (0..FRAME_SIZE).find(|at| left[*at] != right[*at])
}

fn bytes_of(state: &VectorState) -> [u8; FRAME_SIZE] {
    let mut bytes = [0; FRAME_SIZE];
    for (chunk, word) in bytes.chunks_exact_mut(4).zip(state.words()) {
        chunk.copy_from_slice(&word.to_le_bytes());
    }
    meaningful(bytes)
}

fn meaningful(mut area: [u8; FRAME_SIZE]) -> [u8; FRAME_SIZE] {
    for range in MEANINGLESS {
        area[range].fill(0);
    }
    area
}

/// A context in which every register has a value of its own.
fn distinct_context() -> Context {
    let mut context = Context::at(CODE);
    let mut words = context.registers.to_words();
    for (index, word) in words.iter_mut().enumerate().take(16) {
        *word = 0x0101_0101_0101_0101 * (index as u64 + 0x91);
    }
    context.registers = pando_abi::Registers::from_words(words);
    context.registers.rsp = REPORT + 0xf00;
    context.registers.rip = CODE;
    context.registers.rflags = FLAGS;
    (context.fs_base, context.gs_base) = (0x1234_5678_9000, 0x6543_2100_0000);
    context
}

/// A vector state in which every register of the machine has a value of its own.
pub fn distinct_vector_state(bare: &Bare) -> VectorState {
    const LEAF: u32 = 0xd;
    const PROTECTION_KEYS: u32 = 9;
    let entries = bare.machine.cpuid();
    let answer = |index| entries.iter().find(|entry| (entry.leaf, entry.subleaf) == (LEAF, index)).map(|entry| entry.answer);
    let features = answer(0).map_or(0, |[eax, ..]| eax) | 0b11;
    let mut bytes = [0; FRAME_SIZE];
    let mut random = fastrand::Rng::with_seed(2);
    // FCW: its own precision and rounding, exceptions masked. FSW: the top of the stack at 3. FTW: every register is in use.
    bytes[..5].copy_from_slice(&[0x7f, 0x0e, 0x00, 0x18, 0xff]);
    // MXCSR: round towards zero, denormals are zeros, two sticky flags.
    bytes[24..28].copy_from_slice(&0x7fe1u32.to_le_bytes());
    for register in 0..8 {
        random.fill(&mut bytes[32 + 16 * register..][..10]);
    }
    random.fill(&mut bytes[160..416]);
    bytes[512..516].copy_from_slice(&features.to_le_bytes());
    for component in (2..32).filter(|component| features & 1 << component != 0) {
        let Some([size, offset, ..]) = answer(component) else { continue };
        random.fill(&mut bytes[offset as usize..][..size as usize]);
        if component == PROTECTION_KEYS {
            // It may use its own memory, whose key is 0.
            bytes[offset as usize] &= !3;
            bytes[offset as usize + 4..][..size as usize - 4].fill(0);
        }
    }
    let mut words = [0; FRAME_SIZE / 4];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_le_bytes(chunk.try_into().expect("four bytes"));
    }
    VectorState::from_words(words)
}
