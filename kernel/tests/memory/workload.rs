// SPDX-License-Identifier: MIT OR Apache-2.0
//! The random commands of cells and their operator in a run of the property: from a seed, and concentrated on a few pages so that
//! they interact.

use crate::guest::{GuestCommand, MAX_COMMANDS, value};
use pando_abi::layout::{SLOT_SIZE, SYSTEM_SLOT, USER_START};
use pando_abi::memory::CURRENT_SPACE;
use pando_abi::{BlockAddress, BlockNumber, DiskIndex, Hypercall, MapFlags, PAGE_SIZE, Permissions};
use pando_machine::Nanos;
use pando_testing::model::{Memory, WINDOW_PAGES, WINDOW_START, WORDS};

/// Slots in use: the first two mostly for private memory, the rest mostly for segments.
const SLOTS: usize = 5;
/// The pages in the window that are accessed: across the edges of large pages, and in the middle of one.
const ANCHORS: [u64; 6] = [0, 250, 506, 1018, 1530, WINDOW_PAGES - CROWD];
/// Number of pages from each anchor on.
const CROWD: u64 = 12;
/// Pages of a slot.
const SLOT_PAGES: u64 = SLOT_SIZE / PAGE_SIZE;

/// A source of commands.
pub(crate) struct Workload {
    rng: fastrand::Rng,
    numbers: u64,
    /// The machine's time, and how far ahead timers are set.
    now: Nanos,
    span: u64,
    favourites: [u64; 3],
}

impl Workload {
    pub(crate) fn new(seed: u64) -> Workload {
        let mut work = Workload { rng: fastrand::Rng::with_seed(seed), numbers: 0, now: Nanos(0), span: 1, favourites: [0; 3] };
        work.favourites = std::array::from_fn(|_| work.any_address());
        work
    }

    /// Sets the range of the next commands' timers: from now on, within `span` nanoseconds.
    pub(crate) fn set_clock(&mut self, now: Nanos, span: u64) {
        (self.now, self.span) = (now, span);
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.rng.usize(..limit)
    }

    /// `true` once in `count` times.
    pub(crate) fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A word that was never returned before.
    pub(crate) fn value(&mut self) -> u64 {
        self.numbers += 1;
        value(self.numbers)
    }

    /// The address of a word to access: mostly a mapped one, and half the time one of this batch's favourites, because machines
    /// cache recent translations.
    pub(crate) fn address(&mut self, memory: &Memory) -> u64 {
        let favourite = self.below(2 * self.favourites.len());
        if let Some(address) = self.favourites.get(favourite) {
            return *address;
        }
        self.mapped_address(memory)
    }

    fn mapped_address(&mut self, memory: &Memory) -> u64 {
        let mut address = self.any_address();
        for _ in 0..4 {
            if memory.peek(address).is_some() {
                break;
            }
            address = self.any_address();
        }
        address
    }

    fn any_address(&mut self) -> u64 {
        // Half of the addresses are in one slot, so that commands interact.
        let slot = if self.one_in(2) { 0 } else { self.below(SLOTS) };
        slot as u64 * SLOT_SIZE + self.page() * PAGE_SIZE + WORDS[self.below(2)]
    }

    /// All addresses that may be accessed.
    pub(crate) fn all_addresses() -> impl Iterator<Item = u64> {
        let pages = || ANCHORS.into_iter().flat_map(|anchor| (0..CROWD).map(move |offset| WINDOW_START + anchor + offset));
        (0..SLOTS as u64).flat_map(move |slot| pages().flat_map(move |page| WORDS.map(|word| slot * SLOT_SIZE + page * PAGE_SIZE + word)))
    }

    fn page(&mut self) -> u64 {
        WINDOW_START + ANCHORS[self.below(ANCHORS.len())] + self.rng.u64(..CROWD)
    }

    /// The first commands of a new cell, which map memory to work on.
    pub(crate) fn first_commands(&mut self) -> Vec<GuestCommand> {
        let flags = MapFlags { permissions: Permissions::READ_WRITE, eager: false, large: self.one_in(2) };
        let map = |slot: u64| {
            let address = slot * SLOT_SIZE + WINDOW_START * PAGE_SIZE;
            GuestCommand::Call(Hypercall::Map { space: CURRENT_SPACE, address, pages: WINDOW_PAGES, flags: flags.bits() })
        };
        vec![map(0), map(1)]
    }

    /// A batch for a cell with this memory. A cell with a tight quota makes no call that could stop half way.
    pub(crate) fn commands(&mut self, memory: &Memory, tight: bool) -> Vec<GuestCommand> {
        let count = 1 + self.below(MAX_COMMANDS.min(40));
        self.favourites = std::array::from_fn(|_| self.mapped_address(memory));
        let mut commands: Vec<GuestCommand> = Vec::with_capacity(count);
        // Until the first edit the content of fetched words is known.
        let quiet = self.below(count + 1);
        // Some cells yield after every access, over shared pages: a vCPU's cached translations are then stale when they return.
        let moves = self.one_in(6);
        for position in 0..count {
            let command = match self.below(100) {
                _ if moves && position % 2 == 1 => GuestCommand::Call(Hypercall::Relinquish {}),
                0..8 if position < quiet => self.fetch(memory),
                0..40 => GuestCommand::Load(self.address(memory)),
                40..70 => GuestCommand::Store(self.address(memory), self.value()),
                70..80 => GuestCommand::StoreTimed(self.address(memory), self.value(), Nanos(self.now.0 + self.rng.u64(1..self.span))),
                90..96 => GuestCommand::Call(Hypercall::Relinquish {}),
                _ if position < quiet => GuestCommand::Load(self.address(memory)),
                80..90 => GuestCommand::Call(self.edit(memory, tight)),
                _ => GuestCommand::Call(self.call(memory)),
            };
            commands.push(command);
        }
        commands
    }

