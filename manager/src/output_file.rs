// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files that commands write. Opening one never waits for the reader of a FIFO, and a device is never replaced by a file.

use pando_image::Error;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

/// Creates or truncates a file. A device is opened as it is, and so is a FIFO that has a reader.
///
/// # Errors
/// It cannot be written, or the FIFO has no reader.
pub fn create(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        // The writer waits for a slow reader.
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    }
    Ok(file)
}

/// Creates or truncates a regular file.
///
/// # Errors
/// It cannot be written, or is something else than a regular file.
pub fn create_regular(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("not a regular file: remove it, or give another directory")),
    }
}

/// Refuses a device, FIFO, socket or directory, which a regular file is about to replace.
///
/// # Errors
/// It is one of these.
pub fn refuse_special(path: &Path) -> Result<(), Error> {
    match std::fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err(Error::NotAFile(path.into())),
        _ => Ok(()),
    }
}

/// Opens without waiting for a reader.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = File::options().write(true).create(true).truncate(true).custom_flags(flags.bits().cast_signed()).open(path);
    opened.map_err(|error| {
        let is_fifo = || path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::NXIO) if is_fifo() => io::Error::other("nobody reads this FIFO: start its reader first, or give a regular file"),
            Some(Errno::NXIO) => io::Error::other("a socket, or a device without a driver: give a regular file"),
            _ => error,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{create, create_regular, refuse_special};
    use rustix::fs::{CWD, FileType, Mode, OFlags, fcntl_getfl, mknodat};
    use std::os::unix::net::UnixListener;

    #[test]
    fn nothing_waits_for_the_reader_of_a_fifo() {
        let directory = tempfile::tempdir().expect("the host has room");
        let (fifo, socket, file) = (directory.path().join("fifo"), directory.path().join("socket"), directory.path().join("file"));
        mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).expect("the directory is ours");
        let _listener = UnixListener::bind(&socket).expect("the directory is ours");
        for create in [create, create_regular] {
            assert!(create(&fifo).is_err_and(|error| error.to_string().starts_with("nobody reads this FIFO: ")));
            assert!(create(&socket).is_err_and(|error| error.to_string().starts_with("a socket, ")));
            assert!(create(directory.path()).is_err_and(|error| error.kind() == std::io::ErrorKind::IsADirectory));
            create(&file).expect("a fresh name").set_len(1).expect("the host has room");
            assert_eq!(create(&file).expect("it is ours").metadata().map(|metadata| metadata.len()).ok(), Some(0));
        }
        let reader = rustix::fs::open(&fifo, OFlags::RDONLY | OFlags::NONBLOCK, Mode::empty()).expect("it is ours");
        let opened = create(&fifo).expect("somebody reads it");
        assert!(!fcntl_getfl(&opened).expect("it is open").contains(OFlags::NONBLOCK));
        assert!(create_regular(&fifo).is_err_and(|error| error.to_string().starts_with("not a regular file: ")));
        drop(reader);
        for special in [&*fifo, &*socket, directory.path()] {
            assert!(refuse_special(special).is_err(), "{}", special.display());
        }
        assert!(refuse_special(&file).is_ok() && refuse_special(&directory.path().join("fresh")).is_ok());
    }
}
