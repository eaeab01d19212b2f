// SPDX-License-Identifier: MIT OR Apache-2.0
//! Images of host trees: their content, their visibility, and the effect of changing files.

use std::{
    fs::{self, File, Permissions},
    io::Write,
    os::unix::{
        ffi::OsStrExt,
        fs::{MetadataExt, PermissionsExt, symlink},
        net::UnixListener,
    },
    path::{Path, PathBuf},
};

use pando_image::{Attributes, BlockError, Builder, Error, Image as Writer, Readable, Scan};
use pando_libos::erofs::{Image, LastLink, Position};
use proptest::prelude::*;

use crate::{
    all_bytes, linux,
    model::{self, ModelNode, ModelTree, additions, build},
    reading,
};

pub(crate) fn walk(readable: Readable) -> Scan<'static> {
    Scan { readable, limit: u64::MAX, parallel: true, progress: &|_| () }
}

/// Scans a directory of the host into an image.
pub(crate) fn image_of(directory: &Path, readable: Readable) -> Writer {
    let mut builder = Builder::new();
    builder.host("/", directory, &walk(readable)).unwrap();
    builder.image().unwrap()
}

fn tree_of(directory: &Path, readable: Readable) -> ModelTree {
    reading::tree(&Image::new(&all_bytes(&image_of(directory, readable))).unwrap())
}

/// Creates a tree on the host, with default owners and times.
fn make(tree: &ModelTree, top: &Path) {
    for (path, (attributes, node)) in tree {
        let path = top.join(std::ffi::OsStr::from_bytes(path.strip_prefix(b"/").unwrap()));
        // Lets the user who runs the tests read it again.
        let permissions = Permissions::from_mode(u32::from(attributes.permissions | 0o700));
        match node {
            ModelNode::Directory => fs::create_dir_all(&path).unwrap(),
            ModelNode::File(data) => fs::write(&path, data).unwrap(),
            ModelNode::Symlink(target) => {
                symlink(std::ffi::OsStr::from_bytes(target), &path).unwrap();
                continue;
            }
            ModelNode::Special(_) => unreachable!("the generator makes none"),
        }
        fs::set_permissions(&path, permissions).unwrap();
    }
}

proptest! {
    #![proptest_config(model::config(32))]

    #[test]
    fn a_tree_matches_the_host(additions in additions()) {
        let (_, tree) = build(&additions);
        let directory = tempfile::tempdir().unwrap();
        make(&tree, directory.path());
        prop_assert_eq!(tree_of(directory.path(), Readable::All), linux::host_tree(directory.path()));
    }
}

/// Creates every type of file that a directory may contain; devices only if the caller may create them.
fn curiosities(top: &Path) {
    linux::sample_directory(top);
    linux::run_well("mkfifo", &[top.join("fifo").to_str().unwrap()]);
    drop(UnixListener::bind(top.join("socket")).unwrap());
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        linux::run_well("mknod", &[top.join("null").to_str().unwrap(), "c", "1", "3"]);
        linux::run_well("mknod", &[top.join("disk").to_str().unwrap(), "b", "259", "70000"]);
    }
    symlink("loop", top.join("loop")).unwrap();
    symlink("pong", top.join("ping")).unwrap();
    symlink("ping", top.join("pong")).unwrap();
    fs::write(top.join("n".repeat(255)), "long").unwrap();
    fs::hard_link(top.join("large"), top.join("sub/also-large")).unwrap();
    fs::hard_link(top.join("fifo"), top.join("sub/also-fifo")).unwrap();
}

