// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tar archives: all formats of GNU tar, and hostile ones.

use pando_testing::host_program;
use std::{
    fs,
    io::Write,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use pando_image::{Attributes, Builder, Error, Timestamp};
use pando_libos::erofs::{Image, LastLink};
use proptest::prelude::*;
use tar::{EntryType, Header};

use crate::{
    all_bytes, linux,
    model::{self, ModelNode, ModelTree},
    reading,
};

/// Reads an archive from a file and from a stream, which must give the same image.
fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let image = |fill: &dyn Fn(&mut Builder) -> Result<(), Error>| {
        let mut builder = Builder::new();
        fill(&mut builder)?;
        Ok::<_, Error>(all_bytes(&builder.image()?))
    };
    let from_file = image(&|builder| builder.archive(path));
    let from_stream = image(&|builder| builder.archive_stream(path, fs::File::open(path).unwrap()));
    match (&from_file, &from_stream) {
        (Ok(one), Ok(other)) => assert!(one == other),
        (one, other) => assert_eq!(one.as_ref().map_err(Error::to_string), other.as_ref().map_err(Error::to_string)),
    }
    from_file
}

fn tree(bytes: &[u8]) -> ModelTree {
    reading::tree(&Image::new(bytes).unwrap())
}

/// Runs GNU tar over a directory.
fn gnu_tar(directory: &Path, options: &[&str]) -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("archive.tar");
    let mut command = Command::new(host_program("tar"));
    command.arg("-C").arg(directory).args(options).arg("-cf").arg(&path).arg(".");
    let output = command.output().expect("tar is there");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (scratch, path)
}

fn whole_seconds(mut tree: ModelTree) -> ModelTree {
    tree.values_mut().for_each(|(attributes, _)| attributes.modified.nanoseconds = 0);
    tree
}

#[test]
fn archives_of_gnu_tar_are_read_in_all_forms() {
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path();
    linux::sample_directory(top);
    let long = format!("{}/{}", "d".repeat(200), "f".repeat(250));
    fs::create_dir(top.join("d".repeat(200))).unwrap();
    fs::write(top.join(&long), "a long name").unwrap();
    fs::hard_link(top.join("large"), top.join("sub/also-large")).unwrap();
    std::os::unix::fs::symlink("l".repeat(150), top.join("long-link")).unwrap();
    linux::run_well("mkfifo", &[top.join("fifo").to_str().unwrap()]);
    let sparse = fs::File::create(top.join("sparse")).unwrap();
    sparse.set_len(100 << 20).unwrap();
    // More fragments than fit into a header; at unaligned offsets; data up to the end in one file, a hole at the end in the other.
    for at in [0, 5000, 1 << 20, 3 << 20, 40 << 20, 41 << 20, 42 << 20, 50 << 20, (100 << 20) - 1] {
        sparse.write_all_at(b"here", at).unwrap();
    }
    sparse.set_len((100 << 20) + 1).unwrap();
    let expected = linux::host_tree(top);
    for options in
        [&["--format=gnu"][..], &["--format=pax"], &["--format=gnu", "--sparse"], &["--format=posix", "--pax-option=delete=atime"]]
    {
        let (_scratch, path) = gnu_tar(top, options);
        let bytes = read(&path).unwrap();
        let keeps_fractions = options[0] != "--format=gnu";
        assert!(tree(&bytes) == if keeps_fractions { expected.clone() } else { whole_seconds(expected.clone()) }, "{options:?}");
        let image = Image::new(&bytes).unwrap();
        let inode = |path: &str| image.resolve(image.root(), path.as_bytes(), LastLink::Keep).unwrap();
        assert_eq!((inode("large"), inode("large").links), (inode("sub/also-large"), 2));
    }
    let (_scratch, path) = gnu_tar(top, &["--format=pax", "--sparse"]);
    let error = read(&path).unwrap_err().to_string();
    assert!(error.ends_with("is sparse in POSIX form, which is not supported: create the archive with `tar --format=gnu`"), "{error}");
}

#[test]
fn old_forms_of_tar_are_read() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("sub")).unwrap();
    fs::write(directory.path().join("sub/file"), "content").unwrap();
    let expected = whole_seconds(linux::host_tree(directory.path()));
    for format in ["--format=v7", "--format=ustar", "--format=oldgnu"] {
        let (_scratch, path) = gnu_tar(directory.path(), &[format]);
        assert_eq!(tree(&read(&path).unwrap()), expected, "{format}");
    }
}

/// A member of an archive; its name is not validated.
struct Member<'a>(&'a str, EntryType, &'a str, &'a [u8]);

