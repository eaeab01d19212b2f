// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images of children: a parent reads those of clones of a halted child, and builds children from them.

use crate::taking::{BUFFER, FIRST, PAGES};
use crate::watching::{Family, exit};
use pando_abi::cell_image::{END, ExtentContent, ImageExtent, ImageRecord, LAYOUT_WORDS, LayoutMount, RECORD_BYTES, TreeOrigin, TreePlace};
use pando_abi::holding::{ChildState, stop};
use pando_abi::watch::{HaltReason, mask, resume, state};
use pando_abi::{BlockAddress, BlockNumber, DiskIndex, HoldingName, Hypercall, PAGE_SIZE, Permissions, Refusal, Registers};
use pando_machine::PageCount;
use pando_testing::asm::Asm;
use pando_testing::asm::Condition::Zero;
use pando_testing::asm::Register::{R10, R14, Rax, Rbx, Rdi, Rdx, Rsi};
use pando_testing::lab::Lab;

/// Bytes of a list.
const ROOM: u64 = 16 << 10;

/// Writes 1, 2, 3 and 4 to pages, and waits until R14 is set. Exits with the sum.
pub fn sum_after_waiting(asm: &mut Asm) {
    asm.mov_imm(Rbx, FIRST);
    for page in 0..PAGES {
        asm.store_imm(Rbx, (page * PAGE_SIZE) as i32, page as i32 + 1);
    }
    asm.mov_imm(R14, 0);
    let again = asm.here();
    asm.call_kernel(Hypercall::Idle { deadline: u64::MAX }).cmp_imm(R14, 0).jump_if(Zero, again);
    asm.mov_imm(Rbx, FIRST).mov_imm(R14, 0);
    for page in 0..PAGES {
        asm.load(Rax, Rbx, (page * PAGE_SIZE) as i32).add(R14, Rax);
    }
    asm.mov(Rdi, R14).mov_imm(Rax, 0).mov_imm(Rsi, 0).mov_imm(Rdx, 0).mov_imm(R10, 0).hypercall();
}

/// An image of a child.
#[derive(Clone, Debug, Default)]
pub struct ChildImage {
    pub state: Vec<u8>,
    pub layout: Vec<u8>,
    pub records: Vec<ImageRecord>,
    /// The content of all pages, in the order of the records.
    pub pages: Vec<Vec<u8>>,
}

impl ChildImage {
    pub fn count(&self, is: impl Fn(&ExtentContent) -> bool) -> u64 {
        let extents = self.records.iter().filter_map(|record| if let ImageRecord::Extent(extent) = record { Some(extent) } else { None });
        extents.filter(|extent| is(&extent.content)).map(|extent| extent.count).sum()
    }
}

impl Family {
    pub fn halt(&mut self) {
        let cell = self.name.bits();
        assert_eq!(self.call(Hypercall::CellStop { cell, how: stop::HALT }), Ok(0));
        assert_eq!((self.state(), self.reason()), (Some(ChildState::Halted), Some(HaltReason::Requested)));
    }

    pub fn clone_of(&mut self, source: HoldingName) -> Result<HoldingName, Refusal> {
        let clone = self.call(Hypercall::CellClone { source: source.bits(), quota: 300, cells: 0 })?;
        Ok(HoldingName::from_bits(clone).expect("a name"))
    }

    pub fn read_state(&mut self, cell: HoldingName, kind: u64) -> Result<Vec<u8>, Refusal> {
        let count = self.call(Hypercall::StateRead { cell: cell.bits(), kind, address: BUFFER, bytes: ROOM })?;
        Ok(self.bytes(count))
    }

    fn bytes(&self, count: u64) -> Vec<u8> {
        let mut bytes = vec![0; count as usize];
        self.lab.kernel.read(self.parent, BUFFER, &mut bytes).expect("it waits");
        bytes
    }

    pub fn write_state(&mut self, cell: HoldingName, kind: u64, bytes: &[u8]) -> Result<u64, Refusal> {
        self.lab.kernel.write(self.parent, BUFFER, bytes).expect("it waits");
        self.call(Hypercall::StateWrite { cell: cell.bits(), kind, address: BUFFER, bytes: bytes.len() as u64 })
    }

    pub fn write_records(&mut self, cell: HoldingName, records: &[ImageRecord]) -> Result<u64, Refusal> {
        let bytes: Vec<u8> = records.iter().flat_map(|record| record.to_words()).flat_map(u64::to_le_bytes).collect();
        self.write_state(cell, state::EXTENTS, &bytes)
    }

