// SPDX-License-Identifier: MIT OR Apache-2.0
//! The victim: a cell on the same vCPU that checks that other cells do not change its state.
//!
//! It fills every register with its own value and spins, changing nothing, until its timer interrupts it. Meanwhile it is preempted
//! and other cells run. The upcall then finds the registers in the save area; the cell reads the rest (bases, vector and x87 state)
//! itself. It compares all of them and a page of memory, and exits with the number of the first check that fails.

use pando_abi::layout::VIRTUAL_REGISTERS;
use pando_abi::registers::{FIXED_FLAGS, USER_CODE, USER_DATA, cause};
use pando_abi::virtual_registers::offset;
use pando_abi::{Hypercall, SavedContext};
use pando_kernel::RunState;
use pando_kernel::{CellId, End};
use pando_machine::{FRAME_SIZE, Nanos};
use pando_testing::asm::Register::{self, R14, R15, Rax, Rbx, Rcx, Rdi, Rdx, Rsi, Rsp};
use pando_testing::asm::{Asm, Condition, Label};
use pando_testing::lab::{CODE, DATA, Lab};
use std::time::Duration;

/// The page whose content must not change.
const PAGE: u64 = DATA;
/// Where the test writes the time of the timer interrupt.
const DEADLINE: u64 = DATA + 0x1000;
/// Vector state: as the test wrote it, as the CPU first saved it, and as it was found.
const GIVEN: u64 = DATA + 0x2000;
const REFERENCE: u64 = DATA + 0x3000;
const FOUND: u64 = DATA + 0x4000;
const STACK: u64 = DATA + 0x8000;
/// CF, PF, SF, DF, AC, ID, on machines that have `popfq`.
const FLAGS: u64 = 0x24_0485;
/// ZF, PF: the flags after a comparison of equal values.
const EQUAL: u64 = 0x44;
/// Duration of the spin: long enough to be interrupted during it.
const SPIN: Duration = Duration::from_micros(30);
/// The bases of FS and GS.
const BASES: [u64; 2] = [0x1234_5678_9000, 0x6543_2100_0000];
/// The first word of the page, and the difference between words.
const PATTERN: [u64; 2] = [0x0123_4567_89ab_cdef, 0x1111_2222_3333_4445];
/// The value of `xmm0`, on machines without further vector state.
const XMM0: u64 = 0xfeed_beef_0bad_cafe;

/// The registers in the order of the save area, with their values during the spin.
const VALUES: [(Register, u64); 15] = {
    use Register::*;
    const fn value(index: u64) -> u64 {
        0x0101_0101_0101_0101 * (index + 0x91)
    }
    [
        (Rax, value(0)),
        (Rbx, value(1)),
        (Rcx, value(2)),
        (Rdx, value(3)),
        (Rsi, value(4)),
        (Rdi, value(5)),
        (Rbp, value(6)),
        (R8, value(7)),
        (R9, value(8)),
        (R10, value(9)),
        (R11, value(10)),
        (R12, value(11)),
        (R13, value(12)),
        (R14, value(13)),
        (R15, value(14)),
    ]
};

/// The cell that checks itself.
pub struct Neighbour {
    id: CellId,
    rounds: u64,
}

/// The program under construction. State that the software machine lacks is checked on real machines only.
struct Program {
    asm: Asm,
    real: bool,
    failed: Label,
    checks: u64,
}

impl Program {
    /// Begins another check; its number is in R15 when it fails.
    fn next_check(&mut self) -> &mut Asm {
        self.checks += 1;
        self.asm.mov_imm(R15, self.checks)
    }

    /// Checks that RAX holds `value`.
    fn expect(&mut self, value: u64) {
        let failed = self.failed;
        self.next_check().mov_imm(Rdx, value).cmp(Rax, Rdx).jump_if(Condition::NotZero, failed);
    }