/// An archive of members that no careful program would write.
fn archive(members: &[Member<'_>]) -> (tempfile::TempDir, PathBuf) {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("archive.tar");
    let mut writer = tar::Builder::new(fs::File::create(&path).unwrap());
    for Member(name, kind, target, data) in members {
        let mut header = Header::new_gnu();
        // The library refuses such names; the format does not.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(*kind);
        header.set_mode(0o644);
        header.set_uid(1);
        header.set_gid(2);
        header.set_mtime(3);
        header.set_size(data.len() as u64);
        header.set_device_major(4).unwrap();
        header.set_device_minor(5).unwrap();
        header.set_cksum();
        writer.append(&header, *data).unwrap();
    }
    writer.into_inner().unwrap().flush().unwrap();
    (scratch, path)
}

#[test]
fn names_and_links_that_lead_out_are_refused() {
    use EntryType::{Directory, Link, Regular, Symlink};
    let file = |name| Member(name, Regular, "", b"x");
    for (members, problem) in [
        (vec![file("../x")], "the name '../x' is outside of it"),
        (vec![file("a/../../x")], "the name 'a/../../x' is outside of it"),
        (vec![file("a/..")], "the name 'a/..' is outside of it"),
        (vec![file("/etc/passwd")], "the name '/etc/passwd' is absolute: create the archive with relative names"),
        (vec![Member("..", Directory, "", b"")], "the name '..' is outside of it"),
        (vec![Member("x", Link, "../../etc/passwd", b"")], "the target of a hard link '../../etc/passwd' is outside of it"),
        (
            vec![Member("x", Link, "/etc/passwd", b"")],
            "the target of a hard link '/etc/passwd' is absolute: create the archive with relative names",
        ),
        (vec![Member("x", EntryType::new(b'M'), "", b"")], "'x' is of type 'M', which is not supported"),
    ] {
        let (_scratch, path) = archive(&members);
        assert_eq!(read(&path).unwrap_err().to_string(), format!("cannot read the archive '{}': {problem}", path.display()));
    }
    for (members, problem) in [
        (vec![Member("x", Link, "missing", b"")], "cannot add the hard link 'x' to the image: 'missing' is not in the archive before it"),
        (
            vec![Member("d", Directory, "", b""), Member("x", Link, "d", b"")],
            "cannot add the hard link 'x' to the image: 'd' is a directory",
        ),
        (vec![Member("l", Symlink, "/etc", b""), file("l/passwd")], "cannot add 'l/passwd' to the image: 'l' is not a directory"),
        (vec![file("d/x"), file("d")], "cannot add 'd' to the image: it exists already"),
        (vec![file("d"), Member("d", Directory, "", b"")], "cannot add 'd' to the image: it exists already"),
        (vec![Member("l", Symlink, "", b"")], "the link 'l' has no target"),
    ] {
        let (_scratch, path) = archive(&members);
        let error = read(&path).unwrap_err().to_string();
        assert!(error.ends_with(problem), "{error}");
    }
}

#[test]
fn the_last_of_repeated_members_counts() {
    use EntryType::{Char, Directory, Link, Regular, Symlink};
    let (_scratch, path) = archive(&[
        Member("./", Directory, "", b""),
        Member("file", Regular, "", b"first"),
        Member("./also", Link, "./file", b""),
        Member("file", Regular, "", b"second"),
        Member("implied//sub/x", Regular, "", b""),
        Member("implied/sub/", Directory, "", b""),
        Member("implied/sub", Directory, "", b""),
        Member("link", Regular, "", b"gone"),
        Member("link", Symlink, "/../../anywhere", b""),
        Member("device", Char, "", b""),
    ]);
    let attributes = Attributes { permissions: 0o644, uid: 1, gid: 2, modified: Timestamp { seconds: 3, nanoseconds: 0 } };
    let bytes = read(&path).unwrap();
    let tree = tree(&bytes);
    let expected: ModelTree = [
        ("/", attributes, ModelNode::Directory),
        ("/also", attributes, ModelNode::File(b"first".to_vec())),
        ("/device", attributes, ModelNode::Special(0o02)),
        ("/file", attributes, ModelNode::File(b"second".to_vec())),
        ("/implied", Attributes::root(0o755), ModelNode::Directory),
        ("/implied/sub", attributes, ModelNode::Directory),
        ("/implied/sub/x", attributes, ModelNode::File(Vec::new())),
        ("/link", attributes, ModelNode::Symlink(b"/../../anywhere".to_vec())),
    ]
    .into_iter()
    .map(|(path, attributes, node)| (path.as_bytes().to_vec(), (attributes, node)))
    .collect();
    assert_eq!(tree, expected);
    let image = Image::new(&bytes).unwrap();
    for path in ["also", "file"] {
        assert_eq!(image.resolve(image.root(), path.as_bytes(), LastLink::Keep).unwrap().links, 1);
    }
}

#[test]
fn malformed_archives_are_refused_with_a_reason() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("file");
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        let error = read(&path).unwrap_err().to_string();
        error.strip_prefix(&format!("cannot read the archive '{}': ", path.display())).unwrap().to_owned()
    };
    assert!(refused(b"\x1f\x8b\x08 and so on").starts_with("it is compressed: `gzip -dc ARCHIVE | pando image build - -o IMAGE`"));
    assert!(refused(b"\xfd7zXZ\0 and so on").starts_with("it is compressed: `xz -dc"));
    assert_eq!(refused(b""), "it is truncated: its end is missing");
    assert!(!refused(&[b'x'; 5000]).is_empty());
    let (_scratch, whole) = archive(&[Member("a", EntryType::Regular, "", &[7; 1000]), Member("b", EntryType::Regular, "", &[8; 1000])]);
    let whole = fs::read(whole).unwrap();
    assert_eq!(refused(&whole[..512]), "it is truncated: the content of 'a' is missing");
    assert_eq!(refused(&whole[..1536]), "it is truncated: its end is missing");
    assert_eq!(refused(&whole[..3072]), "it is truncated: its end is missing");
}

