// SPDX-License-Identifier: MIT OR Apache-2.0
//! A confined process can do what it needs, and nothing else. One test, because it binds this process permanently.

use pando_confine::{Enforcement, Paths, SyscallGroups, forbid_dumps, install_seccomp_filter, limit_paths};
use pando_packages::host_program;
use rustix::fs::{CWD, FileType, Mode, OFlags, fchmod, fcntl_getfl, fcntl_setfl, getxattr, mknodat};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Resource, Signal, dumpable_behavior, getrlimit, kill_process, setpriority_process};
use std::fs::{self, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;

/// Files of a host: some to read, some to change, some secret.
struct Host(tempfile::TempDir);

impl Host {
    fn new() -> Host {
        let host = Host(tempfile::tempdir().expect("a temporary directory"));
        for name in ["read", "change", "secret"] {
            let directory = host.path(name);
            fs::create_dir(&directory).expect("it was not there");
            fs::write(directory.join("file"), name).expect("the directory is ours");
        }
        std::os::unix::fs::symlink(host.path("secret/file"), host.path("change/link")).expect("it was not there");
        fs::write(host.path("alone"), "alone").expect("the directory is ours");
        host
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> Result<String, ErrorKind> {
        fs::read_to_string(self.path(name)).map_err(|error| error.kind())
    }
}

fn denied<T>(what: &str, outcome: std::io::Result<T>) {
    assert_eq!(outcome.err().map(|error| error.kind()), Some(ErrorKind::PermissionDenied), "{what} was not refused");
}

fn replace(directory: &Path) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(directory.join("new"))?;
    file.write_all(b"new")?;
    file.sync_all()?;
    fs::rename(directory.join("new"), directory.join("file"))
}

/// The actions of every part of a confined process.
fn check_needs(host: &Host) {
    assert_eq!((host.read("read/file"), host.read("alone")), (Ok("read".into()), Ok("alone".into())));
    replace(&host.path("change")).expect("the directory may be changed");
    fs::create_dir(host.path("change/directory")).expect("the directory may be changed");
    fs::remove_dir(host.path("change/directory")).expect("the directory may be changed");
    assert_eq!(host.read("change/file"), Ok("new".into()));
    let file = fs::File::open(host.path("change/file")).expect("it may be read");
    fchmod(&file, Mode::from_raw_mode(0o2755)).expect("modes are written back");
    denied("lending a program", fchmod(&file, Mode::from_raw_mode(0o4755)).map_err(Into::into));
    assert!(vec![1_u8; 8 << 20].iter().all(|byte| *byte == 1), "memory comes and goes");
}

/// Each of these is possible before the filter is set, so a later refusal comes from the filter.
fn check_before(host: &Host) {
    setpriority_process(None, 1).expect("anybody may be nicer");
    let flags = fcntl_getfl(std::io::stdin()).expect("it is open");
    fcntl_setfl(std::io::stdin(), flags).expect("it is open");
    // It has no such attribute, or the file system supports none.
    assert_ne!(getxattr(host.path("change/file"), "user.name", &mut [0_u8; 8]), Err(Errno::PERM));
}

/// Files that are not on the list.
fn check_paths(host: &Host) {
    for path in ["secret/file", "secret", "change/link", "change/../secret/file"] {
        denied(path, fs::read(host.path(path)));
    }
    for path in ["/proc/1/environ", "/etc/hostname", "/dev/null"] {
        denied(path, fs::File::open(path));
    }
    denied("writing what is to be read", OpenOptions::new().append(true).open(host.path("read/file")));
    denied("writing what is to be read", replace(&host.path("read")));
    denied("writing a file alone", fs::write(host.path("alone"), "attack"));
    denied("removing what is to be read", fs::remove_file(host.path("read/file")));
    denied("linking what is elsewhere", fs::hard_link(host.path("secret/file"), host.path("change/hard")));
    denied("moving out", fs::rename(host.path("change/file"), host.path("read/file")));
}

/// Calls that are not on the list.
fn check_calls(host: &Host, parent: Pid) {
    denied("another process", Command::new(host_program("/bin/true")).stdin(Stdio::null()).spawn());
    denied("a thread", thread::Builder::new().spawn(|| ()));
    denied("a connection", TcpStream::connect("127.0.0.1:1"));
    denied("a listener", TcpListener::bind("127.0.0.1:0"));
    denied("a socket", UdpSocket::bind("127.0.0.1:0"));
    denied("a local socket", UnixStream::pair());
    denied("a signal", kill_process(parent, Signal::CONT).map_err(Into::into));
    denied("a pipe with a name", mknodat(CWD, host.path("change/fifo"), FileType::Fifo, Mode::RWXU, 0).map_err(Into::into));
    denied("another root", rustix::process::chroot(host.path("change")).map_err(Into::into));
    denied("another name for the host", rustix::system::sethostname(b"attacked").map_err(Into::into));
    denied("a request to a terminal", rustix::process::ioctl_tiocsctty(std::io::stdin()).map_err(Into::into));
    denied("another priority", setpriority_process(None, 5).map_err(Into::into));
    denied("signals of a descriptor", fcntl_setfl(std::io::stdin(), OFlags::NONBLOCK).map_err(Into::into));
    denied("attributes by name", getxattr(host.path("change/file"), "user.name", &mut [0_u8; 8]).map_err(Into::into));
    denied(
        "a change of modes",
        fs::set_permissions(host.path("change/file"), fs::metadata(host.path("change/file")).expect("it is there").permissions()),
    );
}

#[test]
fn a_confined_process_does_its_work_and_nothing_else() {
    let host = Host::new();
    let parent = rustix::process::getppid().expect("somebody started this");
    check_before(&host);
    let mut open = fs::File::open(host.path("secret/file")).expect("nothing is confined yet");
    // As for vCPUs, one thread from before limits the calls, and one from after limits the paths.
    forbid_dumps().expect("Linux can");
    assert_eq!((getrlimit(Resource::Core).maximum, dumpable_behavior()), (Some(0), Ok(DumpableBehavior::NotDumpable)));
    let paths = Paths {
        read: vec![host.path("read"), host.path("alone"), host.path("not there")],
        change: vec![host.path("change")],
        ..Paths::default()
    };
    let expected = pando_confine::supported_enforcement();
    let reach = limit_paths(&paths).expect("Landlock limits what it can");
    assert_eq!(reach, expected);
    let (go, waits) = mpsc::channel();
    let (limited, host) = (reach == Enforcement::Limited, std::sync::Arc::new(host));
    let worker = thread::spawn({
        let host = std::sync::Arc::clone(&host);
        move || {
            waits.recv().expect("the test goes on");
            if limited {
                check_paths(&host);
            }
            check_calls(&host, parent);
        }
    });
    install_seccomp_filter(&SyscallGroups { writing_back: true, ..SyscallGroups::default() }).expect("seccomp limits calls");

    check_needs(&host);
    go.send(()).expect("the thread waits");
    worker.join().expect("other threads are confined as well");
    check_calls(&host, parent);
    if limited {
        check_paths(&host);
    } else {
        println!("left out: this host's Landlock is {reach:?}");
    }
    let mut text = String::new();
    open.read_to_string(&mut text).expect("what was open stays open");
    assert_eq!(text, "secret");
}