    /// Lists the memory of a clone, a few records at a time.
    pub fn list(&mut self, cell: HoldingName, base: Option<HoldingName>, room: u64) -> Result<Vec<ImageRecord>, Refusal> {
        let (mut position, mut records) = (0, Vec::new());
        while position != END {
            let base = base.map_or(0, HoldingName::bits);
            let count = self.call(Hypercall::ImageList { cell: cell.bits(), base, position, address: BUFFER, bytes: room })?;
            let words: Vec<u64> = self.bytes(count).as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect();
            assert!(words[0] != position, "it makes progress");
            position = words[0];
            records.extend(words[1..].as_chunks::<4>().0.iter().map(|words| ImageRecord::from_words(*words).expect("a record")));
        }
        Ok(records)
    }

    pub fn image(&mut self, cell: HoldingName) -> ChildImage {
        let (state, layout) = (self.read_state(cell, state::IMAGE).expect("room"), self.read_state(cell, state::LAYOUT).expect("room"));
        let records = self.list(cell, None, ROOM).expect("it was not started");
        let (mut pages, mut place) = (Vec::new(), None);
        for record in &records {
            match record {
                ImageRecord::Tree { place: of, .. } => place = Some(*of),
                ImageRecord::Extent(ImageExtent { first, count, content: ExtentContent::Pages, .. }) => {
                    let (space, start) = mounted(cell, &layout, place.expect("a tree"));
                    for page in *first..first + count {
                        let read = Hypercall::PagesRead { space, address: start + page * PAGE_SIZE, pages: 1, buffer: BUFFER };
                        assert_eq!(self.call(read), Ok(0));
                        pages.push(self.bytes(PAGE_SIZE));
                    }
                }
                ImageRecord::Extent(_) => {}
            }
        }
        ChildImage { state, layout, records, pages }
    }

    /// Builds a clone of the root from an image: pages get the numbers of their places in it, but those of the system segment are written.
    pub fn build(&mut self, cell: HoldingName, image: &ChildImage) -> Result<(), Refusal> {
        self.write_state(cell, state::LAYOUT, &image.layout)?;
        let (mut built, mut written, mut place, mut number) = (Vec::new(), Vec::new(), TreePlace::Segment(0), 0);
        for record in &image.records {
            built.push(match record {
                ImageRecord::Tree { place: of, .. } => {
                    place = *of;
                    *record
                }
                ImageRecord::Extent(extent) if extent.content == ExtentContent::Pages => {
                    number += extent.count as u32;
                    let first = number - extent.count as u32;
                    if place == TreePlace::Segment(0) {
                        written.push((first, *extent));
                        ImageRecord::Extent(ImageExtent { content: ExtentContent::Lazy { large: false }, ..*extent })
                    } else {
                        ImageRecord::Extent(ImageExtent { content: ExtentContent::Taken(first), ..*extent })
                    }
                }
                record => *record,
            });
        }
        self.write_records(cell, &built)?;
        for (first, extent) in written {
            let (space, start) = mounted(cell, &image.layout, TreePlace::Segment(0));
            for further in 0..extent.count {
                self.lab.kernel.write(self.parent, BUFFER, &image.pages[first as usize + further as usize]).expect("it waits");
                let address = start + (extent.first + further) * PAGE_SIZE;
                self.call(Hypercall::PagesWrite { space, address, pages: 1, buffer: BUFFER })?;
            }
        }
        self.write_state(cell, state::IMAGE, &image.state).map(drop)
    }

    /// Lets a child that waits go on, gives it the pages of an image that it needs, and returns how it has ended.
    pub fn finish(&mut self, image: &ChildImage) -> Option<ChildState> {
        self.halt();
        let mut registers = self.registers();
        registers.r14 = 1;
        assert_eq!(self.write(state::PROGRAM, &Registers::to_words(&registers)), Ok(0));
        let state = self.resume(resume::CONTINUE);
        self.give_all(state, image)
    }

    /// Starts a child that was built, and gives it the pages of an image that it needs until it waits.
    pub fn start_built(&mut self, image: &ChildImage) -> Option<ChildState> {
        let state = self.run();
        self.give_all(state, image)
    }