    /// Executes a word that is one of [`Workload::value`]'s, or may not be executed.
    fn fetch(&mut self, memory: &Memory) -> GuestCommand {
        let address = self.address(memory);
        match memory.fetch(address) {
            // The word was not written yet.
            Some(0) => GuestCommand::Load(address),
            _ => GuestCommand::Fetch(address),
        }
    }

    fn space(&mut self, memory: &Memory) -> u64 {
        match self.below(10) {
            0..7 => CURRENT_SPACE,
            // A space that may not exist.
            7 => self.rng.u64(..8),
            _ => {
                let spaces = memory.spaces();
                spaces[self.below(spaces.len())]
            }
        }
    }

    /// Maps, unmaps, protects or populates.
    pub(crate) fn edit(&mut self, memory: &Memory, tight: bool) -> Hypercall {
        let space = self.space(memory);
        let slot = if self.one_in(2) { 0 } else { self.below(SLOTS) } as u64;
        let (first, pages) = self.range(slot, tight);
        let address = slot * SLOT_SIZE + first * PAGE_SIZE;
        match self.below(14) {
            0..5 => {
                let permissions = self.permissions();
                // Beyond the window, populated pages would not be checked.
                let eager = !tight && pages <= WINDOW_PAGES && self.one_in(4);
                let flags = MapFlags { permissions, eager, large: !tight && self.one_in(3) };
                Hypercall::Map { space, address, pages, flags: flags.bits() }
            }
            5..7 => Hypercall::Unmap { space, address, pages },
            7..10 => {
                let flags =
                    MapFlags { permissions: self.permissions(), eager: !tight && pages <= WINDOW_PAGES && self.one_in(4), large: false };
                Hypercall::MapBlocks { space, address, pages, block: self.block(), flags: flags.bits() }
            }
            10 => Hypercall::Populate { space, address, pages: pages.min(WINDOW_PAGES) },
            _ => {
                let pages = pages.min(if tight { 512 - first % 512 } else { WINDOW_PAGES });
                Hypercall::Protect { space, address, pages, permissions: self.permissions().bits() }
            }
        }
    }

    /// First page and count.
    fn range(&mut self, slot: u64, tight: bool) -> (u64, u64) {
        let first = self.page();
        let end = WINDOW_START + WINDOW_PAGES;
        match self.below(20) {
            0..9 => (first, 1),
            9..15 => (first, 1 + self.rng.u64(..CROWD * 2).min(end - first - 1)),
            15 | 16 => {
                let first = WINDOW_START + 512 * self.rng.u64(..WINDOW_PAGES / 512);
                (first, if tight { 512 } else { 512 * (1 + self.rng.u64(..(end - first) / 512)) })
            }
            17 | 18 => (first, 1 + self.rng.u64(..end - first)),
            // A whole slot, most of it beyond the window: one entry, and as many entries as a table has. In the first slot, cells
            // do not own the first pages.
            _ if self.one_in(4) => {
                let first = if slot == 0 { USER_START / PAGE_SIZE } else { 0 };
                (first, SLOT_PAGES - first)
            }
            _ => (WINDOW_START, WINDOW_PAGES),
        }
    }

    /// A block of the disk: often one of a few, so that cells share them; sometimes one that does not exist.
    fn block(&mut self) -> u64 {
        let number = match self.below(10) {
            0..6 => self.rng.u32(..40),
            6..9 => self.rng.u32(..5_000),
            _ => self.rng.u32(..),
        };
        let disk = u32::from(self.one_in(40));
        BlockAddress { disk: DiskIndex(disk), block: BlockNumber(number) }.bits()
    }

    fn permissions(&mut self) -> Permissions {
        match self.below(20) {
            0..12 => Permissions::READ_WRITE,
            12..15 => Permissions::READ,
            15..18 => Permissions::ALL,
            18 => Permissions::READ_EXECUTE,
            _ => Permissions::NONE,
        }
    }

    /// A call about spaces and segments.
    pub(crate) fn call(&mut self, memory: &Memory) -> Hypercall {
        let space = self.space(memory);
        let segments = memory.segments();
        // The system segment is not shared: it contains the program.
        let segment = if segments.len() > 1 && !self.one_in(8) { segments[1 + self.below(segments.len() - 1)] } else { 9 };
        let (many_spaces, many_segments) = (memory.spaces().len() > 4, segments.len() > 4);
        match self.below(16) {
            0..4 if !many_spaces => Hypercall::SpaceClone { space },
            4 if !many_spaces => Hypercall::SpaceCreate {},
            0..4 => Hypercall::SpaceDestroy { space },
            4..8 => Hypercall::SpaceSwitch { space },
            8 => Hypercall::SpaceDestroy { space },
            9 | 10 if !many_segments => Hypercall::SegmentCreate {},
            11..14 => {
                let slot = if self.one_in(20) { SYSTEM_SLOT } else { 1 + self.below(SLOTS - 1) } as u64;
                Hypercall::SegmentMount { segment, space, address: slot * SLOT_SIZE + if self.one_in(20) { PAGE_SIZE } else { 0 } }
            }
            9..11 | 14 => Hypercall::SegmentDestroy { segment },
            _ => Hypercall::Inspect { space, address: self.address(memory) & !(PAGE_SIZE - 1) },
        }
    }
}
