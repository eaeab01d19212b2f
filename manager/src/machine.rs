// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel of this process, on a machine of its own.

use crate::descriptors::Descriptors;
use crate::host;
use crate::root::RootGuard;
use crate::starts::ProgramStart;
use crate::timings::Timings;
use pando_confine::{ConfineError, Paths, SyscallGroups};
use pando_kernel::sched::Fifo;
use pando_kernel::{Config, Kernel, StartMode, Swap};
use pando_launch::{LaunchError, Root, Template, Volume, VolumeDisks};
use pando_machine::kvm::{Kvm, KvmConfig, Omit, running_requests};
use pando_machine::{HostError, PageCount};
use pando_store::swap::SwapSpace;
use std::sync::Arc;
use std::time::Duration;

/// Memory besides the cells and the cached file blocks: the machine's own, the libOS's template, tables.
const SLACK: PageCount = PageCount(1 << 14);
/// New cells that run at a time, for each vCPU, until they idle for the first time: enough that one can wait for a disk while others run.
const STARTS_PER_VCPU: usize = 4;

/// Why a kernel cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum MachineError {
    /// The host has no KVM, or failed.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The process cannot be confined.
    #[error(transparent)]
    Confine(#[from] ConfineError),
    /// The libOS does not boot.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// How the cells of a kernel sleep.
#[derive(Clone, Default)]
pub struct SleepConfig {
    /// Where the memory of sleeping cells goes; `None`: they do not sleep.
    pub swap: Option<Arc<dyn Swap>>,
    /// How long a cell idles before it falls asleep; `None`: only on request, or when memory is short.
    pub sleep_after: Option<Duration>,
    /// Whether each cell falls asleep whenever it idles: for tests.
    pub sleeps_when_idle: bool,
}

impl SleepConfig {
    /// Swap space of this size in memory, for tests in which each cell falls asleep whenever it idles.
    pub fn for_tests(bytes: u64) -> SleepConfig {
        SleepConfig { swap: Some(Arc::new(SwapSpace::in_memory(bytes))), sleep_after: None, sleeps_when_idle: true }
    }
}

/// The number of vCPUs of a machine for many cells: one for each CPU that this process may use.
pub fn vcpus_for_many_cells() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Starts a kernel that runs cells that use at most `memory` together. A cell runs on one vCPU at a time, so that a machine for one cell
/// needs one; each takes about a fifth of a millisecond to make. Confines the process to the host paths in `visible`.
/// `reclaims_idle_memory`: it gives memory back to the host when its cells are idle, for a process that runs one program.
///
/// # Errors
/// The host has no KVM, or refuses to confine the process.
pub fn start(
    memory: PageCount,
    vcpus: usize,
    reclaims_idle_memory: bool,
    visible: &Paths,
    timings: &mut Timings,
) -> Result<Kernel, MachineError> {
    start_with(memory, vcpus, Config { reclaims_idle_memory, ..Config::default() }, visible, timings)
}

/// Starts a kernel as [`start`] does, for many cells that sleep.
///
/// # Errors
/// The host has no KVM, or refuses to confine the process.
pub fn start_for_many_cells(memory: PageCount, sleep: SleepConfig, visible: &Paths, timings: &mut Timings) -> Result<Kernel, MachineError> {
    let SleepConfig { swap, sleep_after, sleeps_when_idle } = sleep;
    let vcpus = vcpus_for_many_cells();
    let gatekeeper = Box::new(Fifo::with_starts(vcpus * STARTS_PER_VCPU));
    let config = Config { gatekeeper, swap, sleep_after, sleeps_when_idle, ..Config::default() };
    start_with(memory, vcpus, config, visible, timings)
}

/// Starts a kernel as [`start`] does, for one program whose cell sleeps.
///
/// # Errors
/// The host has no KVM, or refuses to confine the process.
pub fn start_for_program(
    memory: PageCount,
    vcpus: usize,
    sleep: SleepConfig,
    visible: &Paths,
    timings: &mut Timings,
) -> Result<Kernel, MachineError> {
    let SleepConfig { swap, sleep_after, sleeps_when_idle } = sleep;
    let config = Config { reclaims_idle_memory: true, swap, sleep_after, sleeps_when_idle, ..Config::default() };
    start_with(memory, vcpus, config, visible, timings)
}

fn start_with(memory: PageCount, vcpus: usize, config: Config, visible: &Paths, timings: &mut Timings) -> Result<Kernel, MachineError> {
    // The host provides memory when it is first touched; blocks that no cell maps are evicted first.
    let registry = PageCount(host::memory().0 / 4);
    let arena = memory + registry + SLACK;
    Descriptors::divide();
    if config.reclaims_idle_memory {
        pando_launch::open_libos();
    }
    let machine = Kvm::new(KvmConfig { arena, vcpus, omit: Omit::NOTHING })?;
    // Everything else on the host that is needed is open by now; new threads inherit the limits.
    pando_confine::drop_privileges(visible)?;
    pando_confine::limit_paths(visible)?;
    timings.end("machine");
    let kernel = Kernel::new(machine, Config { registry, ..config });
    kernel.start_vcpus()?;
    Ok(kernel)
}

/// Limits this process to the system calls that it needs, once its threads run. Of KVM it keeps those that an existing machine
/// needs.
///
/// # Errors
/// The host refuses the filter.
pub fn install_seccomp_filter(needs: SyscallGroups) -> Result<(), ConfineError> {
    pando_confine::install_seccomp_filter(&SyscallGroups { requests: running_requests().into(), ..needs })
}

/// The booted libOS, from which roots are made.
///
/// # Errors
/// It does not boot, or there is not enough memory.
pub fn libos(kernel: &Kernel, timings: &mut Timings) -> Result<Template, MachineError> {
    let template = Template::boot(kernel)?;
    await_libos(kernel, &template, timings)?;
    Ok(template)
}

/// The root of nested cells of a template's clones, with a libOS that is booted for it.
///
/// # Errors
/// The libOS does not boot, or there is not enough memory.
pub fn nesting_root(kernel: &Arc<Kernel>, root: &Root, timings: &mut Timings) -> Result<RootGuard, MachineError> {
    let libos = libos(kernel, timings)?;
    Ok(RootGuard::new(Arc::<Kernel>::clone(kernel), Root::for_nesting(kernel, &libos, root)?))
}

/// Waits until the libOS of a template has booted.
fn await_libos(kernel: &Kernel, template: &Template, timings: &mut Timings) -> Result<(), MachineError> {
    kernel.wait_frozen(template.cell()).map_err(LaunchError::from)?;
    timings.end("libOS");
    Ok(())
}

/// Boots the libOS, reads meanwhile what the program is expected to read, and mounts the volumes.
///
/// # Errors
/// The libOS does not boot, there are too many volumes, or there is not enough memory.
pub fn prefetched_root(kernel: &Kernel, volumes: Vec<Volume>, start: &ProgramStart, timings: &mut Timings) -> Result<Root, MachineError> {
    let libos = Template::boot(kernel)?;
    let disks = VolumeDisks::add(kernel, volumes)?;
    if start.mode() == Some(StartMode::Record) {
        kernel.begin_access_tracking();
    }
    disks.prefetch(kernel, start.starts());
    await_libos(kernel, &libos, timings)?;
    let root = Root::of_disks(kernel, &libos, disks)?;
    root.map_prefetched(kernel, start.starts())?;
    Ok(root)
}
