// SPDX-License-Identifier: MIT OR Apache-2.0
//! Layers from archives, and their stacks.

use crate::{
    Builder, Cache, Error, Image,
    inspect::{Node, entries},
};
use std::{fs::File, io::Write, path::Path};
use tar::{EntryType, Header};
use tempfile::TempDir;

/// An archive.
struct Archive(tar::Builder<Vec<u8>>);

impl Archive {
    fn new() -> Archive {
        Archive(tar::Builder::new(Vec::new()))
    }

    /// Adds a member; the name is not checked.
    fn add(mut self, name: &str, kind: EntryType, mode: u32, owner: u64, target: &str, content: &[u8]) -> Archive {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(owner);
        header.set_gid(owner);
        header.set_mtime(7);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.append(&header, content).expect("memory can be written");
        self
    }

    fn file(self, name: &str, content: &str) -> Archive {
        self.add(name, EntryType::Regular, 0o644, 0, "", content.as_bytes())
    }

    fn directory(self, name: &str, mode: u32) -> Archive {
        self.add(name, EntryType::Directory, mode, 5, "", b"")
    }

    fn link(self, name: &str, target: &str) -> Archive {
        self.add(name, EntryType::Link, 0o644, 0, target, b"")
    }

    fn symlink(self, name: &str, target: &str) -> Archive {
        self.add(name, EntryType::Symlink, 0o777, 0, target, b"")
    }

    /// Adds extended headers for the next member.
    fn extended(mut self, pairs: &[(&str, &[u8])]) -> Archive {
        self.0.append_pax_extensions(pairs.iter().copied()).expect("memory can be written");
        self
    }

    fn bytes(self) -> Vec<u8> {
        self.0.into_inner().expect("memory can be written")
    }

    fn layer(self) -> Result<Builder, Error> {
        layer(&self.bytes())
    }
}

fn layer(archive: &[u8]) -> Result<Builder, Error> {
    let mut file = tempfile::tempfile().expect("there is room");
    file.write_all(archive).expect("there is room");
    let mut builder = Builder::new();
    builder.layer(Path::new("layer"), file, &std::env::temp_dir()).map(|()| builder)
}

/// The stack of these layers, the lowest first, and the directory of their files.
fn stack(layers: Vec<Archive>) -> (Image, TempDir) {
    let directory = tempfile::tempdir().expect("there is room");
    let paths: Vec<_> = (0..layers.len()).map(|number| directory.path().join(format!("{number}.image"))).collect();
    for (archive, path) in layers.into_iter().zip(&paths) {
        let file = File::create(path).expect("there is room");
        let image = archive.layer().and_then(Builder::image).expect("the archive is valid");
        image.save(&file, &|_| Ok(()), &|source| Error::Write { path: path.clone(), source }).expect("there is room");
    }
    let builder = Builder::layers(paths.iter().map(|path| path.as_path())).expect("the layers are valid");
    (builder.image().expect("it is small"), directory)
}

fn node(image: &Image, path: &str) -> Node {
    let found = image.resolve(path.as_bytes()).expect("it can be read");
    assert!(found.missing.is_empty(), "{path} does not exist");
    found.chain[found.chain.len() - 1]
}

fn names(image: &Image, path: &str) -> Vec<String> {
    let data = image.data(&node(image, path)).expect("it can be read");
    let names = entries(&data).expect("it is valid").into_iter().map(|entry| String::from_utf8_lossy(entry.name).into_owned());
    names.filter(|name| name != "." && name != "..").collect()
}

fn text(image: &Image, path: &str) -> String {
    image.file_text(path.as_bytes()).expect("it can be read").unwrap_or_else(|| panic!("{path} does not exist"))
}

#[test]
fn upper_layers_replace_hide_and_unite() {
    let lower = Archive::new()
        .directory("./", 0o755)
        .directory("both/", 0o700)
        .file("both/kept", "kept")
        .file("both/gone", "gone")
        .file("both/changed", "old")
        .directory("opaque/", 0o755)
        .file("opaque/below", "below")
        .directory("file-later/", 0o755)
        .file("file-later/x", "x")
        .file("directory-later", "x")
        .directory("gone-directory/", 0o755)
        .file("gone-directory/x", "x")
        .directory("again/", 0o755)
        .file("again/old", "x");
    let upper = Archive::new()
        .directory("both/", 0o750)
        .file("both/changed", "new")
        .file("both/.wh.gone", "")
        .file("both/added", "added")
        .file("opaque/above", "above")
        .directory("opaque/", 0o711)
        .file("opaque/.wh..wh..opq", "")
        .file("file-later", "file")
        .directory("directory-later/", 0o755)
        .file(".wh.gone-directory", "")
        .file(".wh.again", "")
        .directory("again/", 0o755)
        .file("again/new", "new")
        .file(".wh..wh.plnk", "");
    let (image, _directory) = stack(vec![lower, upper]);
    assert_eq!(names(&image, "/"), ["again", "both", "directory-later", "file-later", "opaque"]);
    assert_eq!(names(&image, "/both"), ["added", "changed", "kept"]);
    assert_eq!(names(&image, "/opaque"), ["above"]);
    assert_eq!(names(&image, "/again"), ["new"]);
    assert_eq!(names(&image, "/directory-later"), [""; 0]);
    assert_eq!((text(&image, "/both/changed"), text(&image, "/both/kept")), ("new".into(), "kept".into()));
    assert_eq!(text(&image, "/file-later"), "file");
    let both = node(&image, "/both").inode;
    assert_eq!((both.permissions, both.uid, both.gid, both.mtime.map(|time| time.seconds)), (0o750, 5, 5, Some(7)));
}

