// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code shared by tests with programs in cells: busybox's shell, from the libOS's boot to the program's output.

use pando_image::{Attributes, Builder, HostFile};
use pando_kernel::RunState;
use pando_kernel::{CellId, ConsolePort, Stream};
use pando_launch::{Calls, Program, Root, Template, Volume};
use pando_machine::PageCount;
use pando_testing::lab::Lab;
use std::path::PathBuf;

fn busybox() -> PathBuf {
    let places = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    places.into_iter().find(|place| place.exists()).expect("busybox is there")
}

/// Creates a root with busybox under these names and some files of the host. Drives vCPU 0 of the lab until the libOS has booted.
pub fn root(lab: &mut Lab, applets: &[&str], others: &[PathBuf]) -> Root {
    let template = Template::boot(&lab.kernel).expect("the libOS boots");
    while !matches!(lab.kernel.inspect(template.cell()), Ok((RunState::Frozen, ..))) {
        assert!(lab.turn(0), "the libOS waits for ever");
    }
    Root::new(&lab.kernel, &template, volumes(applets, others)).expect("room for a root")
}

/// The volumes of such a root.
pub fn volumes(applets: &[&str], others: &[PathBuf]) -> Vec<Volume> {
    let file = HostFile::new(busybox()).expect("busybox can be read");
    let mut files = Builder::new();
    files.file("/bin/busybox", file.attributes(), file).expect("a fresh name");
    for applet in applets {
        files.symlink(format!("/bin/{applet}"), Attributes::root(0o777), "busybox").expect("a fresh name");
    }
    for other in others {
        let file = HostFile::new(other).expect("it can be read");
        let name = other.file_name().expect("a file has a name").to_string_lossy();
        files.file(format!("/{name}"), file.attributes(), file).expect("a fresh name");
    }
    files.directory("/tmp", Attributes::root(0o1777)).expect("a fresh name");
    vec![Volume::new("/", files.image().expect("a few files make an image"))]
}

/// A program that runs a script in the shell.
pub fn script(script: &str, memory: PageCount, calls: Calls) -> Program {
    Program {
        path: b"/bin/sh".to_vec(),
        directory: b"/tmp".to_vec(),
        arguments: ["sh", "-c", script].map(|word| word.into()).to_vec(),
        environment: vec![b"PATH=/bin".to_vec()],
        calls,
        memory,
        ..Program::default()
    }
}

/// Returns a program's standard output once it has ended. It must exit with status 0 and print nothing on standard error.
pub fn output_until_end(lab: &mut Lab, id: CellId, port: &ConsolePort) -> String {
    let outcome = lab.finish(id);
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    while let Some((stream, bytes)) = port.receive() {
        match stream {
            Stream::Stdout => output.extend(bytes),
            Stream::Stderr => errors.extend(bytes),
            Stream::Notes => panic!("nobody asked for notes"),
        }
    }
    let [output, errors] = [output, errors].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!((outcome.end.to_string(), &errors[..]), ("exited with status 0".into(), ""), "{output}");
    output
}
