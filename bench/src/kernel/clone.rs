// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clones: from the start of cloning to the clone's first hypercall. The reference is `fork` of a process of the same size,
//! up to the child's first instruction.

use super::BARE_EXIT;
use crate::bare::Bare;
use crate::guest::Code;
use crate::harness::{DATA, Harness};
use crate::native::memory::Pages;
use crate::native::process::{Forker, Kind};
use crate::sample::{Side, alternate};
use crate::{BenchError, BenchOptions, Row};
use pando_abi::{Hypercall, MapFlags, Permissions};
use pando_kernel::CellId;
use pando_machine::PageCount;

/// A size to clone at.
struct Size {
    bytes: u64,
    rounds: usize,
    /// Names of the rows, with 4 KiB pages and with large ones.
    names: [&'static str; 2],
}

const SIZES: [Size; 3] = [
    Size { bytes: 1 << 20, rounds: 400, names: ["clone-1m", "clone-1m-huge"] },
    Size { bytes: 64 << 20, rounds: 200, names: ["clone-64m", "clone-64m-huge"] },
    Size { bytes: 1 << 30, rounds: 60, names: ["clone-1g", "clone-1g-huge"] },
];

/// The quota of a clone: it writes a page.
const CLONE_QUOTA: PageCount = PageCount(1024);
/// Memory for tables, the kernel's pages and clones, besides the pages of the templates.
const ROOM: PageCount = PageCount(64 << 10);

/// Templates of all sizes in one kernel.
struct Templates {
    harness: Harness,
    cells: Vec<CellId>,
}

pub(super) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let sizes = if options.brief { &SIZES[..2] } else { &SIZES[..] };
    for (kind, pages) in [Pages::Small, Pages::Huge].into_iter().enumerate() {
        let forkers: Vec<Forker> = sizes
            .iter()
            .map(|size| Forker::start(size.bytes as usize, pages, Kind::Process).map_err(BenchError::host("start a process to fork")))
            .collect::<Result<_, _>>()?;
        let mut templates = Templates::new(sizes, pages)?;
        for (index, (size, forker)) in sizes.iter().zip(&forkers).enumerate() {
            let pairs = alternate(options.rounds(size.rounds), |side| match side {
                Side::Ours => templates.clone(index),
                Side::Theirs => forker.measure().map_err(BenchError::host("fork")),
            })?;
            let reference = if pages == Pages::Huge { "fork, huge pages" } else { "fork, 4 KiB pages" };
            report(Row::pairs(size.names[kind], reference, &pairs));
        }
        if pages == Pages::Small {
            compare(options, &mut templates, report)?;
        }
    }
    Ok(())
}

/// Compares the largest clone with the smallest, and with an exit.
fn compare(options: BenchOptions<'_>, templates: &mut Templates, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let largest = templates.cells.len() - 1;
    let pairs = alternate(options.rounds(400), |side| templates.clone(if side == Side::Ours { largest } else { 0 }))?;
    report(Row::pairs("clone-flat", "a clone at 1 MB", &pairs).noting("clone at the largest size"));
    let mut bare = Bare::new()?;
    let pairs = alternate(options.rounds(400), |side| match side {
        Side::Ours => templates.clone(largest),
        Side::Theirs => bare.exit(),
    })?;
    report(Row::pairs("clone-to-exit", BARE_EXIT, &pairs).noting("clone at the largest size"));
    Ok(())
}

impl Templates {
    fn new(sizes: &[Size], pages: Pages) -> Result<Templates, BenchError> {
        let all = sizes.iter().map(|size| size.bytes).sum();
        let mut harness = Harness::new(PageCount::covering(all) + ROOM)?;
        let cells = sizes.iter().map(|size| template(&mut harness, PageCount::covering(size.bytes), pages)).collect::<Result<_, _>>()?;
        Ok(Templates { harness, cells })
    }

    /// Nanoseconds of one clone. The clone is removed on return.
    fn clone(&mut self, index: usize) -> Result<f64, BenchError> {
        let (time, clone) = self.harness.timed_clone(self.cells[index], CLONE_QUOTA)?;
        self.harness.end(clone)?;
        Ok(time)
    }
}

/// Creates a template that has written this many pages. Its clones continue up to a hypercall.
fn template(harness: &mut Harness, size: PageCount, pages: Pages) -> Result<CellId, BenchError> {
    let mut code = Code::new();
    code.point(DATA).write_pages(size.0, 1).hypercall(Hypercall::Freeze {}).relinquish_for_ever();
    let id = harness.cell(code.bytes(), size + ROOM)?;
    let flags = MapFlags { permissions: Permissions::READ_WRITE, eager: true, large: pages == Pages::Huge };
    harness.map(id, DATA, size, flags)?;
    harness.template(id)
}