    fn give_all(&mut self, mut state: Option<ChildState>, image: &ChildImage) -> Option<ChildState> {
        while state == Some(ChildState::Halted) {
            let Some(HaltReason::Taken { space, address, number }) = self.reason() else { panic!("it waits for a page") };
            self.lab.kernel.write(self.parent, BUFFER, &image.pages[number as usize]).expect("it waits");
            let give = Hypercall::Give { space: self.name.space(space), address, pages: 1, buffer: BUFFER, swap: number.into() };
            assert_eq!(self.call(give), Ok(1));
            state = self.resume(resume::CONTINUE);
        }
        state
    }

    /// Reads and writes the first pages of a child's data.
    fn copy(&mut self, child: HoldingName) -> [Result<u64, Refusal>; 2] {
        let (space, address, pages, buffer) = (child.current_space(), FIRST, PAGES, BUFFER);
        [Hypercall::PagesRead { space, address, pages, buffer }, Hypercall::PagesWrite { space, address, pages, buffer }]
            .map(|copy| self.call(copy))
    }

    /// Makes a child the one that the family is about.
    pub fn choose(&mut self, child: HoldingName) -> HoldingName {
        std::mem::replace(&mut self.name, child)
    }
}

/// The space and the address at which a tree is mounted.
fn mounted(cell: HoldingName, layout: &[u8], place: TreePlace) -> (u64, u64) {
    let words = layout.as_chunks::<4>().0.iter().skip(LAYOUT_WORDS).map(|word| u32::from_le_bytes(*word));
    let mounts = words.map(|word| LayoutMount::from_bits(word).expect("a mount"));
    let is_it = |mount: &LayoutMount| match place {
        TreePlace::Segment(index) => mount.segment == Some(index),
        TreePlace::Private { .. } => mount.private() == Some(place),
    };
    let mount = mounts.into_iter().find(is_it).expect("it is mounted");
    (cell.space(mount.space), mount.address())
}

/// A family whose child waits.
pub fn waiting(lab: Lab) -> Family {
    let mut family = Family::new(lab, 0, sum_after_waiting);
    assert_eq!(family.run(), Some(ChildState::Started { wants_input: false }));
    family
}

/// A snapshot of the child of a family.
pub fn snapshot(family: &mut Family) -> HoldingName {
    family.halt();
    let snapshot = family.clone_of(family.name).expect("it is halted");
    assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Started { wants_input: false }));
    snapshot
}

#[test]
fn a_child_is_built_from_an_image_and_goes_on() {
    for lab in Lab::both() {
        let mut family = waiting(lab);
        let clone = snapshot(&mut family);
        let image = family.image(clone);
        assert!(image.pages.len() >= PAGES as usize);
        assert_eq!(family.call(Hypercall::Drop { holding: clone.bits() }), Ok(0));
        // Later changes of the original are not in it.
        let space = family.name.current_space();
        family.lab.kernel.write(family.parent, BUFFER, &90_u64.to_le_bytes()).expect("it waits");
        assert_eq!(family.call(Hypercall::Write { space, address: FIRST, source: BUFFER, bytes: 8 }), Ok(0));
        let built = family.clone_of(HoldingName::ROOT).expect("room");
        assert_eq!(family.build(built, &image), Ok(()));
        let original = family.choose(built);
        assert_eq!(family.start_built(&image), Some(ChildState::Started { wants_input: false }), "it waits as the original did");
        assert_eq!(family.finish(&image), Some(ChildState::Exited(1 + 2 + 3 + 4)));
        family.choose(original);
        assert_eq!(family.finish(&image), Some(ChildState::Exited(90 + 2 + 3 + 4)));
        family.close();
    }
}

#[test]
fn a_list_since_a_base_has_only_what_has_changed() {
    for lab in Lab::both() {
        let mut family = waiting(lab);
        let first = snapshot(&mut family);
        let second = snapshot(&mut family);
        let is_page = |record: &ImageRecord| matches!(record, ImageRecord::Extent(extent) if extent.content == ExtentContent::Pages);
        let whole = family.list(second, None, ROOM).expect("it was not started");
        let unchanged = family.list(second, Some(first), ROOM).expect("they were not started");
        assert!(whole.iter().any(is_page));
        assert!(unchanged.iter().all(|record| matches!(record, ImageRecord::Tree { origin: TreeOrigin::Base(_), .. })), "{unchanged:?}");
        let (space, address) = (family.name.current_space(), FIRST + 2 * PAGE_SIZE);
        assert_eq!(family.call(Hypercall::Write { space, address, source: BUFFER, bytes: 8 }), Ok(0));
        assert_eq!(family.call(Hypercall::Drop { holding: second.bits() }), Ok(0));
        let third = snapshot(&mut family);
        // In the smallest pieces, and in one.
        for room in [8 + RECORD_BYTES as u64, ROOM] {
            let changed = family.list(third, Some(first), room).expect("they were not started");
            let extents: Vec<_> = changed.iter().filter(|record| is_page(record)).collect();
            let ImageRecord::Extent(extent) = extents[0] else { panic!("it is an extent") };
            assert_eq!((extents.len(), extent.first, extent.count), (1, address / PAGE_SIZE, 1), "{room}");
        }
        family.close();
    }
}

