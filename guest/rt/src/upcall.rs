// SPDX-License-Identifier: MIT OR Apache-2.0
//! Upcalls: the kernel's entry into the libOS, and the exit path.
//!
//! An upcall saves the interrupted context in the virtual registers, on level 0 for an application and on level 1 for the
//! libOS itself, and enters at [`pando_exception_entry`](install) or the event entry on the stack of that level. The exit
//! path is one range of code, `pando_exit_path_start..pando_exit_path_end`. It resets `level` and `critical`, checks for events that
//! came meanwhile, pops the registers from the save area and jumps to the context's instruction pointer. The kernel delivers
//! nothing inside that range. The path sets only the arithmetic flags; the others are clear while the libOS runs. A context
//! with other flags, and the libOS's own, leave by `iretq`, whose frame is the save area's end: `iretq` and `popfq` cost
//! more than all the rest of a system call. Nothing is ever pushed onto the application's stack, so its red zone survives.

use core::arch::{asm, global_asm};
use core::mem::offset_of;
use core::ptr::addr_of_mut;

use pando_abi::registers::{FIXED_FLAGS, USER_FLAGS, cause};
use pando_abi::virtual_registers::{Control, offset};
use pando_abi::{Hypercall, Registers, SavedContext, layout};

use crate::hot::{HOT, STACK_SIZE};
use crate::hypercall::perform;
use crate::{events, failure, registers, user};

/// Vector of a page fault.
const PAGE_FAULT: u64 = 14;
/// The arithmetic flags: CF PF AF ZF SF OF.
const ARITHMETIC_FLAGS: u64 = 0x8d5;

const CONTROL: u64 = layout::VIRTUAL_REGISTERS;
/// Address of the registers of a save level.
const fn saved_registers(level: usize) -> u64 {
    layout::VIRTUAL_REGISTERS + (offset::SAVES + level * size_of::<SavedContext>() + offset_of!(SavedContext, rax)) as u64
}

/// Bytes of the stack of the libOS's own exceptions: a fix-up, or the report of a failure.
const FAULT_STACK_SIZE: usize = 16 << 10;

#[repr(C, align(16))]
struct FaultStack([u8; FAULT_STACK_SIZE]);

static mut FAULT_STACK: FaultStack = FaultStack([0; FAULT_STACK_SIZE]);

global_asm!(
    ".pushsection .text.pando_upcall,\"ax\",@progbits",
    ".macro pando_pop_registers",
    ".irp register, rax, rbx, rcx, rdx, rsi, rdi, rbp, r8, r9, r10, r11, r12, r13, r14, r15",
    "pop \\register",
    ".endr",
    ".endm",
    ".globl pando_exception_entry",
    "pando_exception_entry:",
    "cld",
    "xor ebp, ebp",
    "movabs rax, {control}",
    "cmp qword ptr [rax + {level}], 1",
    "jne 2f",
    "call {exception}",
    "jmp pando_exit_path_start",
    "2:",
    "call {fault}",
    "movabs rax, {control}",
    "mov qword ptr [rax + {level}], 1",
    "movabs rsp, {saved_fault}",
    "jmp 4f",
    ".globl pando_event_entry",
    "pando_event_entry:",
    "cld",
    "xor ebp, ebp",
    "call {events}",
    // The exit path.
    ".globl pando_exit_path_start",
    "pando_exit_path_start:",
    "movabs rax, {control}",
    "mov qword ptr [rax + {critical}], 0",
    "mov qword ptr [rax + {level}], 0",
    "mov rcx, [rax + {mask}]",
    "not rcx",
    "and rcx, [rax + {pending}]",
    "jnz 3f",
    "mov ecx, [rax + {flags}]",
    "lea rsp, [rax + {saved}]",
    "test ecx, {unusual}",
    "jnz 4f",
    // An addition sets OF, `sahf` the other five. From here on no instruction changes flags.
    "mov ah, cl",
    "shr ecx, 11",
    "and cl, 1",
    "add cl, 0x7f",
    "sahf",
    "pando_pop_registers",
    "mov rsp, [rsp + {to_rsp}]",
    "jmp [rip + pando_virtual_registers + {instruction}]",
    "4:",
    "pando_pop_registers",
    "iretq",
    "3:",
    "mov qword ptr [rax + {level}], 1",
    "mov qword ptr [rax + {critical}], 1",
    "mov rsp, [rax + {stacks}]",
    "jmp pando_event_entry",
    ".globl pando_exit_path_end",
    "pando_exit_path_end:",
    ".purgem pando_pop_registers",
    ".popsection",
    control = const CONTROL,
    level = const offset::LEVEL,
    critical = const offset::CRITICAL,
    pending = const offset::PENDING,
    mask = const offset_of!(Control, mask),
    stacks = const offset_of!(Control, stacks),
    saved = const saved_registers(0) - CONTROL,
    flags = const offset::SAVES + offset_of!(SavedContext, rflags),
    instruction = const offset::SAVES + offset_of!(SavedContext, rip),
    unusual = const USER_FLAGS & !ARITHMETIC_FLAGS,
    to_rsp = const offset_of!(SavedContext, rsp) - offset_of!(SavedContext, rip),
    saved_fault = const saved_registers(1),
    exception = sym exception,
    fault = sym fault,
    events = sym deliver_events,
);

