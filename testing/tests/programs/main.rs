// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs in cells, from the machine to the libOS, on whatever kind of virtualisation runs the test: what the command line's tests show on one kind in
//! breadth, these show on each.

use pando_image::{Attributes, Builder, HostFile};
use pando_kernel::cell::State;
use pando_kernel::{Config, Stream};
use pando_launch::{Calls, Program, Root, Template, Terminals, Volume};
use pando_machine::PageCount;
use pando_machine::kvm::Omit;
use pando_testing::lab::{Lab, kvm_is_there};
use std::path::PathBuf;

/// 256 MiB.
const ARENA: PageCount = PageCount(1 << 16);
/// What the program may have.
const QUOTA: PageCount = PageCount(1 << 14);
/// Busybox's names that scripts call.
const APPLETS: [&str; 9] = ["sh", "seq", "sort", "head", "sha256sum", "true", "kill", "sleep", "cat"];

fn busybox() -> PathBuf {
    let places = ["/bin/busybox", "/usr/bin/busybox"].map(PathBuf::from);
    places.into_iter().find(|place| place.exists()).expect("busybox is there")
}

/// What a script says on standard output, run by busybox's shell in a cell of its own that ends with status 0.
fn said(script: &str, calls: Calls) -> String {
    let mut lab = Lab::kvm(ARENA, 1, Config::default(), Omit::NOTHING);
    let template = Template::boot(&lab.kernel).expect("the libOS boots");
    while !matches!(lab.kernel.inspect(template.cell()), Ok((State::Frozen, ..))) {
        assert!(lab.turn(0), "the libOS waits for ever");
    }
    let file = HostFile::new(busybox()).expect("busybox can be read");
    let mut files = Builder::new();
    files.file("/bin/busybox", file.attributes(), file).expect("a fresh name");
    for applet in APPLETS {
        let attributes = Attributes::root(0o777);
        files.symlink(format!("/bin/{applet}"), attributes, "busybox").expect("a fresh name");
    }
    files.directory("/tmp", Attributes::root(0o1777)).expect("a fresh name");
    let volumes = vec![Volume::new("/", files.image().expect("a few files make an image"))];
    let root = Root::new(&lab.kernel, template, volumes).expect("room for a root");
    let program = Program {
        path: b"/bin/sh".to_vec(),
        directory: b"/tmp".to_vec(),
        arguments: ["sh", "-c", script].map(|word| word.into()).to_vec(),
        environment: vec![b"PATH=/bin".to_vec()],
        exports: Vec::new(),
        terminals: Terminals::default(),
        calls,
        user: 0,
        group: 0,
        memory: QUOTA,
    };
    let cell = program.prepare(&lab.kernel, &root).expect("room for a cell");
    let port = lab.kernel.console(cell).expect("it has a console");
    port.close_input();
    lab.kernel.start(cell).expect("it was not started before");
    let outcome = lab.finish(cell);
    let (mut output, mut errors) = (Vec::new(), Vec::new());
    while let Some((stream, bytes)) = port.receive() {
        match stream {
            Stream::Output => output.extend(bytes),
            Stream::Errors => errors.extend(bytes),
        }
    }
    let [output, errors] = [output, errors].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert_eq!((outcome.end.to_string(), &errors[..]), ("exited with status 0".into(), ""), "{output}");
    output
}

/// Programs that run again find their code patched, `cpuid` included, which traps wherever virtualisation is the hardware's.
const AGAIN: &str = "
for round in 1 2 3 4 5 6 7 8; do /bin/true && seq 1 200 | sort -rn | head -n 1; done
seq 1 20000 | sha256sum
";

#[test]
fn a_shell_and_its_children_say_the_same_however_their_calls_are_served() {
    if !kvm_is_there() {
        return;
    }
    let patched = said(AGAIN, Calls::default());
    assert_eq!(patched.lines().filter(|line| *line == "200").count(), 8, "{patched}");
    assert!(patched.contains("  -\n"), "{patched}");
    assert_eq!(said(AGAIN, Calls { trap: true, ..Calls::default() }), patched);
}

#[test]
fn children_end_and_signals_come() {
    if !kvm_is_there() {
        return;
    }
    let script = "
trap 'echo heard' USR1
kill -USR1 $$
(exit 3); echo child $?
sleep 1000 & kill $!; wait $! 2>/dev/null; echo killed $?
{ sleep 0.02; echo late; } & wait; echo all
cat <<END
here
END
";
    assert_eq!(said(script, Calls::default()), "heard\nchild 3\nkilled 143\nlate\nall\nhere\n");
}