/// The rule: a halted child is cloned only by its parent, and only if nothing but the parent has halted it. An event that has halted it is
/// not over, so a clone would lose it or have it twice.
#[test]
fn a_child_that_an_event_has_halted_is_not_cloned() {
    for lab in Lab::both() {
        let mut family = Family::new(lab, mask::EXCEPTIONS, |asm| _ = exit(asm.int3().nop(), 7));
        assert_eq!(family.run(), Some(ChildState::Halted));
        assert_eq!(family.clone_of(family.name), Err(Refusal::WrongState));
        assert_eq!(family.resume(resume::CONTINUE), Some(ChildState::Exited(7)));
        family.close();
    }
    for lab in Lab::both() {
        let mut family = waiting(lab);
        family.halt();
        assert!(family.lab.kernel.clone_cell(family.child, PageCount(300)).is_err(), "the operator is not its parent");
        family.close();
    }
}

/// The rule: only what never changes is listed, and it is built only before it runs.
#[test]
fn images_are_those_of_children_that_were_not_started() {
    for lab in Lab::both() {
        let mut family = waiting(lab);
        let clone = snapshot(&mut family);
        let image = family.image(clone);
        for is_halted in [false, true] {
            if is_halted {
                family.halt();
            }
            let child = family.name;
            assert_eq!(family.read_state(child, state::IMAGE), Err(Refusal::WrongState));
            assert_eq!(family.read_state(child, state::LAYOUT), Err(Refusal::WrongState));
            assert_eq!(family.list(child, None, ROOM), Err(Refusal::WrongState));
            assert_eq!(family.list(clone, Some(child), ROOM), Err(Refusal::WrongState));
            assert_eq!(family.write_state(child, state::IMAGE, &image.state), Err(Refusal::WrongState));
            assert_eq!(family.write_state(child, state::LAYOUT, &image.layout), Err(Refusal::WrongState));
            assert_eq!(family.write_records(child, &image.records), Err(Refusal::WrongState));
            assert_eq!(family.copy(child), [Err(Refusal::WrongState); 2]);
        }
        assert_eq!(family.read_state(clone, state::EXTENTS), Err(Refusal::BadArgument));
        // Stale names, and other holdings.
        let other = snapshot_of_halted(&mut family);
        assert_eq!(family.call(Hypercall::Drop { holding: other.bits() }), Ok(0));
        for stale in [other, HoldingName::new(9, 1), HoldingName::ROOT] {
            assert_eq!(family.list(stale, None, ROOM), Err(Refusal::NoSuchHolding));
            assert_eq!(family.list(clone, Some(stale), ROOM), Err(Refusal::NoSuchHolding));
            assert_eq!(family.read_state(stale, state::IMAGE), Err(Refusal::NoSuchHolding));
            assert_eq!(family.write_state(stale, state::LAYOUT, &image.layout), Err(Refusal::NoSuchHolding));
            assert_eq!(family.write_records(stale, &image.records), Err(Refusal::NoSuchHolding));
            assert_eq!(family.copy(stale), [Err(Refusal::NoSuchHolding); 2]);
        }
        family.close();
    }
}

fn snapshot_of_halted(family: &mut Family) -> HoldingName {
    family.clone_of(family.name).expect("it is halted")
}