unsafe extern "C" {
    static pando_exception_entry: u8;
    static pando_event_entry: u8;
    static pando_exit_path_start: u8;
    static pando_exit_path_end: u8;
}

/// Sets the handler of exceptions, system calls and events of the application. It changes the context, which then
/// continues. Events were noted before; the context's cause is then [`cause::EVENTS`].
pub fn handle_with(handler: fn(&mut SavedContext)) {
    HOT.tail.on_upcall.with(|current| *current = Some(handler));
}

/// Sets the entries of upcalls.
pub(crate) fn install() {
    let top = |start: usize, size: usize| (start + size) as u64;
    let stacks = [top((&raw const HOT).addr(), STACK_SIZE), top((&raw const FAULT_STACK).addr(), FAULT_STACK_SIZE)];
    // SAFETY: the page is mapped, aligned and writable, and these words are the cell's own.
    unsafe {
        let control = addr_of_mut!((*registers::page()).control);
        addr_of_mut!((*control).stacks).write_volatile(stacks);
        addr_of_mut!((*control).exit_path_start).write_volatile((&raw const pando_exit_path_start).addr() as u64);
        addr_of_mut!((*control).exit_path_end).write_volatile((&raw const pando_exit_path_end).addr() as u64);
        addr_of_mut!((*control).exception_entry).write_volatile((&raw const pando_exception_entry).addr() as u64);
        addr_of_mut!((*control).event_entry).write_volatile((&raw const pando_event_entry).addr() as u64);
    }
}

/// The saved context of a level.
///
/// # Safety
/// 1. The caller runs in an upcall that saved this level, or before the first one.
/// 2. No other reference to it is alive.
unsafe fn saved(level: usize) -> &'static mut SavedContext {
    // SAFETY: the page is mapped, aligned and writable; the kernel writes a level only at an upcall that saves it,
    // which 1 rules out until the exit path; 2 makes the reference the only one.
    unsafe { &mut *addr_of_mut!((*registers::page()).saves[level]) }
}

/// Handles an exception or system call of the application, trapped or patched.
pub(crate) extern "C" fn exception() {
    // SAFETY: 1: this is the upcall. 2: only this function, `deliver_events` and `enter`, which ends the boot, take level 0, one at a time.
    serve(unsafe { saved(0) });
}

/// Handles events that came while the application ran or before the libOS had left.
extern "C" fn deliver_events() {
    events::note();
    // SAFETY: 1: this is the upcall, or it goes on where `exception` ended: nothing has run since. 2: as for `exception`.
    let context = unsafe { saved(0) };
    context.cause = cause::EVENTS;
    serve(context);
}

fn serve(context: &mut SavedContext) {
    if let Some(handler) = HOT.tail.on_upcall.with(|handler| *handler) {
        handler(context);
    }
    constrain(context);
}

/// Handles an exception of the libOS: a failed copy of application memory, or the end.
extern "C" fn fault() {
    // SAFETY: 1: this is the upcall. 2: only this function takes level 1.
    let context = unsafe { saved(1) };
    match user::fix_up(context.rip) {
        Some(instruction) if context.cause == PAGE_FAULT => context.rip = instruction,
        _ => failure::exception(context),
    }
}

/// Restricts a context to values that `iretq` accepts without an exception.
fn constrain(context: &mut SavedContext) {
    context.rflags = context.rflags & USER_FLAGS | FIXED_FLAGS;
}

/// Starts the application with these registers, after a report to a debugger if there is one. Code before this call does not continue: from
/// here on the libOS runs in upcalls.
pub fn enter(start: &Registers, report: Option<[u64; 4]>) -> ! {
    let mut context = SavedContext::new(start, 0, 0, 0);
    constrain(&mut context);
    // SAFETY: 1: nothing has run yet that an upcall of level 0 could have interrupted. 2: as for `exception`.
    unsafe { *saved(0) = context };
    crate::vector::reset();
    if let Some([kind, first, second, third]) = report {
        // SAFETY: the page is mapped, aligned and writable. On level 1 the debugger finds the program's registers on level 0.
        unsafe { addr_of_mut!((*registers::page()).control.level).write_volatile(1) };
        // SAFETY: 1: the debugger may change level 0, to which no reference is alive. 2: vector registers survive it.
        let _ = unsafe { perform(Hypercall::Report { kind, first, second, third }) };
    }
    // SAFETY: the exit path takes nothing from registers or stack, and level 0 was just filled.
    unsafe { asm!("jmp pando_exit_path_start", options(noreturn)) };
}