    /// Waits for the test, sets the timer, fills all registers and spins. Returns the addresses of the exit range and of the spin
    /// loop.
    fn spin(&mut self) -> (u64, u64) {
        let asm = &mut self.asm;
        asm.mov_imm(Rbx, VIRTUAL_REGISTERS).store_imm(Rbx, offset::PENDING as i32, 0).call_kernel(Hypercall::Idle { deadline: u64::MAX });
        asm.mov_imm(Rbx, DEADLINE).load(Rax, Rbx, 0).mov_imm(Rbx, VIRTUAL_REGISTERS).store(Rbx, offset::TIMER as i32, Rax);
        // The kernel reads the timer when the cell exits.
        asm.store_imm(Rbx, offset::PENDING as i32, 0).call_kernel(Hypercall::Doorbell {});
        if self.real {
            asm.mov_imm(Rax, BASES[0]).raw(WRFSBASE).mov_imm(Rax, BASES[1]).raw(WRGSBASE);
            asm.mov_imm(Rbx, REFERENCE).mov_imm(Rax, u64::MAX).mov_imm(Rdx, u64::MAX).raw(XRSTOR_RBX);
        } else {
            asm.mov_imm(Rax, XMM0).set_xmm0();
        }
        asm.mov_imm(Rbx, VIRTUAL_REGISTERS).cmp(Rbx, Rbx);
        let exit_path = CODE + asm.offset() as u64;
        asm.store_imm(Rbx, offset::LEVEL as i32, 0).store_imm(Rbx, offset::CRITICAL as i32, 0);
        for (register, value) in VALUES {
            asm.mov_imm(register, value);
        }
        if self.real {
            asm.mov_imm(Rsp, STACK - 8).raw(POPFQ);
        } else {
            asm.mov_imm(Rsp, STACK);
        }
        let place = CODE + asm.offset() as u64;
        let again = asm.here();
        asm.pause().jmp(again);
        (exit_path, place)
    }

    /// The handler of the timer: compares everything, and returns to `start`.
    fn check(&mut self, spin: u64, start: Label) {
        if self.real {
            self.asm.mov_imm(Rbx, FOUND).mov_imm(Rax, u64::MAX).mov_imm(Rdx, u64::MAX).raw(XSAVE_RBX);
            for (read, value) in [(RDFSBASE, BASES[0]), (RDGSBASE, BASES[1])] {
                self.asm.raw(read);
                self.expect(value);
            }
            let failed = self.failed;
            self.next_check().mov_imm(Rsi, REFERENCE).mov_imm(Rdi, FOUND).mov_imm(Rcx, FRAME_SIZE as u64 / 8).raw(REPE_CMPSQ);
            self.asm.jump_if(Condition::NotZero, failed);
        } else {
            self.asm.get_xmm0();
            self.expect(XMM0);
        }
        self.check_saved(spin);
        self.check_page();
        self.asm.jmp(start);
    }

    fn check_saved(&mut self, spin: u64) {
        let flags = if self.real { FLAGS } else { EQUAL };
        let rest = [("cause", cause::EVENTS), ("cs", USER_CODE), ("ss", USER_DATA), ("rflags", flags | FIXED_FLAGS), ("rsp", STACK)];
        let names = SavedContext::NAMES.iter().skip(3).copied().zip(VALUES.map(|(_, value)| value));
        for (name, value) in names.chain(rest) {
            self.load_saved(name);
            self.expect(value);
        }
        // At one of the two instructions of its loop.
        self.load_saved("rip");
        let (failed, good) = (self.failed, self.asm.label());
        self.next_check().mov_imm(Rdx, spin).cmp(Rax, Rdx).jump_if(Condition::Zero, good);
        self.asm.mov_imm(Rdx, spin + 2).cmp(Rax, Rdx).jump_if(Condition::NotZero, failed).bind(good);
    }

    fn load_saved(&mut self, name: &str) {
        let index = SavedContext::NAMES.iter().position(|other| *other == name).expect("a word of the save area");
        self.asm.mov_imm(Rbx, VIRTUAL_REGISTERS + (offset::SAVES + index * 8) as u64).load(Rax, Rbx, 0);
    }

    fn check_page(&mut self) {
        let failed = self.failed;
        self.next_check().mov_imm(Rbx, PAGE).mov_imm(Rcx, FRAME_SIZE as u64 / 8).mov_imm(Rax, PATTERN[0]).mov_imm(R14, PATTERN[1]);
        let again = self.asm.here();
        self.asm.load(Rdx, Rbx, 0).cmp(Rax, Rdx).jump_if(Condition::NotZero, failed);
        self.asm.add(Rax, R14).add_imm(Rbx, 8).dec(Rcx).jump_if(Condition::NotZero, again);
    }
}

