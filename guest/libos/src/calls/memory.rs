// SPDX-License-Identifier: MIT OR Apache-2.0
//! System calls on memory: `mmap` and its family, `brk`, `madvise`.

use core::ops::Range;

use pando_abi::{BlockAddress, BlockNumber, PAGE_SIZE, Permissions};
use pando_rt::memory::{self, PageRange};
use pando_rt::user::UserRange;

use super::resident;
use crate::errno::Errno;
use crate::files::file_operations::Mappable;
use crate::files::sharing::Sharing;
use crate::files::tree::content::{Content, SIZE_MAX};
use crate::files::tree::node::Node;
use crate::memory::layout::is_shared;
use crate::memory::regions::{Backing, Blocks, NodePages, SharedObject};
use crate::memory::remap::RemapTarget;
use crate::memory::{COPIED_MAX, LOWEST, pages};
use crate::shared::shared_part;
use crate::system::System;
use crate::uapi::{
    MADV_COLD, MADV_DODUMP, MADV_DOFORK, MADV_DONTDUMP, MADV_DONTFORK, MADV_DONTNEED, MADV_DONTNEED_LOCKED, MADV_FREE, MADV_HUGEPAGE,
    MADV_KEEPONFORK, MADV_MERGEABLE, MADV_NOHUGEPAGE, MADV_NORMAL, MADV_PAGEOUT, MADV_POPULATE_READ, MADV_POPULATE_WRITE, MADV_RANDOM,
    MADV_SEQUENTIAL, MADV_UNMERGEABLE, MADV_WILLNEED, MADV_WIPEONFORK, MAP_32BIT, MAP_ABOVE4G, MAP_ANONYMOUS, MAP_DENYWRITE,
    MAP_EXECUTABLE, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_GROWSDOWN, MAP_HUGE_1GB, MAP_HUGE_2MB, MAP_HUGETLB, MAP_LOCKED, MAP_NONBLOCK,
    MAP_NORESERVE, MAP_POPULATE, MAP_PRIVATE, MAP_SHARED, MAP_SHARED_VALIDATE, MAP_STACK, MAP_TYPE, MAP_UNINITIALIZED, MREMAP_DONTUNMAP,
    MREMAP_FIXED, MREMAP_MAYMOVE, MS_ASYNC, MS_INVALIDATE, MS_SYNC, PROT_GROWSDOWN,
};

/// Flags that every kind of mapping takes; `MAP_SHARED_VALIDATE` refuses others.
const LEGACY_MAP_MASK: u64 = MAP_SHARED
    | MAP_PRIVATE
    | MAP_FIXED
    | MAP_ANONYMOUS
    | MAP_32BIT
    | MAP_ABOVE4G
    | MAP_GROWSDOWN
    | MAP_DENYWRITE
    | MAP_EXECUTABLE
    | MAP_LOCKED
    | MAP_NORESERVE
    | MAP_POPULATE
    | MAP_NONBLOCK
    | MAP_STACK
    | MAP_HUGETLB
    | MAP_UNINITIALIZED
    | MAP_HUGE_2MB
    | MAP_HUGE_1GB;

/// Advice that has no effect here: access patterns, merging, huge pages, dumps, forks.
const HARMLESS_ADVICE: [u64; 12] = [
    MADV_NORMAL,
    MADV_RANDOM,
    MADV_SEQUENTIAL,
    MADV_WILLNEED,
    MADV_MERGEABLE,
    MADV_UNMERGEABLE,
    MADV_HUGEPAGE,
    MADV_NOHUGEPAGE,
    MADV_DONTDUMP,
    MADV_DODUMP,
    MADV_COLD,
    MADV_PAGEOUT,
];

const MREMAP_FLAGS: u64 = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;

/// Converts `PROT_` bits, which are the abi's.
fn permissions(bits: u64) -> Result<Permissions, Errno> {
    Permissions::from_bits(bits).ok_or(Errno::EINVAL)
}

/// `mmap(address, length, protection, flags, fd, offset)`.
pub fn mmap(system: &mut System, arguments: [u64; 6]) -> Result<u64, Errno> {
    let [_, length, _, flags, ..] = arguments;
    if flags & MAP_LOCKED == 0 {
        return map(system, arguments);
    }
    resident::check_locked_mapping(system, length)?;
    let start = map(system, arguments)?;
    system.memory.set_locked(pages(start, length)?, true);
    Ok(start)
}

