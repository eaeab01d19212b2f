// SPDX-License-Identifier: MIT OR Apache-2.0
//! Many clones at once.

use crate::fixture::{CloneFixture, PYTHON, Running, given, program};
use pando_kernel::CellId;
use pando_launch::{Program, Root};
use pando_machine::PageCount;
use pando_testing::lab::repetitions;

const NUMPY: &str = "/usr/lib/python3/dist-packages/numpy";

#[test]
fn many_clones_of_python_compute_each_its_own_and_leave_nothing() {
    /// Pages for each clone, and for all that they share.
    const EACH: u64 = 512;
    const SHARED: u64 = 1 << 17;
    const SCRIPT: &str = "
import sys, numpy, pando
table = numpy.arange(1 << 16, dtype=numpy.int64)
pando.ready()
number = int(sys.argv[1])
table[number] = -number
print(int((table[:256] * number).sum()), flush=True)
for line in sys.stdin:
    print(number * int(line) + int((table != numpy.arange(1 << 16)).sum()), flush=True)
";
    let count = u64::from(repetitions(4, 100, 10_000));
    let Some(mut fixture) = CloneFixture::new(PageCount(SHARED + count * EACH), &[PYTHON, NUMPY]) else { return };
    let before = fixture.free();
    let root = fixture.root.clone();
    let template = fixture.freeze(&root, &program(PYTHON, &["-c", SCRIPT]));
    let mut clones: Vec<(u64, Running)> = Vec::new();
    for number in 1..=count {
        let clone = fixture.clone(&template, &[&number.to_string()]);
        let sum: u64 = (0..256).sum();
        let own = if number < 256 { sum - number } else { sum }.cast_signed() - if number < 256 { number.cast_signed() } else { 0 };
        assert_eq!(fixture.output_until_wait(&clone), format!("{}\n", own * number.cast_signed()));
        clones.push((number, clone));
    }
    assert_eq!(fixture.lab.kernel.cells() as u64, count + 3, "the libOS, the root, the template and all clones live");
    // Each clone still has its own data and sees nothing of the others.
    for (number, clone) in &clones {
        assert_eq!(fixture.ask(clone, "1000\n"), format!("{}\n", number * 1000 + 1));
    }
    clones.iter().for_each(|(_, clone)| fixture.end(clone.cell));
    fixture.end(template.cell());
    assert_eq!(fixture.free(), before);
}

/// A program that becomes a template again in each clone, with one more argument.
const BRANCH: &str = "
import sys, numpy, pando
words, sums = [], numpy.zeros(1000)
while pando.ready() is not None:
    words += sys.argv[1:]
    sums += int(sys.argv[1])
print(*words, int(sums.sum()))
";

#[test]
fn clones_of_clones_are_a_tree_that_leaves_nothing() {
    const DEPTH: usize = 3;
    let children = u64::from(repetitions(1, 3, 10));
    let Some(mut fixture) = CloneFixture::new(PageCount((1 << 17) + children.pow(DEPTH as u32) * 512), &[PYTHON, NUMPY]) else { return };
    let before = fixture.free();
    let root = fixture.root.clone();
    let mut templates = vec![(Vec::new(), fixture.freeze(&root, &program(PYTHON, &["-c", BRANCH])))];
    let mut cells: Vec<CellId> = vec![templates[0].1.cell()];
    for _ in 1..DEPTH {
        let mut next: Vec<(Vec<u64>, Root)> = Vec::new();
        for (path, template) in &templates {
            for number in 1..=children {
                let clone = fixture.freeze(template, &Program { is_template: true, ..given(&[&number.to_string()]) });
                cells.push(clone.cell());
                next.push(([&path[..], &[number]].concat(), clone));
            }
        }
        templates = next;
    }
    for (path, template) in &templates {
        for number in 1..=children {
            let path = [&path[..], &[number]].concat();
            let words: Vec<String> = path.iter().map(u64::to_string).collect();
            let said = fixture.run(template, &given(&[&number.to_string()]), None);
            assert_eq!(said, format!("{} {}\n", words.join(" "), path.iter().sum::<u64>() * 1000));
        }
    }
    cells.into_iter().for_each(|cell| fixture.end(cell));
    assert_eq!(fixture.free(), before);
}
