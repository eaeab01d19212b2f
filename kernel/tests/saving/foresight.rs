// SPDX-License-Identifier: MIT OR Apache-2.0
//! What one clone touches, later ones find made.

use crate::cell::{add_source, export, run, template};
use pando_kernel::{End, OperatorError};
use pando_machine::PageCount;
use pando_testing::lab::{Lab, QUOTA};
use std::sync::Arc;

#[test]
fn what_one_clone_touched_later_ones_find_made() {
    for (index, mut lab) in Lab::both().into_iter().enumerate() {
        let (id, _) = template(&mut lab);
        let pupil = lab.kernel.clone_cell(id, QUOTA).expect("it is frozen");
        let before = run(&mut lab, pupil);
        assert_eq!(lab.kernel.expected(id), Ok(PageCount(0)), "who is not named teaches nothing");

        let teacher = lab.kernel.clone_cell(id, QUOTA).expect("it is frozen");
        lab.kernel.teach(id, teacher).expect("it has not started");
        assert_eq!(run(&mut lab, teacher), before);
        let expected = lab.kernel.expected(id).expect("it lives");
        assert!(expected.0 > 0 && expected.0 <= before, "{expected:?} of {before}");
        let (image, pages) = export(&lab.kernel, id);

        let foreseen = lab.kernel.clone_cell(id, QUOTA).expect("it is frozen");
        assert_eq!(lab.kernel.teach(id, id), Err(OperatorError::Busy(pando_kernel::cell::State::Frozen)));
        let after = run(&mut lab, foreseen);
        assert!(after < before, "{after} faults, {before} before");
        lab.kernel.end(id, End::Killed).expect("it is frozen");
        drop(lab);

        // The same in another kernel, where nothing of it is in memory yet.
        let mut lab = Lab::both().swap_remove(index);
        let free = lab.kernel.free();
        let disks = [add_source(&lab.kernel)];
        let contents = lab.kernel.add_disk(Arc::clone(&pages) as Arc<_>).expect("room for a disk");
        let id = lab.kernel.import(&image, contents, &disks, QUOTA).expect("a sound image");
        assert_eq!(lab.kernel.expected(id), Ok(expected));
        let mut faults = [0; 2];
        for count in &mut faults {
            let clone = lab.kernel.clone_cell(id, QUOTA).expect("it is frozen");
            *count = run(&mut lab, clone);
            lab.kernel.foresee(id).expect("its pages can be read");
        }
        assert!(faults[1] < faults[0], "{faults:?}");
        lab.kernel.end(id, End::Killed).expect("it is frozen");
        lab.kernel.settle();
        assert_eq!(lab.kernel.free(), free);
    }
}
