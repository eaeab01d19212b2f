// SPDX-License-Identifier: MIT OR Apache-2.0
//! Maps a prepared program, and its dynamic linker, into an empty address space.

use alloc::vec::Vec;

use pando_abi::{BlockAddress, BlockNumber, PAGE_SIZE, Permissions, Registers};
use pando_rt::memory::PageRange;
use pando_rt::user::{self, UserRange};

use super::LoadError;
use super::auxiliary;
use super::prepare::{LoadableFile, PreparedProgram};
use super::source::ProgramSource;
use super::stack::Start;
use crate::elf::{Executable, Segment};
use crate::errno::Errno;
use crate::files::sharing::Sharing;
use crate::files::tree::Tree;
use crate::files::{ExecutableFile, Files};
use crate::memory::layout::Layout;
use crate::memory::linker_start::LinkerStart;
use crate::memory::regions::{Backing, Blocks};
use crate::memory::{AddressSpace, COPIED_MAX};
use crate::random::Random;

/// A program that is ready to run.
#[derive(Debug)]
pub struct LoadedProgram {
    /// Its initial registers.
    pub registers: Registers,
    /// The numeric entries of its auxiliary vector.
    pub auxiliary: Vec<(u64, u64)>,
}

impl PreparedProgram {
    /// The target of `/proc/self/exe`.
    #[must_use]
    pub fn program(&self) -> &ExecutableFile {
        &self.main.program
    }

    /// The program's identity, if it is the same in each run: its first block.
    #[must_use]
    pub fn first_block(&self) -> Option<BlockAddress> {
        self.main.source.blocks().map(|(first, _)| first)
    }

    /// Maps the program into an empty address space, or into one where an earlier run has left its code. `is_randomized`: its addresses are
    /// randomised (ASLR).
    ///
    /// # Errors
    /// There is not enough memory or address space, or the program's file cannot be read.
    pub fn load(
        &self,
        space: &mut AddressSpace,
        files: &Files,
        random: &mut Random,
        is_randomized: bool,
    ) -> Result<LoadedProgram, LoadError> {
        let layout = if is_randomized { Layout::new(|count| random.below(count)) } else { Layout::new(|_| 0) };
        if space.program.is_some() {
            // The code stays where the earlier run had it.
            space.layout.break_gap = layout.break_gap;
        } else {
            (space.layout, space.program) = (layout, self.first_block().filter(|_| is_randomized));
        }
        let skip = if is_randomized { random.below(512) * 16 } else { 0 };
        let main = self.main.executable.clone();
        let main = match main.load_alignment {
            Some(alignment) => {
                let start = space.find_image(main.bytes(), alignment)?;
                main.at(start).ok_or(Errno::ENOMEM)?
            }
            None => main,
        };
        map(space, &files.tree, &main, &self.main)?;
        let top = space.prepare(main.end(), main.stack_permissions, self.stack_limit)?;
        let linker = match &self.linker {
            Some(part) => {
                let linker = part.executable.clone();
                let linker = match linker.load_alignment {
                    Some(alignment) => {
                        let start = space.find(linker.bytes(), alignment)?.start();
                        linker.at(start).ok_or(Errno::ENOMEM)?
                    }
                    None => linker,
                };
                map(space, &files.tree, &linker, part)?;
                let code = linker.segments.iter().find(|segment| segment.permissions.executable());
                let name = part.program.name.as_ref().map_or(&[][..], |name| &name.name);
                space.linker_start = LinkerStart::new(name, code.map_or(0..0, |code| code.pages.start()..code.pages.end()));
                Some(linker)
            }
            None => None,
        };
        let auxiliary = auxiliary::numbers(&main, linker.as_ref(), &files.current.credentials);
        let mut canary = [0; 16];
        random.fill(&mut canary);
        let start = Start {
            arguments: &self.arguments,
            environment: &self.environment,
            path: &self.path,
            random: canary,
            skip,
            auxiliary: &auxiliary,
        };
        let bytes = start.bytes(top);
        let pointer = top - bytes.len() as u64;
        space.grow_stack(pointer, self.stack_limit);
        space.strings = start.strings(top);
        user::write(pointer, &bytes)?;
        let entry = linker.map_or(main.entry, |linker| linker.entry);
        Ok(LoadedProgram { registers: Registers { rip: entry, rsp: pointer, ..Registers::default() }, auxiliary })
    }
}

