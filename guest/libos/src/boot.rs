// SPDX-License-Identifier: MIT OR Apache-2.0
//! From the first instruction to the program's: what does not depend on the program happens before the freeze.

use alloc::vec::Vec;

use pando_libos::credentials::{Credentials, EXECUTE};
use pando_libos::erofs::{FileType, Image};
use pando_libos::errno::Errno;
use pando_libos::files::names::{CURRENT, Way};
use pando_libos::files::status::time;
use pando_libos::files::tree::volume::ImageFile;
use pando_libos::files::tree::{Place, Tree};
use pando_libos::files::{Files, Program};
use pando_libos::loader::{Given, LoadError, load};
use pando_libos::patch::Patches;
use pando_libos::process::{Process, refuse};
use pando_libos::random::Random;
use pando_libos::upcall as served;
use pando_rt::abi::Registers;
use pando_rt::abi::note::options;
use pando_rt::global::{Global, OnOwnPage};
use pando_rt::memory::{self, Arguments};
use pando_rt::{clock, hypercall, patched, upcall};

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
    let points: Vec<&[u8]> = strings.by_ref().take(given.header.volumes as usize).collect();
    let who = Credentials::new(given.header.user, given.header.group);
    let mut files = Files::new(tree(&given, &points), who, given.header.terminals, clock::wall());
    for path in strings.take(given.header.exports as usize) {
        files.export(path).unwrap_or_else(|error| refuse(OWN_FAILURE, path, &error.text()));
    }
    match files.find(CURRENT, directory, Way::FOLLOW).and_then(|place| files.change_directory(place)) {
        Ok(()) => {}
        Err(error) => refuse(OWN_FAILURE, directory, &error.text()),
    }
    let file = program(&mut files, path).unwrap_or_else(|error| {
        let status = if matches!(error, Errno::ENOENT | Errno::ENOTDIR) { NOT_FOUND } else { NOT_EXECUTABLE };
        refuse(status, path, &error.text())
    });

    let mut random = Random::default();
    let mut bytes = [0; 16];
    random.fill(&mut bytes);
    let process = place.insert(Process::new(files, random));
    if given.header.options & options::TRAP == 0 {
        process.memory.patches = patches;
    }
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    process.set_name(name);
    let given = Given { path, arguments: &arguments, environment: &environment, random: bytes };
    load(process, &file, &given).unwrap_or_else(|error| {
        let status = if error == LoadError::System(Errno::ENOMEM) { OWN_FAILURE } else { NOT_EXECUTABLE };
        refuse(status, path, &error)
    })
}

/// All names: the volumes at their places, and what stands in every cell. Ends the cell if an image makes no sense.
fn tree(given: &Arguments, points: &[&[u8]]) -> Tree {
    let now = time(clock::wall());
    let open = |index: usize, point: &[u8]| {
        let bytes = given.volume(index);
        (Image::new(bytes).unwrap_or_else(|error| refuse(OWN_FAILURE, point, &error)), bytes)
    };
    let fail = |point: &[u8], error: Errno| -> ! { refuse(OWN_FAILURE, point, &error.text()) };
    let (image, bytes) = open(0, b"root image");
    let mut tree = Tree::new(image, bytes).unwrap_or_else(|error| fail(b"root image", error));
    tree.furnish(now).unwrap_or_else(|error| fail(b"root image", error));
    for (index, point) in points.iter().enumerate().skip(1) {
        let (image, bytes) = open(index, point);
        tree.mount_at(image, bytes, point, now).unwrap_or_else(|error| fail(point, error));
    }
    tree
}

/// Finds the program. Returns its file.
fn program(files: &mut Files, path: &[u8]) -> Result<ImageFile, Errno> {
    let place = files.find(CURRENT, path, Way::FOLLOW)?;
    let status = files.status(place)?;
    match (status.kind(), place) {
        (Some(FileType::Directory), _) => Err(Errno::EISDIR),
        (Some(FileType::Regular), Place::Image(image)) if files.who.may(status.owner(), false, EXECUTE) => {
            files.program = Program { place, path: path.to_vec() };
            files.tree.image_file(image)
        }
        _ => Err(Errno::EACCES),
    }
}
