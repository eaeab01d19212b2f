// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando serve` in a cell: templates, clones and clients, as on a host.

use super::debug;
use crate::case::{PANDO, as_shell, text};
use pando_testing::{host_program, needs_kvm};
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Starts a service in the cell, and waits until it serves.
const SERVE: &str = "mkfifo /tmp/said; pando serve 2>/tmp/said & exec 9</tmp/said; read line <&9; ";

/// Runs a script in a cell with a service that may have this many cells.
fn beside_service(cells: u32, script: &str) -> Output {
    let mut command = outer(cells);
    command.args(["--", "bash", "-c", &format!("{SERVE}{script}")]);
    command.output().expect("pando starts")
}

/// `pando run` of a program that finds `pando` in PATH, and whose files go into a directory of its own.
fn outer(cells: u32) -> Command {
    let mut command = Command::new(PANDO);
    command.args(["run", "--nest", &cells.to_string(), "-v", &format!("{PANDO}:/opt/pando:ro"), "-e", "PATH=/opt:/usr/bin:/bin"]);
    command.args(["-e", "HOME=/tmp", "-e", "XDG_DATA_HOME=/tmp/data"]).stdin(Stdio::null());
    command
}

#[track_caller]
fn prints(outcome: &Output, output: &str) {
    assert_eq!((text(&outcome.stdout), as_shell(outcome.status)), (output, 0), "{}", text(&outcome.stderr));
}

#[test]
fn a_service_in_a_cell_runs_programs() {
    needs_kvm!();
    let script = "pando run -d --name one -- sh -c 'echo begun; exec sleep 1000'; \
        pando exec one sh -c 'echo beside; cat; exit 4' </dev/null; echo status $?; \
        head -c 3000000 /dev/zero | pando exec -i one wc -c; \
        pando kill one; pando logs -f one; \
        pando clone python -- 'print(6 * 7)'; pando run -d --name two -u 7 -w /usr -- sh -c 'id -u; pwd'; pando logs -f two; \
        pando clone --memory 64M python -- 'bytearray(200 << 20)' 2>/dev/null; echo status $?; \
        pando ps --json | wc -l";
    let outcome = beside_service(12, script);
    prints(&outcome, "1\nbeside\nstatus 4\n3000000\nbegun\n42\n3\n7\n/usr\nstatus 137\n0\n");
}

#[test]
fn gdb_attaches_to_a_cell_of_a_service_in_a_cell() {
    if !debug::is_possible() {
        return;
    }
    let script = "pando run -d --name sleeper sleep 1000 >/dev/null; \
        gdb -nx -batch -ex 'set debuginfod enabled off' -ex 'set remotetimeout 100' -ex 'target remote | pando debug sleeper' \
        -ex 'info threads' -ex detach /bin/sleep 2>/dev/null; \
        pando exec sleeper echo goes on; pando kill sleeper";
    let outcome = beside_service(6, script);
    debug::contains(text(&outcome.stdout), &["Thread 1.1 (sleep)", "detached]", "goes on\n"]);
}

#[test]
fn templates_in_a_cell_are_kept_by_its_service() {
    needs_kvm!();
    let template = "pando template create counter -- sh -c 'number=7; eval \"$(pando-ready -s)\"; echo $number $1'";
    let script = format!(
        "{template}; pando clone counter a; pando clone counter b; {template} 2>&1 | grep -c exists; \
        pando template ls --json | grep -c '\"name\":\"counter\"'; pando template inspect counter | grep -c '\"variants\": 1'; \
        pando clone -d --count 3 counter c >/dev/null; pando template rm counter; pando clone counter d; echo status $?; \
        pando template create broken -- sh -c 'echo why; exit 9'; echo status $?"
    );
    let outcome = beside_service(12, &script);
    prints(&outcome, "7 a\n7 b\n1\n1\n1\nstatus 125\nstatus 125\n");
    let errors = text(&outcome.stderr);
    assert!(errors.contains("there is no template `counter`") && errors.contains("its output:\nwhy"), "{errors}");
}

#[test]
fn a_service_in_a_cell_refuses_what_needs_a_host() {
    needs_kvm!();
    let refused = [
        "pando serve --socket /tmp/other --gateways 2",
        "pando serve --socket /tmp/other --show /etc",
        "pando template create -v /etc x -- true",
        "pando template create --train x -- true",
        "pando template create --variants 2 x -- true",
        "pando template save python /tmp/file",
        "pando clone --stats python",
        "pando clone --strace python",
        "pando clone --network net python",
        "pando clone --allow 10.0.0.0/8 python",
    ];
    let script: String = refused.iter().map(|command| format!("{command}; echo status $?; ")).collect();
    let outcome = beside_service(4, &script);
    prints(&outcome, &"status 125\n".repeat(refused.len()));
    let errors = text(&outcome.stderr);
    assert_eq!(errors.matches("at its start, and has no network").count(), refused.len(), "{errors}");
    let outcome = outer(4).args(["--", "sh", "-c", "pando clone python -- 1; pando template ls"]).output().expect("pando starts");
    assert_eq!(text(&outcome.stderr).matches("it is not running: start `pando serve`").count(), 2, "{}", text(&outcome.stderr));
}

