// SPDX-License-Identifier: MIT OR Apache-2.0
//! Boot of the libOS up to the program's first instruction. Everything that does not depend on the program happens before the
//! freeze.

use alloc::vec::Vec;

use pando_libos::credentials::Credentials;
use pando_libos::erofs::Image;
use pando_libos::errno::Errno;
use pando_libos::files::Files;
use pando_libos::files::namei::LookupFlags;
use pando_libos::files::status::time;
use pando_libos::files::tree::Tree;
use pando_libos::limits::STACK_LIMIT;
use pando_libos::loader::{ExecRequest, LoadError, prepare};
use pando_libos::patch::Patches;
use pando_libos::random::Random;
use pando_libos::signals::Signal;
use pando_libos::string_list::StringList;
use pando_libos::system::{System, refuse};
use pando_libos::terminal::Terminal;
use pando_libos::thread_table::ThreadTable;
use pando_libos::uapi::AT_FDCWD;
use pando_libos::upcall as served;
use pando_rt::abi::boot_info::options;
use pando_rt::abi::{Registers, layout};
use pando_rt::global::Global;
use pando_rt::memory;
use pando_rt::{clock, hypercall, patched, template, upcall};

/// Exit statuses, as shells use them.
const PANDO_FAILURE_STATUS: u64 = 125;
const NOT_EXECUTABLE: u64 = 126;
const NOT_FOUND: u64 = 127;

/// The running libOS. It lies with all other small data, so that a clone copies them with one page at its first write.
static SYSTEM: Global<Option<System>> = Global::new(None);

/// Boots the libOS, freezes, and runs in each clone the program that its arguments name.
pub(crate) fn boot() -> ! {
    upcall::handle_with(|context| {
        SYSTEM.with(|system| {
            let system = system.as_mut().expect("the application runs only after its process was made");
            served::handle(system, context);
        });
    });
    let patches = Patches::new(patched::entries());
    // Programs are executed in clones of this empty space. It is made here, before the freeze, where its time does not count.
    let empty = hypercall::space_create();
    assert_eq!(empty, Ok(layout::EMPTY_SPACE), "a fresh cell has one space");
    let shared = hypercall::segment_create();
    for space in [layout::FIRST_SPACE, layout::EMPTY_SPACE] {
        let mounted = shared.and_then(|shared| hypercall::segment_mount(shared, space.0.into(), layout::SHARED));
        assert_eq!(mounted, Ok(()), "nothing lies there yet");
    }
    template::freeze();
    let (start, report) = SYSTEM.with(|system| {
        let start = start(system, patches);
        (start, system.as_mut().and_then(System::start_report))
    });
    upcall::enter(&start, report)
}

