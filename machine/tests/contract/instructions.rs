// SPDX-License-Identifier: MIT OR Apache-2.0
//! Forbidden instructions, one by one: each faults in the cell or has no effect on others.

use crate::assemble;
use crate::bare::pair::{Attack, BareOutcome, Pair};
use crate::bare::{DATA, TABLE, is_nested, is_qemu};
use BareOutcome::{AnyFault, Continues, Ends, Fault, Loops, Syscall};

type Row = (&'static str, &'static [u8], &'static [BareOutcome]);

/// The outcome of protection key instructions: nested, a software KVM leaves the host's enabled, and they are saved with the cell.
fn protection_keys() -> &'static [BareOutcome] {
    if is_nested() { &[AnyFault, Continues] } else { &[AnyFault] }
}

fn attack(rows: &[Row]) {
    let mut pair = Pair::new();
    for (name, code, allowed) in rows {
        let attack = Attack::new(name, code, allowed);
        for registers in [0, DATA, 0x8000_0000_0000_0000, u64::MAX] {
            let mut context = pair.start(code);
            (context.registers.rax, context.registers.rbx, context.registers.rcx) = (registers, DATA, registers & 0xff);
            (context.registers.rdx, context.registers.rsi, context.registers.rdi) = (registers, DATA, DATA);
            pair.attack_from(&attack, context);
        }
    }
}

#[test]
fn privileged_instructions_fault() {
    attack(&[
        ("hlt", assemble!("hlt"), &[Fault(13)]),
        ("cli", assemble!("cli"), &[Fault(13)]),
        ("sti", assemble!("sti"), &[Fault(13)]),
        ("clts", assemble!("clts"), &[Fault(13)]),
        ("invd", assemble!("invd"), &[Fault(13)]),
        ("wbinvd", assemble!("wbinvd"), &[Fault(13)]),
        ("wbnoinvd", assemble!(".byte 0xf3, 0x0f, 0x09"), &[Fault(13)]),
        ("invlpg", assemble!("invlpg [rbx]"), &[Fault(13)]),
        ("invpcid", assemble!("invpcid rax, [rbx]"), &[AnyFault]),
        ("rdmsr", assemble!("rdmsr"), &[Fault(13)]),
        ("wrmsr", assemble!("wrmsr"), &[Fault(13)]),
        ("wrmsr LSTAR", assemble!("mov ecx, 0xc0000082", "wrmsr"), &[Fault(13)]),
        ("rdpmc", assemble!("rdpmc"), &[Fault(13)]),
        ("swapgs", assemble!("swapgs"), &[AnyFault]),
        ("xsetbv", assemble!("mov ecx, 0", "mov eax, 7", "mov edx, 0", "xsetbv"), &[AnyFault]),
        ("lgdt", assemble!("lgdt [rbx]"), &[Fault(13)]),
        ("lidt", assemble!("lidt [rbx]"), &[Fault(13)]),
        ("lldt", assemble!("lldt ax"), &[Fault(13)]),
        ("ltr", assemble!("ltr ax"), &[Fault(13)]),
        ("lmsw", assemble!("lmsw ax"), &[Fault(13)]),
        ("mov cr0, rax", assemble!("mov cr0, rax"), &[Fault(13)]),
        ("mov rax, cr0", assemble!("mov rax, cr0"), &[Fault(13)]),
        ("mov cr3, rax", assemble!("mov cr3, rax"), &[Fault(13)]),
        ("mov rax, cr3", assemble!("mov rax, cr3"), &[Fault(13)]),
        ("mov cr4, rax", assemble!("mov cr4, rax"), &[Fault(13)]),
        ("mov cr8, rax", assemble!("mov cr8, rax"), &[Fault(13)]),
        ("mov rax, cr8", assemble!("mov rax, cr8"), &[Fault(13)]),
        ("mov dr0, rax", assemble!("mov dr0, rax"), &[AnyFault]),
        ("mov dr7, rax", assemble!("mov dr7, rax"), &[AnyFault]),
        ("mov rax, dr7", assemble!("mov rax, dr7"), &[AnyFault]),
        ("sysret", assemble!("sysret"), &[AnyFault]),
        ("sysexit", assemble!("sysexit"), &[AnyFault]),
        ("monitor", assemble!("monitor"), &[AnyFault]),
        ("mwait", assemble!("mwait"), &[AnyFault]),
        ("xsaves", assemble!("xsaves64 [rbx]"), &[AnyFault]),
        ("xrstors", assemble!("xrstors64 [rbx]"), &[AnyFault]),
        ("rsm", assemble!("rsm"), &[AnyFault]),
        ("getsec", assemble!(".byte 0x0f, 0x37"), &[AnyFault]),
        ("encls", assemble!(".byte 0x0f, 0x01, 0xcf"), &[AnyFault]),
        ("stac", assemble!(".byte 0x0f, 0x01, 0xcb"), &[AnyFault]),
    ]);
}

