// SPDX-License-Identifier: MIT OR Apache-2.0
//! The same bytes on both machines: random programs leave the same registers, memory and exceptions on `sim` as on KVM.

use crate::bare::{Bare, CODE, DATA};
use fastrand::Rng;
use pando_abi::Registers;
use pando_machine::kvm::{Kvm, KvmConfig, Omit};
use pando_machine::{Context, Exception, Exit, FRAME_SIZE, Machine, PageCount};
use pando_testing::asm::{Asm, Condition, Label, Register};

/// Number of compared programs: ordinarily, and in the long runs.
const PROGRAMS: [u64; 2] = [2_000, 200_000];
/// Points to the data page at the start of each program.
const POINTER: Register = Register::R15;
/// Flags that logical operations leave undefined (adjust), and that only some machines show on a fault (resume).
const UNDEFINED_FLAGS: u64 = 1 << 4 | 1 << 16;

/// The conditions of the tested jumps.
const CONDITIONS: [Condition; 11] = [
    Condition::Overflow,
    Condition::Below,
    Condition::AboveOrEqual,
    Condition::Zero,
    Condition::NotZero,
    Condition::BelowOrEqual,
    Condition::Above,
    Condition::Sign,
    Condition::Parity,
    Condition::Less,
    Condition::GreaterOrEqual,
];

#[test]
fn random_programs_do_the_same_on_both_machines() {
    if std::env::var_os("PANDO_TESTS_WITHOUT_KVM").is_some() {
        println!("left out: this machine has no KVM");
        return;
    }
    let config = KvmConfig { arena: PageCount(8192), vcpus: 1, omit: Omit::NOTHING };
    let mut kvm = Bare::on(Kvm::new(config).expect("KVM is there"));
    let mut sim = Bare::new();
    let [ordinary, long] = PROGRAMS;
    for seed in 0..if std::env::var("PANDO_TESTS").as_deref() == Ok("all") { long } else { ordinary } {
        let program = program(&mut Rng::with_seed(seed));
        assert_eq!(run(&mut sim, &program), run(&mut kvm, &program), "seed {seed}: sim left, KVM right; {:02x?}", program.code);
    }
    assert_eq!(sim.machine.breaches(), []);
}

/// Code and its initial registers.
struct Program {
    code: Vec<u8>,
    registers: Registers,
}

/// The result of a program.
#[derive(Debug, PartialEq, Eq)]
struct BareOutcome {
    exit: Exit,
    registers: Registers,
    /// Changed bytes of the data page, by offset.
    changes: Vec<(usize, u8)>,
}

fn run<M: Machine>(bare: &mut Bare<M>, program: &Program) -> BareOutcome {
    let pattern: Vec<u8> = (0..FRAME_SIZE).map(|index| index as u8).collect();
    bare.machine.arena().write(bare.data, 0, &pattern);
    bare.vcpu.load_vector(None).expect("the initial state");
    let mut context = Context { registers: program.registers, ..bare.start(&program.code) };
    let mut exit = bare.run(&mut context);
    // The content beyond the cell's half differs between machines, and so does the reason of a fault there.
    if let Exit::Exception(Exception { vector: Exception::PAGE_FAULT, error, address: 0x8000_0000_0000.. }) = &mut exit {
        *error &= 0x16;
    }
    let mut data = vec![0; FRAME_SIZE];
    bare.machine.arena().read(bare.data, 0, &mut data);
    context.registers.rflags &= !UNDEFINED_FLAGS;
    if exit == Exit::Syscall {
        context.registers.r11 &= !UNDEFINED_FLAGS;
    }
    let changes = data.into_iter().enumerate().filter(|(index, byte)| *byte != *index as u8).collect();
    BareOutcome { exit, registers: context.registers, changes }
}

