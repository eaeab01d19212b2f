// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run` inside of `pando run`: the same program, at every depth.

use crate::case::{PANDO, as_shell, text};
use pando_testing::{host_program, needs_kvm};
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Output, Stdio};

/// Number of descendants for tests that do not count them.
const MANY: &str = "40";

/// `pando run` of a shell that finds `pando` in PATH, with these options.
fn outer(options: &[&str], script: &str) -> Command {
    let mut command = Command::new(PANDO);
    command.args(["run", "-v", &format!("{PANDO}:/opt/pando:ro"), "-e", "PATH=/opt:/usr/bin:/bin"]).args(options);
    command.args(["--", "sh", "-c", script]).stdin(Stdio::null());
    command
}

fn run(options: &[&str], script: &str) -> Output {
    outer(options, script).output().expect("pando starts")
}

/// Status, output and errors of a script in a cell with many descendants.
fn nested(script: &str) -> (i32, String, String) {
    let outcome = run(&["--nest", MANY], script);
    (as_shell(outcome.status), text(&outcome.stdout).into(), text(&outcome.stderr).into())
}

#[test]
fn a_nested_program_has_its_own_streams_and_status() {
    needs_kvm!();
    let done = nested("pando run -- sh -c 'echo output; echo errors >&2; exit 3'; echo status $?");
    assert_eq!(done, (0, "output\nstatus 3\n".into(), "errors\n".into()));
    let done = nested("pando run -- sh -c 'kill -SEGV $$'; echo status $?");
    assert_eq!(done, (0, "status 139\n".into(), "pando: sh: ended by SIGSEGV (segmentation fault)\n".into()));
    let done = nested("pando run -- no-such-program; echo status $?; pando run -- /etc/passwd; echo status $?");
    assert_eq!((done.0, &done.1[..]), (0, "status 127\nstatus 126\n"), "{}", done.2);
}

#[test]
fn a_nested_program_reads_its_standard_input() {
    needs_kvm!();
    // More than all buffers on the way hold together.
    let bytes: Vec<u8> = (0..600_000_u32).flat_map(u32::to_le_bytes).collect();
    let mut child = outer(&["--nest", MANY], "pando run --nest 4 -- pando run -- cat")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("pando starts");
    let mut input = child.stdin.take().expect("a pipe");
    let sent = bytes.clone();
    let sender = std::thread::spawn(move || input.write_all(&sent));
    let outcome = child.wait_with_output().expect("it is ours");
    sender.join().expect("no panic").expect("cat reads all");
    assert!(outcome.status.success() && outcome.stdout == bytes, "{} bytes came back", outcome.stdout.len());
}

