// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates in files: a loaded template equals the saved one, damage is detected, and the old file stays until the new one is complete.

use pando_abi::{Hypercall, MapFlags, PAGE_SIZE, Permissions};
use pando_kernel::{CellConfig, CellId, Config, End, OperatorError};
use pando_machine::PageCount;
use pando_store::{Error, Summary, TemplateFile, save};
use pando_testing::asm::Asm;
use pando_testing::asm::Register::{Rax, Rbx, Rdi, Rsi};
use pando_testing::lab::{DATA, Lab, QUOTA, repetitions};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Address of the template's pages.
const PAGES: u64 = 0x4000_0000;
const WORDS: &[u8] = br#"{"name": "a template"}"#;

fn sim() -> Lab {
    Lab::sim(1, PageCount(1 << 15), 1, Config::default())
}

/// A template with these pages, whose clones exit with the byte at `told`.
fn template(lab: &mut Lab, pages: &[u8], told: u64) -> CellId {
    let mut asm = Asm::new();
    asm.call_kernel(Hypercall::Freeze {}).mov_imm(Rbx, told).load_byte(Rdi, Rbx, 0).mov_imm(Rsi, 0).mov_imm(Rax, 0).hypercall();
    let id = lab.cell_with(&asm.finish(), PageCount(pages.len() as u64 / PAGE_SIZE + 1000));
    let count = PageCount::covering(pages.len() as u64);
    lab.kernel.map(id, PAGES, count, MapFlags::lazy(Permissions::READ_WRITE)).expect("room for pages");
    lab.kernel.write(id, PAGES, pages).expect("they are mapped");
    lab.kernel.start(id).expect("it was not started before");
    lab.run_all();
    lab.kernel.wait_frozen(id).expect("it froze");
    id
}

/// Pages that differ, and that do not compress to nothing.
fn noise(count: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    (0..count * PAGE_SIZE).map(|_| random.u8(..16)).collect()
}

/// Saves a template with these pages.
fn saved(path: &Path, pages: &[u8]) -> Summary {
    let mut lab = sim();
    let id = template(&mut lab, pages, DATA);
    save(&lab.kernel, id, path, |_| Ok(WORDS.to_vec())).expect("a template can be saved")
}

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("room for a directory");
    let path = directory.path().join("template");
    (directory, path)
}

#[test]
fn loaded_templates_equal_the_saved_ones() {
    for source in 0..Lab::both().len() {
        for target in 0..Lab::both().len() {
            let (_directory, path) = place();
            let pages = noise(300);
            let told = PAGES + 77 * PAGE_SIZE + 5;
            let mut lab = Lab::both().swap_remove(source);
            let id = template(&mut lab, &pages, told);
            let summary = save(&lab.kernel, id, &path, |_| Ok(WORDS.to_vec())).expect("a template can be saved");
            assert_eq!(summary.bytes, fs::metadata(&path).expect("it is there").len());
            drop(lab);

            let mut lab = Lab::both().swap_remove(target);
            let before = lab.kernel.free();
            let saved = TemplateFile::open(&path).expect("it was just written");
            assert_eq!((saved.metadata(), saved.image().contents()), (WORDS, summary.pages));
            let loaded = saved.load(&lab.kernel, &[], QUOTA);
            // The software machine has the common features of all machines, and no more.
            if source > target {
                assert!(matches!(&loaded, Err(Error::Cpu { missing }) if missing.contains("sse4_2")), "{loaded:?}");
                continue;
            }
            let (id, disk) = loaded.expect("the same machine, or a better one");
            let clone = lab.kernel.clone_cell(id, QUOTA).expect("a template can be cloned");
            lab.kernel.start(clone).expect("it was not started before");
            assert_eq!(lab.finish(clone).end, End::Exited { status: pages[(told - PAGES) as usize] });
            let mut bytes = vec![0; pages.len()];
            lab.kernel.read(id, PAGES, &mut bytes).expect("its pages are mapped");
            assert!(bytes == pages, "every page is what it was");
            assert_eq!(saved.last_error(), None);

            // Saved once more, from pages most of which were read from the file.
            let again = path.with_extension("again");
            assert_eq!(save(&lab.kernel, id, &again, |_| Ok(WORDS.to_vec())).expect("a template can be saved").pages, summary.pages);
            lab.kernel.end(id, End::Killed).expect("it is frozen");
            lab.kernel.remove_disk(disk).expect("no cell has it");
            lab.kernel.free_unused_frames();
            assert_eq!(lab.kernel.free(), before);
        }
    }
}

