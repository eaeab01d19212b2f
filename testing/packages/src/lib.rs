// SPDX-License-Identifier: MIT OR Apache-2.0
//! The host programs that tests use, and the Debian packages that contain them: declared once, in [`table`].
//!
//! Tests reach a program through [`host_program`], which panics for a program that the table lacks. `cargo xtask test`
//! installs the packages of the table. `cargo xtask tidy` finds programs in the scripts of tests that the table lacks.
#![forbid(unsafe_code)]

mod table;

pub use table::{BASE, EXTRA, NEEDED, OPTIONAL};

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Debian package.
#[derive(Clone, Copy, Debug)]
pub struct Package {
    /// Its name.
    pub name: &'static str,
    /// The files that tests use: programs to be found on `PATH`, or files with their full paths.
    pub files: &'static [&'static str],
    /// Why tests need it.
    pub purpose: &'static str,
}

/// Programs of Rust's own toolchain, which runs the tests.
pub const TOOLCHAIN: [&str; 3] = ["cargo", "rustc", "rustup"];
/// Names of no program at all, for tests of the error message.
pub const ABSENT: [&str; 2] = ["no-such-program-anywhere", ""];
/// Folders of the system's programs.
const FOLDERS: [&str; 4] = ["/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/"];
/// Folders where Debian keeps further programs, which the table names with their full paths.
const LIBRARIES: [&str; 2] = ["/usr/lib/", "/usr/libexec/"];

impl Package {
    /// The files that are missing on this machine.
    pub fn missing(&self) -> impl Iterator<Item = &'static str> {
        self.files.iter().copied().filter(|file| !is_present(file))
    }
}

/// Returns the package that contains a program, given as a bare name or as a path in one of the system's folders. `None`:
/// the table has none.
#[must_use]
pub fn package_of(program: &str) -> Option<&'static Package> {
    let name = FOLDERS.iter().find_map(|folder| program.strip_prefix(folder)).unwrap_or(program);
    let is_it = |file: &&str| *file == name || *file == program;
    all().find(|package| package.files.iter().any(is_it))
}

/// All packages of the table.
pub fn all() -> impl Iterator<Item = &'static Package> {
    [BASE, NEEDED, OPTIONAL, EXTRA].into_iter().flatten()
}

/// Whether a path or a bare name means a program of the system, not one that a test has created.
#[must_use]
pub fn is_of_the_system(program: &str) -> bool {
    !program.contains('/') || FOLDERS.iter().chain(&LIBRARIES).any(|folder| program.starts_with(folder))
}

/// Returns its argument, a program that a test is about to start, after checking that the table knows its package.
///
/// # Panics
/// If it is a program of the system that no package in the table contains.
#[must_use]
#[track_caller]
pub fn host_program<P: AsRef<OsStr>>(program: P) -> P {
    let name = program.as_ref().to_string_lossy();
    assert!(
        !is_of_the_system(&name) || TOOLCHAIN.iter().chain(&ABSENT).any(|known| *known == name) || package_of(&name).is_some(),
        "`{name}` is a program that a fresh system may lack: add it to testing/packages/src/table.rs, to the Debian package that holds it"
    );
    program
}

/// Whether all these programs are installed. If not, prints the first missing one, for which the test is left out.
///
/// # Panics
/// If one of them is in no package of the table.
#[must_use]
#[track_caller]
pub fn are_installed(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !is_present(host_program(program)));
    if let Some((program, package)) = missing.and_then(|program| Some((program, package_of(program)?))) {
        println!("left out: {program} is missing: install Debian's {} (`cargo xtask test` does that where it can)", package.name);
    }
    missing.is_none()
}

/// Returns the path of a program on `PATH` or in the system's folders that the `PATH` of ordinary users leaves out.
#[must_use]
pub fn find(program: &str) -> Option<PathBuf> {
    folders().map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// The folders that are searched for programs.
pub fn folders() -> impl Iterator<Item = PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    on_path.into_iter().chain(FOLDERS.map(PathBuf::from))
}

/// Whether a file of the table exists: on `PATH`, or under its full path. With the prefix `static:` it must also be linked statically.
#[must_use]
pub fn is_present(file: &str) -> bool {
    if let Some(program) = file.strip_prefix("static:") {
        // ldd fails on static executables.
        return find(program)
            .is_some_and(|path| !Command::new(host_program("ldd")).arg(path).output().is_ok_and(|output| output.status.success()));
    }
    if file.starts_with('/') { Path::new(file).exists() } else { find(file).is_some() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_programs_or_paths() {
        assert!(is_present("sh") && is_present("/proc/self/status") && !is_present("static:sh"));
        assert!(!is_present("no-such-program") && !is_present("/no/such/file"));
    }

    #[test]
    fn packages_are_named_once_and_state_their_purpose() {
        let names: Vec<&str> = all().map(|package| package.name).collect();
        let files: Vec<&str> = all().flat_map(|package| package.files).copied().collect();
        for list in [names, files] {
            for (at, name) in list.iter().enumerate() {
                assert!(!list[at + 1..].contains(name), "{name} twice");
            }
        }
        assert!(all().all(|package| !package.purpose.is_empty() && !package.files.is_empty()));
    }

    #[test]
    fn a_program_is_found_by_its_name_and_by_its_path() {
        for known in ["ping", "/usr/bin/ping", "/bin/ping"] {
            assert_eq!(package_of(known).map(|package| package.name), Some("iputils-ping"));
        }
        assert_eq!(host_program("/usr/lib/openssh/sftp-server"), "/usr/lib/openssh/sftp-server");
        assert_eq!(host_program(Path::new("/tmp/compiled")), Path::new("/tmp/compiled"));
    }

    #[test]
    #[should_panic(expected = "`no-such-program` is a program that a fresh system may lack: add it to testing/packages/src/table.rs")]
    fn a_program_without_a_package_is_refused() {
        let _ = host_program("no-such-program");
    }

    #[test]
    #[should_panic(expected = "`/usr/lib/of/nobody` is a program")]
    fn so_is_a_path_without_a_package() {
        let _ = host_program("/usr/lib/of/nobody");
    }
}