fn map(system: &mut System, [address, length, protection, flags, fd, offset]: [u64; 6]) -> Result<u64, Errno> {
    if !offset.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    // The file is checked first, as on Linux.
    if flags & MAP_ANONYMOUS == 0 {
        system.files.file(fd)?;
    }
    check_kind(flags)?;
    let permissions = permissions(protection & 7)?;
    let bytes = whole_pages(length, flags)?;
    let is_private = flags & MAP_TYPE == MAP_PRIVATE;
    let (file, sharing) = if flags & MAP_ANONYMOUS == 0 {
        if offset.checked_add(bytes).is_none_or(|end| end > SIZE_MAX) {
            return Err(Errno::EOVERFLOW);
        }
        map_file(system, fd, offset..offset.saturating_add(length), is_private, permissions)?
    } else {
        (Mappable::Zero, Sharing::Private)
    };
    // Writable memory that can hardly ever fit is refused at once.
    let commits = permissions.writable() && flags & MAP_NORESERVE == 0 && (is_private || file == Mappable::Zero);
    if commits && bytes / PAGE_SIZE > memory::quota_pages() {
        return Err(Errno::ENOMEM);
    }
    let is_data = is_private && permissions.writable();
    let replaced = if flags & MAP_FIXED != 0 { pages(address, bytes).ok() } else { None };
    check_limits(system, bytes, is_data, replaced)?;
    if !is_private
        && flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) == 0
        && let Some(range) = shared_range(system, file, bytes, offset)
    {
        return map_in_segment(system, range, permissions, file, sharing, (fd, offset));
    }
    let range = unmapped_area(system, address, bytes, flags)?;
    system.make_way(range)?;
    match file {
        Mappable::Zero => system.memory.map(range, permissions, zero_memory(flags, range))?,
        Mappable::Blocks { first, end } => {
            // Blocks have 32-bit numbers; offsets beyond them are beyond the file's end, too.
            let block = u32::try_from(offset / PAGE_SIZE).ok().and_then(|offset| first.block.0.checked_add(offset)).unwrap_or(end.0);
            let file_start = first.block;
            let first = BlockAddress { block: BlockNumber(block.min(end.0)), ..first };
            let blocks = Blocks::new(range.start(), first, end, sharing);
            let copied = is_private && permissions.writable() && bytes <= COPIED_MAX && blocks.end() >= range.end();
            // Blocks that cannot be read fault at their first access.
            if flags & MAP_DENYWRITE != 0 && !permissions.writable() {
                system.memory.map_program(range, permissions, blocks)?;
            } else if is_private && permissions == Permissions::READ {
                system.memory.map_read_only(range, permissions, blocks)?;
                if is_linker_cache(system, fd)? {
                    system.memory.note_linker_cache(range, blocks);
                }
            } else if copied && system.memory.claim_data(range, permissions, blocks)? {
                // An earlier run has left its data as the file has them.
            } else if !copied || !map_copied(system, range, permissions, blocks, fd, offset)? {
                system.memory.map(range, permissions, Backing::Blocks(blocks))?;
            }
            record_file(system, Backing::Blocks(blocks), file_start, fd)?;
        }
        Mappable::Bytes { size } => map_copy(system, range, permissions, fd, offset..size)?,
        Mappable::Node { node } => {
            let pages = NodePages::new(node, sharing, range.start(), offset);
            system.map_node(range, permissions, pages)?;
            record_file(system, Backing::Node(pages), BlockNumber(0), fd)?;
        }
    }
    system.claim(range);
    Ok(range.start())
}

/// The object that shows a part of a file in memory, and how the mapping shares its pages.
fn map_file(
    system: &mut System,
    fd: u64,
    part: Range<u64>,
    is_private: bool,
    permissions: Permissions,
) -> Result<(Mappable, Sharing), Errno> {
    let writable = system.files.file(fd)?.writable();
    let sharing = match (is_private, writable) {
        (true, _) => Sharing::Private,
        (false, false) => Sharing::Reads,
        (false, true) => Sharing::Writes,
    };
    system.before_read(fd, Some(part.start), part.end - part.start);
    let file = system.files.mmap(fd, sharing, permissions.writable())?;
    // `mprotect` makes no mapping of a sealed file writable.
    let is_sealed = |node| system.files.tree.node(node).and_then(Node::content).is_ok_and(Content::is_read_only);
    let is_sealed = matches!(file, Mappable::Node { node } if is_sealed(node));
    Ok((file, if is_sealed && sharing == Sharing::Writes { Sharing::Reads } else { sharing }))
}

