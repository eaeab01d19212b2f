// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host files as data sources.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    time::{Duration, SystemTime},
};

use pando_image::{Attributes, Builder, Error, HostFile, Image as Writer, PIECE_SIZE};
use pando_libos::erofs::{Image, LastLink};

use crate::{image_bytes, reading};

fn with_host_file(path: &Path) -> Builder {
    let mut builder = Builder::new();
    let file = HostFile::new(path).unwrap();
    builder.file("/copy", file.attributes(), file).unwrap();
    builder
}

#[test]
fn a_host_file_arrives_whole_with_its_attributes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let content: Vec<u8> = (0..3 * PIECE_SIZE + 4097).map(|at| (at / 7) as u8).collect();
    fs::write(&path, &content).unwrap();
    File::open(&path).unwrap().set_modified(SystemTime::UNIX_EPOCH + Duration::new(1_234_567, 89)).unwrap();
    let bytes = image_bytes(with_host_file(&path));
    let image = Image::new(&bytes).unwrap();
    let inode = image.resolve(image.root(), b"copy", LastLink::Follow).unwrap();
    assert!(reading::data(&image, &inode) == content);
    assert_eq!((inode.modified.seconds, inode.modified.nanoseconds), (1_234_567, 89));
    let extent = image.data(&inode).unwrap().extent();
    assert!(extent.start.is_multiple_of(4096) && bytes[extent.start as usize..extent.end as usize] == content);
    // The rest of the last block is zero, because it can be mapped.
    assert!(bytes[extent.end as usize..].iter().all(|&byte| byte == 0));
}

#[test]
fn a_host_file_that_changes_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("changing");
    type Change = fn(&Path);
    let changes: [(&str, Change); 4] = [
        ("grown", |path| File::options().append(true).open(path).unwrap().write_all(b"more").unwrap()),
        ("shrunk", |path| File::options().write(true).open(path).unwrap().set_len(10).unwrap()),
        ("rewritten", |path| File::open(path).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap()),
        ("removed", |path| fs::remove_file(path).unwrap()),
    ];
    let expected = format!("'{}' changed while the image was built; try again when nothing writes to it", path.display());
    for (name, change) in changes {
        // A change before the read.
        fs::write(&path, vec![b'x'; 2 * PIECE_SIZE]).unwrap();
        let image = with_host_file(&path).image().unwrap();
        change(&path);
        assert_eq!(write(&image, &mut || ()).unwrap_err().to_string(), expected, "{name}");
        // A change during the read. If the file is removed then, the reader keeps its old content.
        if name == "removed" {
            continue;
        }
        fs::write(&path, vec![b'x'; 2 * PIECE_SIZE]).unwrap();
        let image = with_host_file(&path).image().unwrap();
        let mut change = Some(change);
        let mut meanwhile = || change.take().into_iter().for_each(|change| change(&path));
        assert_eq!(write(&image, &mut meanwhile).unwrap_err().to_string(), expected, "{name}");
    }
}

/// Writes the image to a null sink; `meanwhile` is called after each piece.
fn write(image: &Writer, meanwhile: &mut dyn FnMut()) -> Result<(), Error> {
    image.write_to(&mut |_, _| {
        meanwhile();
        Ok::<(), Error>(())
    })
}

#[test]
fn paths_without_a_regular_file_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    assert_eq!(HostFile::new(path).unwrap_err().to_string(), format!("'{}' is not a regular file", path.display()));
    assert_eq!(HostFile::new("/dev/null").unwrap_err().to_string(), "'/dev/null' is not a regular file");
    let missing = path.join("missing");
    assert_eq!(
        HostFile::new(&missing).unwrap_err().to_string(),
        format!("cannot read '{}': No such file or directory (os error 2)", missing.display())
    );
}

#[test]
fn a_sink_may_stop() {
    #[derive(Debug)]
    enum Stop {
        Here,
        Image,
    }
    impl From<Error> for Stop {
        fn from(_: Error) -> Self {
            Stop::Image
        }
    }
    let mut builder = Builder::new();
    builder.file("/file", Attributes::root(0o644), vec![0; 2 * PIECE_SIZE]).unwrap();
    let mut pieces = 0;
    let outcome = builder.image().unwrap().write_to(&mut |_, _| {
        pieces += 1;
        if pieces == 2 { Err(Stop::Here) } else { Ok(()) }
    });
    assert!(matches!(outcome, Err(Stop::Here)));
    assert_eq!(pieces, 2);
}