#[test]
fn virtualisation_instructions_do_nothing() {
    attack(&[
        ("vmcall", assemble!("vmcall"), &[AnyFault, Continues]),
        ("vmmcall", assemble!("vmmcall"), &[AnyFault, Continues]),
        ("vmcall with paravirtual calls", assemble!("mov eax, 5", "vmcall"), &[AnyFault, Continues]),
        ("vmmcall with paravirtual calls", assemble!("mov eax, 5", "vmmcall"), &[AnyFault, Continues]),
        ("vmrun", assemble!(".byte 0x0f, 0x01, 0xd8"), &[AnyFault]),
        ("vmload", assemble!(".byte 0x0f, 0x01, 0xda"), &[AnyFault]),
        ("vmsave", assemble!(".byte 0x0f, 0x01, 0xdb"), &[AnyFault]),
        ("stgi", assemble!(".byte 0x0f, 0x01, 0xdc"), &[AnyFault]),
        ("clgi", assemble!(".byte 0x0f, 0x01, 0xdd"), &[AnyFault]),
        ("skinit", assemble!(".byte 0x0f, 0x01, 0xde"), &[AnyFault]),
        ("invlpga", assemble!(".byte 0x0f, 0x01, 0xdf"), &[AnyFault]),
        ("vmlaunch", assemble!(".byte 0x0f, 0x01, 0xc2"), &[AnyFault]),
        ("vmresume", assemble!(".byte 0x0f, 0x01, 0xc3"), &[AnyFault]),
        ("vmxoff", assemble!(".byte 0x0f, 0x01, 0xc4"), &[AnyFault]),
        ("vmxon", assemble!(".byte 0xf3, 0x0f, 0xc7, 0x33"), &[AnyFault]),
        ("vmptrld", assemble!(".byte 0x0f, 0xc7, 0x33"), &[AnyFault]),
        ("vmclear", assemble!(".byte 0x66, 0x0f, 0xc7, 0x33"), &[AnyFault]),
        ("vmread", assemble!(".byte 0x0f, 0x78, 0xc0"), &[AnyFault]),
        ("vmwrite", assemble!(".byte 0x0f, 0x79, 0xc0"), &[AnyFault]),
        ("vmfunc", assemble!(".byte 0x0f, 0x01, 0xd4"), &[AnyFault]),
        ("invept", assemble!(".byte 0x66, 0x0f, 0x38, 0x80, 0x03"), &[AnyFault]),
        ("invvpid", assemble!(".byte 0x66, 0x0f, 0x38, 0x81, 0x03"), &[AnyFault]),
        // KVM emulates an instruction with this prefix, if configured so.
        ("forced emulation", assemble!(".byte 0x0f, 0x0b, 0x6b, 0x76, 0x6d, 0x0f, 0xa2"), &[Fault(6)]),
    ]);
}

#[test]
fn descriptor_tables_are_secret_or_say_nothing() {
    // UMIP makes them fault; without it, they reveal addresses that no cell can use.
    attack(&[
        ("sgdt", assemble!("sgdt [rbx]"), &[AnyFault, Continues]),
        ("sidt", assemble!("sidt [rbx]"), &[AnyFault, Continues]),
        ("sldt", assemble!("sldt eax"), &[AnyFault, Continues]),
        ("str", assemble!("str eax"), &[AnyFault, Continues]),
        ("smsw", assemble!("smsw eax"), &[AnyFault, Continues]),
        ("lar", assemble!("lar eax, ebx"), &[Continues]),
        ("lsl", assemble!("lsl eax, ebx"), &[Continues]),
        ("verr", assemble!("verr ax"), &[Continues]),
        ("verw", assemble!("verw ax"), &[Continues]),
    ]);
}

/// QEMU's CPU takes any base. The resulting context is not loadable.
fn base_not_canonical() -> &'static [BareOutcome] {
    if is_qemu() { &[Continues] } else { &[Fault(13)] }
}

/// QEMU's CPU has no `int1` under SVM.
fn by_int1() -> &'static [BareOutcome] {
    if is_qemu() { &[Fault(6)] } else { &[Fault(1)] }
}