/// Checks that the limits permit so much more memory, in place of the mappings in a range.
fn check_limits(system: &System, bytes: u64, is_data: bool, replaced: Option<PageRange>) -> Result<(), Errno> {
    let (limits, memory) = (&system.process.limits, &system.memory);
    let replaced = || replaced.map_or(0, |range| memory.pieces(range).iter().map(|(part, _)| part.bytes()).sum());
    let exceeds = |limit: u64, has: u64| has.saturating_add(bytes).saturating_sub(replaced()) > limit;
    let is_too_much = limits.address_space().is_some_and(|limit| exceeds(limit, memory.bytes()))
        || is_data && limits.data().is_some_and(|limit| exceeds(limit, memory.data_bytes()));
    if is_too_much { Err(Errno::ENOMEM) } else { Ok(()) }
}

/// The backing of zero memory.
fn zero_memory(flags: u64, range: PageRange) -> Backing {
    match flags & MAP_TYPE {
        MAP_PRIVATE if flags & MAP_GROWSDOWN != 0 => Backing::Downward,
        MAP_PRIVATE if flags & MAP_STACK != 0 => Backing::Stack,
        MAP_PRIVATE => Backing::Anonymous,
        _ => Backing::Shared(SharedObject::new(range)),
    }
}

/// Bytes of the pages of a new mapping.
fn whole_pages(length: u64, flags: u64) -> Result<u64, Errno> {
    if length == 0 {
        return Err(Errno::EINVAL);
    }
    // No huge pages are reserved, as on most machines.
    if flags & (MAP_ANONYMOUS | MAP_HUGETLB) == MAP_ANONYMOUS | MAP_HUGETLB {
        return Err(Errno::ENOMEM);
    }
    length.checked_next_multiple_of(PAGE_SIZE).ok_or(Errno::ENOMEM)
}

/// Makes a shared mapping in the segment that all processes share.
fn map_in_segment(
    system: &mut System,
    range: PageRange,
    permissions: Permissions,
    file: Mappable,
    sharing: Sharing,
    (fd, offset): (u64, u64),
) -> Result<u64, Errno> {
    match file {
        Mappable::Node { node } => {
            let pages = NodePages::new(node, sharing, range.start(), offset);
            system.map_shared_node(range, permissions, pages)?;
            record_file(system, Backing::Node(pages), BlockNumber(0), fd)?;
        }
        _ => system.map_shared(range, permissions)?,
    }
    Ok(range.start())
}

/// Whether a descriptor is the dynamic linker's of its cache of library paths, which all may read.
fn is_linker_cache(system: &System, fd: u64) -> Result<bool, Errno> {
    const DIRECTORY: &[u8] = b"etc";
    const NAME: &[u8] = b"ld.so.cache";
    const READ_BY_ALL: u32 = 0o4;
    let start = &system.memory.linker_start;
    if start.has_cache() || !start.contains(system.thread.call.instruction) {
        return Ok(false);
    }
    let file = system.files.raw_file(fd)?;
    let Some(name) = file.name.as_ref().filter(|name| *name.name == *NAME) else { return Ok(false) };
    let tree = &system.files.tree;
    let directory = tree.lookup(system.files.current.root, DIRECTORY).map(|directory| tree.real_inode(directory));
    Ok(directory == Ok(tree.real_inode(name.directory)) && system.files.status_of(file)?.mode & READ_BY_ALL != 0)
}

/// The range of a mapping in the segment that all processes share; `None`: it cannot lie there.
fn shared_range(system: &System, file: Mappable, bytes: u64, offset: u64) -> Option<PageRange> {
    match file {
        Mappable::Zero => system.find_shared(bytes, None).ok(),
        Mappable::Node { node } => system.find_shared(bytes, Some((node, offset))).ok(),
        _ => None,
    }
}

