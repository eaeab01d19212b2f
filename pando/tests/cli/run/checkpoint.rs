// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando checkpoint` and `pando restore`: programs that are killed, and go on from their last checkpoint in another process.

use crate::PANDO;
use crate::case::{as_shell, text};
use pando_testing::needs_kvm;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long something may take: a small part of it on a busy machine.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// Counts with a state in memory, a file of its own, a timer and a thread. The first half lasts as long as standard input, which only a
/// restored program finds at its end: however slow the machine is, it runs until it has enough checkpoints.
const COUNT: &str = "import itertools, os, signal, sys, threading, time
ticks = [0]
def tick(*_): ticks[0] += 1
signal.signal(signal.SIGALRM, tick)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
state, log = {}, open('/tmp/log', 'w+')
seen = []
threading.Thread(target=lambda: [seen.append(time.sleep(0.01)) for _ in range(10**9)], daemon=True).start()
for number in range(int(sys.argv[1])):
    if number == int(sys.argv[1]) // 2: sys.stdin.read()
    state[number] = bytes([number % 251]) * 1000
    log.write(f'{number}\\n')
    print(number, sum(part[0] for part in state.values()), flush=True)
    time.sleep(0.01)
log.flush(); log.seek(0)
print('log', [int(line) for line in log] == list(range(number + 1)), 'ticks', ticks[0] > number / 4, 'thread', len(seen) > number / 10)
signal.setitimer(signal.ITIMER_REAL, 0)
sys.exit(7)";

/// A process that is killed when this is dropped.
struct ProcessGuard(Child);