#[test]
fn permitted_instructions_change_nothing_for_other_cells() {
    attack(&[
        ("rdtsc", assemble!("rdtsc"), &[Continues]),
        ("rdtscp", assemble!("rdtscp"), &[Continues, AnyFault]),
        ("rdpid", assemble!("rdpid rax"), &[Continues, AnyFault]),
        ("xgetbv", assemble!("xor ecx, ecx", "xgetbv"), &[Continues, AnyFault]),
        ("rdpkru", assemble!("xor ecx, ecx", "rdpkru"), protection_keys()),
        ("wrpkru", assemble!("xor ecx, ecx", "xor eax, eax", "xor edx, edx", "wrpkru"), protection_keys()),
        ("wrpkru, nothing allowed", assemble!("xor ecx, ecx", "mov eax, 0xffffffff", "xor edx, edx", "wrpkru"), protection_keys()),
        ("wrfsbase", assemble!("mov eax, 0x12345", "wrfsbase rax"), &[Continues]),
        ("wrgsbase", assemble!("mov eax, 0x12345", "wrgsbase rax"), &[Continues]),
        ("wrfsbase, not canonical", assemble!("mov rax, 0x8000000000000000", "wrfsbase rax"), base_not_canonical()),
        ("wrgsbase, not canonical", assemble!("mov rax, 0x0000800000000000", "wrgsbase rax"), base_not_canonical()),
        ("wrgsbase, a supervisor's", assemble!("mov rax, 0xffffffff80002000", "wrgsbase rax"), &[Continues]),
        ("clflush", assemble!("clflush [rbx]"), &[Continues]),
        ("prefetch of nothing", assemble!("prefetcht0 [0]"), &[Continues]),
        ("prefetch of the supervisor's", assemble!("prefetcht0 [0xffffffff80002000]"), &[Continues]),
        ("pause", assemble!("pause"), &[Continues]),
        ("umonitor", assemble!("umonitor rbx"), &[AnyFault, Continues]),
        ("umwait", assemble!("umwait ecx"), &[AnyFault, Continues]),
        ("tpause", assemble!("tpause ecx"), &[AnyFault, Continues]),
        ("monitorx", assemble!("monitorx"), &[AnyFault, Continues]),
        ("mwaitx", assemble!("mwaitx"), &[AnyFault, Continues]),
        // Older CPUs take it for `rdpkru`.
        ("clui", assemble!("clui"), protection_keys()),
        ("senduipi", assemble!("senduipi rax"), &[AnyFault]),
        ("xbegin", assemble!("xbegin 44f", "xend", "44:"), &[Continues, AnyFault]),
        ("incsspq", assemble!("incsspq rax"), &[Continues, AnyFault]),
        ("ldtilecfg", assemble!("ldtilecfg [rbx]"), &[AnyFault]),
        ("tilezero", assemble!("tilezero tmm0"), &[AnyFault]),
        ("llwpcb", assemble!("llwpcb rax"), &[AnyFault, Continues]),
        ("split lock", assemble!("lock add qword ptr [rbx + 0x3d], 1"), &[Continues, Loops, AnyFault]),
        ("lock across pages", assemble!("lock add qword ptr [rbx + 0xffd], 1"), &[Fault(14)]),
        ("ud0", assemble!(".byte 0x0f, 0xff, 0xc0"), &[Fault(6)]),
        ("ud1", assemble!("ud1 eax, eax"), &[Fault(6)]),
        ("an instruction that does not end", assemble!(".fill 16, 1, 0x66"), &[Fault(13)]),
    ]);
}

#[test]
fn segment_registers_are_ones_own() {
    // Nested, selectors are looked up in the host's own table.
    let refused: &[BareOutcome] = if is_nested() { &[AnyFault, Continues] } else { &[AnyFault] };
    attack(&[
        ("mov ds, 0", assemble!("xor eax, eax", "mov ds, eax"), &[Continues]),
        ("mov ds and es, user data", assemble!("mov eax, 0x23", "mov ds, eax", "mov es, eax"), &[Continues, AnyFault]),
        ("mov fs and gs, user data", assemble!("mov eax, 0x23", "mov fs, eax", "mov gs, eax"), &[Continues, AnyFault]),
        ("mov fs and gs, 3", assemble!("mov eax, 3", "mov fs, eax", "mov gs, eax"), &[Continues]),
        ("mov ds, user code", assemble!("mov eax, 0x2b", "mov ds, eax"), &[Continues, AnyFault]),
        ("mov ds, the supervisor's", assemble!("mov eax, 0x10", "mov ds, eax"), refused),
        ("mov ss, user data", assemble!("mov eax, 0x23", "mov ss, eax"), &[Continues, AnyFault]),
        ("mov ss, 0", assemble!("xor eax, eax", "mov ss, eax"), refused),
        ("mov ds, the task state", assemble!("mov eax, 0x30", "mov ds, eax"), refused),
        ("mov ds, a local descriptor", assemble!("mov eax, 7", "mov ds, eax"), refused),
        ("lfs", assemble!("mov qword ptr [rbx], 0", "mov word ptr [rbx + 8], 0x23", "rex64 lfs rax, [rbx]"), &[Continues, AnyFault]),
        ("lss", assemble!("mov qword ptr [rbx], 0", "mov word ptr [rbx + 8], 0x23", "rex64 lss rsp, [rbx]"), &[Continues, AnyFault]),
    ]);
}

