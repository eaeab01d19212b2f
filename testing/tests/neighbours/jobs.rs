// SPDX-License-Identifier: MIT OR Apache-2.0
//! Jobs: programs that the operator starts in running cells, beside the first one.

use crate::world::{CellNetwork, Running};
use pando_abi::control::{JOBS, WINDOW};
use pando_kernel::Stream;
use pando_launch::{Command, Job, JobEnd, Jobs, LaunchError, Task};
use std::sync::Arc;
use std::thread;

/// A cell whose first program waits, and the handle that starts jobs in it.
fn waiting(world: &CellNetwork) -> (Running, Jobs) {
    let first = world.serve("echo here; sleep 1000", "here");
    let jobs = first.jobs();
    (first, jobs)
}

/// A command that runs a script in the shell.
fn script(script: &str) -> Command {
    Command {
        task: Task::Run,
        path: b"/bin/sh".to_vec(),
        directory: b"/tmp".to_vec(),
        arguments: ["sh", "-c", script].map(|word| word.into()).to_vec(),
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        user: 0,
        group: 0,
    }
}

fn start(jobs: &Jobs, command: &Command) -> Arc<Job> {
    jobs.start(command).expect("there are few")
}

/// Returns a job's output on both streams until it has ended, and its end.
fn output_of(job: &Job) -> (String, String, JobEnd) {
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    while let Some((stream, bytes)) = job.port().receive() {
        if stream == Stream::Stdout { output.extend(bytes) } else { errors.extend(bytes) }
    }
    let [output, errors] = [output, errors].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (output, errors, job.wait())
}

/// Runs a script without input and returns the same.
fn run(jobs: &Jobs, text: &str) -> (String, String, JobEnd) {
    let job = start(jobs, &script(text));
    job.port().close_input();
    output_of(&job)
}

#[test]
fn a_job_has_streams_an_end_and_an_identity_of_its_own() {
    let Some(world) = CellNetwork::new(&["/bin/bash"]) else { return };
    let (_first, jobs) = waiting(&world);
    let job = start(&jobs, &script("cat; echo wrong >&2; exit 3"));
    assert!(job.port().send(b"one\ntwo\n"));
    job.port().close_input();
    assert_eq!(output_of(&job), ("one\ntwo\n".into(), "wrong\n".into(), JobEnd::Exited(3)));
    let mut command = script("echo $X $PWD $(id -u) $(id -g) $0; echo kept > file; ps -o ppid= -p $$ | tr -d ' '");
    command.environment.push(b"X=it's".to_vec());
    command.directory = b"/var/tmp".to_vec();
    let made = start(&jobs, &script("mkdir -p /var/tmp; chmod 1777 /var/tmp"));
    assert_eq!(made.wait(), JobEnd::Exited(0));
    (command.user, command.group) = (1000, 100);
    let job = start(&jobs, &command);
    assert_eq!(output_of(&job), ("it's /var/tmp 1000 100 sh\n0\n".into(), String::new(), JobEnd::Exited(0)));
    // The files are the cell's.
    assert_eq!(run(&jobs, "cat /var/tmp/file; stat -c %u /var/tmp/file").0, "kept\n1000\n");
}

#[test]
fn jobs_that_cannot_be_started_report_the_reason() {
    let Some(world) = CellNetwork::new(&["/bin/bash"]) else { return };
    let (_first, jobs) = waiting(&world);
    let missing = Command { path: b"/bin/nothing".to_vec(), ..script("") };
    let nowhere = Command { directory: b"/nowhere".to_vec(), ..script("") };
    let data = Command { path: b"/etc/passwd".to_vec(), ..script("") };
    let cases = [
        (missing, 127, "pando: /bin/nothing: no such file or directory\n"),
        (nowhere, 127, "pando: working directory /nowhere: no such file or directory\n"),
        (data, 126, "pando: /etc/passwd: permission denied\n"),
    ];
    for (command, status, words) in cases {
        assert_eq!(output_of(&start(&jobs, &command)), (String::new(), words.into(), JobEnd::Exited(status)));
    }
    let zero = Command { directory: b"/tmp\0".to_vec(), ..script("") };
    assert!(matches!(jobs.start(&zero), Err(LaunchError::ZeroByte)));
    let long = Command { arguments: vec![vec![b'x'; 1 << 19]], ..script("") };
    assert!(matches!(jobs.start(&long), Err(LaunchError::ArgumentsTooLong { .. })));
}