/// Maps segments that are large or only read from the file's blocks. Copies the others, adjacent segments at once, and then sets
/// permissions.
fn map(
    space: &mut AddressSpace,
    tree: &Tree,
    executable: &Executable,
    LoadableFile { source, program, .. }: &LoadableFile,
) -> Result<(), LoadError> {
    let mut runs: Vec<PageRange> = Vec::new();
    let mut copied: Vec<&Segment> = Vec::new();
    for segment in &executable.segments {
        let found = blocks(source, segment);
        let is_claimed = match found {
            Some((pages, blocks)) => space.claim_data(pages, segment.permissions, blocks)?,
            None => false,
        };
        let Some((pages, blocks)) = found.filter(|(pages, _)| is_claimed || is_mapped(segment, *pages)) else {
            copied.push(segment);
            match runs.last_mut().filter(|run| run.end() == segment.pages.start()) {
                Some(run) => *run = PageRange::new(run.start(), segment.pages.end()).unwrap_or(*run),
                None => runs.push(segment.pages),
            }
            continue;
        };
        if !is_claimed {
            space.map_program(pages, segment.permissions, blocks)?;
        }
        if segment.permissions.writable() {
            let end = segment.address + segment.file_bytes;
            user::zero(UserRange::new(end, pages.end() - end)?)?;
        }
        if let Some(rest) = PageRange::new(pages.end(), segment.pages.end()) {
            space.map(rest, segment.permissions, Backing::Anonymous)?;
        }
    }
    let backing = if source.blocks().is_some() { Backing::Anonymous } else { Backing::Copy };
    for run in runs {
        space.map(run, Permissions::READ_WRITE, backing)?;
    }
    for segment in copied {
        // As Linux maps whole pages, the bytes before a segment's start come from the file too.
        let before = segment.address - segment.pages.start();
        let bytes = segment.file_bytes + before.min(segment.offset);
        source.copy(tree, segment.offset.saturating_sub(before), UserRange::new(segment.address - before.min(segment.offset), bytes)?)?;
        space.protect(segment.pages, segment.permissions)?;
        if let Some((pages, blocks)) = blocks(source, segment) {
            space.note_copied(pages, segment.permissions, blocks);
        }
    }
    if let Some((segment, (first, _))) = executable.segments.first().zip(source.blocks())
        && let Some((_, blocks)) = blocks(source, segment)
    {
        space.record_file_mapping(Backing::Blocks(blocks), first.block, program.inode, program.name.clone());
    }
    Ok(())
}

/// Whether the pages of a segment that are blocks are mapped rather than copied: it is not written to, or large.
fn is_mapped(segment: &Segment, pages: PageRange) -> bool {
    if segment.permissions.writable() { pages.bytes() > COPIED_MAX } else { pages == segment.pages }
}

/// The pages of a segment that equal blocks of its file, if the segment has the same alignment in memory and in the file.
fn blocks(source: &ProgramSource, segment: &Segment) -> Option<(PageRange, Blocks)> {
    let (first, end) = source.blocks()?;
    let start = segment.offset.checked_sub(segment.address - segment.pages.start()).filter(|start| start.is_multiple_of(PAGE_SIZE))?;
    let block = first.block.0.checked_add(u32::try_from(start / PAGE_SIZE).ok()?)?;
    let blocks = Blocks::new(segment.pages.start(), BlockAddress { block: BlockNumber(block), ..first }, end, Sharing::Private);
    let pages = PageRange::new(segment.pages.start(), (segment.address + segment.file_bytes).next_multiple_of(PAGE_SIZE))?;
    (pages.end() <= blocks.end()).then_some((pages, blocks))
}
