// SPDX-License-Identifier: MIT OR Apache-2.0
//! A directory that changes between runs: each cell sees what the host has, although the directory's image is cached.

use crate::case::{Case, long_runs};
use crate::data::Numbers;
use pando_testing::needs_kvm;
use std::fs::{self, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Lists names, attributes, link targets and contents of all files.
const LIST: &str = "find . -type d -exec stat -c '%n %F %d %i %h %a %u %g %Y %Z' {} + | LC_ALL=C sort
    find . ! -type d -exec stat -c '%N %F %d %i %h %s %a %u %g %Y %Z' {} + | LC_ALL=C sort
    find . -type f -exec cksum {} + | LC_ALL=C sort";
/// More files than a tree needs in order to be cached.
const FILES: usize = 600;
/// Names in each directory.
const NAMES: usize = 8;

/// Some path below a directory, which need not exist.
fn path(numbers: &mut Numbers, top: &Path) -> PathBuf {
    let depth = 1 + numbers.below(3);
    (0..depth).fold(top.to_owned(), |path, _| path.join(format!("n{}", numbers.below(NAMES))))
}

/// Changes something in a directory, if it is possible.
fn change(numbers: &mut Numbers, top: &Path, number: usize) -> io::Result<()> {
    let (one, other) = (path(numbers, top), path(numbers, top));
    match numbers.below(11) {
        0 => fs::create_dir_all(one),
        1 | 2 => fs::write(one, format!("file {number}\n").repeat(numbers.below(1000))),
        3 => fs::File::options().append(true).open(one)?.write_all(b"more\n"),
        4 => fs::remove_file(one),
        5 => fs::remove_dir_all(one),
        6 | 7 => fs::rename(one, other),
        8 => fs::hard_link(one, other),
        9 => symlink(format!("n{}", numbers.below(NAMES)), one),
        _ if one.is_symlink() => Ok(()),
        _ => fs::set_permissions(one, Permissions::from_mode(0o700 | numbers.below(64) as u32)),
    }
}

#[test]
fn a_cell_sees_what_changed_since_the_last_run() {
    needs_kvm!();
    let directory = tempfile::tempdir().expect("the host has room");
    let top = directory.path();
    fs::create_dir(top.join("many")).expect("it is ours");
    (0..FILES).for_each(|number| fs::write(top.join(format!("many/f{number}")), "text\n").expect("it is ours"));
    let mut numbers = Numbers::new(11);
    let mut done = 0;
    for round in 0..if long_runs() { 200 } else { 10 } {
        for number in 0..1 + numbers.below(40) {
            done += usize::from(change(&mut numbers, top, number).is_ok());
        }
        let case = Case::new("sh", &["-c", LIST]).directory(top);
        if let Err(difference) = case.compare() {
            panic!("round {round}: {difference}");
        }
    }
    assert!(done > 20, "most changes are possible: {done}");
}