#[test]
fn a_whiteout_reaches_through_all_layers_below_and_no_layer_above() {
    let layers = vec![
        Archive::new().file("a", "0").directory("d/", 0o755).file("d/zero", ""),
        Archive::new().file("b", "1").file("d/one", ""),
        Archive::new().file(".wh.a", "").file(".wh.d", ""),
        Archive::new().file("a", "3").file("d/three", ""),
    ];
    let (image, _directory) = stack(layers);
    assert_eq!((names(&image, "/"), text(&image, "/a")), (vec!["a".into(), "b".into(), "d".into()], "3".into()));
    assert_eq!(names(&image, "/d"), ["three"]);
}

#[test]
fn a_directory_that_a_layer_only_passes_through_keeps_its_attributes() {
    let (image, _directory) = stack(vec![Archive::new().directory("tmp/", 0o1777), Archive::new().file("tmp/deep/x", "x")]);
    assert_eq!(node(&image, "/tmp").inode.permissions, 0o1777);
    assert_eq!((node(&image, "/tmp").inode.uid, node(&image, "/tmp/deep").inode.permissions), (5, 0o755));
    assert_eq!(node(&image, "/tmp").inode.xattr_icount, 0);
}

#[test]
fn hard_links_extended_attributes_and_special_files_are_kept() {
    let long = vec![b'x'; 1000];
    let pairs: [(&str, &[u8]); 4] = [
        ("SCHILY.xattr.security.capability", b"\x01\0\0\x02\0"),
        ("SCHILY.xattr.user.note", &long),
        ("SCHILY.xattr.com.apple.quarantine", b"x"),
        ("comment", b"x"),
    ];
    let lower = Archive::new()
        .extended(&pairs)
        .file("d/ping", "program")
        .link("d/ping6", "/d/ping")
        .symlink("d/p", "ping")
        .extended(&pairs)
        .directory("e/", 0o755)
        .file("e/x", "")
        .add("fifo", EntryType::Fifo, 0o600, 0, "", b"");
    let (image, directory) = stack(vec![lower, Archive::new().file("other", "")]);
    let ping = node(&image, "/d/ping");
    assert_eq!((ping.nid, ping.inode.nlink), (node(&image, "/d/ping6").nid, 2));
    assert_eq!((text(&image, "/d/p"), names(&image, "/e")), ("program".into(), vec!["x".into()]));
    for path in ["/d/ping", "/e"] {
        let layer = super::Layer {
            image: Image::open(&directory.path().join("0.image")).expect("it is valid"),
            file: 0,
            known: Default::default(),
        };
        let found = layer.xattrs(&node(&layer.image, path)).expect("they are valid");
        assert_eq!(found, [(b"security.capability".to_vec(), b"\x01\0\0\x02\0".to_vec()), (b"user.note".to_vec(), long.clone())]);
        assert_eq!(node(&image, path).inode.xattr_icount, node(&layer.image, path).inode.xattr_icount);
    }
}

#[test]
fn a_stack_can_be_cached_and_its_fingerprint_is_that_of_its_content() {
    let make = || stack(vec![Archive::new().file("a", "0"), Archive::new().file("b", "1")]);
    let ((mut one, directory), (mut other, _other)) = (make(), make());
    assert_ne!(one.fingerprint(), other.fingerprint());
    let cache = Cache::new(directory.path().join("cache"));
    cache.store(&one, 1).expect("there is room");
    let mut cached = cache.open().expect("it is valid").into_image_if_unchanged().expect("the layers are the same");
    assert_eq!(text(&cached, "/b"), "1");
    [&mut one, &mut other, &mut cached].into_iter().for_each(|image| image.identify_content([7; 32]));
    assert_eq!((one.fingerprint(), one.fingerprint()), (other.fingerprint(), cached.fingerprint()));
    File::options()
        .append(true)
        .open(directory.path().join("0.image"))
        .and_then(|mut file| file.write_all(b"x"))
        .expect("it can be changed");
    assert!(cache.open().is_some_and(|cached| cached.into_image_if_unchanged().is_none()));
}