#[test]
fn large_transfers_pass_an_unread_job() {
    let Some(world) = CellNetwork::new(&["/bin/bash"]) else { return };
    let (_first, jobs) = waiting(&world);
    let endless = start(&jobs, &script("yes"));
    let bytes: Vec<u8> = (0..20 * WINDOW).map(|index| (index / 7) as u8).collect();
    let job = start(&jobs, &Command { arguments: vec![b"cat".to_vec()], path: b"/bin/cat".to_vec(), ..script("") });
    let (port, given) = (Arc::clone(job.port()), bytes.clone());
    let feeder = thread::spawn(move || {
        assert!(port.send(&given));
        port.close_input();
    });
    let mut received = Vec::new();
    while let Some((_, bytes)) = job.port().receive() {
        received.extend(bytes);
    }
    feeder.join().expect("all was taken");
    assert!(received == bytes && job.wait() == JobEnd::Exited(0));
    // At most a window of the other job's output has arrived. It continues as its output is read, until the reader closes.
    assert!(endless.port().unread_output() <= WINDOW as usize && endless.end().is_none());
    for _ in 0..100 {
        assert!(endless.port().receive().is_some_and(|(_, bytes)| bytes.starts_with(b"y\n") || bytes.starts_with(b"\ny")));
    }
    endless.port().close_stream(Stream::Stdout);
    // The shell has become `yes`, or reports the signal that ended `yes`.
    assert!(matches!(endless.wait(), JobEnd::Signalled(13) | JobEnd::Exited(141)));
    // A program that does not read its input does not block anybody either.
    let deaf = start(&jobs, &script("exec sleep 0.1"));
    // It may have ended before the whole input was sent.
    let _ = deaf.port().send(&bytes);
    assert_eq!(deaf.wait(), JobEnd::Exited(0));
}

#[test]
fn signals_reach_a_job_and_its_cell_takes_it_along() {
    let Some(world) = CellNetwork::new(&["/bin/bash"]) else { return };
    let (first, jobs) = waiting(&world);
    let job = start(&jobs, &script("trap 'echo heard; exit 5' TERM; echo here; sleep 1000 & wait"));
    assert_eq!(job.port().receive(), Some((Stream::Stdout, b"here\n".to_vec())));
    job.signal(15);
    assert_eq!(output_of(&job), ("heard\n".into(), String::new(), JobEnd::Exited(5)));
    let all: Vec<Arc<Job>> = (0..JOBS).map(|_| start(&jobs, &script("sleep 1000"))).collect();
    assert!(matches!(jobs.start(&script("")), Err(LaunchError::TooManyJobs { .. })));
    all[0].signal(9);
    assert_eq!(all[0].wait(), JobEnd::Signalled(9));
    assert_eq!(run(&jobs, "echo there is room").0, "there is room\n");
    first.end();
    assert!(all[1..].iter().all(|job| job.wait() == JobEnd::Lost));
    assert!(jobs.start(&script("")).is_err());
}

#[test]
fn a_job_runs_beside_a_program_that_computes_or_waits_for_input() {
    let Some(world) = CellNetwork::new(&["/bin/bash"]) else { return };
    for first in ["echo here; while :; do :; done", "exec 3<> /tmp/fifo; echo here; read line <&3"] {
        let first = world.serve(&format!("mkfifo /tmp/fifo; {first}"), "here");
        assert_eq!(run(&first.jobs(), "echo hello"), ("hello\n".into(), String::new(), JobEnd::Exited(0)));
    }
}

#[test]
fn clones_have_the_processes_of_jobs_and_jobs_of_their_own() {
    let Some(world) = CellNetwork::new(&["/bin/bash"]) else { return };
    for as_it_stands in [false, true] {
        let (first, jobs) = waiting(&world);
        let job = start(&jobs, &script("echo here; while ! [ -e /tmp/go ]; do sleep 0.01; done; echo gone > /tmp/done; sleep 1000"));
        assert_eq!(job.port().receive(), Some((Stream::Stdout, b"here\n".to_vec())));
        let frozen = world.freeze(&first, as_it_stands);
        assert_eq!(job.wait(), JobEnd::Lost);
        for _ in 0..2 {
            let clone = world.resume(&frozen);
            let script = "touch /tmp/go; while ! [ -e /tmp/done ]; do sleep 0.01; done; cat /tmp/done";
            assert_eq!(run(&clone.jobs(), script), ("gone\n".into(), String::new(), JobEnd::Exited(0)));
        }
    }
}

