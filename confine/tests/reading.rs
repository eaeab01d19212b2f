// SPDX-License-Identifier: MIT OR Apache-2.0
//! A confined process without write-back changes no owners, no modes and makes no links. One test, because it binds
//! this process permanently.

use pando_confine::{SyscallGroups, install_seccomp_filter};
use rustix::fs::{CWD, Mode, fchmod, fchown, symlinkat};
use rustix::io::Errno;
use std::io::Write;

#[test]
fn processes_without_write_back_change_no_attributes() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let mut file = std::fs::File::create(directory.path().join("file")).expect("the directory is ours");
    install_seccomp_filter(&SyscallGroups::default()).expect("seccomp limits calls");
    assert_eq!(fchmod(&file, Mode::RWXU), Err(Errno::PERM));
    assert_eq!(fchown(&file, None, None), Err(Errno::PERM));
    assert_eq!(symlinkat("file", CWD, directory.path().join("link")), Err(Errno::PERM));
    file.write_all(b"the cache of the host's software is still renewed").expect("it is open");
    std::fs::rename(directory.path().join("file"), directory.path().join("renamed")).expect("the directory is ours");
}
