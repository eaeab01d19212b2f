// SPDX-License-Identifier: MIT OR Apache-2.0
//! Density: the host memory that each of many resident cells takes.

use crate::harness::Harness;
use crate::native::usage;
use crate::sample::Sample;
use crate::{BenchError, BenchOptions, Row};
use pando_kernel::CellId;

/// The number of samples of the host's memory.
const STEPS: usize = 40;

/// The rows that report on one kind of cell.
pub(crate) struct DensityRows {
    /// The number of cells that are counted.
    pub(crate) cells: usize,
    pub(crate) note: &'static str,
    /// Names of the rows: the total, and its parts.
    pub(crate) total: &'static str,
    pub(crate) pages: &'static str,
    pub(crate) tables: &'static str,
    pub(crate) objects: &'static str,
    pub(crate) kvm: &'static str,
}

/// Creates cells that stay, and reports their cost.
pub(crate) fn count(
    options: BenchOptions<'_>,
    harness: &mut Harness,
    rows: &DensityRows,
    mut make: impl FnMut(&mut Harness) -> Result<CellId, BenchError>,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let in_step = if options.brief { 2 } else { rows.cells / STEPS };
    let mut make = |harness: &mut Harness| {
        for _ in 1..in_step {
            make(harness)?;
        }
        make(harness)
    };
    // The first cell is not counted: it pays for everything that exists once.
    let cell = make(harness)?;
    let used = harness.kernel.inspect(cell)?.2;
    let free = harness.kernel.free();
    let mut moments = vec![MemoryUsage::now()?];
    for _ in 0..STEPS {
        make(harness)?;
        moments.push(MemoryUsage::now()?);
    }
    let cells = (STEPS * in_step) as f64;
    let frames = (free - harness.kernel.free()).bytes() as f64 / cells;
    let pages = (used.used - used.tables - used.retired).bytes() as f64;
    let own = (moments[STEPS].own - moments[0].own) / cells;
    let kvm = kernel_share(&moments, in_step);
    // KVM's memory only grows until the machine is destroyed; a negative value is noise of other programs.
    let kvm_share = kvm.median().max(0.0);
    let total = own + kvm_share;
    let row = |name, value| Row::of(name, value, "bytes");
    report(Row { spread: Some(kvm.width() / total), ..row(rows.total, total) }.noting(format!("{cells} clones: {}", rows.note)));
    report(row(rows.pages, pages).noting("frames that hold data"));
    report(row(rows.tables, frames - pages).noting("frames that are tables, retired ones included"));
    report(row(rows.objects, own - frames).noting("other memory of this process: the kernel's objects"));
    report(row(rows.kvm, kvm_share).noting("memory of the host's kernel: KVM's objects"));
    Ok(())
}

/// The memory at one moment, in bytes.
struct MemoryUsage {
    own: f64,
    for_programs: f64,
}

impl MemoryUsage {
    fn now() -> Result<MemoryUsage, BenchError> {
        let read = BenchError::host("read the host's memory statistics");
        let both = usage::own().and_then(|own| Ok(MemoryUsage { own, for_programs: usage::for_programs()? }));
        both.map_err(read)
    }
}

/// The memory that the host's kernel took for each cell, as the fall of the memory available to programs. It is measured
/// over each half of the run that starts in its first half. (A single difference between the first and the last moment
/// would be spoiled by one moment at which other programs are busy.)
fn kernel_share(moments: &[MemoryUsage], in_step: usize) -> Sample {
    let half = moments.len() / 2;
    let falls = moments.iter().zip(&moments[half..]).map(|(before, after)| before.for_programs - after.for_programs);
    Sample::of(falls.map(|fall| fall / (half * in_step) as f64).collect())
}

#[cfg(test)]
mod tests {
    use super::{MemoryUsage, kernel_share};

    #[test]
    fn short_changes_by_other_programs_do_not_count() {
        let moment = |left| MemoryUsage { own: 0.0, for_programs: left };
        let moments = [90.0, 80.0, 70.0, 600.0, 50.0, 40.0, 30.0, -900.0, 10.0].map(moment);
        assert_eq!(kernel_share(&moments, 10).median(), 1.0);
    }
}
