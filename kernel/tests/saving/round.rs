// SPDX-License-Identifier: MIT OR Apache-2.0
//! Export and import: the same cell in another kernel and on another machine.

use crate::cell::{LARGE, add_source, bytes_of, export, template, try_out};
use pando_abi::layout::CONSOLE_RINGS;
use pando_abi::{Hypercall, MapFlags, Permissions};
use pando_kernel::{CellConfig, CellImage, End, OperatorError, Stream};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{Rax, Rbx};
use pando_testing::lab::{DATA, Lab, QUOTA};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

#[test]
fn an_imported_template_is_the_one_that_was_exported() {
    for source in 0..Lab::both().len() {
        for target in 0..Lab::both().len() {
            let mut old = Lab::both().swap_remove(source);
            let (id, _) = template(&mut old);
            let (image, pages) = export(&old.kernel, id);
            try_out(&mut old, id);
            drop(old);

            let mut lab = Lab::both().swap_remove(target);
            let before = lab.kernel.free();
            let disks = [add_source(&lab.kernel)];
            let contents = lab.kernel.add_disk(Arc::clone(&pages) as Arc<_>).expect("room for a disk");
            let image: CellImage = postcard::from_bytes(&bytes_of(&image)).expect("it reads as it was written");
            let id = lab.kernel.import(&image, contents, &disks, QUOTA).expect("a sound image");
            assert_eq!(pages.reads.load(Ordering::Relaxed), 0, "nothing is read before it is touched");
            let used = lab.kernel.inspect(id).expect("it is there").2.used;
            assert!(used < PageCount(60), "tables, and the pages that the kernel keeps: {used:?}");
            let (again, pages_again) = export(&lab.kernel, id);
            assert_eq!(again, image);
            assert!(pages_again.bytes() == pages.bytes(), "the same pages in the same order");
            try_out(&mut lab, id);
            assert!(export(&lab.kernel, id).1.bytes() == pages.bytes(), "also once they are in memory");
            let reads = pages.reads.load(Ordering::Relaxed);
            try_out(&mut lab, id);
            assert_eq!(pages.reads.load(Ordering::Relaxed), reads, "all clones share what is in memory");
            lab.kernel.end(id, End::Killed).expect("it is frozen");
            lab.kernel.free_unused_frames();
            assert_eq!((lab.kernel.free(), lab.kernel.registry().used), (before, PageCount(0)));
        }
    }
}

#[test]
fn shared_pages_are_exported_once_and_untouched_pages_are_not() {
    let mut lab = Lab::both().swap_remove(0);
    let (id, _) = template(&mut lab);
    let (image, pages) = export(&lab.kernel, id);
    // Code, notes, five private pages and one of the other space, two large pages, one of the large range, a written block, a
    // segment's; and the pages that faults make along with them.
    let around = 16;
    let most = 2 * 512 + 10 * around;
    let count = pages.bytes().len() as u64 / 4096;
    assert!((2 * 512..most).contains(&count) && count == image.contents(), "{count} pages");
}

#[test]
fn an_export_does_not_change_while_it_runs() {
    for mut lab in Lab::both() {
        let (id, _) = template(&mut lab);
        let (image, pages) = export(&lab.kernel, id);
        let before = lab.kernel.free();
        let mut bytes = Vec::new();
        // Its operator writes into it, and ends it, while its pages are being exported.
        let mut is_there = true;
        let again = lab.kernel.export(id, &mut |_, page| {
            if is_there {
                lab.kernel.write(id, LARGE, &[0xee; 3 * 4096]).expect("its large pages are mapped");
                lab.kernel.end(id, End::Killed).expect("it is frozen");
                is_there = false;
            }
            bytes.extend_from_slice(page);
            ControlFlow::Continue(())
        });
        assert_eq!(again, Ok(image));
        assert!(bytes == pages.bytes(), "as they were at the beginning");
        lab.kernel.free_unused_frames();
        assert!(lab.kernel.free() > before, "nothing is left of it");
    }
}