#[test]
fn input_that_a_nested_program_does_not_read_is_left_to_others() {
    needs_kvm!();
    let script = "for word in one two; do pando run -- echo $word; done; cat";
    let mut child = outer(&["--nest", MANY], script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts");
    child.stdin.take().expect("a pipe").write_all(b"three\n").expect("the shell's cat reads");
    let outcome = child.wait_with_output().expect("it is ours");
    assert_eq!(text(&outcome.stdout), "one\ntwo\nthree\n");
}

#[test]
fn the_same_program_runs_sixteen_deep() {
    needs_kvm!();
    let mut program = format!("{} -c 'print(6 * 7)'", host_program("python3"));
    for level in (1..16).rev() {
        program = format!("pando run --nest {} -- {program}", 16 - level);
    }
    assert_eq!(nested(&program), (0, "42\n".into(), String::new()));
}

/// The output of unmodified programs does not depend on the depth.
#[test]
fn programs_print_the_same_at_every_depth() {
    needs_kvm!();
    let programs = [
        "seq 1000 | sort -rn | head -3 | md5sum",
        "find /etc/pam.d | sort | sha256sum",
        "id; pwd; echo $HOME $USER",
        "perl -e 'for (1..5) { if (my $p = fork) { waitpid $p, 0; print $? >> 8, \"\\n\" } else { exit $_ } }'",
        "awk 'BEGIN { for (i = 0; i < 100000; i++) s += i; print s }'",
        "python3 -c 'import json, subprocess; print(json.dumps({\"a\": subprocess.check_output([\"echo\", \"b\"]).decode()}))'",
        "tar -cf - /usr/share/perl5/Debconf 2>/dev/null | tar -tf - | wc -l",
        "trap 'echo trapped' USR1; kill -USR1 $$; wait; mkfifo /tmp/f; (echo through >/tmp/f &) ; cat /tmp/f",
    ];
    // The scripts above name them.
    let _ = [host_program("perl"), host_program("python3")];
    for program in programs {
        let plain = run(&[], program);
        let wrapped = "pando run --nest 4 -- pando run -- sh -c \"$1\"";
        let mut command = outer(&["--nest", MANY], wrapped);
        command.args(["sh", program]);
        let deep = command.output().expect("pando starts");
        assert_eq!((text(&deep.stdout), deep.status), (text(&plain.stdout), plain.status), "{program}: {}", text(&deep.stderr));
    }
}

#[test]
fn limits_of_a_nested_cell_are_its_own() {
    needs_kvm!();
    let done = nested("pando run --memory 64M -- python3 -c 'x = bytearray(200 << 20)'; echo status $?");
    assert_eq!((done.0, &done.1[..]), (0, "status 137\n"), "{}", done.2);
    let done = nested("pando run --timeout 1s -- sh -c 'echo before; sleep 100'; echo status $?");
    assert_eq!((done.0, &done.1[..]), (0, "before\nstatus 124\n"), "{}", done.2);
    let done = nested("pando run --output-limit 10 -- yes | wc -c");
    assert_eq!((done.0, &done.1[..]), (0, "10\n"), "{}", done.2);
    let done = nested("pando run --cpu-weight 10000 -- echo weighed; pando run --cpu-weight 0 -- true; echo status $?");
    assert_eq!((done.0, &done.1[..]), (0, "weighed\nstatus 125\n"), "{}", done.2);
    let done = nested("pando run --hostname inner -- hostname; hostname");
    assert_eq!((done.0, &done.1[..]), (0, "inner\npando\n"), "{}", done.2);
}

#[test]
fn a_nested_cell_has_no_more_memory_than_the_cell_around_it() {
    needs_kvm!();
    let outcome = run(&["--nest", MANY, "--memory", "200M"], "pando run -m 200M -- python3 -c 'x = bytearray(400 << 20)'; echo status $?");
    assert_eq!((as_shell(outcome.status), text(&outcome.stdout)), (0, "status 137\n"), "{}", text(&outcome.stderr));
}

#[test]
fn cells_beyond_the_number_are_refused_with_advice() {
    needs_kvm!();
    // The first nested cell waits for its input, so that it still lives when the second is refused.
    let script = "mkfifo /tmp/in /tmp/out; pando run -- sh -c 'echo ready; cat' </tmp/in >/tmp/out & exec 3>/tmp/in 4</tmp/out; read line <&4; \
                  pando run -- true; echo status $?; exec 3>&-; wait; pando run -- echo again";
    let outcome = run(&["--nest", "1"], script);
    assert_eq!((as_shell(outcome.status), text(&outcome.stdout)), (0, "status 125\nagain\n"), "{}", text(&outcome.stderr));
    assert!(text(&outcome.stderr).contains("--nest"), "{}", text(&outcome.stderr));
    let outcome = run(&[], "pando run -- true; echo status $?");
    assert_eq!(text(&outcome.stdout), "status 125\n");
    assert!(text(&outcome.stderr).contains("start it with `--nest NUMBER`"), "{}", text(&outcome.stderr));
}

/// Output that nobody reads, and a flood of it, do not hold up the end.
#[test]
fn a_time_limit_ends_a_nested_program_that_floods_its_output() {
    needs_kvm!();
    let done = nested("pando run --timeout 1s -- yes >/dev/null; echo status $?");
    assert_eq!((done.0, &done.1[..]), (0, "status 124\n"), "{}", done.2);
    let done = nested("mkfifo /tmp/f; (pando run --timeout 1s -- yes >/tmp/f; echo status $?) & exec 3</tmp/f; wait");
    assert_eq!((done.0, &done.1[..]), (0, "status 124\n"), "{}", done.2);
}

/// The device passes only calls about children of the same open file.
#[test]
fn the_device_refuses_calls_about_anything_else() {
    needs_kvm!();
    let program = "import errno, fcntl, os, struct
CALL, ROOT = 0xc038ce01, 0x1000
def call(device, *words):
    record = bytearray(struct.pack('7Q', *words, *[0] * (7 - len(words))))
    try:
        fcntl.ioctl(device, CALL, record)
    except OSError as error:
        return errno.errorcode[error.errno]
    return struct.unpack('7q', record)[6]
mine, other = (os.open('/dev/cells', os.O_RDWR) for _ in range(2))
child = call(mine, 22, ROOT, 50000, 0)
assert child > 0 and call(mine, 27, child) == 1
print(call(other, 27, child), call(mine, 25, ROOT), call(mine, 0, 7), call(mine, 1, 0), call(mine, 21, 0, 1), call(mine, 99))
print(call(mine, 4, 0, 0x10000, 1), call(mine, 4, 2**64 - 1, 0x10000, 1), call(mine, 11, 1, child << 32, 0))
print(call(mine, 31, child, child), call(mine, 32, child, 0x10, 8), call(mine, 32, child, 0x10, 1 << 20))
os.close(mine)
print(call(other, 27, child), call(other, 22, ROOT, 50000, 0) > 0)
";
    let mut command = outer(&["--nest", "1"], "exec python3 -c \"$1\"");
    command.args(["sh", program]);
    let outcome = command.output().expect("pando starts");
    let wanted = "EPERM EPERM EPERM EPERM EPERM EPERM\nEPERM EPERM -3\n-14 EFAULT EINVAL\nEPERM True\n";
    assert_eq!(text(&outcome.stdout), wanted, "{}", text(&outcome.stderr));
}

/// A program schedules two others by a policy of its own: it donates three times as much to one of them.
#[test]
fn a_program_donates_time_to_its_cells() {
    needs_kvm!();
    let program = "import ctypes, fcntl, os, struct
CALL, ROOT, ARGUMENTS, MS = 0xc038ce01, 0x1000, 0x7f00001f0000, 1000000
device = os.open('/dev/cells', os.O_RDWR)
def call(*words):
    record = bytearray(struct.pack('7Q', *words, *[0] * (7 - len(words))))
    fcntl.ioctl(device, CALL, record)
    return struct.unpack('7q', record)[6]
words = [b'/bin/sh', b'/', b'sh', b'-c', b'while :; do :; done']
strings = b''.join(word + bytes(1) for word in words)
block = struct.pack('15I', 3, 0, len(strings), *[0] * 12) + strings
buffer = ctypes.create_string_buffer(block)
place = ctypes.addressof(buffer)
def start():
    cell = call(22, ROOT, 50000, 0)
    assert call(16, cell << 32 | 0xffffffff, ARGUMENTS, place, len(block)) == 0
    # Weight 0: it runs only by donations.
    assert call(28, cell, 3, 0) == 0 and call(40, cell, MS) == 3 and call(23, cell) == 0
    return cell
def donate(cell, time):
    # An event of this cell, such as a timer of its own, may come first.
    wanted = call(27, cell, 1) + time
    while (left := wanted - call(27, cell, 1)) > 0:
        assert call(40, cell, left) in (0, 4)
more, less = start(), start()
assert [call(27, cell, 1) for cell in (more, less)] == [0, 0]
for _ in range(5):
    donate(more, 9 * MS)
    donate(less, 3 * MS)
spent = [call(27, cell, 1) for cell in (more, less)]
print(spent[0] >= 45 * MS, spent[1] >= 15 * MS, call(40, more, 0))
call(25, more)
while call(27, more) & 0xff != 8: pass
print(call(40, more, MS), call(28, less, 3, 10001))
";
    let mut command = outer(&["--nest", "2"], "exec python3 -c \"$1\"");
    command.args(["sh", program]);
    let outcome = command.output().expect("pando starts");
    assert_eq!(text(&outcome.stdout), "True True -3\n2 -3\n", "{}", text(&outcome.stderr));
}

/// A batch passes only calls that make and prepare one child, and those about children of the same open file.
#[test]
fn the_device_refuses_batches_of_other_calls() {
    needs_kvm!();
    let program = "import ctypes, errno, fcntl, os, struct
BATCH, ROOT, NEWEST = 0xc018ce02, 0x1000, 1
CLONE, RUN = (22, ROOT, 50000, 0), (23, NEWEST)
def batch(device, *records, count=None):
    text = ctypes.create_string_buffer(b''.join(struct.pack('6Q', *record, *[0] * (6 - len(record))) for record in records))
    words = bytearray(struct.pack('3Q', ctypes.addressof(text), len(records) if count is None else count, 0))
    try:
        fcntl.ioctl(device, BATCH, words)
    except OSError as error:
        return errno.errorcode[error.errno]
    result, = struct.unpack('16xq', words)
    return result if result < 0 else (result & 0xffffffff, result >> 32 > 0)
mine, other = (os.open('/dev/cells', os.O_RDWR) for _ in range(2))
print(batch(mine), batch(mine, CLONE, count=65), batch(mine, RUN), batch(mine, CLONE, CLONE), batch(mine, CLONE, (1, 0)))
print(batch(mine, CLONE, (21, 0, 1)), batch(mine, CLONE, (31, NEWEST, NEWEST)), batch(mine, CLONE, (16, NEWEST << 32, 0, 1 << 40, 8)))
print(batch(mine, CLONE, (26, NEWEST)), batch(mine, CLONE, (27, NEWEST, 0)), batch(mine, (99,)))
print(batch(mine, CLONE, (16, NEWEST << 32 | 0xffffffff, 16, ctypes.addressof(ctypes.create_string_buffer(9)), 8), RUN))
print(batch(other, CLONE))
os.close(mine)
print(batch(other, CLONE, RUN))
";
    let mut command = outer(&["--nest", "1"], "exec python3 -c \"$1\"");
    command.args(["sh", program]);
    let outcome = command.output().expect("pando starts");
    // Address 16 of the child is not mapped: the clone is made, and named.
    let wanted = "EINVAL EINVAL EPERM EPERM EPERM\nEPERM EPERM EFAULT\nEPERM EPERM EPERM\n(1, True)\n-16\n(2, True)\n";
    assert_eq!(text(&outcome.stdout), wanted, "{}", text(&outcome.stderr));
}

#[test]
fn options_that_need_the_host_are_refused_inside() {
    needs_kvm!();
    for option in ["-v /etc", "--bare", "--root /", "-p 8000:80", "--stats", "--strace"] {
        let (status, output, errors) = nested(&format!("pando run {option} -- true; echo status $?"));
        assert_eq!((status, &output[..]), (0, "status 125\n"), "{option}: {errors}");
        assert!(errors.contains("a nested cell sees the files of its parent"), "{option}: {errors}");
    }
}

#[test]
fn the_end_of_pando_ends_its_nested_cell() {
    needs_kvm!();
    // One cell is allowed: the second can only be made if the first is gone.
    let script = "mkfifo /tmp/in /tmp/out; pando run -- sh -c 'echo ready; cat' </tmp/in >/tmp/out & exec 3>/tmp/in 4</tmp/out; read line <&4; \
                  kill -9 $!; wait $!; pando run -- echo room";
    let outcome = run(&["--nest", "1"], script);
    assert_eq!((as_shell(outcome.status), text(&outcome.stdout)), (0, "room\n"), "{}", text(&outcome.stderr));
}

#[test]
fn signals_reach_a_nested_program() {
    needs_kvm!();
    let script = "pando run -- sh -c 'trap \"echo asked; exit 4\" TERM; echo ready; while :; do read line || sleep 1; done' & \
                  trap 'kill -TERM $!' USR1; read line; kill -TERM $!; wait $!; echo status $?";
    let mut child = outer(&["--nest", MANY], script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the nested cell writes");
    assert_eq!(line, "ready\n");
    child.stdin.take().expect("a pipe").write_all(b"go on\n").expect("the outer shell reads");
    let rest: Vec<String> = output.lines().map(|line| line.expect("text")).collect();
    assert_eq!(rest, ["asked", "status 4"]);
    assert!(child.wait().expect("it is ours").success());
}
