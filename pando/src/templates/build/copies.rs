// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files of the host that a step copies into the cell.

use pando_oci::Digest;
use serde_json::{Value, json};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The number of files of one copy, and how deep their directories may be nested.
const FILES_MAX: usize = 100_000;
const DEPTH_MAX: usize = 64;
/// The bits of a mode that are copied.
const PERMISSIONS: u32 = 0o7777;

/// A file, a directory or a symbolic link of the host, and its path in the cell.
#[derive(Debug)]
pub(super) struct CopiedFile {
    /// Its path on the host.
    pub(super) local: PathBuf,
    /// Its path in the cell.
    pub(super) path: String,
    /// Its type.
    pub(super) content: CopiedContent,
}

/// The type of a copied file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum CopiedContent {
    /// A file with these permissions.
    File(u32),
    /// A directory with these permissions.
    Directory(u32),
    /// A symbolic link to this target.
    Link(String),
}

impl CopiedFile {
    /// The properties that the cache key depends on.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn description(&self) -> io::Result<Value> {
        Ok(match &self.content {
            CopiedContent::Link(target) => json!([self.path, "link", target]),
            CopiedContent::Directory(mode) => json!([self.path, "directory", mode]),
            CopiedContent::File(mode) => json!([self.path, "file", mode, Digest::of(&fs::read(&self.local)?).hex()]),
        })
    }
}

/// Lists a file, or a directory with all below it, directories before their content. If `local` is a symbolic link, it is followed.
/// Special files in directories are left out.
///
/// # Errors
/// There is no such file, it cannot be read, or there are too many.
pub(super) fn walk(local: &Path, path: &str) -> io::Result<Vec<CopiedFile>> {
    let at = |local: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {}", local.display(), pando_manager::host::plain(&error)))
    };
    let mut files = Vec::new();
    let first = local.canonicalize().map_err(|error| at(local, error))?;
    let mut left = vec![(first, path.to_owned(), 0)];
    while let Some((local, path, depth)) = left.pop() {
        let named = |error| at(&local, error);
        let metadata = fs::symlink_metadata(&local).map_err(named)?;
        let Some(content) = content(&local, &metadata).map_err(named)? else { continue };
        if files.len() == FILES_MAX || depth == DEPTH_MAX {
            return Err(io::Error::other(format!("copy: more than {FILES_MAX} files, or directories nested deeper than {DEPTH_MAX}")));
        }
        if metadata.is_dir() {
            let mut names = fs::read_dir(&local)
                .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect::<io::Result<Vec<_>>>())
                .map_err(named)?;
            // The last one is visited first.
            names.sort_by(|one, other| other.cmp(one));
            for name in names {
                let text = name.to_str().ok_or_else(|| named(io::Error::other("a name in it is not UTF-8")))?;
                left.push((local.join(text), format!("{}/{text}", path.trim_end_matches('/')), depth + 1));
            }
        }
        files.push(CopiedFile { local, path, content });
    }
    Ok(files)
}

/// The type of a file; `None`: a special file.
fn content(local: &Path, metadata: &Metadata) -> io::Result<Option<CopiedContent>> {
    let mode = metadata.permissions().mode() & PERMISSIONS;
    Ok(if metadata.is_symlink() {
        let target = fs::read_link(local)?;
        Some(CopiedContent::Link(target.into_os_string().into_string().map_err(|_| io::Error::other("its target is not UTF-8"))?))
    } else if metadata.is_dir() {
        Some(CopiedContent::Directory(mode))
    } else {
        metadata.is_file().then_some(CopiedContent::File(mode))
    })
}

#[cfg(test)]
mod tests {
    use super::{CopiedContent, walk};
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn directories_come_before_their_content_and_special_files_do_not_come() {
        let place = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir_all(place.path().join("b/c")).expect("the directory is ours");
        fs::write(place.path().join("b/c/file"), "x").expect("the directory is ours");
        symlink("b", place.path().join("a")).expect("the directory is ours");
        let _socket = std::os::unix::net::UnixListener::bind(place.path().join("socket")).expect("the directory is ours");
        let files = walk(place.path(), "/work/").expect("it can be read");
        let paths: Vec<&str> = files.iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["/work/", "/work/a", "/work/b", "/work/b/c", "/work/b/c/file"]);
        assert_eq!(files[1].content, CopiedContent::Link("b".into()));
        let missing = walk(&place.path().join("none"), "/").expect_err("there is none").to_string();
        assert!(missing.contains("none: no such file"), "{missing}");
    }
}
