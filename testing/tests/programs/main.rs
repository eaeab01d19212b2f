// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs in cells, from the machine to the libOS, on every kind of virtualisation that runs the tests. The command
//! line's tests cover more programs, on one kind only.

mod clones;
#[path = "../common/mod.rs"]
mod common;
mod inherited;
mod input;
mod orders;
mod saved;

use pando_kernel::Config;
use pando_launch::Calls;
use pando_machine::PageCount;
use pando_machine::kvm::Omit;
use pando_testing::lab::Lab;
use pando_testing::needs_kvm;

/// 256 MiB.
const ARENA: PageCount = PageCount(1 << 16);
/// The quota of the program.
const QUOTA: PageCount = PageCount(1 << 14);
/// The names of busybox that scripts call.
const APPLETS: [&str; 11] = ["sh", "seq", "sort", "head", "sha256sum", "true", "kill", "sleep", "cat", "tr", "mv"];

/// Returns the standard output of a script, run by busybox's shell in a cell of its own that must end with status 0.
fn output_of(script: &str, calls: Calls) -> String {
    let mut lab = Lab::kvm(ARENA, 1, Config::default(), Omit::NOTHING);
    let root = common::root(&mut lab, &APPLETS, &[]);
    let cell = common::script(script, QUOTA, calls).prepare(&lab.kernel, &root).expect("room for a cell");
    let port = lab.kernel.console(cell).expect("it has a console");
    port.close_input();
    lab.kernel.start(cell).expect("it was not started before");
    common::output_until_end(&mut lab, cell, &port)
}

/// Programs that run again find their code patched, including `cpuid`, which exits under all hardware virtualisation.
const AGAIN: &str = "
for round in 1 2 3 4 5 6 7 8; do /bin/true && seq 1 200 | sort -rn | head -n 1; done
seq 1 20000 | sha256sum
";

#[test]
fn a_shell_and_its_children_say_the_same_however_their_calls_are_served() {
    needs_kvm!();
    let patched = output_of(AGAIN, Calls::default());
    assert_eq!(patched.lines().filter(|line| *line == "200").count(), 8, "{patched}");
    assert!(patched.contains("  -\n"), "{patched}");
    assert_eq!(output_of(AGAIN, Calls { trap: true, ..Calls::default() }), patched);
}

#[test]
fn children_end_and_signals_come() {
    needs_kvm!();
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
    assert_eq!(output_of(script, Calls::default()), "heard\nchild 3\nkilled 143\nlate\nall\nhere\n");
}
