// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files: templates, archives, root images.

use pando_image::{BLOCK_SIZE, Builder, Image};
use pando_kernel::{Config, End, Kernel};
use pando_libos::erofs;
use pando_machine::PageCount;
use pando_machine::sim::{Sim, SimConfig};
use pando_store::TemplateFile;
use pando_store::format::{MAGIC, VERSION};
use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

/// The maximum number of image blocks that are read, and of inodes that are visited.
const LOOKED_AT: usize = 1024;

fn file(bytes: &[u8]) -> NamedTempFile {
    let mut file = NamedTempFile::new().expect("a temporary file");
    file.write_all(bytes).expect("the file is ours");
    file
}

/// A template file with fuzzed chunks and index, and a correct checksum; the first two bytes give the position of the
/// index. A file that opens is loaded into a kernel.
pub fn template(data: &[u8]) {
    let Some((length, data)) = data.split_first_chunk() else { return };
    let (chunks, index) = data.split_at(usize::from(u16::from_le_bytes(*length)).min(data.len()));
    let mut header = [0; 64];
    header[..16].copy_from_slice(MAGIC);
    header[16..20].copy_from_slice(&VERSION.to_le_bytes());
    let begin = (header.len() + chunks.len()) as u64;
    header[24..32].copy_from_slice(&begin.to_le_bytes());
    header[32..40].copy_from_slice(&(begin + index.len() as u64).to_le_bytes());
    let checksum = blake3::Hasher::new().update(&header[..48]).update(index).finalize();
    header[48..].copy_from_slice(&checksum.as_bytes()[..16]);
    let file = file(&[&header, chunks, index].concat());
    let Ok(saved) = TemplateFile::open(file.path()) else { return };
    let _ = saved.check(&mut |_| ());
    let machine = Sim::new(SimConfig { arena: PageCount(4096), ..SimConfig::default() }).expect("a small machine");
    let kernel = Kernel::new(machine, Config::default());
    if let Ok((cell, _)) = saved.load(&kernel, &[], PageCount(1024)) {
        let _ = kernel.clone_cell(cell, PageCount(64));
        let _ = kernel.end(cell, End::Killed);
    }
}

/// A tar archive, plain or compressed; its image is then built and read.
pub fn tar(data: &[u8]) {
    let mut builder = Builder::new();
    if builder.archive_stream(Path::new("archive"), data).is_err() {
        return;
    }
    if let Ok(image) = builder.image() {
        let mut bytes = Vec::new();
        let whole = image.blocks() <= LOOKED_AT as u64;
        read(&image, whole.then_some(&mut bytes));
        if whole {
            let image = erofs::Image::new(&bytes).expect("what was made here is an image");
            walk(&image);
        }
    }
}

/// An EROFS image, for the host's reader and for the libOS's.
pub fn erofs(data: &[u8]) {
    if let Ok(image) = erofs::Image::new(data) {
        walk(&image);
    }
    let file = file(data);
    if let Ok(mut image) = Image::open(file.path()) {
        for path in ["/", "/bin/sh", "/a/../b", "/link/file"] {
            let _ = image.find(path.as_bytes());
        }
        let _ = image.add_directory(b"/made/here", pando_image::Attributes::root(0o755));
        let _ = image.fingerprint();
        read(&image, None);
    }
}

/// Reads blocks of an image: some, or all into a buffer.
fn read(image: &Image, all: Option<&mut Vec<u8>>) {
    let mut block = vec![0; BLOCK_SIZE as usize];
    let count = image.blocks().min(LOOKED_AT as u64);
    if let Some(all) = all {
        all.resize(count as usize * block.len(), 0);
        image.read_blocks(0, all).expect("what was made here can be read");
    }
    for number in 0..count {
        let _ = image.read_blocks(number, &mut block);
        assert!(image.run(number) >= 1);
    }
    assert!(image.read_blocks(image.blocks(), &mut block).is_err(), "a block behind the last");
}

/// Performs a libOS's operations on an image.
fn walk(image: &erofs::Image<'_>) {
    let mut pending = vec![image.root()];
    let mut room = [0; 100];
    for _ in 0..LOOKED_AT {
        let Some(nid) = pending.pop() else { break };
        let Ok(inode) = image.inode(nid) else { continue };
        image.xattrs(&inode).take(LOOKED_AT).for_each(drop);
        let _ = image.link_target(&inode);
        if let Ok(data) = image.data(&inode) {
            for offset in [0, 4095, data.size() / 2, data.size().saturating_sub(1), u64::MAX] {
                let read = data.read(offset, &mut room);
                assert!(read as u64 <= data.size().saturating_sub(offset), "{read} bytes at {offset} of {}", data.size());
            }
        }
        if let Ok(directory) = image.directory(&inode) {
            let _ = directory.lookup(b"file");
            pending.extend(directory.entries(erofs::Position(0)).take(LOOKED_AT).filter_map(Result::ok).map(|entry| entry.nid));
        }
    }
    for path in [&b"/file"[..], b"link/../file", b"/many/links/"] {
        let _ = image.resolve(image.root(), path, erofs::LastLink::Follow);
    }
}
