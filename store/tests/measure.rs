// SPDX-License-Identifier: MIT OR Apache-2.0
//! Duration of saving and loading a gigabyte: `cargo test --release -p pando-store --test measure -- --ignored --nocapture`.

use pando_abi::{Hypercall, MapFlags, PAGE_SIZE, Permissions};
use pando_kernel::Config;
use pando_machine::PageCount;
use pando_store::{TemplateFile, save};
use pando_testing::asm::Asm;
use pando_testing::lab::{Lab, QUOTA};
use std::time::Instant;

/// Address of the pages.
const PAGES: u64 = 0x4000_0000;
/// Number of pages.
const COUNT: u64 = 1 << 18;

/// Typical pages of programs: some zero, some equal, the rest with some structure.
fn page(number: u64, random: &mut fastrand::Rng) -> Vec<u8> {
    match number % 8 {
        0 => vec![0; PAGE_SIZE as usize],
        1 => vec![7; PAGE_SIZE as usize],
        _ => (0..PAGE_SIZE / 8).flat_map(|_| (0x5500_0000_0000 + random.u64(..1 << 20)).to_le_bytes()).collect(),
    }
}

#[test]
#[ignore = "it only measures, and takes a gigabyte"]
fn a_gigabyte() {
    let arena = PageCount(COUNT + (1 << 14));
    let mut lab = Lab::sim(1, arena, 1, Config::default());
    let mut asm = Asm::new();
    asm.call_kernel(Hypercall::Freeze {});
    let id = lab.cell_with(&asm.finish(), arena);
    lab.kernel.map(id, PAGES, PageCount(COUNT), MapFlags::lazy(Permissions::READ_WRITE)).expect("room for pages");
    let mut random = fastrand::Rng::with_seed(1);
    for number in 0..COUNT {
        lab.kernel.write(id, PAGES + number * PAGE_SIZE, &page(number, &mut random)).expect("they are mapped");
    }
    lab.kernel.start(id).expect("it was not started before");
    lab.run_all();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("room for a directory");
    let path = directory.path().join("template");

    let start = Instant::now();
    let mut pages = 0_u64;
    lab.kernel
        .export(id, &mut |_, bytes| {
            pages += u64::from(bytes[0] < 8);
            std::ops::ControlFlow::Continue(())
        })
        .expect("a template can be exported");
    println!("export alone, {pages} pages of small words: {:.2?}", start.elapsed());
    let start = Instant::now();
    let summary = save(&lab.kernel, id, &path, |_| Ok(Vec::new())).expect("a template can be saved");
    println!("export and write: {:.2?}, {summary:?}", start.elapsed());
    drop(lab);

    let lab = Lab::sim(1, arena, 1, Config { registry: PageCount(COUNT), ..Config::default() });
    let start = Instant::now();
    let saved = TemplateFile::open(&path).expect("it was just written");
    println!("open: {:.2?}", start.elapsed());
    let start = Instant::now();
    let (id, _) = saved.load(&lab.kernel, &[], QUOTA).expect("the same machine");
    println!("import: {:.2?}, {:?} frames", start.elapsed(), lab.kernel.inspect(id).expect("it is there").2.used);
    let mut one = [0; 8];
    let mut wait = |address| {
        let start = Instant::now();
        lab.kernel.read(id, address, &mut one).expect("its pages are mapped");
        start.elapsed()
    };
    println!("first touch: {:.2?}, neighbour: {:.2?}", wait(PAGES + 1000 * PAGE_SIZE), wait(PAGES + 1001 * PAGE_SIZE));
    let start = Instant::now();
    (0..COUNT).for_each(|number| _ = wait(PAGES + number * PAGE_SIZE));
    println!("all of it, touched page by page: {:.2?}", start.elapsed());
}
