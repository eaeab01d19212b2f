// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reads the headers of a program. The file is untrusted: what leaves here lies inside the file and inside application memory, and
//! no two segments share a page. A position-independent program is understood as if it lay at 0, until it is [placed](Executable::at).

use alloc::vec;
use alloc::vec::Vec;
use core::mem::size_of;

use object::elf::{self, FileHeader64, ProgramHeader64};
use object::endian::LittleEndian as Little;
use object::pod;
use pando_abi::{PAGE_SIZE, Permissions};
use pando_rt::memory::PageRange;
use thiserror::Error;

use crate::memory::LOWEST;

/// Bytes of program headers that are read at most, as Linux does.
const HEADERS_MAX: usize = 65_536;
/// Bytes of the interpreter's path with its zero byte.
const PATH_MAX: u64 = 4096;
/// Alignments beyond this are not kept: nothing has such pages.
const ALIGNMENT_MAX: u64 = 1 << 30;

/// Why a file cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ElfError {
    /// No ELF header.
    #[error("neither an ELF program nor a script that begins with #!")]
    NotElf,
    /// For another machine or word size.
    #[error("built for another machine, not for 64-bit x86")]
    WrongMachine,
    /// An object file, a core dump or the like.
    #[error("an ELF file, but not a program")]
    NotAProgram,
    /// The file ends before its parts do.
    #[error("the file is cut short")]
    Truncated,
    /// The headers contradict each other or the address space.
    #[error("malformed ELF file: {0}")]
    Malformed(&'static str),
}

/// A part of the file that becomes memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it lies in memory.
    pub address: u64,
    /// Where it lies in the file.
    pub offset: u64,
    /// Bytes that come from the file.
    pub file_bytes: u64,
    /// Pages that it occupies; what the file does not fill is zero.
    pub pages: PageRange,
    /// What the program may do with it.
    pub permissions: Permissions,
}

/// A program that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Its segments, in order of address; at least one.
    pub segments: Vec<Segment>,
    /// To a multiple of what it wants to be moved, a power of two; `None`: it lies where it has to.
    pub movable: Option<u64>,
    /// What was added to the file's addresses.
    pub moved_by: u64,
    /// The program that shall load the rest of it.
    pub interpreter: Option<Vec<u8>>,
    /// Address of its first instruction; nothing says that it lies in a segment.
    pub entry: u64,
    /// Address of the program headers in memory; `None`: they are not in a segment.
    pub headers: Option<u64>,
    /// How many program headers there are.
    pub header_count: u64,
    /// What the program may do with its stack.
    pub stack_permissions: Permissions,
}

impl Executable {
    /// Reads the headers of a file of `size` bytes through `read`, which fills a buffer from an offset and says how much it could.
    ///
    /// # Errors
    /// The file is no program for this machine.
    pub fn parse(size: u64, read: impl Fn(u64, &mut [u8]) -> usize) -> Result<Executable, ElfError> {
        let mut bytes = [0; size_of::<FileHeader64<Little>>()];
        let filled = read(0, &mut bytes);
        let header = file_header(&bytes[..filled])?;
        let count = usize::from(header.e_phnum.get(Little));
        if usize::from(header.e_phentsize.get(Little)) != size_of::<ProgramHeader64<Little>>() || count == 0 {
            return Err(ElfError::Malformed("no program headers"));
        }
        let mut bytes = vec![0; count * size_of::<ProgramHeader64<Little>>()];
        if bytes.len() > HEADERS_MAX {
            return Err(ElfError::Malformed("too many program headers"));
        }
        let table = header.e_phoff.get(Little);
        if read(table, &mut bytes) < bytes.len() {
            return Err(ElfError::Truncated);
        }
        // The table's bytes are unaligned, which these types allow.
        let (headers, _) = pod::slice_from_bytes::<ProgramHeader64<Little>>(&bytes, count).map_err(|()| ElfError::Truncated)?;
        let movable = (header.e_type.get(Little) == elf::ET_DYN).then(|| alignment(headers));
        let base = movable.map_or(0, |_| lowest(headers).wrapping_neg());
        let segments = segments(headers, base, size)?;
        if movable.is_none() && segments[0].pages.start() < LOWEST {
            return Err(ElfError::Malformed("a segment lies outside the address space"));
        }
        let in_segment = segments.iter().find(|segment| table >= segment.offset && table - segment.offset < segment.file_bytes);
        let stack = headers.iter().find(|header| header.p_type.get(Little) == elf::PT_GNU_STACK);
        let executable_stack = stack.is_some_and(|stack| stack.p_flags.get(Little).0 & elf::PF_X.0 != 0);
        Ok(Executable {
            entry: header.e_entry.get(Little).wrapping_add(base),
            headers: in_segment.map(|segment| segment.address + (table - segment.offset)),
            header_count: count as u64,
            stack_permissions: if executable_stack { Permissions::ALL } else { Permissions::READ_WRITE },
            interpreter: interpreter(headers, read)?,
            movable,
            moved_by: base,
            segments,
        })
    }

