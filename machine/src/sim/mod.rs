// SPDX-License-Identifier: MIT OR Apache-2.0
//! The software machine: it interprets a small subset of x86-64 over real page tables, deterministically, as an adversary.
//!
//! - Time is virtual: it advances by a fixed amount per instruction and per exit, and on [`Sim::advance_to`].
//! - Randomness follows from the seed, so one thread that drives the machine sees the same run every time.
//! - Translations are kept for as long as any real machine might keep them: a TLB per vCPU (`translate`) and a shadow cache
//!   of page tables for the machine (`shadow`). They are dropped only on the events that the page-table discipline relies on.
//! - An oracle compares each used translation with the current tables, and records breaches of the discipline ([`Sim::breaches`]).
//!
//! The instructions are real encodings, listed in `instruction`, so the same bytes run on every machine.

mod arithmetic;
mod decode;
mod execute;
mod instruction;
mod memory;
mod oracle;
mod shadow;
mod tables;
mod translate;
mod vcpu;

pub use oracle::{Breach, BreachKind, Translation};

use crate::{Arena, FRAMES_PER_HUGE_FRAME, FrameId, HostError, HugeFrame, Machine, Nanos, PageCount, Time, Vcpu};
use oracle::Log;
use shadow::Shadow;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use vcpu::SimVcpu;

/// The duration of an instruction, in nanoseconds.
const INSTRUCTION_TIME: u64 = 10;
/// The duration of an exit, in nanoseconds.
const EXIT_TIME: u64 = 1_000;
/// TSC cycles per nanosecond: not one, so that confusing the two shows.
const CYCLES_PER_NANO: u64 = 2;
/// The TSC when the machine's clock reads 0.
const TSC_BASE: u64 = 1_000_000_000_000;
/// The wall clock when the machine's clock reads 0, in nanoseconds: 2020-01-01.
const WALL_BASE: u64 = 1_577_836_800_000_000_000;
/// The frame that the supervisor's entry points to: a table without entries.
const SUPERVISOR_TABLE: FrameId = FrameId(0);
/// The supervisor's entry of every root: present, and not accessible to cells.
const SUPERVISOR_ENTRY: u64 = SUPERVISOR_TABLE.address() | tables::PRESENT | tables::WRITABLE | tables::ACCESSED;

/// The configuration of a software machine.
#[derive(Clone, Copy, Debug)]
pub struct SimConfig {
    /// Size of physical memory, the machine's own first huge frame included.
    pub arena: PageCount,
    /// The number of vCPUs.
    pub vcpus: usize,
    /// The seed of randomness.
    pub seed: u64,
    /// Whether each translation is compared with the tables: by default where assertions are on. It costs a third of the speed.
    pub oracle: bool,
}

impl Default for SimConfig {
    /// 64 MiB, one vCPU, seed 0, with the oracle where assertions are on.
    fn default() -> SimConfig {
        SimConfig { arena: PageCount(32 * u64::from(FRAMES_PER_HUGE_FRAME)), vcpus: 1, seed: 0, oracle: cfg!(debug_assertions) }
    }
}

/// The software machine.
pub struct Sim {
    hardware: Arc<Hardware>,
    /// Which vCPUs have been taken.
    taken: Mutex<Vec<bool>>,
}

/// State that all vCPUs share.
struct Hardware {
    arena: Arena,
    /// Nanoseconds since the machine was made.
    time: AtomicU64,
    /// State of the random generator.
    random: AtomicU64,
    /// The first huge frame that the machine cannot provide.
    refused_from: AtomicU32,
    shadow: Mutex<Shadow>,
    oracle: bool,
    log: Log,
}

impl Hardware {
    fn pass(&self, nanos: u64) {
        self.time.fetch_add(nanos, Ordering::Relaxed);
    }

    fn now(&self) -> Nanos {
        Nanos(self.time.load(Ordering::Relaxed))
    }

    fn tsc(&self) -> u64 {
        TSC_BASE.wrapping_add(self.now().0.wrapping_mul(CYCLES_PER_NANO))
    }