#[test]
fn hostile_layers_are_refused() {
    let refused = |archive: Archive, expected: &str| {
        let error = archive.layer().expect_err("it is hostile").to_string();
        assert!(error.contains(expected), "{error}");
    };
    refused(Archive::new().file("../x", ""), "outside");
    refused(Archive::new().file("/a/../../x", ""), "outside");
    refused(Archive::new().file("a", "").link("b", "../../etc/shadow"), "outside");
    refused(Archive::new().link("b", "a"), "not in the archive");
    refused(Archive::new().symlink("s", "/etc").file("s/passwd", ""), "not a directory");
    refused(Archive::new().file("a", "").directory("a/b/", 0o755), "not a directory");
    let huge = vec![b'x'; 3000];
    refused(Archive::new().extended(&[("SCHILY.xattr.user.x", &huge[..])]).file("a", ""), "extended attributes");
    let deep = "d/".repeat(3000);
    refused(Archive::new().extended(&[("path", deep.as_bytes())]).file("a", ""), "longer than 4096 bytes");
    let whole = Archive::new().file("a", &"x".repeat(5000)).bytes();
    for length in [100, 600, 2000, whole.len() - 1024] {
        assert!(layer(&whole[..length]).is_err(), "{length}");
    }
    assert!(Archive::new().file("/absolute", "").layer().is_ok());
}

#[test]
fn damaged_layers_are_refused_and_not_followed() {
    let (image, directory) = stack(vec![Archive::new().file("a", &"x".repeat(5000))]);
    let path = directory.path().join("0.image");
    let good = std::fs::read(&path).expect("it can be read");
    assert_eq!(text(&image, "/a").len(), 5000);
    // Fields of the root's inode and of its directory, then of the file's inode.
    for position in (4096..4400).step_by(7) {
        let mut bad = good.clone();
        bad[position] ^= 0xff;
        std::fs::write(&path, &bad).expect("it can be written");
        if let Ok(stack) = Builder::layers([path.as_path()]).and_then(Builder::image) {
            // A changed name, mode or time is no damage that could be noticed.
            assert!(stack.blocks() < 100, "{position}");
        }
    }
}

#[test]
fn sparse_files_of_a_layer_are_bounded_together() {
    let sparse = |mut archive: Archive, name: &str, size: u64| {
        let mut header = Header::new_gnu();
        header.set_path(name).expect("it is short");
        header.set_entry_type(EntryType::GNUSparse);
        for set in [Header::set_uid, Header::set_gid, Header::set_mtime] {
            set(&mut header, 0);
        }
        header.set_mode(0o644);
        header.set_size(512);
        let map = header.as_gnu_mut().expect("it is one");
        map.set_real_size(size);
        map.sparse[0].set_offset(size - 512);
        map.sparse[0].set_length(512);
        header.set_cksum();
        archive.0.append(&header, &[7; 512][..]).expect("memory can be written");
        archive
    };
    assert!(sparse(sparse(Archive::new(), "one", 32 << 30), "other", 32 << 30).layer().is_ok());
    let error = sparse(sparse(Archive::new(), "one", 32 << 30), "other", 33 << 30).layer().map(drop).expect_err("it is a bomb");
    assert!(error.to_string().contains("more than 64 GiB"), "{error}");
}

#[test]
fn the_extended_attributes_of_an_image_are_bounded_together() {
    let archive = |files: usize| {
        let add = |archive: Archive, number| archive.extended(&[("SCHILY.xattr.user.a", &[7; 2000])]).file(&format!("{number}"), "");
        let mut file = tempfile::tempfile().expect("there is room");
        file.write_all(&(0..files).fold(Archive::new(), add).bytes()).expect("there is room");
        let mut builder = Builder::new();
        builder.tree.xattr_bytes_left = 10_000;
        builder.layer(Path::new("layer"), file, &std::env::temp_dir())
    };
    assert!(archive(4).is_ok());
    assert!(matches!(archive(5), Err(Error::TooManyAttributes)));
}

#[test]
fn saving_an_image_stops_where_it_is_told() {
    let content = "x".repeat(3 << 20);
    let image = Archive::new().file("large", &content).layer().and_then(Builder::image).expect("the archive is valid");
    let (file, path) = (tempfile::tempfile().expect("there is room"), std::path::PathBuf::from("out"));
    let stop = |offset| if offset < 1 << 20 { Ok(()) } else { Err(std::io::Error::other("full")) };
    let stopped = image.save(&file, &stop, &|source| Error::Write { path: path.clone(), source });
    assert!(matches!(stopped, Err(Error::Write { .. })), "{stopped:?}");
    assert!(std::os::unix::fs::MetadataExt::blocks(&file.metadata().expect("it is open")) * 512 < 3 << 20);
}
