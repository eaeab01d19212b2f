// SPDX-License-Identifier: MIT OR Apache-2.0
//! A vCPU: one `KVM_RUN` with synced registers per exit, nothing else on the hot path.

use super::decode::{KvmExit, decode};
use super::supervisor::Supervisor;
use super::timer::Deadline;
use super::{Omit, Shared, cpuid, registers, selectors, signals};
use crate::context::Violation;
use crate::{Context, Exception, Exit, HostError, Interrupter, Nanos, Root, Vcpu, VectorState};
use kvm_bindings::{
    CpuId, KVM_EXIT_IO, KVM_EXIT_IO_OUT, KVM_EXIT_MMIO, KVM_EXIT_X86_BUS_LOCK, KVM_SYNC_X86_EVENTS, KVM_SYNC_X86_REGS, KVM_SYNC_X86_SREGS,
    kvm_sregs, kvm_xsave,
};
use kvm_ioctls::VcpuFd;
use pando_abi::Registers;
use pando_abi::hypercall::PORT;
use pando_abi::registers::USER_CODE;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// A `cr3` bit that does not change the table; toggling it makes the value differ.
const CR3_WRITE_THROUGH: u64 = 1 << 3;

/// The vector of single steps.
const DEBUG: u8 = 1;
/// TF.
const TRAP_FLAG: u64 = 1 << 8;
/// The vector of `int3`.
const BREAKPOINT: u8 = 3;
/// The vector of `int 4`.
const OVERFLOW: u8 = 4;

/// The value of `immediate_exit` while an exit is completed; a signal handler writes 1.
const COMPLETING: u8 = 2;

/// One vCPU of the VM.
pub(super) struct KvmVcpu {
    fd: VcpuFd,
    index: usize,
    base: kvm_sregs,
    vector_features: Option<u64>,
    /// The word offset of the register of protection keys in an XSAVE area, if cells have one.
    protection_keys: Option<usize>,
    /// The root that ran last, and its `cr3` value.
    last: Option<(Root, u64)>,
    /// The variable system registers that the vCPU holds now. `None`: unknown or a stub's.
    loaded: Option<ContextSregs>,
    deadline: Deadline,
    interrupter: Arc<signals::ThreadInterrupter>,
    shared: Arc<Shared>,
}

/// The system registers that differ from context to context.
#[derive(Clone, Copy, PartialEq, Eq)]
struct ContextSregs {
    cr3: u64,
    fs_base: u64,
    gs_base: u64,
    fault_address: u64,
}

impl KvmVcpu {
    /// Prepares a vCPU to run contexts.
    pub(super) fn new(fd: VcpuFd, index: usize, supervisor: &Supervisor, cpuid: &CpuId, shared: Arc<Shared>) -> Result<KvmVcpu, HostError> {
        HostError::kvm("set the vCPU's CPUID", || fd.set_cpuid2(cpuid))?;
        if !registers::has_smep(&fd)? {
            return Err(HostError::CpuLacks("SMEP"));
        }
        let fresh = HostError::kvm("read the vCPU's registers", || fd.get_sregs())?;
        let vector_features = cpuid::vector_features(cpuid);
        let base = registers::base(fresh, index, supervisor, vector_features, shared.omit);
        let vcpu = KvmVcpu {
            fd,
            index,
            base,
            vector_features,
            protection_keys: cpuid::protection_keys(cpuid).map(|offset| offset / 4),
            last: None,
            loaded: None,
            deadline: Deadline::default(),
            interrupter: Arc::default(),
            shared,
        };
        vcpu.initialise()?;
        Ok(vcpu)
    }

    /// Sets all state that no context carries: at the start, and after an exit that may have reset the vCPU.
    fn initialise(&self) -> Result<(), HostError> {
        let mut sregs = self.base;
        // Long mode needs some table; contexts bring their own.
        sregs.cr3 = crate::PHYSICAL_BASE;
        HostError::kvm("set the vCPU's registers", || self.fd.set_sregs(&sregs))?;
        registers::set_fixed(&self.fd, self.vector_features)
    }

    /// Directs signals for this vCPU to the calling thread.
    pub(super) fn bind_to_this_thread(&mut self) -> Result<(), HostError> {
        // From here on a signal finds the flag to set, even one before the first run.
        drop(signals::enter(std::ptr::addr_of_mut!(self.fd.get_kvm_run().immediate_exit)));
        self.deadline.bind_to_this_thread()?;
        self.interrupter.bind_to_this_thread();
        Ok(())
    }

    /// The `cr3` value for `root`. It differs from the last one whenever translations may be stale, so that KVM flushes (rule 6).
    fn cr3_for(&mut self, root: Root) -> u64 {
        let plain = root.table.address();
        let value = match self.last {
            Some((last, value)) if last == root => value,
            Some((last, value)) if last.table == root.table && !self.shared.omit.contains_rule(Omit::STAMP) => value ^ CR3_WRITE_THROUGH,
            Some((last, value)) if last.table == root.table => value,
            _ => plain,
        };
        self.last = Some((root, value));
        value
    }