    fn shadow(&self) -> MutexGuard<'_, Shadow> {
        self.shadow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next word of SplitMix64 (Steele, Lea, Flood 2014).
    fn random(&self) -> u64 {
        const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut z = self.random.fetch_add(GAMMA, Ordering::Relaxed).wrapping_add(GAMMA);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

impl Sim {
    /// Makes a machine.
    ///
    /// # Errors
    /// The host has no room for the arena.
    pub fn new(config: SimConfig) -> Result<Arc<Sim>, HostError> {
        let arena = Arena::new(config.arena)?;
        let hardware = Hardware {
            arena,
            time: AtomicU64::new(0),
            random: AtomicU64::new(config.seed),
            refused_from: AtomicU32::new(u32::MAX),
            shadow: Mutex::default(),
            oracle: config.oracle,
            log: Log::default(),
        };
        Ok(Arc::new(Sim { hardware: Arc::new(hardware), taken: Mutex::new(vec![false; config.vcpus]) }))
    }

    /// Advances the clock to `moment`, if it is earlier: for a harness in which everything idles.
    pub fn advance_to(&self, moment: Nanos) {
        self.hardware.time.fetch_max(moment.0, Ordering::Relaxed);
    }

    /// Lets the machine provide only this number of huge frames from now on, as if the host refused more.
    pub fn limit_huge_frames(&self, count: u32) {
        self.hardware.refused_from.store(count, Ordering::Relaxed);
    }

    /// The number of accesses through a translation that the tables no longer contain: each is a breach of the page-table discipline.
    ///
    /// It counts only with the oracle on.
    #[must_use]
    pub fn stale_reads(&self) -> u64 {
        self.hardware.log.stale()
    }

    /// The first breaches of the page-table discipline, in order; those beyond the first few dozen are only counted.
    #[must_use]
    pub fn breaches(&self) -> Vec<Breach> {
        self.hardware.log.breaches()
    }
}

impl Machine for Sim {
    fn arena(&self) -> &Arena {
        &self.hardware.arena
    }

    fn provide(&self, huge_frame: HugeFrame) -> Result<(), HostError> {
        assert!(huge_frame.0 < self.hardware.arena.huge_frames(), "huge frame {} is outside the arena", huge_frame.0);
        if huge_frame.0 < self.hardware.refused_from.load(Ordering::Relaxed) {
            return Ok(());
        }
        Err(HostError::Os { action: "give memory to the software machine", source: ErrorKind::OutOfMemory.into() })
    }

    fn vcpus(&self) -> usize {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn take_vcpu(&self, index: usize) -> Result<Box<dyn Vcpu>, HostError> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!std::mem::replace(&mut taken[index], true), "vCPU {index} was taken before");
        Ok(Box::new(SimVcpu::new(Arc::clone(&self.hardware), index)))
    }

    fn supervisor_entry(&self) -> u64 {
        SUPERVISOR_ENTRY
    }

    fn flush_tables(&self) -> Result<(), HostError> {
        self.hardware.shadow().clear();
        Ok(())
    }

    fn now(&self) -> Nanos {
        self.hardware.now()
    }

    fn clock(&self) -> Time {
        Time {
            scale: (1 << 32) / CYCLES_PER_NANO,
            tsc_base: TSC_BASE,
            base: 0,
            wall_base: WALL_BASE,
            frequency: 1_000_000_000 * CYCLES_PER_NANO,
        }
    }

    fn entropy(&self, bytes: &mut [u8]) {
        for room in bytes.chunks_mut(8) {
            room.copy_from_slice(&self.hardware.random().to_le_bytes()[..room.len()]);
        }
    }

    fn cpuid(&self) -> Vec<pando_abi::cpuid::Entry> {
        use pando_abi::cpuid::Entry;
        // Four letters per register, as in the vendor string.
        let name = |letters: &[u8; 4]| u32::from_le_bytes(*letters);
        let leaf = |leaf, answer| Entry { leaf, answer, ..Entry::default() };
        vec![
            leaf(0, [1, name(b"Pand"), name(b"cpu "), name(b"oSim")]),
            // Features of every x86-64 CPU: FPU, TSC, CX8, CMOV, FXSR, SSE, SSE2.
            leaf(1, [0, 0, 0, 1 | 1 << 4 | 1 << 8 | 1 << 15 | 1 << 24 | 1 << 25 | 1 << 26]),
            leaf(0x8000_0000, [0x8000_0001, 0, 0, 0]),
            // SYSCALL, NX, long mode.
            leaf(0x8000_0001, [0, 0, 0, 1 << 11 | 1 << 20 | 1 << 29]),
        ]
    }
}