// Instructions that the software machine lacks.
const WRFSBASE: &[u8] = b"\xf3\x48\x0f\xae\xd0";
const WRGSBASE: &[u8] = b"\xf3\x48\x0f\xae\xd8";
const RDFSBASE: &[u8] = b"\xf3\x48\x0f\xae\xc0";
const RDGSBASE: &[u8] = b"\xf3\x48\x0f\xae\xc8";
const XSAVE_RBX: &[u8] = b"\x48\x0f\xae\x23";
const XRSTOR_RBX: &[u8] = b"\x48\x0f\xae\x2b";
const POPFQ: &[u8] = b"\x9d";
const REPE_CMPSQ: &[u8] = b"\xf3\x48\xa7";

impl Neighbour {
    /// A neighbour that waits for its first round.
    pub fn new(lab: &mut Lab) -> Neighbour {
        let mut asm = Asm::new();
        let failed = asm.label();
        let mut program = Program { asm, real: lab.sim.is_none(), failed, checks: 0 };
        if program.real {
            // Saved by the CPU in its own format.
            program.asm.mov_imm(Rax, u64::MAX).mov_imm(Rdx, u64::MAX).mov_imm(Rbx, GIVEN).raw(XRSTOR_RBX);
            program.asm.mov_imm(Rbx, REFERENCE).raw(XSAVE_RBX);
        }
        let start = program.asm.here();
        let (exit_path, spin) = program.spin();
        let handler = CODE + program.asm.offset() as u64;
        program.check(spin, start);
        program.asm.bind(failed).mov(Rdi, R15).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
        let id = lab.cell(&program.asm.finish());
        let control = pando_abi::virtual_registers::Control {
            event_entry: handler,
            // No upcall until all registers have their values.
            exit_path_start: exit_path,
            exit_path_end: spin,
            stacks: [STACK + 0x1000, STACK + 0x2000],
            level: 1,
            critical: 1,
            timer: u64::MAX,
            ..Default::default()
        };
        pando_testing::virtual_registers::set_control(lab, id, &control);
        let page: Vec<u8> = (0..512u64).flat_map(|index| PATTERN[0].wrapping_add(PATTERN[1].wrapping_mul(index)).to_le_bytes()).collect();
        let entries = lab.kernel.machine().cpuid();
        for (address, bytes) in
            [(PAGE, &page[..]), (GIVEN, &crate::vectors::full_state(&entries)[..]), (STACK - 8, &(FLAGS | FIXED_FLAGS).to_le_bytes()[..])]
        {
            lab.kernel.write(id, address, bytes).expect("its data is mapped");
        }
        lab.kernel.start(id).expect("it was not started before");
        let mut neighbour = Neighbour { id, rounds: 0 };
        neighbour.finish_round(lab, "nothing");
        neighbour
    }

    /// Begins a round: the victim will be the next to run, and is interrupted soon.
    pub fn begin_round(&mut self, lab: &Lab) {
        let deadline = lab.kernel.now() + SPIN;
        lab.kernel.write(self.id, DEADLINE, &deadline.0.to_le_bytes()).expect("it idles");
        // The event is not masked, so it wakes the victim.
        lab.kernel.raise(self.id, pando_abi::Event::Console);
        self.rounds += 1;
    }

    /// Drives the vCPU until the round is over. Panics if a check fails; `after` names the possible cause.
    pub fn finish_round(&mut self, lab: &mut Lab, after: &str) {
        loop {
            match lab.kernel.inspect(self.id) {
                Ok((RunState::Idle { until: Nanos::NEVER }, counters, _)) if counters.hypercalls == 2 * self.rounds + 1 => return,
                Ok(_) => assert!(lab.turn(0), "the neighbour waits for ever, after {after}"),
                Err(_) => panic!("the neighbour felt {after}: it {}", self.end(lab).expect("it has ended")),
            }
        }
    }

    /// The victim's end, if it has ended: for canaries.
    pub fn end(&self, lab: &Lab) -> Option<End> {
        lab.kernel.collect(self.id).map(|outcome| outcome.end)
    }

    /// Ends the victim.
    pub fn dismiss(self, lab: &Lab) {
        lab.kernel.end(self.id, End::Killed).expect("the neighbour lives");
        lab.kernel.collect(self.id);
    }
}