    /// Writes `context` to KVM's synced registers.
    fn load(&mut self, root: Root, context: &Context) {
        let cr3 = self.cr3_for(root);
        let wanted = ContextSregs { cr3, fs_base: context.fs_base, gs_base: context.gs_base, fault_address: context.fault_address };
        let omit = self.shared.omit;
        let mut dirty = KVM_SYNC_X86_REGS;
        let stale_sregs = self.loaded != Some(wanted);
        let mut sregs = self.base;
        let synced = self.fd.sync_regs_mut();
        synced.regs = registers::load(context, omit);
        if !omit.contains_rule(Omit::EVENTS) {
            synced.events = registers::load_pending(&context.pending);
            dirty |= KVM_SYNC_X86_EVENTS;
        }
        if stale_sregs {
            sregs.cr3 = cr3;
            sregs.cr2 = wanted.fault_address;
            sregs.fs.base = wanted.fs_base;
            sregs.gs.base = wanted.gs_base;
            synced.sregs = sregs;
            dirty |= KVM_SYNC_X86_SREGS;
        }
        let run = self.fd.get_kvm_run();
        run.kvm_valid_regs = u64::from(KVM_SYNC_X86_REGS | KVM_SYNC_X86_SREGS | KVM_SYNC_X86_EVENTS);
        run.kvm_dirty_regs = u64::from(dirty);
    }

    /// Reads the context back, and records the vCPU's registers. Returns the code selector.
    fn store(&mut self, context: &mut Context) -> u16 {
        let synced = self.fd.sync_regs();
        context.registers = registers::store(&synced.regs);
        context.fs_base = synced.sregs.fs.base;
        context.gs_base = synced.sregs.gs.base;
        context.fault_address = synced.sregs.cr2;
        context.pending = registers::store_pending(&synced.events);
        let code = synced.sregs.cs.selector;
        let as_loaded =
            u64::from(code) == USER_CODE && (self.shared.omit.contains_rule(Omit::SELECTORS) || selectors::are_null(&synced.sregs));
        self.loaded = as_loaded.then_some(ContextSregs {
            cr3: synced.sregs.cr3,
            fs_base: context.fs_base,
            gs_base: context.gs_base,
            fault_address: context.fault_address,
        });
        code
    }

    /// Classifies KVM's exit.
    fn raw(&mut self, outcome: Result<(), i32>) -> KvmExit {
        let run = self.fd.get_kvm_run();
        match outcome {
            Err(libc::EINTR | libc::EAGAIN) => self.pending_trap().map_or(KvmExit::Interrupted, KvmExit::Trapped),
            Err(error) => KvmExit::Failed(error),
            Ok(()) => match run.exit_reason {
                KVM_EXIT_IO => {
                    // SAFETY: the exit reason says that KVM filled this member.
                    let io = unsafe { run.__bindgen_anon_1.io };
                    let hypercall =
                        io.port == u16::from(PORT) && u32::from(io.direction) == KVM_EXIT_IO_OUT && io.size == 1 && io.count == 1;
                    if hypercall { KvmExit::Out } else { KvmExit::Port }
                }
                KVM_EXIT_MMIO => KvmExit::OutsideMemory,
                KVM_EXIT_X86_BUS_LOCK => KvmExit::Interrupted,
                reason => KvmExit::Unresumable(reason),
            },
        }
    }

    /// The `int3` or `int 4` that was executed and not yet delivered when a signal came.
    ///
    /// KVM reports neither as queued, because it expects RIP to be still at the instruction. Nested, RIP is after it.
    /// KVM does report the vector: [`Self::load`] has set it to 0, and a stub runs if it is delivered.
    fn pending_trap(&self) -> Option<u8> {
        let exception = &self.fd.sync_regs().events.exception;
        let held = self.shared.nested && exception.injected == 0 && matches!(exception.nr, BREAKPOINT | OVERFLOW);
        (held && !self.shared.omit.contains_rule(Omit::EVENTS)).then_some(exception.nr)
    }