#[test]
fn everything_that_a_directory_may_hold_is_shown() {
    let directory = tempfile::tempdir().unwrap();
    curiosities(directory.path());
    let bytes = all_bytes(&image_of(directory.path(), Readable::All));
    let image = Image::new(&bytes).unwrap();
    assert_eq!(reading::tree(&image), linux::host_tree(directory.path()));
    let inode = |path: &str| image.resolve(image.root(), path.as_bytes(), LastLink::Keep).unwrap();
    assert_eq!(inode("large"), inode("sub/also-large"));
    assert_eq!((inode("large").links, inode("fifo").links, inode("small").links), (2, 2, 1));
    // The same as seen by Linux: extracted by fsck, and mounted, device numbers included.
    let scratch = tempfile::tempdir().unwrap();
    let file = scratch.path().join("image");
    fs::write(&file, &bytes).unwrap();
    let (sound, said) = linux::fsck(&[file.to_str().unwrap()]);
    assert!(sound, "{said}");
    if !linux::can_mount() {
        eprintln!("left out: mounting images needs root and a loop device");
        return;
    }
    let mount = linux::Mount::new(file.to_str().unwrap());
    assert_eq!(linux::host_tree(mount.0.path()), linux::host_tree(directory.path()));
    for device in ["null", "disk"] {
        let number = |top: &Path| fs::symlink_metadata(top.join(device)).unwrap().rdev();
        assert_eq!(number(mount.0.path()), number(directory.path()), "{device}");
    }
    let mounted = |name| fs::metadata(mount.0.path().join(name)).unwrap();
    assert_eq!((mounted("large").ino(), mounted("large").nlink()), (mounted("sub/also-large").ino(), 2));
}

#[test]
fn a_hundred_thousand_files_lie_in_one_directory() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..100_000 {
        File::create(directory.path().join(format!("{number:05}-{}", "x".repeat(number % 60)))).unwrap();
    }
    let bytes = all_bytes(&image_of(directory.path(), Readable::All));
    let image = Image::new(&bytes).unwrap();
    let root = image.directory(&image.inode(image.root()).unwrap()).unwrap();
    assert_eq!(root.entries(Position::default()).map(Result::unwrap).count(), 100_002);
    for number in (0..100_000).step_by(997) {
        assert!(root.lookup(format!("{number:05}-{}", "x".repeat(number % 60)).as_bytes()).is_ok());
    }
    let mut limited = Builder::new();
    let error = limited.host("/", directory.path(), &Scan { limit: 99_999, ..walk(Readable::All) }).unwrap_err();
    assert_eq!(error.to_string(), format!("'{}' contains more than 99999 files and directories", directory.path().display()));
    Builder::new().host("/", directory.path(), &Scan { limit: 100_000, ..walk(Readable::All) }).unwrap();
}

#[test]
fn files_that_not_everyone_may_read_are_left_out() {
    let directory = tempfile::tempdir().unwrap();
    let top = directory.path();
    for (path, mode) in
        [("open", 0o644), ("secret", 0o640), ("program", 0o711), ("public/file", 0o604), ("private/file", 0o644), ("enter/file", 0o644)]
    {
        let path = top.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "content").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    for (path, mode) in [("", 0o755), ("public", 0o705), ("private", 0o750), ("enter", 0o711)] {
        fs::set_permissions(top.join(path), Permissions::from_mode(mode)).unwrap();
    }
    symlink("secret", top.join("link")).unwrap();
    let names = |readable| tree_of(top, readable).into_keys().map(|path| String::from_utf8(path).unwrap()).collect::<Vec<_>>();
    assert_eq!(names(Readable::ByEveryone), ["/", "/link", "/open", "/public", "/public/file"]);
    let all =
        ["/", "/enter", "/enter/file", "/link", "/open", "/private", "/private/file", "/program", "/public", "/public/file", "/secret"];
    assert_eq!(names(Readable::ByCaller), all);
    assert_eq!(names(Readable::All), all);
}

#[test]
fn the_kernels_own_file_systems_are_not_walked() {
    assert_eq!(tree_of(Path::new("/proc"), Readable::ByCaller).len(), 1);
    assert_eq!(tree_of(Path::new("/sys"), Readable::ByCaller).len(), 1);
}

/// Returns the block with the start of a file's data.
fn block_of(image: &Writer, path: &str) -> u64 {
    let bytes = all_bytes(image);
    let reader = Image::new(&bytes).unwrap();
    let inode = reader.resolve(reader.root(), path.as_bytes(), LastLink::Follow).unwrap();
    reader.data(&inode).unwrap().extent().start / 4096
}