impl Drop for ProcessGuard {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A directory of checkpoints.
struct Checkpoints(TempDir);

impl Checkpoints {
    fn new() -> Checkpoints {
        Checkpoints(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("checkpoints")
    }

    fn file(&self, number: u32) -> PathBuf {
        self.path().join(format!("checkpoint-{number}"))
    }

    fn command(&self, every: &str, program: &[&str]) -> Command {
        let mut command = Command::new(PANDO);
        command.args(["checkpoint", "--every", every, "-m", "512M", "-o"]).arg(self.path()).arg("--").args(program);
        command
    }

    /// Runs a program until it has `number` checkpoints, of which the last one comes after its first output, and kills it. Returns its
    /// output.
    fn kill_after(&self, number: u32, command: Command) -> String {
        let mut last = None;
        kill_when(command, |has_output| {
            if has_output && last.is_none() {
                // The next one may have begun before.
                last = Some(numbers_of(&self.path()).into_iter().max().unwrap_or(0) + 2);
            }
            last.is_some_and(|last| self.file(last.max(number)).exists())
        })
    }

    /// Runs a program until it has written a line, and `further` checkpoints since, and kills it. Returns its output, and the number of the
    /// first of these checkpoints.
    fn kill_after_output(&self, further: u32, mut command: Command) -> (String, u32) {
        let mut child = ProcessGuard(command.stdout(Stdio::piped()).spawn().expect("pando starts"));
        let mut output = BufReader::new(child.0.stdout.take().expect("it is piped"));
        let mut line = String::new();
        output.read_line(&mut line).expect("output is text");
        // The next one may be of a moment before the line.
        let first = numbers_of(&self.path()).into_iter().max().unwrap_or(0) + 2;
        let rest = kill_child_when(child, output, |_| self.file(first + further - 1).exists());
        (line + &rest, first)
    }

    /// Restores the program from the newest checkpoint, or from that with a number as `@2`: status, output and errors.
    fn restore(&self, options: &[&str], number: &str) -> (i32, String, String) {
        let outcome = self.restorer(options, number).output().expect("pando starts");
        (as_shell(outcome.status), text(&outcome.stdout).into(), text(&outcome.stderr).into())
    }

    fn restorer(&self, options: &[&str], number: &str) -> Command {
        let mut directory = self.path().into_os_string();
        directory.push(number);
        let mut command = Command::new(PANDO);
        command.arg("restore").args(options).arg(directory).stdin(Stdio::null());
        command
    }
}

/// Runs a command until something is true of whether it has output, and kills it. Returns its output. Its input does not end.
fn kill_when(mut command: Command, is_due: impl FnMut(bool) -> bool) -> String {
    let mut child = ProcessGuard(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts"));
    let output = BufReader::new(child.0.stdout.take().expect("it is piped"));
    kill_child_when(child, output, is_due)
}

/// Waits until something is true of whether a process has further output, and kills it. Returns that output.
fn kill_child_when(mut child: ProcessGuard, output: BufReader<ChildStdout>, mut is_due: impl FnMut(bool) -> bool) -> String {
    let has_output = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&has_output);
    let lines = output.lines().map_while(Result::ok).inspect(move |_| seen.store(true, Ordering::Relaxed));
    let reader = std::thread::spawn(move || lines.collect::<Vec<_>>().join("\n"));
    let began = Instant::now();
    while !is_due(has_output.load(Ordering::Relaxed)) {
        assert!(began.elapsed() < WAIT_MAX && child.0.try_wait().is_ok_and(|ended| ended.is_none()), "it has no checkpoint");
        std::thread::sleep(Duration::from_millis(2));
    }
    drop(child);
    reader.join().expect("output is text")
}

/// The numbers at the beginning of lines.
fn numbers_in(output: &str) -> Vec<u64> {
    output.lines().filter_map(|line| line.split(' ').next()?.parse().ok()).collect()
}

/// Checks that a count was continued from a checkpoint to its end.
#[track_caller]
fn continues(before: &str, after: &str, end: u64) {
    let (before, counted) = (numbers_in(before), numbers_in(after));
    let first = counted[0];
    assert!(before.last().is_none_or(|last| first <= last + 1), "nothing is left out: {first} after {:?}", before.last());
    assert_eq!(counted, (first..end).collect::<Vec<u64>>());
    for line in after.lines().take(counted.len()) {
        let mut words = line.split(' ').map(|word| word.parse::<u64>().expect("a number"));
        let (number, sum) = (words.next().expect("a number"), words.next().expect("a sum"));
        assert_eq!(sum, (0..=number).map(|number| number % 251).sum::<u64>());
    }
    assert!(after.ends_with("log True ticks True thread True\n"), "{after}");
}

#[test]
fn a_program_that_is_killed_continues_from_its_last_checkpoint() {
    needs_kvm!();
    let checkpoints = Checkpoints::new();
    let program = ["/usr/bin/python3", "-c", COUNT, "600"];
    let before = checkpoints.kill_after(4, checkpoints.command("300ms", &program));
    let (status, after, errors) = checkpoints.restore(&[], "");
    assert_eq!((status, &errors[..]), (7, ""), "{after}");
    continues(&before, &after, 600);
    assert!(numbers_in(&after)[0] > 0, "it did not begin again");
    // An earlier one, with all pages read before, and further checkpoints of it, from which it is restored again.
    let restorer = checkpoints.restorer(&["--every", "300ms", "--check"], "@2");
    let last = numbers_of(&checkpoints.path()).into_iter().max().expect("there are four");
    let again = kill_when(restorer, |_| checkpoints.file(last + 2).exists());
    continues(&format!("{before}\n{again}"), &checkpoints.restore(&[], "").1, 600);
    // It has no output if it waited for input at the second checkpoint.
    assert!(numbers_in(&again).first().is_none_or(|first| *first <= numbers_in(&after)[0]));
    // The same checkpoint gives the same program each time.
    let (_, once, _) = checkpoints.restore(&[], "@3");
    let (_, twice, _) = checkpoints.restore(&["--check"], "@3");
    assert_eq!(numbers_in(&once), numbers_in(&twice));
    // The later ones have only what has changed.
    let size = |number| checkpoints.file(number).metadata().expect("it is there").len();
    assert!(size(3) < size(1) / 4, "{} of {}", size(3), size(1));
    let used = checkpoints.command("1s", &program).stdin(Stdio::null()).output().expect("pando starts");
    assert!(used.status.code() == Some(125) && text(&used.stderr).contains("has checkpoints already"), "{used:?}");
}

#[test]
fn processes_pipes_and_a_database_continue() {
    needs_kvm!();
    let checkpoints = Checkpoints::new();
    // A pipeline of shells: each line goes through three processes, and one of them waits for the next.
    let script = "echo begun; i=0; while [ $i -lt 300 ]; do [ $i != 150 ] || read -r _; echo $i; i=$((i+1)); sleep 0.01; done | tee /tmp/copy | \
                  while read -r line; do echo \"$line\" >> /tmp/lines; echo \"$line\"; done | \
                  { sum=0; while read -r line; do sum=$((sum+line)); done; echo sum $sum; }; \
                  cmp /tmp/copy /tmp/lines && echo same $(tail -n 1 /tmp/copy)";
    checkpoints.kill_after(3, checkpoints.command("400ms", &["/bin/sh", "-c", script]));
    for number in ["", "@1", "@2"] {
        let (status, output, errors) = checkpoints.restore(&[], number);
        let output = output.strip_prefix("begun\n").unwrap_or(&output);
        assert_eq!((status, output, &errors[..]), (0, "sum 44850\nsame 299\n", ""), "{number}");
    }
    let checkpoints = Checkpoints::new();
    let database = "import sqlite3, sys, time
print('begun', flush=True)
base = sqlite3.connect('/tmp/base')
base.execute('create table t (number integer primary key, square integer)')
for number in range(300):
    if number == 150: sys.stdin.read()
    with base: base.execute('insert into t values (?, ?)', (number, number * number))
    time.sleep(0.01)
print(base.execute('pragma integrity_check').fetchall(), base.execute('select count(*), sum(square) from t').fetchall())";
    checkpoints.kill_after(3, checkpoints.command("400ms", &["/usr/bin/python3", "-c", database]));
    for number in ["", "@1"] {
        let (status, output, errors) = checkpoints.restore(&[], number);
        let output = output.strip_prefix("begun\n").unwrap_or(&output);
        assert_eq!((status, output, &errors[..]), (0, "[('ok',)] [(300, 8955050)]\n", ""), "{number}");
    }
}

#[test]
fn damaged_and_unfinished_checkpoints_are_left_out() {
    needs_kvm!();
    let checkpoints = Checkpoints::new();
    let before = checkpoints.kill_after(3, checkpoints.command("300ms", &["/usr/bin/python3", "-c", COUNT, "300"]));
    let good = std::fs::read(checkpoints.file(3)).expect("it is there");
    let newest = numbers_of(&checkpoints.path());
    for number in newest.iter().filter(|number| **number > 3) {
        std::fs::remove_file(checkpoints.file(*number)).expect("it is there");
    }
    // Cut off, as a host does that loses what was not written; and with a wrong bit in the index.
    let mut wrong = good.clone();
    let last = wrong.len() - 100;
    wrong[last] ^= 1;
    for bytes in [&good[..good.len() / 2], &wrong, b"", b"Pando checkpoint"] {
        std::fs::write(checkpoints.file(3), bytes).expect("room");
        let (status, after, errors) = checkpoints.restore(&[], "");
        assert_eq!(status, 7, "{errors}");
        assert!(errors.starts_with("pando: checkpoint 3 is left out: it is damaged"), "{errors}");
        continues(&before, &after, 300);
        let (status, output, errors) = checkpoints.restore(&[], "@3");
        assert_eq!((status, &output[..]), (125, ""), "{errors}");
        assert!(errors.starts_with("pando: cannot use checkpoint 3: it is damaged"), "{errors}");
    }
    // A page that is wrong: found before the program continues, or when it is needed.
    let mut wrong = good.clone();
    wrong[200] ^= 1;
    std::fs::write(checkpoints.file(3), &wrong).expect("room");
    let (status, _, errors) = checkpoints.restore(&["--check"], "");
    assert!(status == 7 && errors.contains("checkpoint 3 is left out: it is damaged: the pages at offset 64"), "{errors}");
    // One that an earlier one was replaced in, and one that is missing.
    std::fs::write(checkpoints.file(3), &good).expect("room");
    std::fs::rename(checkpoints.file(2), checkpoints.path().join("elsewhere")).expect("it is there");
    let (status, _, errors) = checkpoints.restore(&[], "@3");
    assert!(status == 125 && errors.contains("it needs pages of checkpoint 2, which cannot be used"), "{errors}");
    let (status, after, _) = checkpoints.restore(&[], "@1");
    assert_eq!(status, 7);
    continues(&before, &after, 300);
    for number in 1..=3 {
        let _ = std::fs::remove_file(checkpoints.file(number));
    }
    let (status, _, errors) = checkpoints.restore(&[], "");
    assert!(status == 125 && errors.contains("there is no complete checkpoint in the directory"), "{errors}");
}

/// The numbers of the checkpoints in a directory.
fn numbers_of(directory: &Path) -> Vec<u32> {
    let names = std::fs::read_dir(directory).expect("it is there").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix("checkpoint-")?.parse().ok()).collect()
}

#[test]
fn only_one_process_writes_to_a_directory() {
    needs_kvm!();
    let checkpoints = Checkpoints::new();
    let command = checkpoints.command("200ms", &["/usr/bin/python3", "-c", COUNT, "600"]);
    let is_refused = |mut second: Command| {
        let outcome = second.output().expect("pando starts");
        let errors = text(&outcome.stderr);
        assert_eq!(outcome.status.code(), Some(125), "{errors}");
        errors.contains("another process writes checkpoints to")
    };
    kill_when(command, |_| checkpoints.file(1).exists() && is_refused(checkpoints.restorer(&["--every", "1s"], "")));
    // The lock ends with the process. A directory that promises changes to the host's files is refused.
    let recipe = checkpoints.path().join("program.json");
    let forged = std::fs::read_to_string(&recipe).expect("it is there").replace("\"volumes\": []", "\"volumes\": [\"/tmp:/mnt:live\"]");
    std::fs::write(&recipe, forged).expect("room");
    let (status, _, errors) = checkpoints.restore(&["--every", "1s"], "");
    assert!(
        status == 125 && errors.contains("program.json has the volume /tmp:/mnt:live: a nested cell cannot write to the host"),
        "{errors}"
    );
}

#[test]
fn a_refused_checkpointer_leaves_no_directory() {
    let directory = tempfile::tempdir().expect("room");
    let output = directory.path().join("a:b");
    let mut command = Command::new(PANDO);
    let outcome =
        command.args(["checkpoint", "--every", "1s", "-o"]).arg(&output).args(["--", "/bin/true"]).output().expect("pando starts");
    let errors = text(&outcome.stderr);
    assert!(outcome.status.code() == Some(125) && errors.contains("it has a colon in its path"), "{errors}");
    assert!(!output.exists());
}

#[test]
fn a_restore_with_other_files_is_refused() {
    needs_kvm!();
    let checkpoints = Checkpoints::new();
    let program = checkpoints.0.path().join("count.py");
    std::fs::write(&program, COUNT).expect("room");
    let volume = format!("{}:/opt/count.py:ro", program.display());
    let mut command = Command::new(PANDO);
    command.args(["checkpoint", "--every", "200ms", "-v", &volume, "-o"]).arg(checkpoints.path());
    command.args(["--", "/usr/bin/python3", "/opt/count.py", "200"]);
    let before = checkpoints.kill_after(2, command);
    let (status, after, errors) = checkpoints.restore(&[], "");
    assert_eq!(status, 7, "{errors}");
    continues(&before, &after, 200);
    std::fs::write(&program, format!("{COUNT}\n")).expect("room");
    let (status, output, errors) = checkpoints.restore(&[], "");
    assert_eq!((status, &output[..]), (125, ""), "{errors}");
    assert!(errors.starts_with("pando: cannot restore it: files that the program sees have changed since the checkpoint"), "{errors}");
    std::fs::remove_file(checkpoints.path().join("program.json")).expect("it is there");
    let (status, _, errors) = checkpoints.restore(&[], "");
    assert!(status == 125 && errors.contains("program.json cannot be read"), "{errors}");
}

#[test]
fn older_checkpoints_are_removed_when_no_kept_one_needs_them() {
    needs_kvm!();
    let checkpoints = Checkpoints::new();
    let command = |more: &[&str]| {
        let mut command = Command::new(PANDO);
        command.args(["checkpoint", "--every", "20ms", "--keep", "2", "-m", "512M", "-o"]).arg(checkpoints.path());
        command.args(more).args(["--", "/usr/bin/python3", "-c", COUNT, "4000"]).stdin(Stdio::null());
        command
    };
    let (before, _) = checkpoints.kill_after_output(30, command(&[]));
    let numbers = numbers_of(&checkpoints.path());
    // Those that are kept, the files that they need, and those that a kill has left.
    assert!(!numbers.contains(&1) && numbers.len() <= 2 + 16 + 1, "{numbers:?}");
    // A restored program needs pages of old files, while they would be removed.
    let goes_on = |before: &str, further: u32| {
        let (after, _) = checkpoints.kill_after_output(further, checkpoints.restorer(&["--every", "20ms", "--keep", "1"], ""));
        let (last, counted) = (numbers_in(before).last().copied(), numbers_in(&after));
        assert!(counted[0] > 0 && last.is_none_or(|last| counted[0] <= last + 1), "{last:?} {counted:?}");
        assert!(counted.is_sorted_by(|one, next| one + 1 == *next), "{counted:?}");
        after
    };
    let again = goes_on(&before, 30);
    goes_on(&again, 3);
    assert!(numbers_of(&checkpoints.path()).len() <= 1 + 16 + 1);
    let (status, _, errors) = checkpoints.restore(&["--keep", "1"], "");
    assert!(status != 0 && errors.contains("--every"), "{errors}");
}

#[test]
fn a_program_with_nested_cells_continues_with_them() {
    needs_kvm!();
    let checkpoints = Checkpoints::new();
    let script = "pando run --nest 4 -- python3 -c \"$0\" 600 | while read -r line; do echo \"$line\"; done; echo through";
    let mut command = Command::new(PANDO);
    command.args(["checkpoint", "--every", "300ms", "--nest", "8", "-m", "1G", "-v", &format!("{PANDO}:/opt/pando:ro")]);
    command.args(["-e", "PATH=/opt:/usr/bin:/bin", "-o"]).arg(checkpoints.path()).args(["--", "sh", "-c", script, COUNT]);
    command.stdin(Stdio::null());
    let (before, first) = checkpoints.kill_after_output(3, command);
    for number in [String::new(), format!("@{first}")] {
        let (status, after, errors) = checkpoints.restore(&[], &number);
        assert_eq!((status, &errors[..]), (0, ""), "{after}");
        continues(&before, after.strip_suffix("through\n").expect("it went on"), 600);
    }
    // Further checkpoints of a restored family, from which it is restored again.
    let (again, _) = checkpoints.kill_after_output(1, checkpoints.restorer(&["--every", "300ms"], &format!("@{first}")));
    let (status, after, errors) = checkpoints.restore(&["--check"], "");
    assert_eq!((status, &errors[..]), (0, ""), "{after}");
    continues(&again, after.strip_suffix("through\n").expect("it went on"), 600);
}

/// A program under a pager and a tracer with a rule, both of which are part of the checkpoint.
#[test]
fn monitors_of_a_program_are_part_of_its_checkpoint() {
    needs_kvm!();
    let checkpoints = Checkpoints::new();
    let mut command = Command::new(PANDO);
    command.args(["checkpoint", "--every", "500ms", "--nest", "8", "-m", "1G", "-v", &format!("{PANDO}:/opt/pando:ro")]);
    command.args(["-e", "PATH=/opt:/usr/bin:/bin", "-o"]).arg(checkpoints.path()).arg("--");
    command.args(["pando", "page", "-m", "300M", "--swap", "/tmp/swap", "--nest", "4", "--"]);
    command.args(["pando", "trace", "-q", "--deny", "openat:/no-such-file", "--nest", "2", "--"]);
    command.args(["pando", "page", "-m", "14M", "--swap", "/tmp/swap", "--", "python3", "-c", COUNT, "600"]);
    command.stdin(Stdio::null());
    let (before, first) = checkpoints.kill_after_output(2, command);
    for number in [String::new(), format!("@{first}")] {
        let (status, after, errors) = checkpoints.restore(&[], &number);
        assert_eq!((status, &errors[..]), (7, ""), "{after}");
        continues(&before, &after, 600);
    }
}
