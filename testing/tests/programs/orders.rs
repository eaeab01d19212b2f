// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's answers to job requests that it cannot fulfil, so that no caller waits for ever.

use crate::inherited::{TemplateSource, output_of};
use pando_abi::control::{Frame, FrameError, JOBS, Kind, RUN, Start};
use pando_kernel::{ConsoleOutput, Stream};
use pando_launch::{Command, JobEnd, Task};
use std::fs::File;

#[test]
fn an_unreadable_file_is_reported_at_once() {
    let directory = tempfile::tempdir().expect("the host has room");
    let path = directory.path().join("short");
    std::fs::write(&path, vec![1; 1 << 20]).expect("the host has room");
    let Some(mut source) = TemplateSource::start("read line", false, std::slice::from_ref(&path)) else { return };
    // The file has changed since the image was created.
    File::options().write(true).open(&path).and_then(|file| file.set_len(0)).expect("it is there");
    let (jobs, mut carrier) = source.jobs();
    let command = Command { task: Task::Read, path: b"/short".to_vec(), directory: b"/".to_vec(), ..Command::default() };
    let job = jobs.start(&command).expect("it is the first");
    source.carry(&mut carrier);
    let last_error = "pando: /short: input/output error\n".to_owned();
    assert_eq!((job.end(), output_of(&job)), (Some(JobEnd::Exited(1)), vec![(Stream::Stderr, last_error)]));
}

/// A request to start a shell script.
fn start(number: u32, script: &str) -> Vec<u8> {
    let given = Start { user: 0, group: 0, arguments: 3, environment: 0 };
    let following = [&given.to_bytes()[..], b"/bin/sh\0/\0sh\0-c\0", script.as_bytes(), b"\0"].concat();
    let frame = Frame { kind: Kind::Start, job: number, detail: RUN, length: following.len() as u32 };
    [&frame.to_bytes()[..], &following].concat()
}

#[test]
fn a_job_too_many_ends_at_once_and_nonsense_is_answered_once() {
    let Some(mut source) = TemplateSource::start("read line", false, &[]) else { return };
    let control = source.lab.kernel.control(source.cell).expect("it lives");
    let mut say = |orders: &[u8]| {
        assert!(control.send(orders));
        source.lab.run_all();
        let reports = std::iter::from_fn(|| match control.try_receive() {
            ConsoleOutput::Bytes(_, bytes) => Some(bytes),
            _ => None,
        });
        reports.collect::<Vec<_>>().concat()
    };
    for number in 0..JOBS as u32 {
        assert_eq!(say(&start(number, "read line")), []);
    }
    let number = JOBS as u32;
    let reports = say(&start(number, "echo here"));
    let last_error = Frame::parse(&reports).ok().flatten().expect("it says why");
    assert_eq!((last_error.kind, last_error.job), (Kind::Output, number));
    let end = Frame::parse(&reports[Frame::SIZE + last_error.length as usize..]);
    assert_eq!(end, Ok(Some(Frame::new(Kind::Ended, number, 125 << 8))));
    // A job slot is free again.
    assert_eq!(say(&Frame::new(Kind::InputEnd, 0, 0).to_bytes()), Frame::new(Kind::Ended, 0, 1 << 8).to_bytes());
    assert!(say(&start(number, "echo here")).ends_with(&Frame::new(Kind::Ended, number, 0).to_bytes()));
    assert_eq!(Frame::parse(&say(&[0xff; Frame::SIZE])), Err(FrameError));
    assert_eq!(say(&start(number, "echo here")), []);
}
