// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root that drops its privileges has no more than any user, except the required authority over files. Each case has a
//! thread of its own, which it binds permanently.

use pando_confine::{Authority, FileOwner, Paths, drop_privileges};
use rustix::fs::{Gid, Uid};
use rustix::thread::set_thread_groups;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::thread;

/// Another user.
const OTHER: u32 = 12345;

/// A directory that everyone may enter, with a file that only another user may read; `None` without root.
fn host() -> Option<tempfile::TempDir> {
    if !rustix::process::geteuid().is_root() {
        println!("left out: only root has privileges to drop");
        return None;
    }
    let host = tempfile::tempdir().expect("a temporary directory");
    fs::set_permissions(host.path(), PermissionsExt::from_mode(0o755)).expect("it is ours");
    let file = host.path().join("file");
    fs::write(&file, "theirs").expect("the directory is ours");
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("it is ours");
    chown(&file, Some(OTHER), Some(OTHER)).expect("root may");
    Some(host)
}

/// Runs `body` in a thread that was started by one without privileges.
fn after<T: Send>(paths: &Paths, body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let confined = scope.spawn(|| {
            set_thread_groups(&[Gid::from_raw(OTHER)]).expect("root may");
            drop_privileges(paths).expect("root may");
            thread::scope(|scope| scope.spawn(body).join().expect("it does not panic"))
        });
        confined.join().expect("it does not panic")
    })
}

fn kind<T>(outcome: io::Result<T>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

/// A line of this thread's `/proc` status.
fn output_of(name: &str) -> String {
    let status = fs::read_to_string("/proc/thread-self/status").expect("proc is there");
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.expect("Linux has this line").trim().to_owned()
}

#[test]
fn root_has_no_capability_left_and_no_group() {
    let Some(host) = host() else { return };
    let path = host.path().to_path_buf();
    let before = output_of("CapBnd");
    assert_ne!(before, "0000000000000000", "this test shows nothing where root has nothing");
    let paths = Paths { read: vec![path.clone(), PathBuf::from("/not there")], change: vec![path.clone()], ..Paths::default() };
    after(&paths, || {
        for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(output_of(name), "0000000000000000", "{name}");
        }
        assert_eq!(output_of("Groups"), "");
        assert_eq!(kind(fs::read(path.join("file"))), Some(ErrorKind::PermissionDenied));
        assert_eq!(kind(chown(&path, Some(OTHER), None)), Some(ErrorKind::PermissionDenied));
        assert_eq!(kind(set_thread_groups(&[Gid::ROOT]).map_err(Into::into)), Some(ErrorKind::PermissionDenied));
        assert_eq!(kind(rustix::thread::set_thread_uid(Uid::from_raw(OTHER)).map_err(Into::into)), Some(ErrorKind::PermissionDenied));
        fs::write(path.join("own"), "own").expect("the directory is root's");
    });
    assert_eq!(output_of("CapBnd"), before, "only that thread has given something up");
}

#[test]
fn files_of_other_users_are_read_and_not_changed() {
    let Some(host) = host() else { return };
    let file = host.path().join("file");
    let authority = Authority::over([FileOwner::from(&file.metadata().expect("it is there"))]);
    assert_eq!(authority, Authority { read: true, change: true });
    // The file's own path gives the same authority as the scan of a directory's content.
    let cases = [
        Paths { read: vec![host.path().into()], authority: Authority { read: true, change: false }, ..Paths::default() },
        Paths { read: vec![file.clone()], ..Paths::default() },
    ];
    for paths in cases {
        after(&paths, || {
            assert_eq!(fs::read_to_string(&file).expect("the authority allows it"), "theirs");
            assert_eq!(kind(File::options().write(true).open(&file)), Some(ErrorKind::PermissionDenied));
            assert_eq!(kind(chown(&file, Some(0), None)), Some(ErrorKind::PermissionDenied));
        });
    }
}

#[test]
fn written_back_files_keep_their_owner() {
    let Some(host) = host() else { return };
    let (file, new) = (host.path().join("file"), host.path().join("new"));
    let paths = Paths { change: vec![host.path().into()], authority: Authority { read: true, change: true }, ..Paths::default() };
    after(&paths, || {
        fs::write(&new, "ours").expect("the directory is ours");
        chown(&new, Some(OTHER), Some(OTHER)).expect("the authority allows it");
        fs::set_permissions(&new, PermissionsExt::from_mode(0o2640)).expect("the authority allows it");
        fs::rename(&new, &file).expect("the directory is ours");
        assert_eq!(output_of("CapEff"), output_of("CapPrm"));
        assert_eq!(kind(rustix::system::sethostname(b"attacked").map_err(Into::into)), Some(ErrorKind::PermissionDenied));
    });
    let metadata = file.metadata().expect("it is there");
    let FileOwner { user, group, mode, .. } = FileOwner::from(&metadata);
    assert_eq!((user, group, mode & 0o7777), (OTHER, OTHER, 0o2640));
}