    /// Runs a loadable context until its next exit.
    fn run_once(&mut self, root: Root, context: &mut Context, deadline: Nanos) -> Exit {
        if !self.shared.omit.contains_rule(Omit::SELECTORS)
            && let Err(error) = selectors::clear()
        {
            return Exit::Violation(Violation::Machine { reason: format!("the host did not clear selectors: {error}") });
        }
        self.load(root, context);
        let outcome = {
            // Before the timer is armed: its signal may come at once.
            let _current = signals::enter(std::ptr::addr_of_mut!(self.fd.get_kvm_run().immediate_exit));
            self.deadline.arm(deadline, &self.shared.clock);
            self.fd.run().map(|_| ()).map_err(|error| error.errno())
        };
        if signals::take_poison() {
            self.loaded = None;
            return Exit::Violation(Violation::Machine { reason: "the host lost a page of its memory".into() });
        }
        if outcome == Err(libc::EINTR) {
            self.fd.set_kvm_immediate_exit(0);
            self.deadline.may_have_passed();
        }
        let code = self.store(context);
        let raw = self.raw(outcome);
        let exit = decode(&self.shared.arena, self.index, raw.clone(), code, context, self.shared.omit);
        let bus_lock = outcome == Ok(()) && self.fd.get_kvm_run().exit_reason == KVM_EXIT_X86_BUS_LOCK;
        if (bus_lock || matches!(raw, KvmExit::Port | KvmExit::OutsideMemory)) && !self.shared.omit.contains_rule(Omit::COMPLETION) {
            self.complete();
        }
        let resets = !self.shared.omit.contains_rule(Omit::RESET);
        if matches!(exit, Exit::Violation(_)) && resets {
            self.loaded = None;
        }
        if matches!(raw, KvmExit::Unresumable(_) | KvmExit::Failed(_)) && resets {
            // A vCPU that cannot be set up again fails every later run the same way, so the error is ignored here.
            let _ = self.initialise();
            self.last = None;
        }
        exit
    }

    /// Lets KVM complete an exit while the context that caused it is still loaded (line 1).
    fn complete(&mut self) {
        let run = self.fd.get_kvm_run();
        run.kvm_dirty_regs = 0;
        // SAFETY: the byte lies in the vCPU's page, which is mapped as long as `self.fd`; a signal's handler writes it too, on this thread.
        let flag = unsafe { AtomicU8::from_ptr(&raw mut run.immediate_exit) };
        // A signal that arrives meanwhile stays set for the next run: only our own value is reset.
        let _ = flag.compare_exchange(0, COMPLETING, Ordering::Relaxed, Ordering::Relaxed);
        // The result does not matter: the cell ends.
        let _ = self.fd.run().map(|_| ());
        let _ = flag.compare_exchange(COMPLETING, 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Whether an exception is a single step of the previous context: it comes before the first instruction of a context that has none pending.
///
/// VMX keeps a step that `mov ss` delayed across the exit of the next instruction, and KVM neither shows nor clears it (line 5).
fn is_left_behind(exit: &Exit, before: &Context, after: &Context) -> bool {
    let stepped = matches!(exit, Exit::Exception(Exception { vector: DEBUG, .. }));
    let wanted = before.registers.rflags & TRAP_FLAG != 0 || before.pending != crate::Pending::default();
    let moved =
        Registers { rflags: before.registers.rflags, ..after.registers } != before.registers || after.registers.rflags & TRAP_FLAG != 0;
    stepped && !wanted && !moved
}

impl Drop for KvmVcpu {
    fn drop(&mut self) {
        self.interrupter.unbind();
        signals::leave(std::ptr::addr_of_mut!(self.fd.get_kvm_run().immediate_exit));
    }
}

impl Vcpu for KvmVcpu {
    fn run(&mut self, root: Root, context: &mut Context, deadline: Nanos) -> Exit {
        if !context.is_loadable() {
            return Exit::Violation(Violation::BadContext);
        }
        let before = *context;
        let exit = self.run_once(root, context, deadline);
        if !is_left_behind(&exit, &before, context) || self.shared.omit.contains_rule(Omit::EVENTS) {
            return exit;
        }
        // It was delivered, so it is gone; if another comes nevertheless, the cell gets it.
        *context = before;
        self.run_once(root, context, deadline)
    }

    fn save_vector(&mut self) -> Result<VectorState, HostError> {
        let area = HostError::kvm("read the vector registers", || self.fd.get_xsave())?;
        Ok(VectorState::from_words(area.region))
    }

    fn load_vector(&mut self, state: Option<&VectorState>) -> Result<(), HostError> {
        let initial;
        let state = match state {
            Some(state) => state,
            None => {
                initial = VectorState::initial();
                &initial
            }
        };
        /// The word of the header with the bit map of present components, and the bit of protection keys.
        const GIVEN: (usize, u32) = (128, 1 << 9);
        let mut area = kvm_xsave { region: *state.words(), ..Default::default() };
        // KVM leaves an absent component unchanged: it would be the last cell's.
        if let Some(keys) = self.protection_keys
            && area.region[GIVEN.0] & GIVEN.1 == 0
            && let Some(word) = area.region.get_mut(keys)
        {
            *word = 0;
            area.region[GIVEN.0] |= GIVEN.1;
        }
        // SAFETY: without AMX, which no cell has, the area that KVM reads is not larger than `kvm_xsave`.
        HostError::kvm("load the vector registers", || unsafe { self.fd.set_xsave(&area) })
    }

    fn interrupter(&self) -> Arc<dyn Interrupter> {
        Arc::clone(&self.interrupter) as Arc<dyn Interrupter>
    }
}