/// Cells beyond the number are refused; the service continues, and its ended cells make room.
#[test]
fn a_service_in_a_cell_has_the_cells_of_its_cell_and_no_more() {
    needs_kvm!();
    let script = "for name in a b c; do pando run -d --name $name -- sleep 1000 || echo refused; done; pando kill a; \
        pando run -d --name d -- sleep 1000; pando ps -q | wc -l";
    let outcome = beside_service(2, script);
    prints(&outcome, "1\n2\nrefused\n4\n2\n");
    assert!(text(&outcome.stderr).contains("--nest"), "{}", text(&outcome.stderr));
}

#[test]
fn cells_of_a_service_in_a_cell_have_cells_of_their_own() {
    needs_kvm!();
    let script = "pando run -d --nest 2 --name one -- sleep 1000; \
        pando exec -e PATH=/opt:/usr/bin:/bin one pando run --nest 1 -- pando run -- echo deep; \
        pando exec one /opt/pando run --hostname below -- sleep 1000 & \
        until pando ps --tree | grep below; do :; done | awk '{ print $1 }'; \
        pando template create run -- sh -c 'eval \"$(pando-ready -s)\"; exec \"$@\"'; \
        pando clone --nest 1 run -- /opt/pando run -- echo cloned; pando clone run -- ls /dev/cells; echo status $?";
    let outcome = beside_service(8, script);
    prints(&outcome, "1\ndeep\nbelow\ncloned\nstatus 2\n");
}

#[test]
fn a_batch_of_clones_runs_in_the_service_of_a_cell() {
    needs_kvm!();
    let script = "pando template create run -- sh -c 'eval \"$(pando-ready -s)\"; exec \"$@\"'; \
        pando clone --count 4 --at-once 2 run -- sh -c 'hostname; [ $(hostname) != run-2 ]' | sort; echo status ${PIPESTATUS[0]}; \
        pando clone --count 2 --output /tmp/out run -- sh -c 'echo output; echo errors >&2'; cat /tmp/out/0.out /tmp/out/1.err; \
        pando clone --count 2 missing; echo status $?; pando ps -q | wc -l";
    let outcome = beside_service(4, script);
    prints(&outcome, "run-0\nrun-1\nrun-2\nrun-3\nstatus 1\noutput\nerrors\nstatus 125\n0\n");
    let errors = text(&outcome.stderr);
    assert!(errors.contains("clone 2: exited with status 1") && errors.contains("1 of 4 clones failed"), "{errors}");
}

#[test]
fn a_nested_program_gets_sigpipe_when_its_reader_ends() {
    needs_kvm!();
    let outcome = outer(2).args(["--", "sh", "-c", "pando run -- yes | head -1"]).output().expect("pando starts");
    prints(&outcome, "y\n");
}

/// An agent starts sandboxes, forks one of them at a decision, and keeps the best.
const AGENT: &str = "
import pando
boxes = [pando.Sandbox() for _ in range(COUNT)]
for number, box in enumerate(boxes):
    box.run(f'state = [{number}]')
decision = boxes[7]
options = decision.fork(8)
scores = [int(option.run(f'state.append({number} * 3 % 8); print(sum(state))').stdout) for number, option in enumerate(options)]
best = options[max(range(8), key=scores.__getitem__)]
for option in options:
    if option is not best:
        option.close()
print(scores, best.run('print(state)').stdout.strip())
print(sum(int(box.run('print(sum(state))').stdout) for box in boxes))
print(len({box.run('import random; print(random.random())').stdout for box in [best, *boxes[5:9]]}))
";

#[test]
fn an_agent_forks_a_sandbox_in_its_cell() {
    needs_kvm!();
    // All share the memory of the cell around them.
    let count = if std::env::var("PANDO_TESTS").as_deref() == Ok("all") { 50 } else { 10 };
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).with_file_name("clients").join("python/src");
    let mut command = outer(count + 12);
    command.args(["-v", &format!("{}:/opt/python:ro", package.display()), "-e", "PYTHONPATH=/opt/python", "--memory", "2G", "--"]);
    // Debian's Python: the one in PATH may lack the HTTP library.
    command.args([host_program("/usr/bin/python3"), "-c", &AGENT.replace("COUNT", &count.to_string())]);
    let outcome = command.output().expect("pando starts");
    let sum = (0..count).sum::<u32>();
    prints(&outcome, &format!("[7, 10, 13, 8, 11, 14, 9, 12] [7, 7]\n{sum}\n5\n"));
}