/// Checks that the flags name exactly one type of mapping.
fn check_kind(flags: u64) -> Result<(), Errno> {
    match flags & MAP_TYPE {
        MAP_SHARED if flags & MAP_GROWSDOWN != 0 && flags & MAP_ANONYMOUS != 0 => Err(Errno::EINVAL),
        MAP_SHARED | MAP_PRIVATE => Ok(()),
        MAP_SHARED_VALIDATE if flags & MAP_ANONYMOUS != 0 => Err(Errno::EINVAL),
        MAP_SHARED_VALIDATE if flags & !LEGACY_MAP_MASK != 0 => Err(Errno::EOPNOTSUPP),
        MAP_SHARED_VALIDATE => Ok(()),
        _ => Err(Errno::EINVAL),
    }
}

/// Addresses of a new mapping.
fn unmapped_area(system: &System, address: u64, bytes: u64, flags: u64) -> Result<PageRange, Errno> {
    let hint = address / PAGE_SIZE * PAGE_SIZE;
    if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
        let range = if address == hint { pages(hint, bytes).map_err(|_| Errno::ENOMEM)? } else { return Err(Errno::EINVAL) };
        if flags & MAP_FIXED == 0 && !system.memory.is_free(range) {
            return Err(Errno::EEXIST);
        }
        return Ok(range);
    }
    let may_be = |range: &PageRange| range.start() >= LOWEST && shared_part(*range).is_none() && system.memory.is_free(*range);
    let hinted = pages(hint, bytes).ok().filter(may_be);
    hinted.map_or_else(|| system.memory.find(bytes, PAGE_SIZE), Ok)
}

/// Maps a copy of a file's blocks. Returns whether all of them could be read.
fn map_copied(
    system: &mut System,
    range: PageRange,
    permissions: Permissions,
    blocks: Blocks,
    fd: u64,
    offset: u64,
) -> Result<bool, Errno> {
    system.memory.map(range, permissions, Backing::Anonymous)?;
    system.memory.note_copied(range, permissions, blocks);
    let whole = UserRange::new(range.start(), range.bytes())?;
    Ok(system.files.copy_mapped(fd, offset, whole).is_ok_and(|bytes| bytes > whole.length() - PAGE_SIZE))
}

/// Records the file of a new mapping.
fn record_file(system: &mut System, backing: Backing, first: BlockNumber, fd: u64) -> Result<(), Errno> {
    let (inode, name) = (system.files.inode(fd)?, system.files.raw_file(fd)?.name.clone());
    system.memory.record_file_mapping(backing, first, inode, name);
    Ok(())
}

/// Maps a copy of a part of a file, and unreadable pages behind its last one.
fn map_copy(system: &mut System, range: PageRange, permissions: Permissions, fd: u64, part: Range<u64>) -> Result<(), Errno> {
    let bytes = part.end.saturating_sub(part.start).checked_next_multiple_of(PAGE_SIZE).unwrap_or(u64::MAX);
    let end = range.start().saturating_add(bytes).min(range.end());
    if let Some(beyond) = PageRange::new(end, range.end()) {
        system.memory.map(beyond, permissions, Backing::Beyond(None))?;
    }
    if let Some(copy) = PageRange::new(range.start(), end) {
        system.memory.map(copy, Permissions::READ_WRITE, Backing::Copy)?;
        system.files.copy_mapped(fd, part.start, UserRange::new(copy.start(), copy.bytes())?)?;
        if permissions != Permissions::READ_WRITE {
            system.memory.protect(copy, permissions)?;
        }
    }
    Ok(())
}

/// `munmap(address, length)`.
pub fn munmap(system: &mut System, [address, length, ..]: [u64; 6]) -> Result<u64, Errno> {
    let range = pages(address, length)?;
    if system.memory.unmap_linker_cache(system.thread.call.instruction, range)? {
        return Ok(0);
    }
    set_late_protections(system);
    note_peak_before(system, range.bytes());
    system.unmap(range)?;
    Ok(0)
}

/// `mprotect(address, length, protection)`.
pub fn mprotect(system: &mut System, [address, length, protection, ..]: [u64; 6]) -> Result<u64, Errno> {
    let permissions = permissions(protection & !PROT_GROWSDOWN)?;
    if length == 0 && address.is_multiple_of(PAGE_SIZE) {
        return Ok(0);
    }
    let mut range = pages(address, length)?;
    if protection & PROT_GROWSDOWN != 0 {
        range = system.memory.down_the_stack(range).ok_or(Errno::EINVAL)?;
    }
    if !system.memory.protect_late(system.thread.call.instruction, range, permissions)? {
        set_late_protections(system);
        system.protect(range, permissions)?;
    }
    Ok(0)
}