/// Header lengths are untrusted: the reader allocates no memory for a name of gigabytes, which costs its author a hole.
#[test]
fn names_of_gigabytes_are_refused() {
    for kind in [EntryType::GNULongName, EntryType::GNULongLink, EntryType::XHeader] {
        let (_scratch, path) = archive(&[Member("././@LongLink", kind, "", b"name\0"), Member("a", EntryType::Regular, "", b"")]);
        let mut whole = fs::read(&path).unwrap();
        let length: u64 = 3 << 30;
        let header = Header::from_byte_slice(&whole[..512]);
        let mut longer = header.clone();
        longer.set_size(length);
        longer.set_cksum();
        whole[..512].copy_from_slice(longer.as_bytes());
        let file = fs::File::create(&path).unwrap();
        file.write_all_at(&whole[..1024], 0).unwrap();
        file.write_all_at(&whole[1024..], 512 + length).unwrap();
        let error = Builder::new().archive(&path).unwrap_err().to_string();
        assert!(error.contains("longer than 1048576 bytes"), "{kind:?}: {error}");
    }
}

#[test]
fn an_archive_that_changes_is_named() {
    let (_scratch, path) = archive(&[Member("a", EntryType::Regular, "", &[7; 5000])]);
    let mut builder = Builder::new();
    builder.archive(&path).unwrap();
    let image = builder.image().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes[600] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = image.read_blocks(image.blocks() - 1, &mut [0; 4096]).unwrap_err().to_string();
    assert_eq!(error, format!("'{}' has changed: its earlier content can no longer be read", path.display()));
}

/// A small archive of everything, as GNU tar writes it.
fn sample() -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path();
    fs::create_dir(top.join("d".repeat(120))).unwrap();
    fs::write(top.join("d".repeat(120)).join("file"), [1; 600]).unwrap();
    fs::hard_link(top.join("d".repeat(120)).join("file"), top.join("hard")).unwrap();
    std::os::unix::fs::symlink("t".repeat(110), top.join("link")).unwrap();
    let sparse = fs::File::create(top.join("sparse")).unwrap();
    sparse.set_len(1 << 20).unwrap();
    (0..6).for_each(|piece| sparse.write_all_at(b"piece", piece * 160_000).unwrap());
    let [gnu, pax] = [&["--format=gnu", "--sparse"][..], &["--format=pax"]].map(|options| fs::read(gnu_tar(top, options).1).unwrap());
    // Two archives in one file, without the zero blocks between them.
    let end = gnu.len() - gnu.iter().rev().take_while(|byte| **byte == 0).count();
    [&gnu[..end.next_multiple_of(512)], &pax].concat()
}

proptest! {
    #![proptest_config(model::config(512))]

    #[test]
    fn damaged_archives_are_read_or_refused(changes in prop::collection::vec((any::<usize>(), any::<u8>(), any::<bool>()), 0..4), cut in prop::option::of(any::<usize>())) {
        static SAMPLE: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(sample);
        let mut bytes = SAMPLE.clone();
        for (at, value, mend) in changes {
            let at = at % bytes.len();
            bytes[at] = value;
            // With a correct checksum, the reader trusts a header's fields.
            let header = at / 512 * 512;
            if mend && bytes.len() >= header + 512 {
                let block = &mut bytes[header..header + 512];
                block[148..156].fill(b' ');
                let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
                block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
            }
        }
        if let Some(cut) = cut {
            bytes.truncate(cut % bytes.len());
        }
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("archive");
        fs::write(&path, &bytes).unwrap();
        let mut builder = Builder::new();
        if builder.archive(&path).is_ok() && let Ok(image) = builder.image() && image.size() < 64 << 20 {
            let bytes = all_bytes(&image);
            tree(&bytes);
        }
    }
}
