// SPDX-License-Identifier: MIT OR Apache-2.0
//! Directories and files added to a finished image.

use std::{fs, path::Path};

use pando_image::{Attributes, Builder, Error, HostFile, Image as Writer, Kind, Readable, Timestamp};
use pando_libos::erofs::Image;
use proptest::prelude::*;

use crate::{
    all_bytes,
    host::image_of,
    hostile, linux,
    model::{self, ModelNode, ModelTree, additions, build},
    reading,
};

fn tree(image: &Writer) -> ModelTree {
    reading::tree(&Image::new(&all_bytes(image)).unwrap())
}

/// Returns the image's tree after `fsck.erofs` has found no fault in it.
fn sound_tree(image: &Writer) -> ModelTree {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    fs::write(&path, all_bytes(image)).unwrap();
    let (sound, said) = linux::fsck(&[path.to_str().unwrap()]);
    assert!(sound, "{said}");
    tree(image)
}

proptest! {
    #![proptest_config(model::config(64))]

    #[test]
    fn later_additions_appear_and_nothing_else_changes(first in additions(), later in additions()) {
        let (builder, mut expected) = build(&first);
        let mut image = builder.image().unwrap();
        for (names, attributes, node) in later {
            if node != ModelNode::Directory {
                continue;
            }
            let path = [b"/", names.join(&b'/').as_slice()].concat();
            let ancestors: Vec<Vec<u8>> = (1..=names.len()).map(|depth| [b"/", names[..depth].join(&b'/').as_slice()].concat()).collect();
            // Symbolic links may point anywhere; the tests below follow some.
            if ancestors.iter().any(|path| matches!(expected.get(path), Some((_, ModelNode::Symlink(_))))) {
                continue;
            }
            let clear = ancestors.iter().all(|path| expected.get(path).is_none_or(|(_, node)| *node == ModelNode::Directory));
            let outcome = image.add_directory(&path, attributes);
            prop_assert_eq!(outcome.is_ok(), clear);
            if clear {
                prop_assert_eq!(outcome.unwrap(), path.clone());
                expected.entry(path).or_insert((attributes, ModelNode::Directory));
                for path in ancestors {
                    expected.entry(path).or_insert((Attributes::root(0o755), ModelNode::Directory));
                }
            }
        }
        prop_assert_eq!(sound_tree(&image), expected);
    }
}

#[test]
fn directories_and_files_are_added_to_any_image() {
    let sample = tempfile::tempdir().unwrap();
    linux::sample_directory(sample.path());
    let file = sample.path().join("large");
    let content = fs::read(&file).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let opened = |options: &[&str]| {
        let path = scratch.path().join(options.concat());
        fs::write(&path, linux::mkfs(options, sample.path())).unwrap();
        Writer::open(&path).unwrap()
    };
    for (name, mut image) in [
        ("our own", image_of(sample.path(), Readable::All)),
        ("inline", opened(&["-Eforce-inode-extended"])),
        ("compact", opened(&["-Eforce-inode-compact", "-T77"])),
        ("plain", opened(&["-Enoinline_data"])),
    ] {
        let mut expected = tree(&image);
        let host = HostFile::new(&file).unwrap();
        image.add_file(b"/sub/many/../more/program", &host, u64::MAX).unwrap();
        image.add_file(b"/sub/many/added", &host, u64::MAX).unwrap();
        image.add_file(b"/small", &host, u64::MAX).unwrap();
        assert!(matches!(image.add_directory(b"sub/link/..", Attributes::root(0o700)), Err(Error::NotADirectory { .. })));
        assert_eq!(image.add_directory(b"//sub/./deep/", Attributes::root(0o700)).unwrap(), b"/sub/deep");
        assert_eq!(image.add_directory(b"/", Attributes::root(0o700)).unwrap(), b"/");
        let added = (host.attributes(), ModelNode::File(content.clone()));
        expected.insert(b"/sub/more".to_vec(), (Attributes::root(0o755), ModelNode::Directory));
        expected.insert(b"/sub/more/program".to_vec(), added.clone());
        expected.insert(b"/sub/many/added".to_vec(), added.clone());
        expected.insert(b"/small".to_vec(), added);
        assert!(matches!(image.add_file(b"/sub/deep", &host, u64::MAX), Err(Error::Duplicate { .. })));
        assert!(matches!(image.add_file(b"/", &host, u64::MAX), Err(Error::Duplicate { .. })));
        assert!(matches!(image.add_file(b"/large/x", &host, u64::MAX), Err(Error::NotADirectory { .. })));
        assert!(sound_tree(&image) == expected, "{name}");
        let found = |path: &str| image.find(path.as_bytes()).unwrap();
        assert_eq!(found("/sub/more/program"), Some(Kind::File));
        assert_eq!(found("/sub/link"), Some(Kind::File));
        assert_eq!(found("/sub/more"), Some(Kind::Directory));
        assert_eq!(found("/"), Some(Kind::Directory));
        assert_eq!(found("/sub/more/nothing"), None);
        assert_eq!(found("/large/x"), None);
        assert_eq!(found("/long"), None);
    }
}

