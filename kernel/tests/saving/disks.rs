// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of adding and removing disks, and of importing images with wrong disks.

use crate::cell::{BLOCKS, add_source, export, template, try_out};
use pando_abi::{DiskIndex, PAGE_SIZE};
use pando_kernel::{DiskId, End, OperatorError};
use pando_machine::PageCount;
use pando_testing::disk::TestDisk;
use pando_testing::lab::{Lab, QUOTA};

#[test]
fn a_disk_that_no_cell_has_can_be_removed_and_its_name_is_given_again() {
    for mut lab in Lab::both() {
        let (id, disk) = template(&mut lab);
        let (image, pages) = export(&lab.kernel, id);
        let contents = lab.kernel.add_disk(pages).expect("room for a disk");
        let imported = lab.kernel.import(&image, contents, &[disk], QUOTA).expect("a sound image");
        try_out(&mut lab, imported);
        assert_eq!(lab.kernel.remove_disk(disk), Err(OperatorError::DiskInUse(id)));
        assert_eq!(lab.kernel.remove_disk(contents), Err(OperatorError::DiskInUse(imported)));
        lab.kernel.end(imported, End::Killed).expect("it is frozen");
        assert_eq!(lab.kernel.remove_disk(disk), Err(OperatorError::DiskInUse(id)), "another cell has it");
        assert_eq!(lab.kernel.remove_disk(contents), Ok(()));
        assert_eq!(lab.kernel.remove_disk(contents), Err(OperatorError::NoSuchDisk));
        assert_eq!(lab.kernel.attach(id, contents), Err(OperatorError::NoSuchDisk));
        assert_eq!(lab.kernel.import(&image, contents, &[disk], QUOTA), Err(OperatorError::NoSuchDisk));
        // While blocks of it are in memory, its identifier would refer to them.
        assert!(lab.kernel.registry().used > PageCount(0));
        let other = lab.kernel.add_disk(TestDisk::new(1)).expect("room for a disk");
        assert!(other != contents);
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.add_disk(TestDisk::new(1)), Ok(contents));
        try_out(&mut lab, id);
    }
}

#[test]
fn a_retired_disk_is_removed_when_its_last_user_ends() {
    for mut lab in Lab::both() {
        let (id, disk) = template(&mut lab);
        let clone = lab.kernel.clone_cell(id, QUOTA).expect("room for a clone");
        assert_eq!([lab.kernel.retire_disk(disk), lab.kernel.retire_disk(disk)], [Ok(()), Ok(())]);
        lab.kernel.end(id, End::Killed).expect("it is frozen");
        assert_eq!(lab.kernel.remove_disk(disk), Err(OperatorError::DiskInUse(clone)));
        lab.kernel.end(clone, End::Killed).expect("it was not started");
        assert_eq!(lab.kernel.remove_disk(disk), Err(OperatorError::NoSuchDisk));
        assert_eq!(lab.kernel.retire_disk(disk), Err(OperatorError::NoSuchDisk));
        // A disk that gets its identifier later is another one.
        lab.kernel.free_unused_frames();
        assert_eq!(lab.kernel.add_disk(TestDisk::new(1)), Ok(disk));
        let other = lab.cell(&[0xcc]);
        lab.kernel.attach(other, disk).expect("it is at rest");
        lab.kernel.end(other, End::Killed).expect("it was not started");
        assert_eq!(lab.kernel.remove_disk(disk), Ok(()));
    }
}

#[test]
fn names_of_disks_never_run_out_if_they_are_given_back() {
    let lab = Lab::both().swap_remove(0);
    for _ in 0..2 * DiskId::LIMIT {
        let disk = lab.kernel.add_disk(TestDisk::new(1)).expect("room for a disk");
        lab.kernel.remove_disk(disk).expect("no cell has it");
    }
}

#[test]
fn an_image_wants_the_disks_that_its_cell_had() {
    for mut lab in Lab::both() {
        let (id, disk) = template(&mut lab);
        lab.kernel.free_unused_frames();
        let before = (lab.kernel.free(), lab.kernel.cells());
        let (image, pages) = export(&lab.kernel, id);
        let contents = lab.kernel.add_disk(pages).expect("room for a disk");
        let smaller = lab.kernel.add_disk(TestDisk::new(BLOCKS - 1)).expect("room for a disk");
        let import = |contents, disks: &[DiskId]| lab.kernel.import(&image, contents, disks, QUOTA);
        assert_eq!(import(contents, &[]), Err(OperatorError::WrongDiskCount { wanted: 1, given: 0 }));
        assert_eq!(import(contents, &[disk, disk]), Err(OperatorError::WrongDiskCount { wanted: 1, given: 2 }));
        let wanted = u64::from(BLOCKS);
        assert_eq!(import(contents, &[smaller]), Err(OperatorError::WrongDisk { index: 0, wanted, blocks: wanted - 1 }));
        let wanted = image.contents();
        assert_eq!(import(smaller, &[disk]), Err(OperatorError::WrongDisk { index: 1, wanted, blocks: u64::from(BLOCKS) - 1 }));
        let short = lab.kernel.import(&image, contents, &[disk], PageCount(256));
        short.into_iter().for_each(|id| lab.kernel.end(id, End::Killed).expect("it is frozen"));
        lab.kernel.free_unused_frames();
        assert_eq!((lab.kernel.free(), lab.kernel.cells()), before);
    }
}

/// The disk belongs to the cell's memory, and is none of its attached disks.
#[test]
fn an_imported_cell_cannot_name_the_disk_that_backs_it() {
    for mut lab in Lab::both() {
        let (id, _) = template(&mut lab);
        let (image, pages) = export(&lab.kernel, id);
        let contents = lab.kernel.add_disk(pages).expect("room for a disk");
        let own = add_source(&lab.kernel);
        let imported = lab.kernel.import(&image, contents, &[own], QUOTA).expect("a sound image");
        // The next disk gets the next index.
        let next = lab.kernel.add_disk(TestDisk::new(1)).expect("room for a disk");
        assert_eq!(lab.kernel.attach(imported, next), Ok(DiskIndex(1)));
        assert_eq!(image.disks(), 1);
        let mut bytes = [0; PAGE_SIZE as usize];
        assert!(lab.kernel.read(imported, crate::cell::LARGE, &mut bytes).is_ok());
    }
}