#[test]
fn a_file_that_changes_is_an_error_that_names_it_and_no_other() {
    type Change = fn(&Path);
    let changes: [(&str, Change); 8] = [
        ("appended", |path| File::options().append(true).open(path).unwrap().write_all(b"more").unwrap()),
        ("rewritten in place", |path| File::options().write(true).open(path).unwrap().write_all(b"other").unwrap()),
        ("cut", |path| File::options().write(true).open(path).unwrap().set_len(3).unwrap()),
        ("removed", |path| fs::remove_file(path).unwrap()),
        ("another file", |path| {
            fs::write(path.with_extension("new"), vec![b'n'; 10_000]).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        }),
        ("a link to the same", |path| {
            fs::rename(path, path.with_extension("old")).unwrap();
            symlink(path.with_extension("old"), path).unwrap();
        }),
        ("a FIFO, which must not be waited for", |path| {
            fs::remove_file(path).unwrap();
            linux::run_well("mkfifo", &[path.to_str().unwrap()]);
        }),
        ("closed to others", |path| fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap()),
    ];
    for (name, change) in changes {
        for opened_before in [false, true] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("changing");
            fs::write(&path, vec![b'x'; 10_000]).unwrap();
            fs::write(directory.path().join("steady"), vec![b'y'; 10_000]).unwrap();
            let image = image_of(directory.path(), Readable::All);
            // A second image locates the blocks, so that the one under test has not opened any file yet.
            let (changing, steady) = {
                let other = image_of(directory.path(), Readable::All);
                (block_of(&other, "changing"), block_of(&other, "steady"))
            };
            let mut block = [0; 4096];
            if opened_before {
                image.read_blocks(changing, &mut block).unwrap();
                assert_eq!(block, [b'x'; 4096]);
            }
            change(&path);
            let outcome = image.read_blocks(changing + 1, &mut block);
            let lost_its_name = ["removed", "another file", "a link to the same", "a FIFO, which must not be waited for"].contains(&name);
            if opened_before && lost_its_name {
                // Its descriptor is still open.
                outcome.unwrap();
                assert_eq!(block, [b'x'; 4096], "{name}");
                continue;
            }
            match outcome.unwrap_err() {
                BlockError::Changed(named) => assert_eq!(named, path, "{name}"),
                other => panic!("{name}: {other}"),
            }
            image.read_blocks(steady, &mut block).unwrap();
            assert_eq!(block, [b'y'; 4096], "{name}");
        }
    }
}

#[test]
fn a_change_of_names_or_modes_alone_is_no_change() {
    type Change = fn(&Path, &Path);
    let changes: [(&str, Change); 4] = [
        ("another name", |path, elsewhere| fs::hard_link(path, elsewhere).unwrap()),
        ("a name that came and went", |path, elsewhere| {
            fs::hard_link(path, elsewhere).unwrap();
            fs::remove_file(elsewhere).unwrap();
        }),
        ("open to more", |path, _| fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap()),
        ("the same time", |path, _| {
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(file.metadata().unwrap().modified().unwrap()).unwrap();
        }),
    ];
    for (name, change) in changes {
        for opened_before in [false, true] {
            let above = tempfile::tempdir().unwrap();
            let (directory, elsewhere) = (above.path().join("shown"), above.path().join("elsewhere"));
            fs::create_dir(&directory).unwrap();
            let path = directory.join("file");
            fs::write(&path, [[b'x'; 4096], [b'y'; 4096]].concat()).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            let image = image_of(&directory, Readable::All);
            let first = block_of(&image_of(&directory, Readable::All), "file");
            let mut block = [0; 4096];
            if opened_before {
                image.read_blocks(first, &mut block).unwrap();
            }
            change(&path, &elsewhere);
            for (number, byte) in [(first + 1, b'y'), (first, b'x')] {
                image.read_blocks(number, &mut block).unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(block, [byte; 4096], "{name}");
            }
            if name != "open to more" {
                assert_eq!(image.fingerprint(), image_of(&directory, Readable::All).fingerprint(), "{name}");
            }
        }
    }
}

#[test]
fn content_that_was_read_is_compared_when_only_the_change_time_tells() {
    use std::os::unix::fs::FileExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, vec![b'x'; 5 * 4096]).unwrap();
    let image = image_of(directory.path(), Readable::All);
    let first = block_of(&image_of(directory.path(), Readable::All), "file");
    let mut block = [0; 4096];
    for number in [3, 0, 1] {
        image.read_blocks(first + number, &mut block).unwrap();
    }
    let file = File::options().write(true).open(&path).unwrap();
    let rewrite = |number: u64| {
        let modified = file.metadata().unwrap().modified().unwrap();
        file.write_all_at(b"other", number * 4096).unwrap();
        file.set_modified(modified).unwrap();
    };
    // This block has not been read yet.
    rewrite(4);
    image.read_blocks(first + 4, &mut block).unwrap();
    assert!(block.starts_with(b"other"));
    rewrite(3);
    assert!(matches!(image.read_blocks(first + 2, &mut block), Err(BlockError::Changed(_))));
}

