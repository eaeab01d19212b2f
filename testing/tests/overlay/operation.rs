// SPDX-License-Identifier: MIT OR Apache-2.0
//! Operations on file trees and their random generators: few names, so that paths collide.

use proptest::collection::vec;
use proptest::prelude::*;

/// An operation on a tree. Paths start at its root.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// Opens a file for writing, creates it if it is missing, and writes this many bytes at an offset.
    Write(String, u64, usize),
    /// Creates a file that must not exist.
    Create(String),
    /// Opens a file and truncates it.
    Empty(String),
    Read(String),
    Resize(String, u64),
    Directory(String),
    Symlink(String, String),
    Link(String, String),
    Unlink(String),
    RemoveDirectory(String),
    Rename(String, String),
    Permissions(String, u32),
    Status(String),
    LinkStatus(String),
    ReadLink(String),
    List(String),
}

/// A file of the initial tree.
#[derive(Clone, Debug)]
pub(crate) enum InitialFile {
    Directory,
    File(usize),
    Symlink(String),
}

fn name() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("c")]
}

/// A path of a few names. It cannot escape above the root: `..` follows a name, and no target contains one.
fn path() -> impl Strategy<Value = String> {
    let step = prop_oneof![
        8 => name().prop_map(|name| format!("/{name}")),
        1 => name().prop_map(|name| format!("/{name}/..")),
        1 => Just("/.".to_owned()),
    ];
    let end = prop_oneof![9 => Just(""), 1 => Just("/")];
    (vec(step, 1..4), end).prop_map(|(steps, end)| steps.concat() + end)
}

fn target() -> impl Strategy<Value = String> {
    vec(name(), 1..3).prop_map(|names| names.join("/"))
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..20_000u64, Just(4096), Just(8191)]
}

pub(crate) fn operations() -> impl Strategy<Value = Vec<Operation>> {
    use Operation as O;
    let operation = prop_oneof![
        4 => (path(), offset(), 0..9000usize).prop_map(|(path, offset, bytes)| O::Write(path, offset, bytes)),
        1 => path().prop_map(O::Create),
        1 => path().prop_map(O::Empty),
        2 => path().prop_map(O::Read),
        2 => (path(), offset()).prop_map(|(path, size)| O::Resize(path, size)),
        3 => path().prop_map(O::Directory),
        2 => (target(), path()).prop_map(|(target, path)| O::Symlink(target, path)),
        3 => (path(), path()).prop_map(|(from, to)| O::Link(from, to)),
        3 => path().prop_map(O::Unlink),
        3 => path().prop_map(O::RemoveDirectory),
        6 => (path(), path()).prop_map(|(from, to)| O::Rename(from, to)),
        1 => (path(), 0..0o1000u32).prop_map(|(path, mode)| O::Permissions(path, mode)),
        2 => path().prop_map(O::Status),
        2 => path().prop_map(O::LinkStatus),
        1 => path().prop_map(O::ReadLink),
        2 => path().prop_map(O::List),
    ];
    vec(operation, 0..40)
}

/// Initial files, parents first.
pub(crate) fn trees() -> impl Strategy<Value = Vec<(String, InitialFile)>> {
    let given = || {
        prop_oneof![
            Just(InitialFile::Directory),
            Just(InitialFile::Directory),
            (0..10_000usize).prop_map(InitialFile::File),
            target().prop_map(InitialFile::Symlink)
        ]
    };
    vec((name(), given(), vec((name(), given(), vec((name(), given()), 0..3)), 0..4)), 0..4).prop_map(|tops| {
        let mut files: Vec<(String, InitialFile)> = Vec::new();
        let mut add = |path: String, given: &InitialFile, below: Option<&str>| {
            let is_new = files.iter().all(|(other, _)| *other != path);
            let fits =
                below.is_none_or(|above| files.iter().any(|(other, given)| other == above && matches!(given, InitialFile::Directory)));
            if is_new && fits {
                files.push((path, given.clone()));
            }
        };
        for (name, given, below) in &tops {
            let top = format!("/{name}");
            add(top.clone(), given, None);
            for (name, given, below) in below {
                let middle = format!("{top}/{name}");
                add(middle.clone(), given, Some(&top));
                for (name, given) in below {
                    add(format!("{middle}/{name}"), given, Some(&middle));
                }
            }
        }
        files
    })
}