fn program(rng: &mut Rng) -> Program {
    let mut words = [0; Registers::WORDS];
    words.fill_with(|| value(rng));
    let mut registers = Registers::from_words(words);
    registers.rip = CODE;
    registers.rflags = if rng.u8(..20) == 0 { 0x100 } else { 0 };
    registers.r15 = DATA + 0x800;
    // Most stacks are valid, and all canonical: with others a nested host may emulate the cell, and its emulator lacks
    // the vector instructions.
    registers.rsp = if rng.u8(..10) == 0 { (value(rng) as i64) << 16 >> 16 } else { DATA as i64 + 0xc00 } as u64;
    let mut asm = Asm::new();
    let end = asm.label();
    for _ in 0..rng.usize(1..40) {
        instruction(&mut asm, rng, end);
    }
    asm.bind(end);
    match rng.u8(..16) {
        0 => asm.syscall(),
        1 => asm.ud2(),
        2 => asm.int3(),
        3 => asm.hlt(),
        4 => asm.raw(b"\xe4\x80"),
        _ => asm.hypercall(),
    };
    Program { code: asm.finish(), registers }
}

/// A value near some edge, or any.
fn value(rng: &mut Rng) -> u64 {
    // Not the very end of the canonical half: CPUs differ in the exception of an access across it.
    let edges =
        [0, 1, 0x7f, 0x80, 0xff, 1 << 31, 1 << 32, (1 << 47) + 0x1000, 1 << 63, DATA, CODE, DATA + 0xffc, 0x70_0000, 0xffff_9000_0000_0000];
    match rng.u8(..4) {
        0 => rng.u64(..),
        _ => edges[rng.usize(..edges.len())].wrapping_add_signed(rng.i64(-2..=2)),
    }
}

fn register(rng: &mut Rng) -> Register {
    Register::ALL[rng.usize(..16)]
}

/// A register that is not a pointer, so that most programs live for some time.
fn target(rng: &mut Rng) -> Register {
    loop {
        let register = register(rng);
        if !matches!(register, POINTER | Register::Rsp) {
            return register;
        }
    }
}

/// A base and a displacement: mostly in the data page.
fn place(rng: &mut Rng) -> (Register, i32) {
    match rng.u8(..40) {
        0 => (register(rng), rng.i32(-200..200)),
        1 => (POINTER, rng.i32(-0x900..0x900)),
        _ => (POINTER, rng.i32(-0x200..0x200)),
    }
}

fn instruction(asm: &mut Asm, rng: &mut Rng, end: Label) {
    let (to, from, (base, displacement)) = (target(rng), register(rng), place(rng));
    let immediate = if rng.bool() { rng.i32(-128..128) } else { rng.i32(..) };
    match rng.u8(..27) {
        0 => asm.mov_imm(to, value(rng)),
        1 => asm.mov(to, from),
        2 => asm.load(to, base, displacement),
        3 => asm.store(base, displacement, from),
        4 => asm.store_imm(base, displacement, immediate),
        5 => asm.load_byte(to, base, displacement),
        6 => asm.store_byte(base, displacement, from),
        7 => asm.add(to, from),
        8 => asm.or(to, from),
        9 => asm.and(to, from),
        10 => asm.sub(to, from),
        11 => asm.xor(to, from),
        12 => asm.cmp(to, from),
        13 => asm.test(to, from),
        14 => asm.add_imm(to, immediate),
        15 => asm.sub_imm(to, immediate),
        16 => asm.cmp_imm(to, immediate),
        17 => asm.inc(to),
        18 => asm.dec(to),
        19 => asm.push(from),
        20 => asm.pop(to),
        21 => asm.set_xmm0(),
        22 => asm.get_xmm0(),
        23 => asm.pause(),
        24 => called(asm),
        // Not a call: CPUs differ in whether a call to a bad address has pushed. And not a jump into code, which could
        // decode to other instructions.
        25 if rng.u8(..20) == 0 => asm.mov_imm(to, [DATA, 0x70_0000, 1 << 47, 0xffff_9000_0000_0000][rng.usize(..4)]).jmp_to(to),
        _ => skip(asm, rng, end),
    };
}

/// A call that returns.
fn called(asm: &mut Asm) -> &mut Asm {
    let (function, after) = (asm.label(), asm.label());
    asm.call(function).jmp(after).bind(function).inc(Register::Rax).ret().bind(after)
}

/// A jump forward that may be taken: over one instruction, or to the end.
fn skip<'a>(asm: &'a mut Asm, rng: &mut Rng, end: Label) -> &'a mut Asm {
    let condition = CONDITIONS[rng.usize(..CONDITIONS.len())];
    if rng.u8(..8) == 0 {
        return asm.jump_if(condition, end);
    }
    let over = asm.label();
    asm.jump_if(condition, over).mov_imm(target(rng), value(rng)).bind(over)
}