#[test]
fn a_page_that_occurs_often_is_stored_once_and_zeros_not_at_all() {
    let (_directory, path) = place();
    let few = noise(32);
    let small = saved(&path, &few);
    let many: Vec<u8> = few.iter().copied().cycle().take(few.len() * 20).collect();
    let large = saved(&path, &many);
    assert!(large.pages >= small.pages + 600, "{large:?} and {small:?}");
    assert_eq!(large.stored, small.stored);
    assert!(large.bytes < small.bytes + 1000, "{large:?} and {small:?}");
    let zeros = saved(&path, &vec![0; 640 * PAGE_SIZE as usize]);
    assert!(zeros.pages >= 640 && zeros.stored < 10 && zeros.bytes < 20_000, "{zeros:?}");
}

/// Opens a file and reads all its pages: everything must be as written, or an error. Wrong bytes are never returned.
fn try_out(path: &Path, expected: &[u8]) -> Result<(), String> {
    let saved = TemplateFile::open(path).map_err(|error| error.to_string())?;
    assert_eq!(saved.metadata(), WORDS);
    let contents = saved.contents();
    let mut bytes = vec![0; expected.len()];
    let read = contents.blocks() * PAGE_SIZE == expected.len() as u64 && contents.read(pando_abi::BlockNumber(0), &mut bytes).is_ok();
    if !read {
        return Err(saved.last_error().expect("it has a reason"));
    }
    assert!(bytes == expected, "bytes that nobody wrote");
    Ok(())
}

/// The bytes of a file, and of the pages in it.
fn whole(path: &Path) -> (Vec<u8>, Vec<u8>) {
    saved(path, &noise(100));
    let contents = TemplateFile::open(path).expect("it was just written").contents();
    let mut bytes = vec![0; (contents.blocks() * PAGE_SIZE) as usize];
    contents.read(pando_abi::BlockNumber(0), &mut bytes).expect("it is whole");
    (fs::read(path).expect("it is there"), bytes)
}

#[test]
fn a_flipped_bit_anywhere_is_found() {
    let (_directory, path) = place();
    let (good, expected) = whole(&path);
    assert_eq!(try_out(&path, &expected), Ok(()));
    let few = repetitions(50, 400, 10_000) as usize;
    let anywhere = (0..few).map(|count| count * good.len() / few);
    // Header and index are small and matter most.
    for place in (0..64).chain(good.len() - 300..good.len()).chain(anywhere) {
        let mut bytes = good.clone();
        bytes[place] ^= 1 << (place % 8);
        fs::write(&path, bytes).expect("room for it");
        let found = try_out(&path, &expected).expect_err("a bit is wrong");
        let known = ["is damaged", "is not a template", "in format", "are damaged"];
        assert!(known.iter().any(|words| found.contains(words)), "byte {place}: {found}");
    }
}

#[test]
fn a_file_that_ends_too_early_or_too_late_is_refused() {
    let (_directory, path) = place();
    let (good, _) = whole(&path);
    let few = repetitions(50, 500, 10_000) as usize;
    let anywhere = (0..few).map(|count| count * good.len() / few);
    for length in (0..100).chain(anywhere).chain(good.len() - 100..good.len()) {
        fs::write(&path, &good[..length]).expect("room for it");
        let refused = TemplateFile::open(&path).expect_err("bytes are missing");
        assert!(matches!(refused, Error::Damaged { .. } | Error::Other { .. }), "{length} bytes: {refused}");
    }
    let mut bytes = good.clone();
    bytes.push(0);
    fs::write(&path, bytes).expect("room for it");
    assert!(matches!(TemplateFile::open(&path), Err(Error::Damaged { .. })));
    assert!(matches!(TemplateFile::open(path.parent().expect("its directory")), Err(Error::Other { .. } | Error::Read { .. })));
    assert!(matches!(TemplateFile::open(&path.with_extension("gone")), Err(Error::Read { .. })));
}