#[test]
fn files_are_read_and_written_without_a_program() {
    let Some(world) = CellNetwork::new(&["/bin/bash"]) else { return };
    let (_first, jobs) = waiting(&world);
    let file = |task: Task, path: &str| Command { task, path: path.into(), directory: b"/tmp".to_vec(), ..Command::default() };
    let bytes: Vec<u8> = (0..20 * WINDOW + 5).map(|index| (index / 3) as u8).collect();
    for _ in 0..2 {
        let job = start(&jobs, &file(Task::Write, "made"));
        assert!(job.port().send(&bytes[..1 << 19]) && job.port().send(&bytes[1 << 19..]));
        job.port().close_input();
        assert_eq!(output_of(&job), (String::new(), String::new(), JobEnd::Exited(0)));
    }
    let job = start(&jobs, &file(Task::Read, "/tmp/made"));
    let mut received = Vec::new();
    while let Some((stream, bytes)) = job.port().receive() {
        assert_eq!(stream, Stream::Stdout);
        received.extend(bytes);
    }
    assert!(received == bytes && job.wait() == JobEnd::Exited(0));
    assert_eq!(run(&jobs, "stat -c '%a %u %s' made").0, format!("644 0 {}\n", bytes.len()));
    // Files of an image can be read too.
    let job = start(&jobs, &file(Task::Read, "/etc/passwd"));
    assert_eq!(output_of(&job).0, run(&jobs, "cat /etc/passwd").0);
    // Reading without permission, and reading other file types.
    let other = |task, path| Command { user: 1000, group: 1000, ..file(task, path) };
    let cases = [
        (file(Task::Read, "nothing"), "pando: nothing: no such file or directory\n"),
        (file(Task::Read, "/etc"), "pando: /etc: is a directory\n"),
        (file(Task::Write, "/etc"), "pando: /etc: is a directory\n"),
        (file(Task::Read, "/dev/null"), "pando: /dev/null: invalid argument\n"),
        (other(Task::Write, "made"), "pando: made: permission denied\n"),
        (other(Task::Write, "/etc/mine"), "pando: /etc/mine: permission denied\n"),
    ];
    for (command, words) in cases {
        assert_eq!(output_of(&start(&jobs, &command)), (String::new(), words.into(), JobEnd::Exited(1)));
    }
    let job = start(&jobs, &other(Task::Write, "mine"));
    job.port().close_input();
    assert_eq!((job.wait(), &run(&jobs, "stat -c '%u %s' mine").0[..]), (JobEnd::Exited(0), "1000 0\n"));
}

/// A file has no name until it is written completely; then it replaces the old file atomically.
#[test]
fn files_are_replaced_whole_or_not_at_all() {
    let Some(world) = CellNetwork::new(&["/bin/bash"]) else { return };
    let (_first, jobs) = waiting(&world);
    let shell = |script: &str| run(&jobs, script).0;
    assert_eq!(shell("mkdir d; cd d; echo old > it; chmod 640 it; chown 7:8 it; ln -s it link; ls"), "it\nlink\n");
    let write = || {
        let command = Command { task: Task::Write, path: b"/tmp/d/link".into(), directory: b"/".to_vec(), ..Command::default() };
        let job = start(&jobs, &command);
        assert!(job.port().send(b"new\n"));
        assert_eq!(shell("cat /tmp/d/it; ls /tmp/d"), "old\nit\nlink\n");
        job
    };
    // More of these than a cell has jobs: an aborted job leaves nothing behind and frees its slot.
    for _ in 0..20 {
        let job = write();
        job.signal(9);
        assert_eq!(output_of(&job).2, JobEnd::Signalled(9));
    }
    assert_eq!(shell("ls -a /tmp/d"), ".\n..\nit\nlink\n");
    let job = write();
    job.port().close_input();
    assert_eq!(job.wait(), JobEnd::Exited(0));
    // It keeps the attributes of the file that it replaces, also through a link.
    assert_eq!(
        shell("cd d; cat link; stat -c '%n %F %a %u:%g' *; ls -a"),
        "new\nit regular file 640 7:8\nlink symbolic link 777 0:0\n.\n..\nit\nlink\n"
    );
    // Two jobs write the same file: the last one wins, and the file is complete.
    let made: Vec<_> = ["one", "two"]
        .iter()
        .map(|text| {
            (start(&jobs, &Command { task: Task::Write, path: b"/tmp/both".into(), directory: b"/".to_vec(), ..Command::default() }), text)
        })
        .collect();
    for (job, text) in &made {
        assert!(job.port().send(text.as_bytes()));
        job.port().close_input();
        assert_eq!(job.wait(), JobEnd::Exited(0));
    }
    assert_eq!(shell("cat both"), "two");
}
