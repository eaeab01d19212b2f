// SPDX-License-Identifier: MIT OR Apache-2.0
//! Memory as cells see it, compared with a model: on the software machine, which keeps stale translations as long as it may, and on
//! KVM.
//!
//! `PANDO_SEED` repeats one run.

mod canaries;
mod clusters;
mod driver;
mod guest;
mod properties;
mod quotas;
mod trees;
mod workload;

use pando_kernel::memory::OmittedRules;
use pando_kernel::{Config, Kernel};
use pando_machine::kvm::Omit;
use pando_machine::sim::{Sim, SimConfig};
use pando_machine::{Machine, PageCount};
use pando_testing::lab::Lab;
use std::sync::Arc;

/// Physical memory of the machines: 1 GiB, of which little is ever used.
const ARENA: PageCount = PageCount(1 << 18);
/// Physical memory for tests without running cells: small, so that it is always short.
const ARENA_OF_TREES: PageCount = PageCount(8 << 9);
/// Frames for blocks of the disk: few, so that they come and go.
const REGISTRY: PageCount = PageCount(400);
/// vCPUs, driven in turns.
const VCPUS: usize = 2;

/// The software machine with its oracle, regardless of the build profile.
fn sim(seed: u64, rules: OmittedRules) -> Lab {
    let sim = Sim::new(SimConfig { arena: ARENA, vcpus: VCPUS, seed, oracle: true }).expect("memory for the software machine");
    let kernel = Kernel::new(Arc::clone(&sim) as Arc<dyn Machine>, Config { rules, registry: REGISTRY, ..Config::default() });
    let workers = (0..VCPUS).map(|index| kernel.worker(index).expect("a free vCPU")).collect();
    Lab { kernel, workers, sim: Some(sim) }
}

fn kvm(rules: OmittedRules, omit: Omit) -> Lab {
    Lab::kvm(ARENA, VCPUS, Config { rules, registry: REGISTRY, ..Config::default() }, omit)
}

/// The seed of a run: fixed, so that failures are reproducible; another on request.
fn seed(default: u64) -> u64 {
    match std::env::var("PANDO_SEED") {
        Ok(seed) => seed.parse().expect("PANDO_SEED is a number"),
        Err(_) => default,
    }
}
