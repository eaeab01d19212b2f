// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parses the headers of an ELF program. The file is untrusted: a parsed program lies inside the file and inside application memory, and
//! no two segments share a page. A position-independent program is parsed as if it lay at address 0, until it is
//! [placed](Executable::at).

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

/// Upper limit on the bytes of program headers, as on Linux.
const HEADERS_MAX: usize = 65_536;
/// Upper limit on the interpreter's path, in bytes with its zero byte.
const PATH_MAX: u64 = 4096;
/// Larger alignments are ignored: no page is that large.
const ALIGNMENT_MAX: u64 = 1 << 30;

/// Why a file cannot be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ElfError {
    /// No ELF header.
    #[error("neither an ELF program nor a script that begins with #!")]
    NotElf,
    /// Built for another machine or word size.
    #[error("built for another machine, not for 64-bit x86")]
    WrongMachine,
    /// An object file, a core dump or another ELF file that is no program.
    #[error("an ELF file, but not a program")]
    NotAProgram,
    /// The file ends before its headers or segments do.
    #[error("truncated ELF file")]
    Truncated,
    /// The headers contradict each other, or address memory outside the address space.
    #[error("malformed ELF file: {0}")]
    Malformed(&'static str),
}

/// A segment: a part of the file that is loaded into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its address in memory.
    pub address: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// Bytes that come from the file.
    pub file_bytes: u64,
    /// Pages that it occupies; bytes beyond the file's are zero.
    pub pages: PageRange,
    /// The program's permissions on it.
    pub permissions: Permissions,
}

/// A program that can be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Executable {
    /// Its segments in order of address; at least one.
    pub segments: Vec<Segment>,
    /// The alignment of its load address, a power of two. `None`: its addresses are fixed.
    pub load_alignment: Option<u64>,
    /// The load bias: the number added to the file's addresses.
    pub load_bias: u64,
    /// The path of the program interpreter (dynamic linker), which loads the rest of it.
    pub interpreter: Option<Vec<u8>>,
    /// Address of its first instruction; it may lie outside all segments.
    pub entry: u64,
    /// Address of the program headers in memory. `None`: no segment contains them.
    pub headers: Option<u64>,
    /// The number of program headers.
    pub header_count: u64,
    /// The program's permissions on its stack.
    pub stack_permissions: Permissions,
}

impl Executable {
    /// Parses the headers of a file of `size` bytes. `read` fills a buffer from an offset and returns how many bytes it read.
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
        let load_alignment = (header.e_type.get(Little) == elf::ET_DYN).then(|| alignment(headers));
        let base = load_alignment.map_or(0, |_| lowest(headers).wrapping_neg());
        let segments = segments(headers, base, size)?;
        if load_alignment.is_none() && segments[0].pages.start() < LOWEST {
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
            load_alignment,
            load_bias: base,
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

    /// Places a program that lies at 0 at `start`, the start of a page. `None`: it does not fit there.
    #[must_use]
    pub fn at(mut self, start: u64) -> Option<Executable> {
        for segment in &mut self.segments {
            segment.pages = PageRange::new(start.checked_add(segment.pages.start())?, start.checked_add(segment.pages.end())?)?;
            segment.address += start;
        }
        self.entry = self.entry.wrapping_add(start);
        self.load_bias = self.load_bias.wrapping_add(start);
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

/// The first page that the file's addresses use.
fn lowest(headers: &[ProgramHeader64<Little>]) -> u64 {
    loads(headers).map(|header| header.p_vaddr.get(Little) / PAGE_SIZE * PAGE_SIZE).min().unwrap_or_default()
}

/// The alignment of the load address.
fn alignment(headers: &[ProgramHeader64<Little>]) -> u64 {
    let wanted = loads(headers).map(|header| header.p_align.get(Little)).filter(|align| align.is_power_of_two()).max();
    wanted.unwrap_or(PAGE_SIZE).clamp(PAGE_SIZE, ALIGNMENT_MAX)
}

/// The path of the program's interpreter, if it names one.
fn interpreter(headers: &[ProgramHeader64<Little>], read: impl Fn(u64, &mut [u8]) -> usize) -> Result<Option<Vec<u8>>, ElfError> {
    let Some(header) = headers.iter().find(|header| header.p_type.get(Little) == elf::PT_INTERP) else { return Ok(None) };
    let bytes = header.p_filesz.get(Little);
    if !(2..=PATH_MAX).contains(&bytes) {
        return Err(ElfError::Malformed("the length of the interpreter's path is out of range"));
    }
    let mut path = vec![0; bytes as usize];
    if read(header.p_offset.get(Little), &mut path) < path.len() {
        return Err(ElfError::Truncated);
    }
    if path.pop() != Some(0) {
        return Err(ElfError::Malformed("the interpreter's path is not terminated"));
    }
    path.truncate(path.iter().position(|byte| *byte == 0).unwrap_or(path.len()));
    Ok(Some(path))
}

fn segments(headers: &[ProgramHeader64<Little>], base: u64, size: u64) -> Result<Vec<Segment>, ElfError> {
    let mut segments = loads(headers).map(|header| segment(header, base, size)).collect::<Result<Vec<_>, _>>()?;
    segments.sort_by_key(|segment| segment.pages.start());
    if segments.is_empty() {
        return Err(ElfError::Malformed("no loadable segments"));
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
        return Err(ElfError::Malformed("a segment's file offset and address differ modulo the page size"));
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