/// The rules: an image names only disks that are attached, and only memory that cells own; nothing of what the kernel keeps; no page of
/// the libOS that is elsewhere; no number beyond the last.
#[test]
fn extents_that_no_cell_has_are_refused() {
    for lab in Lab::both() {
        let mut family = waiting(lab);
        let clone = snapshot(&mut family);
        let image = family.image(clone);
        let built = family.clone_of(HoldingName::ROOT).expect("room");
        assert_eq!(family.write_state(built, state::LAYOUT, &image.layout), Ok(0));
        let private = TreePlace::Private { space: 0, slot: 0 };
        let block = BlockAddress { disk: DiskIndex(0), block: BlockNumber(0) };
        let lazy = ExtentContent::Lazy { large: false };
        for (place, first, count, content, refusal) in [
            (private, 100, 1, ExtentContent::Blocks(block), Refusal::NoSuchDisk),
            (private, 100, 1, ExtentContent::Pages, Refusal::BadArgument),
            (private, 100, 0, lazy, Refusal::BadAddress),
            (private, 0, 1, lazy, Refusal::BadAddress),
            (private, 15, 2, lazy, Refusal::BadAddress),
            (private, (1 << 27) - 1, 2, lazy, Refusal::BadAddress),
            (private, 1, u64::MAX, lazy, Refusal::BadAddress),
            (private, 100, 2, ExtentContent::Taken(u32::MAX), Refusal::BadArgument),
            (TreePlace::Segment(0), 0, 1, lazy, Refusal::BadAddress),
            (TreePlace::Segment(0), 3, 1, ExtentContent::Empty, Refusal::BadAddress),
            (TreePlace::Segment(0), 100, 1, ExtentContent::Taken(0), Refusal::BadAddress),
            (TreePlace::Segment(1), 100, 1, lazy, Refusal::BadAddress),
            (TreePlace::Private { space: 1, slot: 0 }, 100, 1, lazy, Refusal::BadAddress),
            (TreePlace::Private { space: 0, slot: 254 }, 100, 1, lazy, Refusal::BadAddress),
        ] {
            let tree = ImageRecord::Tree { place, origin: TreeOrigin::Nothing };
            let extent = ImageRecord::Extent(ImageExtent { first, count, permissions: Permissions::READ_WRITE, content });
            assert_eq!(family.write_records(built, &[tree, extent]), Err(refusal), "{extent:?} at {place:?}");
            assert_eq!(family.write_records(built, &[extent]), Err(Refusal::BadArgument), "of no tree");
        }
        assert_eq!(family.write_state(built, state::EXTENTS, &[7; 40]), Err(Refusal::BadArgument));
        // Spaces and segments.
        let layout = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let mount = |space, slot, segment| LayoutMount { space, slot, segment }.bits();
        let system = mount(0, 254, Some(0));
        for words in [
            vec![],
            vec![0, 1, 1, 0],
            vec![0, 1, 0, 0, system],
            vec![1, 1, 1, 0, system],
            vec![0, 1, 1, 0, mount(0, 254, None)],
            vec![0, 1, 1, 0, system, mount(0, 3, Some(1))],
            vec![0, 1, 1, 0, system, mount(0, 3, None), mount(0, 3, None)],
            vec![0, 1, 1, 0, system, mount(1, 3, None)],
            vec![0, 2, 1, 0, system, mount(1, 3, None)],
            vec![0, 1, 3, 0, system, mount(0, 0, Some(1))],
            vec![0, 1 << 20, 1, 0, system],
            vec![0, 1, 1, 0, system, u32::MAX],
        ] {
            assert_eq!(family.write_state(built, state::LAYOUT, &layout(&words)), Err(Refusal::BadArgument), "{words:?}");
        }
        // The state: cut off, longer, and with an impossible word of it.
        let state = &image.state;
        for bytes in [&state[..state.len() - 1], &[&state[..], &[0]].concat(), &[0xff; 300], &[]] {
            assert_eq!(family.write_state(built, state::IMAGE, bytes), Err(Refusal::BadArgument));
        }
        family.close();
    }
}

/// The rule: the pages of a built child are with its parent, so nobody else clones it. The parent's clone needs the same numbers.
#[test]
fn clones_of_a_built_child_need_the_same_pages() {
    for lab in Lab::both() {
        let mut family = waiting(lab);
        let clone = snapshot(&mut family);
        let image = family.image(clone);
        assert_eq!(family.call(Hypercall::Drop { holding: clone.bits() }), Ok(0));
        let built = family.clone_of(HoldingName::ROOT).expect("room");
        assert_eq!(family.build(built, &image), Ok(()));
        let children = family.lab.kernel.children(family.parent).expect("it lives");
        let id = children.iter().find(|(name, _)| *name == built).expect("it is held").1;
        assert!(family.lab.kernel.clone_cell(id, PageCount(300)).is_err(), "the operator has no page of it");
        let again = family.clone_of(built).expect("its parent has the pages");
        let taken = family.list(again, None, ROOM).expect("it was not started");
        let of = |records: &[ImageRecord], is: fn(&ExtentContent) -> bool| {
            ChildImage { records: records.into(), ..ChildImage::default() }.count(is)
        };
        assert!(of(&taken, |content| matches!(content, ExtentContent::Taken(_))) >= PAGES);
        let original = family.choose(again);
        assert_eq!(family.start_built(&image), Some(ChildState::Started { wants_input: false }));
        assert_eq!(family.finish(&image), Some(ChildState::Exited(10)));
        family.choose(original);
        family.close();
    }
}

