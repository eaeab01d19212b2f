// SPDX-License-Identifier: MIT OR Apache-2.0
//! Applets of Debian's `busybox-static`. Each gets its input through a pipe, from a file as standard input, and from a file
//! by its name.

use crate::case::{Case, Input};
use crate::{data, data_sets};
use pando_testing::lab::is_kvm_available;
use pando_testing::needs_kvm;
use std::os::unix::fs::symlink;

const BUSYBOX: &str = "busybox";

/// Checks an applet with every data set, passed in every way.
fn check_applet(words: &[&str]) {
    needs_kvm!();
    let problems: Vec<String> = data_sets::sets().iter().flat_map(|set| ways(words, set)).filter_map(|case| case.compare().err()).collect();
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

/// The ways to pass a data set to an applet.
fn ways<'a>(words: &[&str], set: &'a data_sets::DataSet) -> [Case<'a>; 3] {
    let named: Vec<&str> = words.iter().copied().chain([set.name]).collect();
    [
        Case::new(BUSYBOX, words).input(Input::Pipe(&set.bytes)),
        Case::new(BUSYBOX, words).input(Input::File(&set.file)),
        Case::new(BUSYBOX, &named).directory(data::directory()).file(set.name),
    ]
}

/// Checks an applet that only reads standard input.
fn check_filter(words: &[&str]) {
    needs_kvm!();
    for set in data_sets::sets() {
        let [pipe, file, _] = ways(words, set);
        pipe.check();
        file.check();
    }
}

/// Checks applets whose whole input are their arguments.
fn check_words(cases: &[&[&str]]) {
    needs_kvm!();
    for words in cases {
        Case::new(BUSYBOX, words).check();
    }
}

#[test]
fn echo() {
    check_words(&[
        &["echo"],
        &["echo", "hello", "cell"],
        &["echo", "-n", "no newline"],
        &["echo", "-e", "tab\\tbell\\a\\x41\\0101"],
        &["echo", "", " ", "\u{e9}\u{1f333}", "$HOME", "-n"],
    ]);
}

#[test]
fn cat() {
    check_applet(&["cat"]);
    check_applet(&["cat", "-n"]);
}

#[test]
fn sha256sum() {
    check_applet(&["sha256sum"]);
}

#[test]
fn md5sum() {
    check_applet(&["md5sum"]);
}

#[test]
fn sort() {
    check_applet(&["sort"]);
    check_applet(&["sort", "-rnk1"]);
}

#[test]
fn wc() {
    check_applet(&["wc"]);
}

#[test]
fn grep() {
    check_applet(&["grep", "-n", "Pando.*Utah"]);
    check_applet(&["grep", "-c", "a"]);
}

#[test]
fn sed() {
    check_applet(&["sed", "-e", "s/\\(aspen\\) *\\([a-z]*\\)/\\2 \\1/g", "-e", "/root/d"]);
    check_applet(&["sed", "-n", "2,4p"]);
}

#[test]
fn awk() {
    check_applet(&["awk", "{ sum += $1; words += NF } END { printf \"%d lines, %d words, mean %.3f\\n\", NR, words, sum / (NR + 1) }"]);
    check_applet(&["awk", "length($0) > 3000 { print substr($0, 1, 20), length($0) } { count[$2]++ } END { print count[\"aspen\"] }"]);
}

#[test]
fn head() {
    check_applet(&["head", "-n", "5"]);
    check_applet(&["head", "-c", "5000"]);
}

#[test]
fn tr() {
    check_filter(&["tr", "a-z", "A-Z"]);
    check_filter(&["tr", "-d", "[:digit:]\\n"]);
}

#[test]
fn others_that_need_nothing_more() {
    check_applet(&["tail", "-n", "3"]);
    check_applet(&["od", "-c"]);
    check_applet(&["cut", "-c", "1-10"]);
    check_applet(&["cksum"]);
    check_words(&[
        &["seq", "1", "3", "1000"],
        &["printf", "%05d|%x|%s\\n", "42", "255", "text"],
        &["expr", "6", "*", "7"],
        &["basename", "/a/b.c", ".c"],
        &["date", "-d", "@86400", "+%F %T"],
        &["env"],
    ]);
}

#[test]
fn exit_statuses_and_complaints_come_through() {
    check_words(&[
        &["true"],
        &["false"],
        &["cat", "/no/such/file"],
        &["cat", "-Z"],
        &["grep", "x"],
        &["grep", "-c", "x", "/no/such/file"],
        &["expr", "1", "=", "2"],
        &["no-such-applet"],
    ]);
}

#[test]
fn the_shell_runs_its_builtins() {
    let script = "set -e; i=0; while [ $i -lt 1000 ]; do i=$((i+1)); done; echo $i $# \"$2\"; read line; echo \"[$line]\"; \
        case $line in one*) echo matched;; esac; trap 'echo bye' EXIT; exit 3";
    if is_kvm_available() {
        Case::new(BUSYBOX, &["sh", "-c", script, "name", "a", "b c"]).input(Input::Pipe(b"one two\nthree\n")).check();
    }
}

#[test]
fn an_applet_can_be_called_by_a_link_of_its_name() {
    needs_kvm!();
    let directory = tempfile::tempdir().expect("a temporary directory");
    symlink("/bin/busybox", directory.path().join("wc")).expect("a link can be made");
    Case::new("./wc", &["-c"]).directory(directory.path()).input(Input::Pipe(b"12345")).check();
}

#[test]
fn several_files_are_shown_at_once() {
    needs_kvm!();
    let names: Vec<&str> = data_sets::sets().iter().map(|set| set.name).collect();
    let words: Vec<&str> = ["sha256sum"].into_iter().chain(names.iter().copied()).collect();
    names.iter().fold(Case::new(BUSYBOX, &words).directory(data::directory()), |case, name| case.file(name)).check();
}

/// Checks an applet with 200 MB, passed in the ways of these numbers (see [`ways`]).
fn check_large(words: &[&str], chosen: &[usize]) {
    if is_kvm_available() {
        let ways = ways(words, data_sets::large());
        chosen.iter().for_each(|&way| ways[way].check());
    }
}

#[test]
fn two_hundred_megabytes_through_cat() {
    check_large(&["cat"], &[0]);
}

#[test]
fn two_hundred_megabytes_through_sha256sum() {
    check_large(&["sha256sum"], &[2]);
}

#[test]
fn two_hundred_megabytes_through_all_others() {
    if std::env::var("PANDO_TESTS").as_deref() != Ok("all") {
        println!("left out: a long run");
        return;
    }
    let all: [&[&str]; 9] = [
        &["cat"],
        &["sha256sum"],
        &["md5sum"],
        &["wc"],
        &["grep", "-c", "Pando"],
        &["sed", "s/aspen/poplar/g"],
        &["awk", "{ sum += $1 } END { print sum }"],
        &["head", "-n", "1000000"],
        &["sort", "-n"],
    ];
    all.iter().for_each(|words| check_large(words, &[0, 1, 2]));
    check_large(&["tr", "a-z", "A-Z"], &[0, 1]);
}