/// Sets protections that wait for the end of a program's start, before another change of memory.
fn set_late_protections(system: &mut System) {
    if system.memory.has_late_protections() {
        system.memory.set_late_protections();
    }
}

/// `brk(address)`.
pub fn brk(system: &mut System, [address, ..]: [u64; 6]) -> Result<u64, Errno> {
    let now = system.memory.set_break(0);
    // Beyond the limit, the break stays where it is.
    if address > now && check_limits(system, address - now, true, None).is_err() {
        return Ok(now);
    }
    // An address below the area only asks for the break.
    if address >= system.memory.break_start() {
        note_peak_before(system, now.saturating_sub(address));
    }
    Ok(system.memory.set_break(address))
}

/// Takes note of what the process has in memory before so much is given up that the difference matters: counting takes longer than giving
/// up a few pages.
fn note_peak_before(system: &mut System, bytes: u64) {
    const MUCH: u64 = 8 << 20;
    if bytes >= MUCH {
        system.note_peak();
    }
}

/// `mremap(address, old_length, new_length, flags, new_address)`.
pub fn mremap(system: &mut System, [address, old_length, new_length, flags, new_address, _]: [u64; 6]) -> Result<u64, Errno> {
    let (fixed, stays) = (flags & MREMAP_FIXED != 0, flags & MREMAP_DONTUNMAP != 0);
    if flags & !MREMAP_FLAGS != 0 || (fixed || stays) && flags & MREMAP_MAYMOVE == 0 || old_length == 0 && stays {
        return Err(Errno::EINVAL);
    }
    if old_length == 0 {
        return mremap_again(system, address, new_length, flags, new_address);
    }
    let (old, bytes) = (pages(address, old_length)?, whole_pages(new_length, 0)?);
    if stays && bytes != old.bytes() {
        return Err(Errno::EINVAL);
    }
    let more = if stays { bytes } else { bytes.saturating_sub(old.bytes()) };
    let is_data = system.memory.pieces(old).first().is_some_and(|(_, region)| region.permissions.writable() && !region.backing.is_shared());
    if more > 0 {
        check_limits(system, more, is_data, None)?;
    }
    let target = match flags {
        _ if fixed => RemapTarget::At(new_address),
        _ if stays => RemapTarget::Elsewhere,
        MREMAP_MAYMOVE => RemapTarget::Anywhere,
        _ => RemapTarget::Stay,
    };
    note_peak_before(system, old.bytes().saturating_sub(bytes));
    system.sync_mappings();
    if let RemapTarget::At(address) = target {
        let to = pages(address, bytes)?;
        if to.start() < old.end() && old.start() < to.end() {
            return Err(Errno::EINVAL);
        }
        system.make_way(to)?;
    }
    if stays {
        return mremap_without_unmap(system, old, target);
    }
    if is_shared(old.start()) {
        return system.remap_shared(old, bytes, target);
    }
    let start = system.memory.remap(old, bytes, target)?;
    if let Some(grown) = PageRange::new(start + old.bytes().min(bytes), start + bytes) {
        system.fill_grown(grown)?;
    }
    system.claim(pages(start, bytes)?);
    Ok(start)
}

/// `mremap` with `MREMAP_DONTUNMAP`: moves the pages, and leaves a fresh mapping behind: zero memory, or that of the file. Shared memory is
/// mapped a second time.
fn mremap_without_unmap(system: &mut System, old: PageRange, target: RemapTarget) -> Result<u64, Errno> {
    let left = system.memory.pieces(old);
    let (_, first) = *left.first().filter(|_| system.memory.is_covered(old)).ok_or(Errno::EFAULT)?;
    if left.iter().any(|(_, region)| region.backing.is_shared() != first.backing.is_shared()) {
        return Err(Errno::EFAULT);
    }
    // Copies of parts of pages of a volume's file cannot be mapped again.
    if left.iter().any(|(_, region)| region.backing == Backing::Copy) {
        return Err(Errno::EINVAL);
    }
    if first.backing.is_shared() {
        let chosen = if let RemapTarget::At(address) = target { Some(pages(address, old.bytes())?) } else { None };
        return system.duplicate_shared(old.start(), first, old.bytes(), chosen);
    }
    let start = system.memory.remap(old, old.bytes(), target)?;
    let mapped = left.into_iter().try_for_each(|(part, region)| match region.backing {
        Backing::Node(file) => system.map_node(part, region.permissions, file),
        backing => system.memory.map(part, region.permissions, backing),
    });
    if let Err(error) = mapped {
        // The pages go back: the program does not learn the new address.
        system.memory.unmap(old)?;
        system.memory.remap(pages(start, old.bytes())?, old.bytes(), RemapTarget::At(old.start()))?;
        return Err(error);
    }
    system.claim(pages(start, old.bytes())?);
    Ok(start)
}