/// The rules: a copy of pages is that of whole ones, within what both own, and not of those that are taken. A page that is copied to a
/// child is its own from then on.
#[test]
fn pages_are_copied_only_between_memory_of_both() {
    for lab in Lab::both() {
        let mut family = waiting(lab);
        let clone = snapshot(&mut family);
        let space = clone.current_space();
        for (address, pages, buffer, refusal) in [
            (FIRST + 8, 1, BUFFER, Refusal::BadAddress),
            (FIRST, 1, BUFFER + 8, Refusal::BadAddress),
            (FIRST, 0, BUFFER, Refusal::BadArgument),
            (FIRST, 129, BUFFER, Refusal::BadArgument),
            (0x5000_0000, 1, BUFFER, Refusal::BadAddress),
            (FIRST, 1, 0x5000_0000, Refusal::BadAddress),
            (0, 1, BUFFER, Refusal::BadAddress),
            (1 << 47, 1, BUFFER, Refusal::BadAddress),
        ] {
            assert_eq!(family.call(Hypercall::PagesRead { space, address, pages, buffer }), Err(refusal), "{address:#x}");
            assert_eq!(family.call(Hypercall::PagesWrite { space, address, pages, buffer }), Err(refusal), "{address:#x}");
        }
        let own = Hypercall::PagesRead { space: 0, address: FIRST, pages: 1, buffer: BUFFER };
        assert_eq!(family.call(own), Err(Refusal::NoSuchHolding), "its own space");
        family.lab.kernel.write(family.parent, BUFFER, &77_u64.to_le_bytes()).expect("it waits");
        assert_eq!(family.call(Hypercall::PagesWrite { space, address: FIRST, pages: 1, buffer: BUFFER }), Ok(0));
        // Not in the child that it is a clone of.
        let image = family.image(clone);
        assert_eq!(family.finish(&image), Some(ChildState::Exited(10)));
        family.choose(clone);
        assert_eq!(family.start_built(&image), Some(ChildState::Started { wants_input: false }));
        assert_eq!(family.finish(&image), Some(ChildState::Exited(77 + 2 + 3 + 4)));
        let built = family.clone_of(HoldingName::ROOT).expect("room");
        assert_eq!(family.build(built, &image), Ok(()));
        assert_eq!(family.copy(built), [Err(Refusal::Taken); 2]);
        family.close();
    }
}

/// The rule: the parent that builds a child pays for it. A child whose quota is too small is refused, and costs nothing when it is dropped.
#[test]
fn building_beyond_a_quota_is_refused() {
    for lab in Lab::both() {
        let mut family = waiting(lab);
        let clone = snapshot(&mut family);
        let image = family.image(clone);
        let built = family.clone_of(HoldingName::ROOT).expect("room");
        assert_eq!(family.write_state(built, state::LAYOUT, &image.layout), Ok(0));
        // A table for each of these.
        let extents: Vec<ImageRecord> = (1..400)
            .map(|span| {
                let content = ExtentContent::Taken(span);
                ImageRecord::Extent(ImageExtent { first: u64::from(span) * 512, count: 1, permissions: Permissions::READ, content })
            })
            .collect();
        let tree = ImageRecord::Tree { place: TreePlace::Private { space: 0, slot: 0 }, origin: TreeOrigin::Nothing };
        let records = [&[tree], &extents[..]].concat();
        assert_eq!(family.write_records(built, &records), Err(Refusal::Quota));
        assert_eq!(family.call(Hypercall::Drop { holding: built.bits() }), Ok(0));
        let built = family.clone_of(HoldingName::ROOT).expect("room");
        assert_eq!(family.build(built, &image), Ok(()));
        assert_eq!(family.call(Hypercall::CellEnd { cell: clone.bits() }), Ok(0));
        assert_eq!(family.list(clone, None, ROOM), Err(Refusal::NoSuchHolding), "it has ended");
        family.close();
    }
}
