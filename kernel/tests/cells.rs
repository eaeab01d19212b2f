// SPDX-License-Identifier: MIT OR Apache-2.0
//! The life of cells, with the same result on every machine.

use pando_abi::Hypercall;
use pando_kernel::{End, FaultReport};
use pando_testing::asm::Register::{Rax, Rbx};
use pando_testing::lab::{CODE, DATA, Lab, QUOTA};

const fn exit(status: u64) -> Hypercall {
    Hypercall::Exit { status, signal: 0, address: 0, instruction: 0 }
}

#[test]
fn a_cell_exits_with_its_status_and_every_frame_is_free_again() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let id = lab.launch(|asm| {
            asm.call_kernel(exit(42));
        });
        assert_eq!(lab.finish(id).end, End::Exited { status: 42 });
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

#[test]
fn an_unhandled_fault_is_reported_with_address_and_kind() {
    for mut lab in Lab::both() {
        let id = lab.launch(|asm| {
            asm.mov_imm(Rax, 0x1234_5000).store(Rax, 8, Rbx);
        });
        let fault = FaultReport { vector: 14, error: 6, address: 0x1234_5008, instruction: CODE + 10 };
        assert_eq!(lab.finish(id).end, End::Fault(fault));
    }
}

#[test]
fn clones_write_private_copies_and_read_the_templates_pages() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let template = lab.launch(|asm| {
            // Writes 7 and freezes; each clone adds its generation and exits with the sum.
            asm.mov_imm(Rbx, DATA).store_imm(Rbx, 0, 7).call_kernel(Hypercall::Freeze {});
            asm.mov_imm(Rbx, DATA).load(pando_testing::asm::Register::Rdi, Rbx, 0).add(pando_testing::asm::Register::Rdi, Rax);
            asm.store(Rbx, 0, pando_testing::asm::Register::Rdi);
            asm.mov_imm(pando_testing::asm::Register::Rsi, 0).mov_imm(Rax, 0).hypercall();
        });
        lab.run_all();
        for _ in 0..3 {
            let clone = lab.kernel.clone_cell(template, QUOTA).expect("a template can be cloned");
            lab.kernel.start(clone).expect("a clone can be started");
            assert_eq!(lab.finish(clone).end, End::Exited { status: 8 });
        }
        lab.kernel.end(template, End::Killed).expect("it lives");
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}