/// `mremap` with an old length of 0: maps the memory of a shared mapping a second time.
fn mremap_again(system: &mut System, address: u64, new_length: u64, flags: u64, new_address: u64) -> Result<u64, Errno> {
    let bytes = whole_pages(new_length, 0)?;
    let (_, region) = *system.memory.pieces(pages(address, PAGE_SIZE)?).first().ok_or(Errno::EFAULT)?;
    if !region.backing.is_shared() {
        return Err(Errno::EINVAL);
    }
    if flags & MREMAP_MAYMOVE == 0 {
        return Err(Errno::ENOMEM);
    }
    check_limits(system, bytes, false, None)?;
    let to = if flags & MREMAP_FIXED != 0 { Some(pages(new_address, bytes)?) } else { None };
    if let Some(to) = to {
        if to.start() <= address && address < to.end() {
            return Err(Errno::EINVAL);
        }
        system.make_way(to)?;
    }
    system.sync_mappings();
    system.duplicate_shared(address, region, bytes, to)
}

/// `msync(address, length, flags)`.
pub fn msync(system: &mut System, [address, length, flags, ..]: [u64; 6]) -> Result<u64, Errno> {
    let both = MS_ASYNC | MS_SYNC;
    if flags & !(both | MS_INVALIDATE) != 0 || flags & both == both || !address.is_multiple_of(PAGE_SIZE) {
        return Err(Errno::EINVAL);
    }
    if length == 0 {
        return Ok(0);
    }
    let range = pages(address, length).map_err(|_| Errno::ENOMEM)?;
    system.before_unmap(range);
    if flags & MS_SYNC != 0 && system.shows_nodes() {
        system.files.sync_all()?;
    }
    if system.memory.is_covered(range) { Ok(0) } else { Err(Errno::ENOMEM) }
}

/// `madvise(address, length, advice)`.
pub fn madvise(system: &mut System, [address, length, advice, ..]: [u64; 6]) -> Result<u64, Errno> {
    if length == 0 {
        return Ok(0);
    }
    let range = pages(address, length)?;
    match advice {
        MADV_FREE if system.memory.pieces(range).iter().any(|(_, region)| region.backing.is_file()) => return Err(Errno::EINVAL),
        MADV_POPULATE_READ | MADV_POPULATE_WRITE => {
            let wanted =
                |permissions: Permissions| if advice == MADV_POPULATE_READ { permissions.readable() } else { permissions.writable() };
            if !system.memory.pieces(range).iter().all(|(_, region)| wanted(region.permissions)) {
                return Err(Errno::EINVAL);
            }
            if !system.memory.is_covered(range) {
                return Err(Errno::ENOMEM);
            }
            memory::populate(range.start(), range.bytes())?;
        }
        MADV_DONTNEED | MADV_DONTNEED_LOCKED => {
            note_peak_before(system, range.bytes());
            system.memory.discard(range)?;
            system.renew(range)?;
        }
        MADV_DONTFORK | MADV_DOFORK => {
            if !system.memory.is_covered(range) {
                return Err(Errno::ENOMEM);
            }
            if advice == MADV_DONTFORK {
                system.memory.withhold_from_children(range);
            } else {
                system.memory.give_to_children(range);
            }
        }
        MADV_WIPEONFORK | MADV_KEEPONFORK => {
            if advice == MADV_WIPEONFORK {
                system.memory.wipe_in_children(range)?;
            } else {
                system.memory.keep_in_children(range);
            }
            if !system.memory.is_covered(range) {
                return Err(Errno::ENOMEM);
            }
        }
        _ if advice != MADV_FREE && !HARMLESS_ADVICE.contains(&advice) => return Err(Errno::EINVAL),
        _ if !system.memory.is_covered(range) => return Err(Errno::ENOMEM),
        _ => {}
    }
    Ok(0)
}
