// SPDX-License-Identifier: MIT OR Apache-2.0
//! The libOS: its image, and the template in which it is booted.

use crate::LaunchError;
use object::elf::{FileHeader64, PF_W, PF_X, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, elf};
use pando_abi::layout::{ARGUMENTS, ARGUMENTS_SIZE, LIBOS, LIBOS_CODE, LIBOS_END, SYSTEM_FREE, VOLUMES, VOLUMES_SIZE};
use pando_abi::{MapFlags, Permissions, Registers, boot_info};
use pando_kernel::{CellConfig, CellId, Kernel};
use pando_machine::{ExecutableBytes, FRAME_SIZE, PageCount};
use std::ops::Range;
use std::sync::OnceLock;

/// The built libOS, at a page boundary: so the host can map its code from this program's file.
#[repr(align(4096))]
struct Image([u8; SIZE]);
const SIZE: usize = include_bytes!(concat!(env!("OUT_DIR"), "/pando-libos")).len();
static IMAGE: Image = Image(*include_bytes!(concat!(env!("OUT_DIR"), "/pando-libos")));
/// The same in this program's file, after [`open_libos`].
static IN_FILE: OnceLock<Option<ExecutableBytes>> = OnceLock::new();

/// The template's memory quota: the libOS's own memory, with space to grow.
const QUOTA: PageCount = PageCount(4096);

/// A frozen cell with the booted libOS.
#[derive(Clone, Copy, Debug)]
pub struct Template {
    cell: CellId,
}

/// A segment of the libOS's image.
struct ImageSegment {
    address: u64,
    pages: PageCount,
    permissions: Permissions,
    bytes: &'static [u8],
    offset: u64,
    /// Where the bytes begin in the image.
    position: u64,
}

impl ImageSegment {
    /// The pages of the image that the segment consists of, if it is not writable and begins at a page boundary.
    fn whole_pages(&self) -> Option<Range<u32>> {
        let page = FRAME_SIZE as u64;
        let first = (self.position / page) as u32;
        let is_aligned = self.offset == 0 && self.position.is_multiple_of(page);
        (is_aligned && !self.permissions.writable()).then(|| first..first + (self.bytes.len() / FRAME_SIZE) as u32)
    }
}

/// Opens the file that contains the libOS: this program. Then trims replace the libOS's code in cells by that file's pages, which all
/// processes share. Call it before the process loses the right to open files.
pub fn open_libos() {
    IN_FILE.get_or_init(|| ExecutableBytes::find(&IMAGE.0));
}

impl Template {
    /// Creates and starts a cell with the libOS. It is a template after [`Kernel::wait_frozen`]; vCPUs must run for that.
    ///
    /// # Errors
    /// The libOS does not match this build, or there is not enough memory.
    pub fn boot(kernel: &Kernel) -> Result<Template, LaunchError> {
        let (entry, segments) = segments(&IMAGE.0)?;
        let cell = kernel.create(CellConfig { quota: QUOTA, host_name: "pando".into() })?;
        for segment in segments {
            kernel.map(cell, segment.address, segment.pages, MapFlags::lazy(segment.permissions))?;
            let mut loaded = 0;
            if let (Some(Some(bytes)), Some(pages)) = (IN_FILE.get(), segment.whole_pages()) {
                loaded = (pages.end - pages.start) as usize * FRAME_SIZE;
                kernel.load(cell, segment.address, bytes, pages)?;
            }
            kernel.write(cell, segment.address + segment.offset + loaded as u64, &segment.bytes[loaded..])?;
        }
        kernel.map(cell, VOLUMES, PageCount::covering(VOLUMES_SIZE), MapFlags::lazy(Permissions::READ))?;
        kernel.map(cell, ARGUMENTS, PageCount::covering(ARGUMENTS_SIZE), MapFlags::lazy(Permissions::READ_WRITE))?;
        kernel.set_registers(cell, Registers { rip: entry, ..Registers::default() })?;
        kernel.start(cell)?;
        Ok(Template { cell })
    }

    /// A template of another kernel that this kernel has imported.
    #[must_use]
    pub fn loaded(cell: CellId) -> Template {
        Template { cell }
    }

    /// The cell.
    #[must_use]
    pub fn cell(&self) -> CellId {
        self.cell
    }
}

/// The entry point and the loadable segments of an image for cells, checked.
fn segments(image: &'static [u8]) -> Result<(u64, Vec<ImageSegment>), LaunchError> {
    let bad = LaunchError::LibOs;
    let header = FileHeader64::<Endianness>::parse(image).map_err(|_| bad("it is not an ELF file"))?;
    let endian = header.endian().map_err(|_| bad("its byte order is unknown"))?;
    let headers = header.program_headers(endian, image).map_err(|_| bad("its program headers are damaged"))?;
    if !headers.iter().any(|header| has_note(header, endian, image)) {
        return Err(bad("it was built for another version of the virtual architecture"));
    }
    let mut segments = Vec::new();
    for segment in headers.iter().filter(|segment| segment.p_type(endian) == PT_LOAD && segment.p_memsz(endian) > 0) {
        let start = segment.p_vaddr(endian);
        let end = start.checked_add(segment.p_memsz(endian)).ok_or(bad("a segment exceeds the address space"))?;
        if !(LIBOS <= start && end <= LIBOS_END || LIBOS_CODE <= start && end <= SYSTEM_FREE) {
            return Err(bad("it is outside of the address range for a libOS"));
        }
        let flags = segment.p_flags(endian).0;
        let bits = 1 | u64::from(flags & PF_W.0 != 0) << 1 | u64::from(flags & PF_X.0 != 0) << 2;
        let address = start & !(FRAME_SIZE as u64 - 1);
        segments.push(ImageSegment {
            address,
            pages: PageCount::covering(end - address),
            permissions: Permissions::from_bits(bits).unwrap_or_default(),
            bytes: segment.data(endian, image).map_err(|()| bad("a segment is outside of the file"))?,
            offset: start - address,
            position: segment.p_offset(endian),
        });
    }
    Ok((header.e_entry(endian), segments))
}

/// Whether a program header is a note of this interface's version.
fn has_note(segment: &elf::ProgramHeader64<Endianness>, endian: Endianness, image: &'static [u8]) -> bool {
    let Ok(Some(mut notes)) = segment.notes(endian, image) else { return false };
    while let Ok(Some(found)) = notes.next() {
        if found.name() == boot_info::NAME.as_bytes() && found.n_type(endian).0 == boot_info::TYPE {
            return found.desc() == pando_abi::VERSION.to_le_bytes();
        }
    }
    false
}