#[test]
fn content_is_never_mixed_while_it_is_rewritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let blocks = 64;
    fs::write(&path, vec![1; blocks * 4096]).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let file = File::options().write(true).open(&path).unwrap();
            let mut value = 1u8;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                value = value % 250 + 1;
                std::os::unix::fs::FileExt::write_all_at(&file, &vec![value; blocks * 4096], 0).unwrap();
            }
        });
        for _ in 0..200 {
            let image = image_of(directory.path(), Readable::All);
            let first = image.blocks() - blocks as u64;
            let mut seen = None;
            for block in 0..blocks as u64 {
                let mut bytes = [0; 4096];
                if image.read_blocks(first + block, &mut bytes).is_err() {
                    break;
                }
                // A block may be half old and half new only during a write; afterwards the times reveal the change.
                assert!(bytes.iter().all(|&byte| byte == *seen.get_or_insert(bytes[0])), "block {block}");
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn more_files_than_stay_open_are_read() {
    let directory = tempfile::tempdir().unwrap();
    for number in 0..500 {
        fs::write(directory.path().join(format!("{number:03}")), format!("{number}").repeat(2000)).unwrap();
    }
    let image = image_of(directory.path(), Readable::All);
    let bytes = all_bytes(&image);
    assert_eq!(reading::tree(&Image::new(&bytes).unwrap()), linux::host_tree(directory.path()));
    let open = fs::read_dir("/proc/self/fd").unwrap().flatten().filter_map(|fd| fs::read_link(fd.path()).ok());
    let ours = open.filter(|path| path.starts_with(directory.path())).count();
    assert!(ours <= 256, "{ours} files are open");
    // Blocks in any order.
    for block in (0..image.blocks()).rev() {
        let mut one = [0; 4096];
        image.read_blocks(block, &mut one).unwrap();
        assert!(one == bytes[block as usize * 4096..][..4096]);
    }
}

#[test]
fn blocks_beyond_the_end_are_refused() {
    let image = Builder::new().image().unwrap();
    let outside = |first, blocks: usize| image.read_blocks(first, &mut vec![0; blocks * 4096]).unwrap_err().to_string();
    assert_eq!(image.blocks(), 2);
    assert_eq!(outside(2, 1), "block 2 is outside of the image, which has 2 blocks");
    assert_eq!(outside(1, 2), "block 2 is outside of the image, which has 2 blocks");
    assert_eq!(outside(u64::MAX, 1), "block 18446744073709551615 is outside of the image, which has 2 blocks");
}

#[test]
fn a_directory_that_cannot_be_listed_is_named() {
    let missing = PathBuf::from("/nonexistent/directory");
    let error = Builder::new().host("/", &missing, &walk(Readable::All)).unwrap_err();
    assert_eq!(error.to_string(), "cannot read '/nonexistent/directory': No such file or directory (os error 2)");
}

#[test]
fn trees_meet_in_one_image() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir_all(directory.path().join("one/sub")).unwrap();
    fs::write(directory.path().join("one/sub/file"), "1").unwrap();
    fs::write(directory.path().join("two"), "2").unwrap();
    symlink("one", directory.path().join("link")).unwrap();
    let mut builder = Builder::new();
    builder.directory("/empty", Attributes::root(0o700)).unwrap();
    builder.host("/a/b", &directory.path().join("one"), &walk(Readable::All)).unwrap();
    builder.host("/a/two", &directory.path().join("two"), &walk(Readable::All)).unwrap();
    builder.host("/link", &directory.path().join("link"), &walk(Readable::All)).unwrap();
    assert!(matches!(builder.host("/a/two", &directory.path().join("two"), &walk(Readable::All)), Err(Error::Duplicate { .. })));
    let bytes = all_bytes(&builder.image().unwrap());
    let tree = reading::tree(&Image::new(&bytes).unwrap());
    let content = |path: &[u8]| &tree[path].1;
    assert_eq!(tree.len(), 8);
    assert_eq!(content(b"/a/b/sub/file"), &ModelNode::File(b"1".to_vec()));
    assert_eq!(content(b"/a/two"), &ModelNode::File(b"2".to_vec()));
    assert_eq!(content(b"/link"), &ModelNode::Symlink(b"one".to_vec()));
}
