// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boot images of Linux without compression. An emulated CPU would need two minutes to decompress Debian's kernel.
//!
//! A boot image (Linux's Documentation/arch/x86/boot.rst) consists of real-mode code with a header, and of a program for protected mode
//! that contains the compressed kernel. `boot_image.S` replaces that program.

use anyhow::{Context, Result, ensure};
use object::Endianness;
use object::elf::{FileHeader64, PT_LOAD};
use object::read::elf::{FileHeader, ProgramHeader};
use std::fs::{self, File};
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::workspace;

/// The start of a file that `xz` has compressed.
const XZ: &[u8] = b"\xfd7zXZ\0";
/// The address to which boot loaders read the program for protected mode.
const PROGRAM_ADDRESS: u64 = 0x10_0000;
const SECTOR: usize = 512;
/// The unit of the header's field for the program's size.
const PARAGRAPH: usize = 16;
/// The unit of the kernel's size in the image.
const PAGE: usize = 4096;
/// A kernel, with the zero bytes after it, takes less memory: the emulated machines have little more.
const MAX_KERNEL_BYTES: u64 = 512 << 20;

/// Fields of the header.
const SETUP_SECTORS: Range<usize> = 0x1f1..0x1f2;
const PROGRAM_PARAGRAPHS: Range<usize> = 0x1f4..0x1f8;
const MAGIC: Range<usize> = 0x202..0x206;
const IS_RELOCATABLE: Range<usize> = 0x234..0x235;
const FURTHER_ENTRIES: Range<usize> = 0x236..0x238;
const PAYLOAD: [Range<usize>; 2] = [0x248..0x24c, 0x24c..0x250];

/// A kernel as it lies in memory.
#[derive(Debug, PartialEq, Eq)]
struct LoadedKernel {
    /// The physical address.
    address: u64,
    entry: u64,
    /// A multiple of [`PAGE`] bytes.
    content: Vec<u8>,
    /// The number of zero bytes after the content.
    zeros: u64,
}

/// Returns a boot image that starts the same kernel without decompressing it; `work` is a folder for temporary files.
///
/// # Errors
/// `image` is no boot image of Linux that contains a kernel compressed by xz, or a program that this needs is missing.
pub(super) fn without_compression(image: &[u8], work: &Path) -> Result<Vec<u8>> {
    ensure!(image.get(MAGIC) == Some(b"HdrS"), "it has no header of a boot image");
    let setup_sectors = usize::try_from(field(image, SETUP_SECTORS)?)?;
    let (setup, program) = image.split_at_checked((setup_sectors + 1) * SECTOR).context("it ends within its real-mode code")?;
    let [offset, size] = PAYLOAD.map(|range| field(image, range));
    let payload = program.get(usize::try_from(offset?)?..).context("its kernel lies behind its end")?;
    let payload = payload.get(..usize::try_from(size?)?).context("it ends within its kernel")?;
    let kernel = load(&decompress(payload, work)?).context("reading the kernel in it")?;
    let mut program = assemble(&kernel, work)?;
    program.extend(kernel.content);
    program.resize(program.len().next_multiple_of(PARAGRAPH), 0);
    let mut image = setup.to_vec();
    image[PROGRAM_PARAGRAPHS].copy_from_slice(&u32::try_from(program.len() / PARAGRAPH)?.to_le_bytes());
    for none in [&[IS_RELOCATABLE, FURTHER_ENTRIES], &PAYLOAD].into_iter().flatten() {
        image[none.clone()].fill(0);
    }
    image.extend(program);
    Ok(image)
}

/// Reads a field of the header.
fn field(image: &[u8], range: Range<usize>) -> Result<u64> {
    let bytes = image.get(range).context("it ends within its header")?;
    Ok(bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte)))
}

/// Decompresses the kernel. Its size in four bytes follows the compressed data.
fn decompress(payload: &[u8], work: &Path) -> Result<Vec<u8>> {
    ensure!(payload.starts_with(XZ), "its kernel is not compressed by xz");
    let compressed = payload.get(..payload.len() - size_of::<u32>()).context("its kernel has no size")?;
    let file = work.join("kernel.xz");
    fs::write(&file, compressed)?;
    let xz = Command::new("xz").args(["--decompress", "--stdout"]).stdin(File::open(&file)?).stderr(Stdio::inherit()).output();
    let xz = xz.context("starting xz")?;
    ensure!(xz.status.success(), "decompressing its kernel failed ({})", xz.status);
    Ok(xz.stdout)
}

/// Puts the segments of a kernel at their places.
fn load(file: &[u8]) -> Result<LoadedKernel> {
    let header = FileHeader64::<Endianness>::parse(file)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, file)?.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    let address = segments.clone().map(|segment| segment.p_paddr(endian)).min().context("it has no segments")?;
    let mut content = Vec::new();
    let mut size = 0;
    for segment in segments {
        let bytes = segment.data(endian, file).ok().context("it ends within a segment")?;
        let start = segment.p_paddr(endian) - address;
        let end = start.checked_add(segment.p_memsz(endian)).filter(|end| *end <= MAX_KERNEL_BYTES).context("it is too large")?;
        size = end.max(size);
        let start = usize::try_from(start)?;
        content.resize(content.len().max(start + bytes.len()), 0);
        content[start..start + bytes.len()].copy_from_slice(bytes);
    }
    let used = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    content.resize(used.next_multiple_of(PAGE), 0);
    let zeros = size.next_multiple_of(PAGE as u64).saturating_sub(content.len() as u64);
    Ok(LoadedKernel { address, entry: header.e_entry(endian), content, zeros })
}