/// An attacker can write correct checksums.
#[test]
fn an_index_that_no_kernel_wrote_is_refused_or_harmless() {
    let (_directory, path) = place();
    let (good, _) = whole(&path);
    let lab = sim();
    let before = lab.kernel.free();
    let start = u64::from_le_bytes(good[24..32].try_into().expect("eight bytes")) as usize;
    let mut random = fastrand::Rng::with_seed(11);
    let (mut refused, mut loaded) = (0, 0);
    for _ in 0..repetitions(50, 1_000, 20_000) {
        let mut bytes = good.clone();
        for _ in 0..random.usize(1..4) {
            // The most important data follows the pages.
            let first = if random.bool() { start } else { bytes.len() - 400 };
            let place = random.usize(first..bytes.len());
            bytes[place] = random.u8(..);
        }
        let checksum = blake3::Hasher::new().update(&bytes[..48]).update(&bytes[start..]).finalize();
        bytes[48..64].copy_from_slice(&checksum.as_bytes()[..16]);
        fs::write(&path, bytes).expect("room for it");
        let found = TemplateFile::open(&path).and_then(|saved| {
            let (id, disk) = saved.load(&lab.kernel, &[], QUOTA)?;
            let mut bytes = vec![0; (saved.contents().blocks() * PAGE_SIZE) as usize];
            let _ = saved.contents().read(pando_abi::BlockNumber(0), &mut bytes);
            lab.kernel.end(id, End::Killed)?;
            lab.kernel.collect(id);
            Ok(lab.kernel.remove_disk(disk)?)
        });
        *if found.is_ok() { &mut loaded } else { &mut refused } += 1;
    }
    lab.kernel.free_unused_frames();
    assert_eq!((lab.kernel.free(), lab.kernel.cells()), (before, 0));
    assert!(refused > 0 && loaded > 0, "{refused} were refused, {loaded} were not");
}

/// If a chunk was damaged later, a cell that reads a page of it gets the error of any disk, and the operator the reason.
#[test]
fn a_chunk_that_is_damaged_later_is_reported() {
    let (_directory, path) = place();
    saved(&path, &noise(100));
    let saved = TemplateFile::open(&path).expect("it was just written");
    let lab = sim();
    let (id, _) = saved.load(&lab.kernel, &[], QUOTA).expect("the same machine");
    let mut bytes = fs::read(&path).expect("it is there");
    let chunks = 64..bytes.len() / 2;
    bytes[chunks].fill(0);
    fs::write(&path, bytes).expect("the same file");
    let mut page = vec![0; PAGE_SIZE as usize];
    assert!(matches!(lab.kernel.read(id, PAGES, &mut page), Err(OperatorError::Disk(_))));
    let last_error = saved.last_error().expect("a page could not be read");
    assert!(last_error.contains("template") && last_error.contains("are damaged"), "{last_error}");
}

#[test]
fn a_writer_that_does_not_come_to_its_end_leaves_the_file_of_old() {
    let (directory, path) = place();
    let pages = noise(50);
    saved(&path, &pages);
    let good = fs::read(&path).expect("it is there");
    let lab = sim();
    let config = CellConfig { quota: QUOTA, host_name: String::new() };
    let unfit = lab.kernel.create(config).expect("room for a cell");
    assert!(matches!(save(&lab.kernel, unfit, &path, |_| Ok(Vec::new())), Err(Error::Kernel(OperatorError::WrongState(_)))));
    assert_eq!(fs::read_dir(directory.path()).expect("it is there").count(), 1, "nothing is left of the attempt");
    // A killed writer leaves this.
    fs::write(directory.path().join(".template.abcdef.new"), &good[..good.len() / 2]).expect("room for it");
    assert!(fs::read(&path).expect("it is there") == good);
    let other = saved(&path, &noise(60));
    assert_eq!(fs::metadata(&path).expect("it is there").len(), other.bytes);
    assert!(matches!(save(&lab.kernel, unfit, Path::new("/nowhere/template"), |_| Ok(Vec::new())), Err(Error::Write { .. })));
}
