// SPDX-License-Identifier: MIT OR Apache-2.0
//! Monitors inside of monitors, in any order: the program inside prints the same and ends with the same status as without them.

use crate::case::{PANDO, as_shell, text};
use pando_testing::lab::is_kvm_available;
use pando_testing::{are_installed, host_program, needs_kvm};
use std::process::{Command, Stdio};

/// Unmodified programs: a pipeline, a process with threads that forks, a program with many pages, a signal, files, the environment.
const PROGRAMS: &str = "seq 1000 | sort -rn | head -3 | md5sum
perl -e 'for (1..3) { if (my $p = fork) { waitpid $p, 0; print $? >> 8, \"\\n\" } else { exit $_ } }'
python3 -c 'import threading, subprocess
seen = []
threads = [threading.Thread(target=seen.append, args=(n,)) for n in range(5)]
[t.start() for t in threads]; [t.join() for t in threads]
pages = [bytes([n % 251]) * 4096 for n in range(3000)]
print(sorted(seen), sum(page[7] for page in pages), subprocess.check_output([\"echo\", \"x\"]))'
awk 'BEGIN { for (i = 0; i < 10000; i++) s += i; print s }'
trap 'echo trapped' USR1; kill -USR1 $$
mkdir /tmp/d && echo text > /tmp/d/f && tar -C /tmp -cf - d | tar -tf - && rm -r /tmp/d
id; pwd; echo $HOME; read line; echo \"read: $line\"; echo errors >&2
exit 7";

/// A program that runs another one in a cell of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nester {
    Run,
    Trace,
    Page,
    Checkpoint,
    Debugger,
}

use Nester::{Checkpoint, Debugger, Page, Run, Trace};

/// Runs gdb beside the debugger, until the program has ended. The standard input is that of the program.
const WITH_GDB: &str = "exec 3<&0; pando debug --port 4000 --nest 60 -- \"$@\" <&3 2>/tmp/debugger & debugger=$!
gdb -nx -batch -ex 'set debuginfod enabled off' -ex 'target remote :4000' -ex continue </dev/null >/tmp/gdb 2>&1
wait $debugger; status=$?; grep -v 'waiting for gdb' /tmp/debugger >&2; exit $status";

impl Nester {
    /// The words before the program.
    fn words(self) -> &'static [&'static str] {
        match self {
            Run => &["pando", "run", "--nest", "60", "--"],
            // Each system call halts the cell. No rule refuses one.
            Trace => &["pando", "trace", "-q", "--deny", "openat:/no-such-file", "--nest", "60", "--"],
            Page => &["pando", "page", "-m", "300M", "--swap", "/tmp/swap", "--nest", "60", "--"],
            Checkpoint => &["pando", "checkpoint", "--every", "1h", "-o", "/tmp/checkpoints", "--nest", "60", "--"],
            Debugger => &["sh", "-c", WITH_GDB, "sh"],
        }
    }

    /// The same of the innermost one: a pager has less memory than the program needs.
    fn innermost_words(self) -> &'static [&'static str] {
        match self {
            Page => &["pando", "page", "-m", "12M", "--swap", "/tmp/swap", "--"],
            other => other.words(),
        }
    }
}

/// Status, output and errors of the programs inside of nesters, the outermost first.
fn run_in(nesters: &[Nester]) -> (i32, String, String) {
    let mut command = Command::new(PANDO);
    command.args(["run", "-v", &format!("{PANDO}:/opt/pando:ro"), "-e", "PATH=/opt:/usr/bin:/bin", "--nest", "200", "--"]);
    // The shell finds `pando` in the cell's PATH.
    command.args(["sh", "-c", "exec \"$@\"", "sh"]);
    if let Some((innermost, around)) = nesters.split_last() {
        around.iter().for_each(|nester| {
            command.args(nester.words());
        });
        command.args(innermost.innermost_words());
    }
    command.args(["sh", "-c", PROGRAMS]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("pando starts");
    // It may end without reading.
    let _ = std::io::Write::write_all(&mut child.stdin.take().expect("a pipe"), b"line\n");
    let outcome = child.wait_with_output().expect("it is ours");
    (as_shell(outcome.status), text(&outcome.stdout).into(), text(&outcome.stderr).into())
}

/// The nesters that this machine has the programs for.
fn nesters() -> Vec<Nester> {
    // The script names them.
    let _ = [host_program("perl"), host_program("python3")];
    let has_gdb = are_installed(&["gdb"]);
    [Run, Trace, Page, Checkpoint, Debugger].into_iter().filter(|nester| *nester != Debugger || has_gdb).collect()
}

/// Checks that the programs do the same inside of nesters as without.
#[track_caller]
fn check(plain: &(i32, String, String), nesters: &[Nester]) {
    let inside = run_in(nesters);
    assert_eq!((inside.0, &inside.1), (plain.0, &plain.1), "{nesters:?}: {}", inside.2);
    assert_eq!(inside.2, plain.2, "{nesters:?}");
}

/// Whether this is a long run.
fn is_long() -> bool {
    std::env::var("PANDO_TESTS").as_deref() == Ok("all")
}

/// Pairs in which each nester is once the outer and once the inner one, and all pairs in long runs.
#[test]
fn programs_do_the_same_under_pairs_of_nesters() {
    needs_kvm!();
    let plain = run_in(&[]);
    assert_eq!(plain.0, 7, "{plain:?}");
    let nesters = nesters();
    let distances = if is_long() { 1..nesters.len() } else { 1..2 };
    for distance in distances {
        for (index, outer) in nesters.iter().enumerate() {
            check(&plain, &[*outer, nesters[(index + distance) % nesters.len()]]);
        }
    }
}

/// All orders of these.
fn orders(nesters: &[Nester]) -> Vec<Vec<Nester>> {
    if nesters.is_empty() {
        return vec![Vec::new()];
    }
    let first = |chosen: &Nester| {
        let others: Vec<Nester> = nesters.iter().copied().filter(|other| other != chosen).collect();
        orders(&others).into_iter().map(|order| [&[*chosen], &order[..]].concat()).collect::<Vec<_>>()
    };
    nesters.iter().flat_map(first).collect()
}

/// A few orders, and all of them in long runs.
#[test]
fn programs_do_the_same_under_all_nesters_in_any_order() {
    if !is_kvm_available() {
        return;
    }
    let plain = run_in(&[]);
    let all = orders(&nesters());
    let step = if is_long() { 1 } else { 47 };
    for order in all.iter().step_by(step) {
        check(&plain, order);
    }
}
