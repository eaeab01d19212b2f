// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images that no kernel wrote: they are refused, or become cells like any other, without a panic or a lost frame.

use crate::cell::{BLOCKS, bytes_of, export, template};
use pando_kernel::{CellImage, End};
use pando_testing::disk::TestDisk;
use pando_testing::lab::{Lab, QUOTA, repetitions};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

/// Number of turns for a cell from a damaged image, which may run for ever.
const TURNS: usize = 40;

/// A byte of the image, and its new value.
type Change = (prop::sample::Index, u8);

#[test]
fn a_damaged_image_is_refused_or_harmless() {
    let [mut source, lab] = [(); 2].map(|()| Lab::both().swap_remove(0));
    let (id, _) = template(&mut source);
    let (image, pages) = export(&source.kernel, id);
    let good = bytes_of(&image);
    let contents = lab.kernel.add_disk(pages).expect("room for a disk");
    let disk = lab.kernel.add_disk(TestDisk::new(BLOCKS)).expect("room for a disk");
    let lab = RefCell::new(lab);
    let before = lab.borrow().kernel.free();
    let (refused, made) = (Cell::new(0), Cell::new(0));
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4);
    let mut runner = TestRunner::new(Config { cases: repetitions(50, 2_000, 50_000), ..Config::default() });
    let run = runner.run(&changes, |changes: Vec<Change>| {
        let mut lab = lab.borrow_mut();
        let mut bytes = good.clone();
        for (place, value) in changes {
            // Most of the image is the pages that the kernel keeps, where any content is valid: change the other bytes more often.
            let index = place.index(2 * bytes.len());
            let index = if index < bytes.len() { index } else { bytes.len() - 1 - index % bytes.len().min(400) };
            bytes[index] = value;
        }
        let image: Option<CellImage> = postcard::from_bytes(&bytes).ok();
        let imported = image.and_then(|image| lab.kernel.import(&image, contents, &[disk], QUOTA).ok());
        if let Some(id) = imported {
            let clone = lab.kernel.clone_cell(id, QUOTA).expect("a template can be cloned");
            lab.kernel.start(clone).expect("it was not started before");
            for _ in 0..TURNS {
                lab.turn(0);
            }
            let _ = lab.kernel.export(id, &mut |_, _| ControlFlow::Continue(()));
            for id in [id, clone] {
                let _ = lab.kernel.end(id, End::Killed);
                lab.kernel.collect(id);
            }
        }
        let count = if imported.is_some() { &made } else { &refused };
        count.set(count.get() + 1);
        lab.kernel.free_unused_frames();
        prop_assert_eq!((lab.kernel.free(), lab.kernel.cells()), (before, 0));
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
    assert!(refused.get() > 0 && made.get() > 0, "{refused:?} were refused, {made:?} were not");
}
