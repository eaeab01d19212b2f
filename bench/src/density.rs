// SPDX-License-Identifier: MIT OR Apache-2.0
//! Density: what the host has less for each of many cells that stay.

use crate::native::usage;
use crate::sample::Sample;
use crate::stage::Stage;
use crate::{BenchError, Options, Row};
use pando_kernel::CellId;

/// How often the host is looked at meanwhile.
const STEPS: usize = 40;

/// What to report about one kind of cell.
pub(crate) struct Kind {
    /// How many are counted.
    pub(crate) cells: usize,
    pub(crate) note: &'static str,
    /// Names of the rows: the whole, and its parts.
    pub(crate) total: &'static str,
    pub(crate) pages: &'static str,
    pub(crate) tables: &'static str,
    pub(crate) objects: &'static str,
    pub(crate) kvm: &'static str,
}

/// Makes cells that stay, and reports what they cost.
pub(crate) fn count(
    options: Options<'_>,
    stage: &mut Stage,
    kind: &Kind,
    mut make: impl FnMut(&mut Stage) -> Result<CellId, BenchError>,
    report: &mut dyn FnMut(Row),
) -> Result<(), BenchError> {
    let in_step = if options.brief { 2 } else { kind.cells / STEPS };
    let mut make = |stage: &mut Stage| {
        for _ in 1..in_step {
            make(stage)?;
        }
        make(stage)
    };
    // What is there once, whatever the number of cells, shall not count.
    let cell = make(stage)?;
    let used = stage.kernel.inspect(cell)?.2;
    let free = stage.kernel.free();
    let mut moments = vec![Moment::now()?];
    for _ in 0..STEPS {
        make(stage)?;
        moments.push(Moment::now()?);
    }
    let cells = (STEPS * in_step) as f64;
    let frames = (free - stage.kernel.free()).bytes() as f64 / cells;
    let pages = (used.used - used.tables - used.retired).bytes() as f64;
    let own = (moments[STEPS].own - moments[0].own) / cells;
    let kvm = kernel_share(&moments, in_step);
    // It grows until it is thrown away as a whole; what there is less of then is nobody's gain.
    let kept = kvm.median().max(0.0);
    let total = own + kept;
    let row = |name, value| Row::of(name, value, "bytes");
    report(Row { spread: Some(kvm.width() / total), ..row(kind.total, total) }.noting(format!("{cells} clones: {}", kind.note)));
    report(row(kind.pages, pages).noting("frames that hold data"));
    report(row(kind.tables, frames - pages).noting("frames that are tables, retired ones included"));
    report(row(kind.objects, own - frames).noting("what else this process took: the kernel's objects"));
    report(row(kind.kvm, kept).noting("what the host's kernel took: KVM's own"));
    Ok(())
}

/// What memory looks like at one moment, in bytes.
struct Moment {
    own: f64,
    for_programs: f64,
}

impl Moment {
    fn now() -> Result<Moment, BenchError> {
        let read = BenchError::host("read what memory the host has");
        let both = usage::own().and_then(|own| Ok(Moment { own, for_programs: usage::for_programs()? }));
        both.map_err(read)
    }
}

/// What the host's kernel took for each cell: the fall of what it has for programs, over each half of the run that starts in its first half. (From the
/// first moment to the last alone, one moment at which other programs are busy would spoil it.)
fn kernel_share(moments: &[Moment], in_step: usize) -> Sample {
    let half = moments.len() / 2;
    let falls = moments.iter().zip(&moments[half..]).map(|(before, after)| before.for_programs - after.for_programs);
    Sample::of(falls.map(|fall| fall / (half * in_step) as f64).collect())
}

#[cfg(test)]
mod tests {
    use super::{Moment, kernel_share};

    #[test]
    fn what_other_programs_do_for_a_moment_does_not_count() {
        let moment = |left| Moment { own: 0.0, for_programs: left };
        let moments = [90.0, 80.0, 70.0, 600.0, 50.0, 40.0, 30.0, -900.0, 10.0].map(moment);
        assert_eq!(kernel_share(&moments, 10).median(), 1.0);
    }
}
