// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel of this process, on a machine of its own.

use crate::descriptors::Descriptors;
use crate::failure::Failure;
use crate::host;
use crate::laps::Laps;
use pando_confine::{ConfineError, Needs, Paths};
use pando_kernel::{Config, Kernel};
use pando_launch::{LaunchError, Template};
use pando_machine::PageCount;
use pando_machine::kvm::{Kvm, KvmConfig, Omit, running_requests};

/// Room beside the cells and the blocks of files that are kept in memory: the machine's own, the libOS's template, tables.
const SLACK: PageCount = PageCount(1 << 14);

/// A kernel with room for cells that have so much memory together, which runs cells from now on; the process reaches these paths of the host, and no others, from now on.
///
/// # Errors
/// The host has no KVM, or does not let the process confine itself.
pub(crate) fn start(memory: PageCount, reach: &Paths, laps: &mut Laps) -> Result<Kernel, Failure> {
    // Memory is taken from the host as it is used, and blocks that no cell maps are given up first.
    let registry = PageCount(host::memory().0 / 4);
    let arena = memory + registry + SLACK;
    let vcpus = std::thread::available_parallelism().map_or(1, usize::from);
    Descriptors::share_out();
    let machine = Kvm::new(KvmConfig { arena, vcpus, omit: Omit::NOTHING })?;
    // Whatever else of the host is needed is open now; threads inherit the limits.
    pando_confine::drop_privileges(reach)?;
    pando_confine::limit_paths(reach)?;
    laps.end("machine");
    let kernel = Kernel::new(machine, Config { registry, ..Config::default() });
    kernel.start_vcpus()?;
    Ok(kernel)
}

/// Leaves this process the calls of the host that it needs, now that its threads run: of KVM, what a machine needs that is there.
///
/// # Errors
/// The host refuses.
pub(crate) fn limit_calls(needs: Needs) -> Result<(), ConfineError> {
    pando_confine::limit_calls(&Needs { requests: running_requests().into(), ..needs })
}

/// The libOS, booted: what roots are made of.
///
/// # Errors
/// It does not boot, or there is not enough memory.
pub(crate) fn libos(kernel: &Kernel, laps: &mut Laps) -> Result<Template, Failure> {
    let template = Template::boot(kernel)?;
    kernel.wait_frozen(template.cell()).map_err(LaunchError::from)?;
    laps.end("libOS");
    Ok(template)
}
