// SPDX-License-Identifier: MIT OR Apache-2.0
//! Messages from a cell to `launch`: files to be written back, and reports of jobs.

use crate::pieces;
use pando_image::Replaced;
use pando_kernel::{ConsolePort, Stream};
use pando_launch::{Command, Jobs, WritableVolume, apply_records};
use rustix::fs::{Mode, OFlags, open};
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;

/// Turns of a carrier for each piece: the first consumes all of it, the second finds nothing.
const TURNS: usize = 2;

/// A cell that writes back into a directory. It must not reach the files beside the directory, although links point outside.
pub fn write_back(data: &[u8]) {
    let outside = tempfile::tempdir().expect("a temporary directory");
    let inside = outside.path().join("inside");
    fs::create_dir(&inside).expect("it was not there");
    fs::write(outside.path().join("secret"), "secret").expect("the directory is ours");
    symlink("..", inside.join("out")).expect("it was not there");
    symlink("../secret", inside.join("link")).expect("it was not there");
    let opened = open(&inside, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).expect("it is there");
    let mut answers = 0;
    let report = apply_records(vec![WritableVolume::Directory(opened)], Arc::<Replaced>::default(), u64::MAX, data, |_| {
        answers += 1;
        true
    });
    assert!(answers <= data.len(), "{answers} answers to {} bytes", data.len());
    assert!(report.failures.len() as u64 <= report.failed);
    assert_eq!(fs::read(outside.path().join("secret")).expect("it is still there"), b"secret");
    let around: Vec<_> = fs::read_dir(outside.path()).expect("it is ours").map(|entry| entry.expect("it is ours").file_name()).collect();
    assert_eq!(around.len(), 2, "{around:?}");
}

/// A cell that reports on two jobs, in pieces.
pub fn jobs(data: &[u8]) {
    let control = ConsolePort::detached(|| ());
    let (jobs, mut carrier) = Jobs::with_port(Arc::clone(&control), || ());
    let started = [(); 2].map(|()| jobs.start(&Command::default()).expect("there are no others"));
    started[0].port().send(b"some input");
    for piece in pieces(data) {
        control.append_output(Stream::Stdout, piece.to_vec());
        for _ in 0..TURNS {
            if !carrier.turn() {
                assert!(started.iter().all(|job| job.end().is_some()), "a job that nobody carries for any more goes on");
                return;
            }
        }
        let _ = control.take_input(usize::MAX);
        started.iter().for_each(|job| _ = job.port().try_receive());
    }
}