/// Builds the program that starts the kernel, which follows it.
fn assemble(kernel: &LoadedKernel, work: &Path) -> Result<Vec<u8>> {
    let [source, object, program] = ["boot.S", "boot.o", "boot"].map(|name| work.join(name));
    fs::write(&source, include_str!("boot_image.S"))?;
    let mut assembler = Command::new("as");
    for (name, value) in [("LOAD", kernel.address), ("ENTRY", kernel.entry), ("SIZE", kernel.content.len() as u64), ("ZERO", kernel.zeros)]
    {
        assembler.args(["--defsym", &format!("{name}={value}")]);
    }
    workspace::run(assembler.arg("-o").arg(&object).arg(&source))?;
    let mut linker = Command::new("ld");
    linker.args([&format!("-Ttext={PROGRAM_ADDRESS:#x}"), "--oformat=binary", "-o"]);
    workspace::run(linker.arg(&program).arg(&object))?;
    fs::read(&program).context("reading the linked program")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Program headers of an ELF file.
    const HEADERS: u64 = 64;
    const HEADER: u64 = 56;

    /// A kernel with two segments: `first` at 16 MiB, and `second` one page later in two pages of memory.
    fn kernel(first: &[u8], second: &[u8]) -> Vec<u8> {
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let mut file = b"\x7fELF\x02\x01\x01".to_vec();
        file.resize(16, 0);
        file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
        file.extend(words(&[0x100_0010, HEADERS, 0]));
        file.extend([0, 0, 0, 0, 64, 0, 56, 0, 2, 0, 64, 0, 0, 0, 0, 0]);
        let offset = HEADERS + 2 * HEADER;
        let (one, two) = (first.len() as u64, second.len() as u64);
        file.extend(words(&[1 | 5 << 32, offset, 0, 0x100_0000, one, one, 1]));
        file.extend(words(&[1 | 6 << 32, offset + one, 0, 0x100_1000, two, 0x2000, 1]));
        [&file, first, second].concat()
    }

    fn boot_image(kernel: &[u8]) -> Vec<u8> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("kernel");
        fs::write(&file, kernel).expect("the folder is ours");
        let xz = Command::new(pando_packages::host_program("xz")).args(["--check=crc32", "--stdout"]).arg(&file).output();
        let payload = [xz.expect("xz runs").stdout, u32::try_from(kernel.len()).expect("it is small").to_le_bytes().to_vec()].concat();
        let mut image = vec![0xcc; 2 * SECTOR];
        image[SETUP_SECTORS].fill(1);
        image[MAGIC].copy_from_slice(b"HdrS");
        image[PAYLOAD[0].clone()].copy_from_slice(&7_u32.to_le_bytes());
        image[PAYLOAD[1].clone()].copy_from_slice(&u32::try_from(payload.len()).expect("it is small").to_le_bytes());
        [image, b"program".to_vec(), payload].concat()
    }

    fn converted(image: &[u8]) -> Result<Vec<u8>> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        without_compression(image, folder.path())
    }

    #[test]
    fn the_kernel_lies_in_the_image_as_in_memory() {
        let image = converted(&boot_image(&kernel(b"first", b"second"))).expect("it is a boot image");
        let paragraphs = field(&image, PROGRAM_PARAGRAPHS).expect("a header") as usize;
        assert_eq!(image.len(), 2 * SECTOR + paragraphs * PARAGRAPH);
        let (program, content) = image[2 * SECTOR..].split_at(image.len() - 2 * SECTOR - 2 * PAGE);
        assert!(content.starts_with(b"first\0") && content[PAGE..].starts_with(b"second\0"));
        assert!(program.len() % PAGE == 0 && image[..SETUP_SECTORS.start].iter().all(|byte| *byte == 0xcc));
        assert_eq!((field(&image, IS_RELOCATABLE).expect("a header"), field(&image, PAYLOAD[1].clone()).expect("a header")), (0, 0));
    }

    #[test]
    fn memory_after_a_segment_is_cleared() {
        let loaded = load(&kernel(b"first", b"second")).expect("a kernel");
        assert_eq!((loaded.address, loaded.entry, loaded.content.len(), loaded.zeros), (0x100_0000, 0x100_0010, 2 * PAGE, PAGE as u64));
        let loaded = load(&kernel(b"first", &[0; 9])).expect("a kernel");
        assert_eq!((loaded.content.len(), loaded.zeros), (PAGE, 2 * PAGE as u64));
    }

    #[test]
    fn other_files_are_refused() {
        let image = boot_image(&kernel(b"first", b"second"));
        assert!(converted(&image[..SECTOR]).is_err() && converted(&image[..image.len() - 9]).is_err());
        let mut other = image.clone();
        other[2 * SECTOR + 7] ^= 1;
        assert!(converted(&other).expect_err("no file of xz").to_string().contains("xz"));
        assert!(converted(&boot_image(b"text")).is_err());
    }
}