#[test]
fn only_a_template_is_exported_and_a_break_stops_the_export() {
    for mut lab in Lab::both() {
        let before = lab.kernel.free();
        let (id, _) = template(&mut lab);
        let mut count = 0;
        let stopped = lab.kernel.export(id, &mut |_, _| {
            count += 1;
            if count == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!((stopped, count), (Err(OperatorError::Stopped), 3));
        let new = lab.kernel.create(CellConfig { quota: QUOTA, host_name: String::new() }).expect("room for a cell");
        let refused = lab.kernel.export(new, &mut |_, _| ControlFlow::Continue(()));
        assert!(matches!(refused, Err(OperatorError::WrongState(_))), "{refused:?}");
        for id in [id, new] {
            lab.kernel.end(id, End::Killed).expect("it does not run");
        }
        assert_eq!(lab.kernel.export(id, &mut |_, _| ControlFlow::Continue(())), Err(OperatorError::Ended { cell: id, end: End::Killed }));
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.free(), before);
    }
}

/// Output before the freeze is not repeated, and the next output follows.
#[test]
fn a_console_goes_on_where_it_stood() {
    for mut lab in Lab::both() {
        let id = lab.launch(|asm| {
            for (number, letters) in [(1, b"before\n\0"), (2, b"behind\n\0")] {
                asm.mov_imm(Rbx, DATA + number * 8).mov_imm(Rax, u64::from_le_bytes(*letters)).store(Rbx, 0, Rax);
                let place = 16 * number as i32;
                asm.mov_imm(Rbx, CONSOLE_RINGS).mov_imm(Rax, DATA + number * 8).store(Rbx, place, Rax);
                asm.mov_imm(Rax, 7 | 1 << 32).store(Rbx, place + 8, Rax).store_imm(Rbx, 0, number as i32);
                asm.call_kernel(Hypercall::Doorbell {});
                if number == 1 {
                    asm.call_kernel(Hypercall::Freeze {});
                }
            }
            asm.call_kernel(Hypercall::Exit { status: 0, signal: 0, address: 0, instruction: 0 });
        });
        lab.kernel.channel(id).expect("it lives");
        lab.run_all();
        lab.kernel.wait_frozen(id).expect("it froze");
        let (image, pages) = export(&lab.kernel, id);
        let contents = lab.kernel.add_disk(pages).expect("room for a disk");
        let imported = lab.kernel.import(&image, contents, &[], QUOTA).expect("a sound image");
        let said = |lab: &mut Lab, id| {
            let clone = lab.kernel.clone_cell(id, QUOTA).expect("a template can be cloned");
            let port = lab.kernel.console(clone).expect("it lives");
            lab.kernel.start(clone).expect("it was not started before");
            lab.finish(clone);
            std::iter::from_fn(|| port.receive()).collect::<Vec<_>>()
        };
        assert_eq!(said(&mut lab, imported), [(Stream::Stdout, b"behind\n".to_vec())]);
        assert_eq!(said(&mut lab, imported), said(&mut lab, id));
    }
}

#[test]
fn memory_written_by_the_operator_is_saved_and_readable() {
    for mut lab in Lab::both() {
        let mut asm = Asm::new();
        asm.call_kernel(Hypercall::Freeze {});
        let id = lab.cell(&asm.finish());
        lab.kernel.map(id, LARGE, PageCount(2), MapFlags::eager(Permissions::READ_WRITE)).expect("room for pages");
        lab.kernel.write(id, LARGE, b"by the operator").expect("they are mapped");
        lab.kernel.start(id).expect("it was not started before");
        lab.run_all();
        let (image, pages) = export(&lab.kernel, id);
        let contents = lab.kernel.add_disk(pages).expect("room for a disk");
        let id = lab.kernel.import(&image, contents, &[], QUOTA).expect("a sound image");
        let mut bytes = [0; 15];
        lab.kernel.read(id, LARGE, &mut bytes).expect("it is mapped");
        assert_eq!(&bytes, b"by the operator");
    }
}