#[test]
fn every_software_interrupt_faults_but_the_breakpoint() {
    let mut pair = Pair::new();
    for number in 0..=255 {
        // Nested, the host's gates count: the one of #OF is open, and a few lead to nothing at all.
        let allowed: &[BareOutcome] = match number {
            3 => &[Fault(3)],
            4 if is_nested() => &[Fault(4)],
            _ if is_nested() => &[Fault(13), Fault(6), Continues],
            _ => &[Fault(13)],
        };
        pair.attack(&Attack::new(&format!("int {number:#x}"), &[0xcd, number], allowed));
    }
}

#[test]
fn system_calls_of_every_kind_leave_or_fault() {
    attack(&[
        ("syscall", assemble!("syscall"), &[Syscall]),
        ("syscall with prefixes", assemble!(".byte 0x66, 0xf3, 0x48, 0x0f, 0x05"), &[Syscall]),
        ("sysenter", assemble!("sysenter"), &[AnyFault]),
        ("cpuid", assemble!("cpuid"), &[Fault(13), Continues]),
        ("cpuid of the hypervisor", assemble!("mov eax, 0x40000000", "cpuid"), &[Fault(13), Continues]),
        ("int1", assemble!(".byte 0xf1"), by_int1()),
    ]);
}

#[test]
fn jumps_to_nowhere_fault() {
    attack(&[
        ("jmp 0", assemble!("xor eax, eax", "jmp rax"), &[Fault(14)]),
        ("jmp, not canonical", assemble!("mov rax, 0x800000000000", "jmp rax"), &[Fault(13)]),
        ("call, not canonical", assemble!("mov rax, 0x8000000000000000", "call rax"), &[Fault(13)]),
        ("ret, not canonical", assemble!("mov rax, 0xffff7fffffffffff", "push rax", "ret"), &[Fault(13)]),
        ("jmp to the stubs", assemble!("mov rax, 0xffffffff80002000", "jmp rax"), &[Fault(14)]),
        ("jmp to the entry of syscall", assemble!("mov rax, 0xffffffff80002400", "jmp rax"), &[Fault(14), Syscall]),
        ("jmp to the last byte", assemble!("mov rax, -1", "jmp rax"), &[Fault(14)]),
        ("jmp to data", assemble!("jmp rbx"), &[AnyFault, Continues, Loops]),
    ]);
}

#[test]
fn code_at_the_end_of_user_space_goes_no_further() {
    const LAST: u64 = 0x7fff_ffff_f000;
    let mut pair = Pair::new();
    let frame = pair.bare.frame();
    pair.bare.map(pair.bare.root, LAST, frame, TABLE);
    for (name, end, allowed) in [
        ("no-ops", assemble!("nop"), &[AnyFault, Ends][..]),
        ("syscall", assemble!("syscall"), &[AnyFault, Ends, Syscall]),
        ("hypercall", assemble!("out 0x7e, al"), &[AnyFault, Ends, BareOutcome::Calls]),
        ("int3", assemble!("int3"), &[AnyFault]),
        ("half an instruction", assemble!(".byte 0x48"), &[AnyFault]),
        ("a page fault", assemble!("mov eax, [0]"), &[Fault(14)]),
        ("ud2", assemble!("ud2"), &[Fault(6)]),
        ("a string instruction", assemble!("rep stosb"), &[AnyFault, Ends]),
    ] {
        for flags in [0, 0x100] {
            pair.bare.write(frame, 4096 - end.len(), end);
            let attack = Attack::new(&format!("{name} at the very end, flags {flags:#x}"), &[], &[allowed, &[Fault(1)]].concat());
            let mut context = pair.start(&[]);
            (context.registers.rip, context.registers.rflags) = (LAST + 4096 - end.len() as u64, flags);
            (context.registers.rdi, context.registers.rcx) = (DATA, 8);
            let mut left = pair.attack_from(&attack, context);
            // Like a kernel, load it again or refuse to.
            let _ = pair.bare.run(&mut left);
            pair.attack(&Attack::new(&format!("nothing, after {name}"), assemble!("nop"), &[Continues]));
        }
    }
}
