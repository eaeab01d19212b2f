// SPDX-License-Identifier: MIT OR Apache-2.0
//! Dynamically linked programs and scripts of the host, natively and in a cell.

use crate::case::{Case, Input};
use crate::comparison::compare_if;
use crate::compile::{Linkage, program};
use pando_testing::lab::is_kvm_available;
use pando_testing::{host_program, needs_kvm};
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Runs each line both ways: a program, its arguments, and its input.
fn check_all(lines: &[(&[&str], &str)]) {
    needs_kvm!();
    let problems: Vec<String> = lines
        .iter()
        .filter_map(|(words, input)| Case::new(words[0], &words[1..]).input(Input::Pipe(input.as_bytes())).compare().err())
        .collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

const TEXT: &str = "one two\nthree four\nfive\nsix seven eight\nnine\nten\n";

#[test]
fn small_tools_do_the_same() {
    check_all(&[
        (&["/bin/true"], ""),
        (&["/bin/false"], ""),
        (&["/bin/echo", "one", "", "two words"], ""),
        (&["/bin/ls", "-ld", "/usr/share/common-licenses/BSD", "/bin/true", "/no/such/directory"], ""),
        (&["/bin/cat", "-n", "-", "/usr/share/common-licenses/BSD"], TEXT),
        (&["/usr/bin/sort", "-r", "-k2"], TEXT),
        (&["/usr/bin/wc", "/usr/share/common-licenses/GPL-3", "-"], TEXT),
        (&["/usr/bin/tr", "a-z", "A-Z"], TEXT),
        (&["/usr/bin/sha256sum", "/usr/share/common-licenses/GPL-3"], ""),
        (&["/bin/sed", "-n", "s/t\\(.*\\)e/<\\1>/p"], TEXT),
        (&["/bin/grep", "-c", "e", "-"], TEXT),
        (&["/usr/bin/env", "-i", "A=1", "/no/such/program"], ""),
        (&["/usr/bin/env", "-i", "A=1", "/usr/bin/env"], ""),
        (&["/usr/bin/setarch", "-R", "/bin/cat", "/proc/self/personality"], ""),
        (&["/usr/bin/awk", "{ total += NF } END { print total, sqrt(2) }"], TEXT),
        (&["/usr/bin/find", "/usr/share/zoneinfo/Europe", "-name", "Berl*"], ""),
        (&["/bin/bash", "-c", "echo $((6 * 7)) ${BASH_VERSINFO[0]}; [[ -x /bin/ls ]] && printf '%s\\n' /bin/l[a-s]"], ""),
        (&["/bin/sh", "-c", "echo \"$0\" $1; read line; echo $line; exit 7", "name", "word"], TEXT),
    ]);
}

#[test]
fn interpreters_do_the_same() {
    check_all(&[
        (
            &[
                "/usr/bin/perl",
                "-e",
                "use POSIX; use List::Util 'sum'; print sum(1..10), ' ', floor(3.7), \"\\n\"; print sort { $b cmp $a } <>",
            ],
            TEXT,
        ),
        (&["/usr/bin/python3", "-c", "print(1)"], ""),
        (
            &[
                "/usr/bin/python3",
                "-s",
                "-c",
                "import sys, os; print(sys.stdin.read(), sys.argv, sys.executable, sys.path, os.getcwd())",
                "a",
            ],
            TEXT,
        ),
        (
            &[
                "/usr/bin/python3",
                "-c",
                "import json, decimal, hashlib, zlib; print(json.dumps([1, {'a': None}]), decimal.Decimal(2).sqrt(), \
            hashlib.sha256(b'x').hexdigest(), len(zlib.compress(b'x' * 100000)))",
            ],
            "",
        ),
        (
            &[
                "/usr/bin/python3",
                "-c",
                "import ctypes, sqlite3, ssl; print(ctypes.CDLL(None).strlen(b'four'), ssl.OPENSSL_VERSION, \
            sqlite3.connect(':memory:').execute('select 6 * 7').fetchall())",
            ],
            "",
        ),
        (&["/usr/bin/python3", "-c", "1 / 0"], ""),
        (
            &[
                "/usr/bin/python3",
                "-c",
                "print(sorted({line.split()[-1] for line in open('/proc/self/maps') if '.so' in line}), \
            open('/proc/self/cmdline').read())",
            ],
            "",
        ),
        (&["/usr/bin/tclsh"], "puts [expr {6 * 7}]; puts [lsort -decreasing {a c b}]"),
    ]);
}

/// Creates a directory with executable files.
fn programs(files: &[(&str, &str)]) -> tempfile::TempDir {
    let programs = tempfile::tempdir().expect("the host has room");
    for (name, text) in files {
        let path = programs.path().join(name);
        fs::write(&path, text.replace("SHELF", programs.path().to_str().expect("a plain name"))).expect("it is ours");
        fs::set_permissions(&path, Permissions::from_mode(0o755)).expect("it is ours");
    }
    programs
}

#[test]
fn scripts_run_in_their_interpreters() {
    needs_kvm!();
    let programs = programs(&[
        ("env", "#!/usr/bin/env python3\nimport sys\nprint(sys.argv[1:])\n"),
        ("plain", "#!/bin/sh\necho \"$0\" \"$@\"\n"),
        ("argument", "#! /bin/echo  one argument \t\nnever seen\n"),
        ("python", "#!/usr/bin/python3 -I\nimport sys\nprint(sys.argv, sys.flags.isolated)\n"),
        ("nested1", "#!SHELF/argument with nested1\n"),
        ("nested2", "#!SHELF/nested1 with nested2\n"),
        ("nested3", "#!SHELF/nested2\n"),
        ("nested4", "#!SHELF/nested3\n"),
        ("relative", "#!bin/echo relative\n"),
        ("no-newline", "#!/bin/echo"),
    ]);
    let view = programs.path();
    for name in ["plain", "env", "argument", "python", "nested1", "nested2", "nested3", "nested4", "relative", "no-newline"] {
        Case::new(view.join(name), &["a", "b c"]).file(view).directory(Path::new("/")).check();
    }
}

/// The second run loads a library whose read-only part lies where the first had the data of another one.
#[test]
fn a_library_may_lie_where_an_earlier_run_had_the_data_of_another() {
    needs_kvm!();
    let symbols: String =
        (0..3000).map(|number| format!("int exported_function_with_a_long_name_{number}(void) {{ return {number}; }}\n")).collect();
    let main = r#"#include <dlfcn.h>
        #include <stdio.h>
        int main(int count, char **words)
        {
            void *library = dlopen(words[1], RTLD_NOW);
            int (*function)(void) = library ? dlsym(library, words[2]) : NULL;
            printf("%d\n", function ? function() : -1);
        }"#;
    let sources =
        programs(&[("data.c", "int data[61440] = {7}; int first(void) { return data[0]++; }"), ("symbols.c", &symbols), ("main.c", main)]);
    let view = sources.path();
    let gcc = |words: &[&str]| {
        assert!(Command::new(host_program("gcc")).args(words).current_dir(view).status().expect("gcc").success(), "{words:?}");
    };
    gcc(&["-shared", "-fPIC", "data.c", "-o", "data.so"]);
    gcc(&["-shared", "-fPIC", "symbols.c", "-o", "symbols.so"]);
    gcc(&["main.c", "-o", "main", "-ldl"]);
    let script = "./main ./data.so first; ./main ./symbols.so exported_function_with_a_long_name_2999; ./main ./data.so first";
    Case::new("/bin/sh", &["-c", script]).file(view).directory(view).check();
}

#[test]
fn programs_lie_elsewhere_each_time_unless_they_shall_not() {
    let twice = |command: &str| format!("[ \"$({command})\" = \"$({command})\" ] && echo the same || echo another place");
    // From run to run only the heap moves. It lands at the same place by chance once in hundreds of times, but never three
    // times in a row.
    let addresses = |how: &str| vec![format!("{how} cat /proc/self/maps | cut -c1-17"); 3].join("; ");
    let lines = [twice(&addresses("")), twice(&addresses("setarch -R"))].join("; ");
    check_all(&[(&["/bin/sh", "-c", &lines], "")]);
}

#[test]
fn programs_and_scripts_are_executed() {
    needs_kvm!();
    for linkage in [Linkage::GLIBC, Linkage::GLIBC_PIE, Linkage::MUSL] {
        let program = program("executing", linkage);
        let case = Case::new(&program, &[""; 0]).file(&program);
        if let Err(problem) = case.compare_in(|_| {}) {
            panic!("{}: {problem}", linkage.name);
        }
    }
}

#[test]
fn programs_that_execute_themselves_find_their_own_code() {
    const DYNAMIC: Linkage = Linkage::c("glibc-dynamic", "gcc", &["-pie", "-fPIE"]);
    for linkage in [Linkage::GLIBC, Linkage::GLIBC_PIE, DYNAMIC] {
        compare_if(&[], program("again", linkage).to_str().expect("a path of ours"), &[]);
    }
}

#[test]
fn the_same_programs_run_over_and_over() {
    let script = "for round in 1 2 3 4 5 6 7 8; do /bin/true && echo $round | cat | tr 1-8 a-h; perl -e 'print $$ > 1, \"\\n\"'; \
        dash -c 'exec sed s/a/b/' < /etc/passwd | cksum; (exec cat /proc/self/maps | grep -c libc); done";
    compare_if(&[], "/bin/bash", &["-c", script]);
}

/// A thread touches only a few pages of its stack of 8 MiB, and only those take memory.
#[test]
fn a_hundred_threads_take_little_memory() {
    let threads = "
import threading
end = threading.Event()
threads = [threading.Thread(target=end.wait) for _ in range(100)]
[thread.start() for thread in threads]
end.set()
[thread.join() for thread in threads]
print(len(threads))
";
    if is_kvm_available() {
        let outcome = Case::new("/usr/bin/python3", &["-c", threads]).options(&["--memory", "48M"]).cell();
        assert_eq!((outcome.status, &outcome.output[..]), (0, &b"100\n"[..]), "{outcome:?}");
    }
}

/// The zygotes go when memory is short, also if a child that executes a program was about to start from one.
#[test]
fn a_program_that_ran_before_starts_when_memory_is_short() {
    const SCRIPT: &str = "/bin/true; /bin/true; exec perl -e '$x = \"a\" x (80 << 20); \
        for (1..3) { $p = fork; if (!$p) { exec \"/bin/true\" } waitpid $p, 0; print \"$?\\n\" }'";
    needs_kvm!();
    Case::new("/bin/sh", &["-c", SCRIPT]).options(&["--memory", "200M"]).check();
}