#[test]
fn links_lead_to_where_a_directory_is_added() {
    let mut builder = Builder::new();
    let attributes = Attributes { permissions: 0o750, uid: 7, gid: 8, modified: Timestamp { seconds: 9, nanoseconds: 10 } };
    builder.directory("/usr/lib", Attributes::root(0o755)).unwrap();
    builder.symlink("/lib", Attributes::root(0o777), "usr/lib").unwrap();
    builder.symlink("/usr/up", Attributes::root(0o777), "/../usr/../lib/./").unwrap();
    builder.symlink("/loop", Attributes::root(0o777), "loop").unwrap();
    builder.symlink("/nowhere", Attributes::root(0o777), "missing/there").unwrap();
    builder.file("/file", Attributes::root(0o644), "").unwrap();
    let mut image = builder.image().unwrap();
    assert_eq!(image.add_directory(b"/usr/up/one/two", attributes).unwrap(), b"/usr/lib/one/two");
    assert_eq!(image.add_directory(b"/nowhere/x", attributes).unwrap(), b"/missing/there/x");
    for (path, problem) in [
        ("/loop/x", "cannot add '/loop/x' to the image: it contains too many links"),
        ("/file/x", "cannot add '/file/x' to the image: 'file' is not a directory"),
        ("/file", "cannot add '/file' to the image: 'file' is not a directory"),
        ("/new/../x", "cannot add '/new/../x' to the image: it contains a directory that does not exist"),
        ("/a\0b", "cannot add '/a\\x00b' to the image: a name has a NUL"),
    ] {
        assert_eq!(image.add_directory(path.as_bytes(), attributes).unwrap_err().to_string(), problem);
    }
    assert!(matches!(image.add_directory("n".repeat(256).as_bytes(), attributes), Err(Error::Path { .. })));
    let tree = sound_tree(&image);
    assert_eq!(tree[&b"/usr/lib/one/two"[..]], (attributes, ModelNode::Directory));
    assert_eq!(tree[&b"/usr/lib/one"[..]], (Attributes::root(0o755), ModelNode::Directory));
    assert_eq!(tree[&b"/missing/there/x"[..]], (attributes, ModelNode::Directory));
    assert_eq!(tree.len(), 13);
}

#[test]
fn malformed_images_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let refused = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        Writer::open(&path).unwrap_err().to_string()
    };
    let name = path.display();
    let sound = all_bytes(&Builder::new().image().unwrap());
    assert_eq!(refused(b""), format!("'{name}' cannot be used as an image: it is too short"));
    assert_eq!(refused(&[0; 8192]), format!("'{name}' cannot be used as an image: it has no EROFS superblock"));
    assert_eq!(refused(&sound[..4096]), format!("'{name}' cannot be used as an image: it is truncated: blocks are missing at its end"));
    let mut other = sound.clone();
    other[1024 + 12] = 9;
    assert!(refused(&other).contains("its blocks are not of 4 KiB"));
    fs::write(&path, &sound).unwrap();
    assert!(all_bytes(&Writer::open(&path).unwrap()) == sound);
    assert_eq!(Writer::open(Path::new("/dev/null")).unwrap_err().to_string(), "'/dev/null' is not a regular file");
    // An image opened for writing is treated like any other file that changes.
    let image = Writer::open(&path).unwrap();
    fs::write(&path, &sound).unwrap();
    assert!(image.read_blocks(0, &mut [0; 4096]).is_err());
}

proptest! {
    #![proptest_config(model::config(1024))]

    #[test]
    fn damaged_images_are_added_to_or_refused(which in 0..2usize, damages in prop::collection::vec(hostile::damage(), 1..6)) {
        let mut bytes = hostile::SOUND[which].clone();
        damages.iter().for_each(|damage| hostile::apply(&mut bytes, damage));
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        fs::write(&path, &bytes).unwrap();
        let Ok(mut image) = Writer::open(&path) else { return Ok(()) };
        let attributes = Attributes::root(0o755);
        for path in ["/new", "/many/new/deep", "/sub/up/new", "/link/new", "/file", "/directory/new", "/../.."] {
            let _ = image.find(path.as_bytes());
            let _ = image.add_directory(path.as_bytes(), attributes);
        }
        let host = HostFile::new(&path).unwrap();
        let _ = image.add_file(b"/many/file", &host, u64::MAX);
        let _ = image.add_file(b"/link", &host, u64::MAX);
        let bytes = all_bytes(&image);
        if let Ok(image) = Image::new(&bytes) {
            hostile::exercise(&image);
        }
    }
}
