// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the first instruction to the program's: what does not depend on the program happens before the freeze.

use alloc::vec::Vec;

use pando_libos::erofs::{FileType, Image, LastLink};
use pando_libos::errno::Errno;
use pando_libos::files::Files;
use pando_libos::files::image::{ImageFile, Root};
use pando_libos::loader::{Given, LoadError, load};
use pando_libos::patch::Patches;
use pando_libos::process::{Process, refuse};
use pando_libos::random::Random;
use pando_libos::upcall as served;
use pando_rt::abi::Registers;
use pando_rt::abi::note::options;
use pando_rt::global::{Global, OnOwnPage};
use pando_rt::{hypercall, memory, patched, upcall};

/// Exit statuses, as shells use them.
const OWN_FAILURE: u64 = 125;
const NOT_EXECUTABLE: u64 = 126;
const NOT_FOUND: u64 = 127;

static PROCESS: OnOwnPage<Global<Option<Process>>> = OnOwnPage(Global::new(None));

/// Boots the libOS, freezes, and runs in each clone the program that its arguments name.
pub(crate) fn boot() -> ! {
    upcall::handle_with(|context| {
        PROCESS.0.with(|process| {
            let process = process.as_mut().expect("the application runs only after its process was made");
            served::handle(process, context);
        });
    });
    let patches = Patches::new(patched::entries());
    hypercall::freeze();
    let start = PROCESS.0.with(|process| start(process, patches));
    upcall::enter(&start)
}

/// Makes the process and loads its program. Ends the cell if it cannot.
fn start(place: &mut Option<Process>, patches: Patches) -> Registers {
    let given = memory::arguments();
    let mut strings = given.strings.split(|byte| *byte == 0);
    let path = strings.next().unwrap_or_default();
    let directory = strings.next().unwrap_or_default();
    let arguments: Vec<&[u8]> = strings.by_ref().take(given.header.arguments as usize).collect();
    let environment: Vec<&[u8]> = strings.by_ref().take(given.header.environment as usize).collect();
    let bytes = given.volume(0);
    let image = Image::new(bytes).unwrap_or_else(|error| refuse(OWN_FAILURE, b"root image", &error));
    let root = Root { image, bytes };
    let file = program(&root, path).unwrap_or_else(|error| {
        let status = if matches!(error, Errno::ENOENT | Errno::ENOTDIR) { NOT_FOUND } else { NOT_EXECUTABLE };
        refuse(status, path, &error.text())
    });

    let mut random = Random::default();
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    let mut files = Files::new(root, path.to_vec(), given.header.terminals);
    match root.image.resolve(root.image.root(), directory, LastLink::Follow) {
        Ok(inode) if inode.kind == FileType::Directory => files.working_directory = inode.nid,
        Ok(_) => refuse(OWN_FAILURE, directory, &Errno::ENOTDIR.text()),
        Err(error) => refuse(OWN_FAILURE, directory, &error),
    }
    let process = place.insert(Process::new(files, random));
    if given.header.options & options::TRAP == 0 {
        process.memory.patches = patches;
    }
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    process.set_name(name);
    let given = Given { path, arguments: &arguments, environment: &environment, random: bytes };
    load(&mut process.memory, &file, &given).unwrap_or_else(|error| {
        let status = if error == LoadError::System(Errno::ENOMEM) { OWN_FAILURE } else { NOT_EXECUTABLE };
        refuse(status, path, &error)
    })
}

/// The file of the program.
fn program(root: &Root, path: &[u8]) -> Result<ImageFile, Errno> {
    let inode = root.image.resolve(root.image.root(), path, LastLink::Follow)?;
    match inode.kind {
        FileType::Directory => Err(Errno::EISDIR),
        FileType::Regular if inode.permissions & 0o111 != 0 => ImageFile::new(root, &inode),
        _ => Err(Errno::EACCES),
    }
}
