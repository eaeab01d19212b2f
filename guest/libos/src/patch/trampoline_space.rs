// SPDX-License-Identifier: MIT OR Apache-2.0
//! Addresses for trampolines: the displacement of a jump to one must consist of undefined opcodes.
//!
//! All four bytes of a jump's displacement are opcodes that do not exist in 64-bit mode, regardless of the bytes after them. So a jump
//! behind a site's first byte, to a replaced instruction or into the middle of one, raises an exception, which the libOS handles. A site
//! can then reach `18^4` addresses, in ranges of 256 bytes all over the 4 GiB around it. Preferred are pages that already contain
//! trampolines, then pages in the site's own GiB, whose tables exist anyway, then pages that nearby sites reach, too.

use pando_abi::PAGE_SIZE;

use super::code::JUMP;

/// Opcodes of one byte that raise #UD in 64-bit mode. (Not 0xd5 and 0x62, which newer CPUs use as prefixes, nor 0xd6.) With the first of
/// them as the second byte, a displacement keeps about the same offset in another page, so the sites of one page share a page.
pub const UNDEFINED: [u8; 18] =
    [0x60, 0x61, 0x3f, 0x37, 0x2f, 0x27, 0x1f, 0x1e, 0x17, 0x16, 0x0e, 0x07, 0x06, 0xea, 0xd4, 0xce, 0x9a, 0x82];
/// The same opcodes in order of preference as the highest byte: a low program's trampolines stay clear of its break and its mappings.
const HIGHEST: [u8; 18] = [0x37, 0x2f, 0x27, 0x1f, 0x1e, 0x17, 0x16, 0x3f, 0x60, 0x61, 0xea, 0xd4, 0xce, 0x9a, 0x82, 0x0e, 0x07, 0x06];

/// The address range of one page directory.
const GIB: u64 = 1 << 30;

/// Bytes at the end of a page that hold the addresses of the libOS's entries.
pub const ENTRIES: u64 = 16;

/// The target of a jump at `site` with this displacement, if it is a valid address.
fn target(site: u64, displacement: [u8; 4]) -> Option<u64> {
    (site + JUMP as u64).checked_add_signed(i32::from_le_bytes(displacement).into())
}

/// Finds an address for a trampoline of `length` bytes for `site`. `pages` are the pages of trampoline space, `is_taken` returns whether
/// a range there is in use, `can_be_mapped` whether another page may become trampoline space.
pub fn find(
    site: u64,
    length: u64,
    pages: impl Iterator<Item = u64>,
    is_taken: impl Fn(u64, u64) -> bool,
    can_be_mapped: impl Fn(u64) -> bool,
) -> Option<u64> {
    let fits = |address: &u64| address % PAGE_SIZE + length <= PAGE_SIZE - ENTRIES;
    pages.flat_map(|page| within(site, page)).find(|address| fits(address) && !is_taken(*address, length)).or_else(|| {
        let free = |address: &u64| fits(address) && can_be_mapped(address / PAGE_SIZE * PAGE_SIZE);
        all(site).find(|address| address / GIB == site / GIB && free(address)).or_else(|| all(site).find(free))
    })
}

/// The addresses in `page` that `site` can jump to.
fn within(site: u64, page: u64) -> impl Iterator<Item = u64> {
    let first = page.wrapping_sub(site + JUMP as u64).cast_signed();
    (first >> 8..=(first + PAGE_SIZE as i64 - 1) >> 8)
        .filter_map(|upper| i32::try_from(upper << 8).ok())
        .filter(|upper| upper.to_le_bytes()[1..].iter().all(|byte| UNDEFINED.contains(byte)))
        .flat_map(move |upper| UNDEFINED.into_iter().filter_map(move |lowest| target(site, (upper | i32::from(lowest)).to_le_bytes())))
        .filter(move |address| address / PAGE_SIZE * PAGE_SIZE == page)
}

/// All addresses that `site` can jump to. Most are so far apart that checking the first of each range suffices.
fn all(site: u64) -> impl Iterator<Item = u64> {
    let bytes = || UNDEFINED.into_iter();
    HIGHEST
        .into_iter()
        .flat_map(move |highest| bytes().flat_map(move |third| bytes().map(move |second| [highest, third, second])))
        .flat_map(move |[highest, third, second]| [0x06, 0x82].map(|lowest| [lowest, second, third, highest]))
        .filter_map(move |displacement| target(site, displacement))
}