    /// The page after the last segment.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.segments.last().map_or(LOWEST, |segment| segment.pages.end())
    }

    /// Bytes from the first segment to the last one's end.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.end() - self.segments.first().map_or(LOWEST, |segment| segment.pages.start())
    }

    /// A program that lies at 0, placed at `start`, a page's start. `None`: there is not so much room.
    #[must_use]
    pub fn at(mut self, start: u64) -> Option<Executable> {
        for segment in &mut self.segments {
            segment.pages = PageRange::new(start.checked_add(segment.pages.start())?, start.checked_add(segment.pages.end())?)?;
            segment.address += start;
        }
        self.entry = self.entry.wrapping_add(start);
        self.moved_by = self.moved_by.wrapping_add(start);
        self.headers = self.headers.map(|headers| headers + start);
        Some(self)
    }
}

/// The file header, if the file is a program for this machine.
fn file_header(bytes: &[u8]) -> Result<&FileHeader64<Little>, ElfError> {
    if !bytes.starts_with(&elf::ELFMAG) {
        return Err(ElfError::NotElf);
    }
    // The identification comes first in files of every class.
    if bytes.get(4..6) != Some(&[elf::ELFCLASS64.0, elf::ELFDATA2LSB.0]) {
        return Err(if bytes.len() < 6 { ElfError::Truncated } else { ElfError::WrongMachine });
    }
    let (header, _) = pod::from_bytes::<FileHeader64<Little>>(bytes).map_err(|()| ElfError::Truncated)?;
    if header.e_machine.get(Little) != elf::EM_X86_64 {
        return Err(ElfError::WrongMachine);
    }
    match header.e_type.get(Little) {
        elf::ET_EXEC | elf::ET_DYN => Ok(header),
        _ => Err(ElfError::NotAProgram),
    }
}

fn loads(headers: &[ProgramHeader64<Little>]) -> impl Iterator<Item = &ProgramHeader64<Little>> {
    headers.iter().filter(|header| header.p_type.get(Little) == elf::PT_LOAD && header.p_memsz.get(Little) > 0)
}

/// The first page of the file's addresses.
fn lowest(headers: &[ProgramHeader64<Little>]) -> u64 {
    loads(headers).map(|header| header.p_vaddr.get(Little) / PAGE_SIZE * PAGE_SIZE).min().unwrap_or_default()
}

/// To a multiple of what it may be moved.
fn alignment(headers: &[ProgramHeader64<Little>]) -> u64 {
    let wanted = loads(headers).map(|header| header.p_align.get(Little)).filter(|align| align.is_power_of_two()).max();
    wanted.unwrap_or(PAGE_SIZE).clamp(PAGE_SIZE, ALIGNMENT_MAX)
}

/// The path of the program's interpreter, if it names one.
fn interpreter(headers: &[ProgramHeader64<Little>], read: impl Fn(u64, &mut [u8]) -> usize) -> Result<Option<Vec<u8>>, ElfError> {
    let Some(header) = headers.iter().find(|header| header.p_type.get(Little) == elf::PT_INTERP) else { return Ok(None) };
    let bytes = header.p_filesz.get(Little);
    if !(2..=PATH_MAX).contains(&bytes) {
        return Err(ElfError::Malformed("the interpreter's path has an impossible length"));
    }
    let mut path = vec![0; bytes as usize];
    if read(header.p_offset.get(Little), &mut path) < path.len() {
        return Err(ElfError::Truncated);
    }
    if path.pop() != Some(0) {
        return Err(ElfError::Malformed("the interpreter's path does not end"));
    }
    path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(path.len()));
    Ok(Some(path))
}

fn segments(headers: &[ProgramHeader64<Little>], base: u64, size: u64) -> Result<Vec<Segment>, ElfError> {
    let mut segments = loads(headers).map(|header| segment(header, base, size)).collect::<Result<Vec<_>, _>>()?;
    segments.sort_by_key(|segment| segment.pages.start());
    if segments.is_empty() {
        return Err(ElfError::Malformed("nothing to load"));
    }
    if segments.windows(2).any(|pair| pair[0].pages.end() > pair[1].pages.start()) {
        return Err(ElfError::Malformed("segments overlap"));
    }
    Ok(segments)
}

fn segment(header: &ProgramHeader64<Little>, base: u64, size: u64) -> Result<Segment, ElfError> {
    let (offset, file_bytes, bytes) = (header.p_offset.get(Little), header.p_filesz.get(Little), header.p_memsz.get(Little));
    let address = header.p_vaddr.get(Little).wrapping_add(base);
    if offset % PAGE_SIZE != address % PAGE_SIZE {
        return Err(ElfError::Malformed("a segment's place in the file does not fit its address"));
    }
    if file_bytes > bytes {
        return Err(ElfError::Malformed("a segment has more bytes in the file than in memory"));
    }
    if offset.checked_add(file_bytes).is_none_or(|end| end > size) {
        return Err(ElfError::Truncated);
    }
    let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE_SIZE));
    let pages = end.and_then(|end| PageRange::new(address / PAGE_SIZE * PAGE_SIZE, end));
    let pages = pages.ok_or(ElfError::Malformed("a segment lies outside the address space"))?;
    let flags = header.p_flags.get(Little);
    let bit = |flag: elf::ProgramFlags, bit| if flags.0 & flag.0 != 0 { bit } else { 0 };
    let permissions = Permissions::from_bits(bit(elf::PF_R, 1) | bit(elf::PF_W, 2) | bit(elf::PF_X, 4)).unwrap_or_default();
    Ok(Segment { address, offset, file_bytes, pages, permissions })
}

#[cfg(test)]
mod tests;