/// Makes the process and loads its program. Ends the cell if it cannot.
fn start(slot: &mut Option<System>, patches: Patches) -> Registers {
    let boot_arguments = memory::arguments();
    let mut strings = boot_arguments.strings.split(|byte| *byte == 0);
    let path = strings.next().unwrap_or_default();
    let directory = strings.next().unwrap_or_default();
    let mut words = |count: u32| {
        let mut words = StringList::default();
        let pushed = strings.by_ref().take(count as usize).try_for_each(|word| words.push(word));
        pushed.map_or_else(|error| refuse(NOT_EXECUTABLE, path, &error.text()), |()| words)
    };
    let (arguments, environment) = (words(boot_arguments.header.arguments), words(boot_arguments.header.environment));
    let mut credentials = Credentials::new(boot_arguments.header.user, boot_arguments.header.group);
    let groups = strings.by_ref().take(boot_arguments.header.groups as usize);
    credentials.groups = groups.filter_map(|group| core::str::from_utf8(group).ok()?.parse().ok()).collect();
    let mut files = Files::new(
        tree(boot_arguments.header.options & options::NESTING != 0),
        credentials.clone(),
        boot_arguments.header.terminals,
        clock::wall(),
    );
    for path in strings.by_ref().take(boot_arguments.header.exports as usize) {
        files.export(path).unwrap_or_else(|error| refuse(PANDO_FAILURE_STATUS, path, &error.text()));
    }
    let read_only: Vec<&[u8]> = strings.by_ref().take(boot_arguments.header.read_only as usize).collect();
    for path in strings.by_ref().take(boot_arguments.header.mounts as usize) {
        files.mount_live(path, time(clock::wall())).unwrap_or_else(|error| refuse(PANDO_FAILURE_STATUS, path, &error.text()));
    }
    for path in strings.take(boot_arguments.header.temporary as usize) {
        files.mount_tmpfs(path).unwrap_or_else(|error| refuse(PANDO_FAILURE_STATUS, path, &error.text()));
    }
    let header = boot_arguments.header;
    let raw = header.options & options::RAW_TERMINAL != 0;
    let terminal = Terminal::new(header.terminals, raw, [header.rows as u16, header.columns as u16]);
    let system = slot.insert(System::new(files, terminal, Random::default()));
    // After everything is mounted: mount points below them are changes.
    for path in read_only {
        let protected = system.await_mounts(|system| system.files.protect(path));
        protected.unwrap_or_else(|error| refuse(PANDO_FAILURE_STATUS, path, &error.text()));
    }
    let entered = system.await_mounts(|system| {
        let inode = system.files.find(AT_FDCWD, directory, LookupFlags::FOLLOW)?;
        system.files.change_directory(inode)
    });
    entered.unwrap_or_else(|error| refuse(PANDO_FAILURE_STATUS, directory, &error.text()));
    // Keys may be signals, so they are read even if the program does not read.
    system.take_typed();
    system.files.sockets.wall_clock = Some(clock::wall);
    system.files.sockets.monotonic_clock = Some(clock::now);
    system.open_network().unwrap_or_else(|error| refuse(PANDO_FAILURE_STATUS, b"/etc/hosts", &error.text()));
    system.jobs.first_credentials = Some(credentials);
    system.traced = header.options & options::TRACE != 0;
    system.thread_table = (header.options & options::DEBUG != 0).then(ThreadTable::default);
    system.stop_signal = Signal::from_number(header.stop_signal.into()).unwrap_or(Signal::SIGTERM);
    // A debugger sees the program's code as it is in its file.
    if boot_arguments.header.options & (options::TRAP | options::DEBUG) == 0 {
        system.memory.patches = patches;
    }
    let path = path.to_vec();
    let request = ExecRequest { directory: AT_FDCWD, path: path.clone(), flags: 0, arguments, environment, stack_limit: STACK_LIMIT };
    load(system, request).unwrap_or_else(|error| match error {
        LoadError::System(Errno::ENOENT | Errno::ENOTDIR) => refuse(NOT_FOUND, &path, &error),
        LoadError::System(Errno::ENOMEM) => {
            refuse(PANDO_FAILURE_STATUS, &path, &"the program needs more memory than the cell may have: give it more with --memory")
        }
        error => refuse(NOT_EXECUTABLE, &path, &error),
    })
}

/// Loads the program into the fresh process.
fn load(system: &mut System, request: ExecRequest) -> Result<Registers, LoadError> {
    let prepared = system.await_mounts(|system| match prepare(&system.files, request.clone()) {
        Err(error) if error.errno() == Errno::QUEUED => Err(Errno::QUEUED),
        prepared => Ok(prepared),
    })??;
    system.load(prepared)
}

/// Builds the file tree: the volumes at their mount points, and the built-in nodes of every cell; with `nesting` those of a cell that may
/// have descendants. Ends the cell if an image is invalid.
fn tree(nesting: bool) -> Tree {
    let now = time(clock::wall());
    let volumes = memory::volumes();
    let open = |index: usize, point: &[u8]| {
        let bytes = volumes.volume(index);
        (Image::new(bytes).unwrap_or_else(|error| refuse(PANDO_FAILURE_STATUS, point, &error)), bytes)
    };
    let fail = |point: &[u8], error: Errno| -> ! { refuse(PANDO_FAILURE_STATUS, point, &error.text()) };
    let (image, bytes) = open(0, b"root image");
    let mut tree = Tree::new(image, bytes).unwrap_or_else(|error| fail(b"root image", error));
    tree.populate_dev(nesting, now).unwrap_or_else(|error| fail(b"root image", error));
    for (index, point) in volumes.mount_points().enumerate().skip(1) {
        let (image, bytes) = open(index, point);
        tree.mount_at(image, bytes, point, now).unwrap_or_else(|error| fail(point, error));
    }
    tree
}
