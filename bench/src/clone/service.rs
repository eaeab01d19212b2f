// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clones of a small service on a network, each of which waits for its first client.

use super::fixture::{FrozenTemplate, UnstartedCell};
use crate::density::{self, DensityRows};
use crate::harness::Harness;
use crate::program::{CompiledProgram, program};
use crate::{BenchError, BenchOptions, Row};
use pando_kernel::NetworkConfig;
use pando_kernel::network::link::Link;
use pando_machine::PageCount;

const SOURCE: &str = include_str!("service.c");
/// 4 GiB, which the host allocates on demand.
const ARENA: PageCount = PageCount(1 << 20);

const WAITING: DensityRows = DensityRows {
    cells: 2000,
    note: "a static C program that waits for clients at addresses of its own",
    total: "service-clone-bytes",
    pages: "service-clone-pages-bytes",
    tables: "service-clone-tables-bytes",
    objects: "service-clone-objects-bytes",
    kvm: "service-clone-kvm-bytes",
};

pub(super) fn run(options: BenchOptions<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let compiled = CompiledProgram::new(SOURCE)?;
    let mut harness = Harness::new(ARENA)?;
    let root = compiled.booted(&mut harness)?;
    let template = FrozenTemplate::new(&mut harness, &root, program(&[]))?;
    let network = harness.kernel.add_network(NetworkConfig::default())?;
    let plug = |harness: &Harness, clone: &UnstartedCell| harness.kernel.plug(clone.cell, network, Link::default());
    template.train(&mut harness, |trainee, harness| {
        plug(harness, &trainee)?;
        FrozenTemplate::wait(trainee, harness)
    })?;
    let make = |harness: &mut Harness| {
        let clone = template.clone(harness)?;
        plug(harness, &clone)?;
        clone.run_until_wait(harness)?;
        Ok(clone.cell)
    };
    density::count(options, &mut harness, &WAITING, make, report)
}
