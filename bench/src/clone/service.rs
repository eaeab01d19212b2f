// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clones of a small service on a network, each of which waits for its first client.

use super::grove::{Fresh, Template};
use crate::density::{self, Kind};
use crate::program::{Compiled, program};
use crate::stage::Stage;
use crate::{BenchError, Options, Row};
use pando_kernel::NetworkConfig;
use pando_kernel::network::link::Link;
use pando_machine::PageCount;

const SOURCE: &str = include_str!("service.c");
/// 4 GiB: taken from the host as it is used.
const ARENA: PageCount = PageCount(1 << 20);

const WAITING: Kind = Kind {
    cells: 2000,
    note: "a static C program that waits for clients at addresses of its own",
    total: "service-clone-bytes",
    pages: "service-clone-pages-bytes",
    tables: "service-clone-tables-bytes",
    objects: "service-clone-objects-bytes",
    kvm: "service-clone-kvm-bytes",
};

pub(super) fn run(options: Options<'_>, report: &mut dyn FnMut(Row)) -> Result<(), BenchError> {
    let compiled = Compiled::new(SOURCE)?;
    let mut stage = Stage::new(ARENA)?;
    let root = compiled.booted(&mut stage)?;
    let template = Template::new(&mut stage, &root, program(&[]))?;
    let network = stage.kernel.add_network(NetworkConfig::default())?;
    let plug = |stage: &Stage, clone: &Fresh| stage.kernel.plug(clone.cell, network, Link::default());
    template.train(&mut stage, |teacher, stage| {
        plug(stage, &teacher)?;
        Template::wait(teacher, stage)
    })?;
    let make = |stage: &mut Stage| {
        let clone = template.clone(stage)?;
        plug(stage, &clone)?;
        clone.settle(stage)?;
        Ok(clone.cell)
    };
    density::count(options, &mut stage, &WAITING, make, report)
}
