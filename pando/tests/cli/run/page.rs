// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando page`: programs that use more memory than they are given.

use crate::PANDO;
use crate::case::{as_shell, text};
use pando_testing::needs_kvm;
use std::path::Path;
use std::process::{Command, Stdio};

/// Fills twice the memory with numbers, goes over it again, and forks while it has it.
const PROGRAM: &str = "import array, os
numbers = [array.array('q', range(i, i + 65536)) for i in range(0, 48)]
total = sum(sum(part) for part in numbers)
child = os.fork()
if child == 0:
    numbers[5][7] = 0
    os._exit(sum(sum(part) for part in numbers[:9]) % 251)
print(total, sum(part[-1] for part in numbers), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))";

/// Status, output and errors of a program under the pager.
fn page(swap: &Path, options: &[&str], program: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(PANDO);
    command.args(["page", "--stats", "--swap"]).arg(swap).args(options).arg("--").args(program);
    let outcome = command.stdin(Stdio::null()).output().expect("pando starts");
    (as_shell(outcome.status), text(&outcome.stdout).into(), text(&outcome.stderr).into())
}

#[test]
fn a_program_uses_more_memory_than_it_is_given() {
    needs_kvm!();
    let directory = tempfile::tempdir().expect("a directory");
    let program = ["/usr/bin/python3", "-c", PROGRAM];
    let native = Command::new(program[0]).args(&program[1..]).output().expect("python starts");
    let swap = directory.path().join("swap");
    let (status, output, errors) = page(&swap, &["-m", "16M"], &program);
    assert_eq!((status, &output[..]), (0, text(&native.stdout)), "{errors}");
    let counts: Vec<u64> = errors.split(|character: char| !character.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect();
    let [pages_out, pages_in, _, shortages] = counts[..] else { panic!("{errors}") };
    assert!(pages_out > 3000 && pages_in > 500 && shortages > 0, "{errors}");
    assert!(!swap.exists(), "nobody needs it");
    // With enough memory nothing is moved.
    let (status, output, errors) = page(&swap, &["-m", "256M"], &program);
    assert_eq!((status, &output[..]), (0, text(&native.stdout)), "{errors}");
    assert!(errors.contains("0 pages out, 0 in; 0 faults, 0 shortages"), "{errors}");
}

#[test]
fn shortages_that_no_page_ends_are_named() {
    needs_kvm!();
    let directory = tempfile::tempdir().expect("a directory");
    let swap = directory.path().join("swap");
    let program = ["/usr/bin/python3", "-c", PROGRAM];
    let (status, output, errors) = page(&swap, &["-m", "16M", "--swap-size", "4M"], &program);
    assert_eq!((status, &output[..]), (125, ""), "{errors}");
    assert!(errors.contains("the swap file is full: give it more room with --swap-size"), "{errors}");
    // Files of the cell are no pages of programs.
    let (status, _, errors) = page(&swap, &["-m", "16M"], &["busybox", "dd", "if=/dev/zero", "of=/tmp/file", "bs=1M", "count=20"]);
    assert_eq!(status, 125, "{errors}");
    assert!(errors.contains("none of the program's pages can be moved to the swap file"), "{errors}");
    let (status, _, errors) = page(&directory.path().join("no/swap"), &["-m", "16M"], &["true"]);
    assert!(status == 125 && errors.starts_with("pando: cannot create the swap file"), "{errors}");
}

#[test]
fn a_file_that_exists_is_no_swap_file() {
    needs_kvm!();
    let directory = tempfile::tempdir().expect("a directory");
    let swap = directory.path().join("swap");
    // Another program's swap file is one such file, also before it has content.
    for content in ["", "a letter\n"] {
        std::fs::write(&swap, content).expect("a file");
        let (status, _, errors) = page(&swap, &["-m", "16M"], &["true"]);
        assert_eq!(status, 125, "{errors}");
        assert!(errors.contains("exists") && errors.contains("choose another name"), "{errors}");
        assert_eq!(std::fs::read_to_string(&swap).expect("it is there"), content);
    }
}
