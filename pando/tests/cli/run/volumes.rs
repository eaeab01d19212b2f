// SPDX-License-Identifier: MIT OR Apache-2.0
//! Writable volumes: changes by programs in a cell reach the host when they sync or end, each file as a whole.

use crate::case::{Case, CaseOutcome, Input, PANDO, as_shell, finish};
use crate::compile::{Linkage, program};
use crate::data::Numbers;
use pando_testing::{host_program, needs_kvm};
use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use tempfile::TempDir;

/// The content of a directory: the mode of each path, and its data or link target.
type Tree = BTreeMap<String, (u32, Vec<u8>)>;

fn tree(directory: &Path) -> Tree {
    fn walk(directory: &Path, path: &str, found: &mut Tree) {
        for entry in fs::read_dir(directory).expect("it is a directory") {
            let entry = entry.expect("it can be read");
            let path = format!("{path}/{}", entry.file_name().display());
            let metadata = fs::symlink_metadata(entry.path()).expect("it was listed");
            let content = match metadata.file_type() {
                kind if kind.is_symlink() => fs::read_link(entry.path()).expect("it is a link").into_os_string().into_encoded_bytes(),
                kind if kind.is_file() => fs::read(entry.path()).expect("it is a file"),
                _ => Vec::new(),
            };
            found.insert(path.clone(), (metadata.mode(), content));
            if metadata.is_dir() {
                walk(&entry.path(), &path, found);
            }
        }
    }
    let mut found = Tree::new();
    walk(directory, "", &mut found);
    found
}

/// A directory of the host with some files.
struct Host(TempDir);

impl Host {
    fn new() -> Host {
        let host = Host(tempfile::tempdir().expect("a temporary directory"));
        fs::create_dir_all(host.path("old/deep")).expect("it was not there");
        fs::write(host.path("old/deep/file"), "deep").expect("the directory is ours");
        fs::write(host.path("old/other"), "other\n".repeat(2000)).expect("the directory is ours");
        fs::write(host.path("text"), "one\ntwo\nthree\n").expect("the directory is ours");
        symlink("text", host.path("link")).expect("it was not there");
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|error| format!("({error})"))
    }

    /// The option that shows it at a path of the cell.
    fn at(&self, cell: &str) -> [String; 2] {
        ["-v".into(), format!("{}:{cell}", self.0.path().display())]
    }
}

/// Command lines of busybox; `DIR` stands for the directory in which they make changes.
const CHANGES: [&str; 16] = [
    "cp DIR/text DIR/copy",
    "sed -i s/two/zwei/ DIR/text",
    "mkdir -p DIR/new/nested",
    "cp DIR/old/other DIR/new/nested/large",
    "mv DIR/old/other DIR/new/moved",
    "mv DIR/old DIR/renamed",
    "chmod 600 DIR/copy",
    "chmod 711 DIR/new",
    "ln -s nowhere DIR/dangling",
    "rm DIR/link",
    "ln DIR/copy DIR/second",
    "touch DIR/empty",
    "truncate -s 100000 DIR/sparse",
    "tar -C DIR -cf DIR/archive.tar new",
    "rm -r DIR/renamed/deep",
    "dd if=/dev/zero of=DIR/text bs=1000 count=3 seek=5 conv=notrunc",
];

#[test]
fn changes_in_a_volume_reach_the_host() {
    needs_kvm!();
    let (native, exported) = (Host::new(), Host::new());
    for line in CHANGES {
        let run = |case: Case<'_>, in_cell: bool| {
            let outcome = if in_cell { case.cell() } else { case.native() };
            assert_eq!(outcome.status, 0, "{line}: {outcome:?}");
        };
        let words = |directory: &str| line.split(' ').map(|word| word.replace("DIR", directory)).collect::<Vec<_>>();
        run(Case::new("busybox", &words(&native.0.path().display().to_string())), false);
        run(Case::new("busybox", &words("/data")).options(&exported.at("/data")), true);
        // An archive contains modification times.
        let without_archive = |host: &Host| tree(host.0.path()).into_iter().filter(|(path, _)| path != "/archive.tar").collect::<Tree>();
        assert_eq!(without_archive(&native), without_archive(&exported), "after {line}");
    }
}

#[test]
fn one_file_may_be_changed_alone() {
    needs_kvm!();
    let host = Host::new();
    let before = tree(host.0.path());
    let volume = format!("{}:/data/words", host.path("text").display());
    let outcome = Case::new("busybox", &["sed", "-i", "s/two/zwei/", "/data/words"]).options(&["-v", &volume]).cell();
    assert_eq!((outcome.status, &outcome.errors[..]), (0, ""));
    assert_eq!(host.read("text"), "one\nzwei\nthree\n");
    let others = |tree: Tree| tree.into_iter().filter(|(path, _)| path != "/text").collect::<Tree>();
    assert_eq!(others(tree(host.0.path())), others(before));
}

#[test]
fn the_name_of_one_file_stays() {
    needs_kvm!();
    let host = Host::new();
    let volume = format!("{}:/words", host.path("text").display());
    for words in [&["rm", "/words"][..], &["mv", "/words", "/elsewhere"]] {
        let outcome = Case::new("busybox", words).options(&["-v", &volume]).cell();
        assert!(outcome.status == 1 && outcome.errors.contains("busy"), "{outcome:?}");
        assert_eq!(host.read("text"), "one\ntwo\nthree\n");
    }
}

#[test]
fn a_tree_may_be_as_deep_as_paths_are_long() {
    needs_kvm!();
    let host = Host::new();
    let deep = vec!["directory"; 300].join("/");
    let run = |words: &[&str]| {
        let outcome = Case::new("busybox", words).options(&host.at("/data")).cell();
        assert_eq!((outcome.status, &outcome.errors[..]), (0, ""), "{:?}", &words[..2]);
    };
    run(&["mkdir", "-p", &format!("/data/{deep}")]);
    assert!(host.path(&deep).is_dir());
    run(&["rm", "-r", "/data/directory"]);
    assert!(!host.path("directory").exists());
}

#[test]
fn a_program_may_have_its_name_in_the_cell_only() {
    needs_kvm!();
    let host = Host::new();
    fs::copy("/bin/busybox", host.path("echo")).expect("the directory is ours");
    let run = |options: &[&str], called: &str| {
        let mut command = Command::new(PANDO);
        command.arg("run").args(options).args(["--", called, "hello"]);
        finish(command, Input::Nothing)
    };
    let file = format!("{}:/opt/echo:ro", host.path("echo").display());
    let directory = format!("{}:/opt/all:ro", host.0.path().display());
    for (options, called) in
        [(&["-v", &file][..], "/opt/echo"), (&["-v", &directory], "/opt/all/echo"), (&["--bare", "-v", &directory], "/opt/all/echo")]
    {
        let outcome = run(options, called);
        assert_eq!((outcome.status, &outcome.output[..]), (0, &b"hello\n"[..]), "{options:?} {called}: {outcome:?}");
        assert_eq!(run(options, "/opt/all/none").status, 127, "{options:?}");
    }
}

#[test]
fn read_only_volumes_are_not_changed() {
    needs_kvm!();
    let host = Host::new();
    let before = tree(host.0.path());
    let volume = format!("{}:/data:ro", host.0.path().display());
    let changes = [
        "echo > /data/new",
        "echo >> /data/text",
        "truncate -s 0 /data/text",
        "rm /data/text",
        "rm -r /data/old",
        "mv /data/text /data/moved",
        "mv /tmp/file /data/text",
        "mkdir /data/new",
        "ln /data/text /data/new",
        "ln -s text /data/new",
        "chmod 600 /data/text",
        "chown 7 /data/text",
        "touch /data/text",
        "/usr/bin/test -w /data/text",
        "/usr/bin/test -w /data/old",
    ];
    for change in changes {
        let script = format!("echo > /tmp/file; {change}");
        let outcome = Case::new("busybox", &["sh", "-c", &script]).options(&["-v", &volume]).cell();
        let is_silent = change.starts_with("/usr/bin/test");
        assert!(outcome.status != 0 && outcome.errors.contains("Read-only file system") != is_silent, "{change}: {outcome:?}");
    }
    let reads = r#"cat /data/text; grep -c "^overlay /data overlay ro," /proc/mounts; mkdir /tmp/copy; cp -r /data /tmp/copy; rm -r /tmp/copy/data/old"#;
    let outcome = Case::new("busybox", &["sh", "-c", reads]).options(&["-v", &volume]).cell();
    assert_eq!((outcome.status, &outcome.output[..], &outcome.errors[..]), (0, &b"one\ntwo\nthree\n1\n"[..], ""));
    // A single file, whose directory may be changed.
    let file = format!("{}:/tmp/text:ro", host.path("text").display());
    let script =
        "cat /tmp/text; echo > /tmp/other; echo > /tmp/text; chmod 600 /tmp/text; rm -f /tmp/text; mv /tmp/other /tmp/text; ls /tmp";
    let outcome = Case::new("busybox", &["sh", "-c", script]).options(&["-v", &file]).cell();
    assert_eq!(&outcome.output[..], &b"one\ntwo\nthree\nother\ntext\n"[..], "{outcome:?}");
    assert_eq!(
        (outcome.errors.matches("Read-only file system").count(), outcome.errors.matches("resource busy").count()),
        (2, 2),
        "{outcome:?}"
    );
    // Without `:ro` the cell has a private view, which it may change.
    let shown = host.0.path().display().to_string();
    let outcome = Case::new("busybox", &["rm", "-r", &format!("{shown}/old")]).options(&["-v", &shown]).cell();
    assert_eq!((outcome.status, &outcome.errors[..]), (0, ""));
    let current = Case::new("busybox", &["sh", "-c", "echo changed > text"]).directory(host.0.path()).cell();
    assert_eq!(current.status, 0, "{current:?}");
    assert_eq!(tree(host.0.path()), before);
}

/// A program in a cell that reports its steps, line by line, and waits for lines.
struct Running {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Running {
    fn new(host: &Host, words: &[&str]) -> Running {
        let mut command = Command::new(PANDO);
        command.arg("run").args(host.at("/data")).arg("--").arg(program("volumes", Linkage::MUSL)).args(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
        let (input, output) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Running { child, input, output: BufReader::new(output) }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the cell writes");
        line.trim_end().into()
    }

    fn go_on(&mut self) {
        self.input.write_all(b"\n").expect("the cell reads");
    }

    fn send(&self, signal: &str) {
        let status = Command::new(host_program("kill")).args(["-s", signal, &self.child.id().to_string()]).status().expect("kill starts");
        assert!(status.success());
    }

    /// Waits for its end: the status as a shell shows it, and its standard error.
    fn end(mut self) -> (i32, String) {
        let status = as_shell(self.child.wait().expect("it is ours"));
        let errors = std::io::read_to_string(self.child.stderr.take().expect("a pipe")).expect("it is text");
        (status, errors)
    }
}

#[test]
fn synced_data_reaches_the_host_at_once_and_the_rest_at_the_end() {
    needs_kvm!();
    let host = Host::new();
    let mut run = Running::new(&host, &["durable", "/data/text"]);
    assert_eq!((run.line(), host.read("text")), ("written".into(), "one\ntwo\nthree\n".into()));
    run.go_on();
    assert_eq!((run.line(), host.read("text")), ("synced".into(), "first".into()));
    run.go_on();
    assert_eq!(run.end(), (0, String::new()));
    assert_eq!(host.read("text"), "first second");
}

#[test]
fn writes_through_a_mapping_reach_the_host() {
    needs_kvm!();
    let host = Host::new();
    let mut run = Running::new(&host, &["mapped", "/data/text"]);
    assert_eq!((run.line(), host.read("text")), ("written".into(), "one\ntwo\nthree\n".into()));
    run.go_on();
    assert_eq!((run.line(), host.read("text")), ("synced".into(), "ONE\ntwo\nthree\n".into()));
    run.go_on();
    assert_eq!(run.end(), (0, String::new()));
    assert_eq!(host.read("text"), "ONE\nTWO\nthree\n");
}

#[test]
fn a_terminated_program_leaves_its_writes() {
    needs_kvm!();
    let host = Host::new();
    let mut run = Running::new(&host, &["durable", "/data/text"]);
    assert_eq!(run.line(), "written");
    run.send("TERM");
    let (status, errors) = run.end();
    assert_eq!((status, host.read("text")), (143, "first".into()), "{errors}");
}

#[test]
fn a_killed_program_leaves_its_synced_writes() {
    needs_kvm!();
    let host = Host::new();
    let mut run = Running::new(&host, &["durable", "/data/text"]);
    assert_eq!(run.line(), "written");
    run.send("KILL");
    assert_eq!((run.end().0, host.read("text")), (137, "one\ntwo\nthree\n".into()));
}

#[test]
fn a_file_of_which_a_byte_was_synced_can_be_read_on() {
    needs_kvm!();
    let host = Host::new();
    let bytes: Vec<u8> = (0..5 << 20).map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(host.path("large"), &bytes).expect("the directory is ours");
    let native = Command::new(program("volumes", Linkage::MUSL)).args(["patched", &host.path("large").display().to_string()]).output();
    let wanted = String::from_utf8(native.expect("it starts").stdout).expect("it is a number");
    fs::write(host.path("large"), &bytes).expect("the directory is ours");
    let outcome = Case::new(program("volumes", Linkage::MUSL), &["patched", "/data/large"]).options(&host.at("/data")).cell();
    assert_eq!((outcome.status, &outcome.errors[..]), (0, ""));
    assert_eq!(String::from_utf8_lossy(&outcome.output), wanted);
    let found = fs::read(host.path("large")).expect("it is there");
    assert!(found[0] == b'!' && found[1..] == bytes[1..]);
}

#[test]
fn failed_write_back_is_reported_and_changes_the_status() {
    needs_kvm!();
    let host = Host::new();
    let mut run = Running::new(&host, &["durable", "/data/old/deep/file"]);
    assert_eq!(run.line(), "written");
    // The directory is replaced by a file on the host.
    fs::remove_dir_all(host.path("old")).expect("the directory is ours");
    fs::write(host.path("old"), "in the way").expect("the directory is ours");
    run.go_on();
    assert_eq!(run.line(), "Not a directory");
    run.go_on();
    let (status, errors) = run.end();
    assert_eq!(status, 125, "{errors}");
    assert!(
        errors.lines().all(|line| line.starts_with("pando: -v ") && line.contains("`old/deep/file` was not written back: not a directory")),
        "{errors}"
    );
    assert_eq!(host.read("old"), "in the way");
}

#[test]
fn whenever_pando_is_killed_each_file_is_old_or_new() {
    needs_kvm!();
    let host = Host::new();
    let mut numbers = Numbers::new(11);
    let mut letters = Vec::new();
    for _ in 0..if std::env::var("PANDO_TESTS").as_deref() == Ok("all") { 60 } else { 20 } {
        let mut run = Running::new(&host, &["rounds", "/data"]);
        for _ in 0..1 + numbers.below(60) {
            run.line();
        }
        run.send("KILL");
        assert_eq!(run.end().0, 137);
        for (name, (_, content)) in tree(host.0.path()).into_iter().filter(|(name, _)| name[1..].parse::<u32>().is_ok()) {
            assert_eq!(content.len(), 50_000, "{name} is incomplete");
            assert!(content.iter().all(|byte| *byte == content[0]), "{name} is mixed");
            letters.push(content[0]);
        }
    }
    assert!(letters.len() > 4, "nothing was written back");
    // A partly received file stays under a temporary name until a later run may change the directory, which removes it unseen.
    let listing = Case::new("busybox", &["ls", "-A", "/data"]).options(&host.at("/data")).cell();
    assert_eq!((listing.status, &listing.errors[..]), (0, ""));
    assert!(!String::from_utf8_lossy(&listing.output).contains("pando"), "{listing:?}");
    assert!(tree(host.0.path()).keys().all(|name| !name.contains("pando")));
}

/// A change to a file on the host.
type Change = fn(&Path);

#[test]
fn a_file_that_the_host_changes_meanwhile_is_an_error_that_names_it() {
    const SIZE: usize = 16 << 20;
    needs_kvm!();
    let changes: [(&str, Change, bool); 5] = [
        ("rewritten", |path| fs::write(path, vec![b'n'; SIZE]).expect("the file is ours"), true),
        ("truncated", |path| fs::write(path, "").expect("the file is ours"), true),
        ("linkage", |path| fs::hard_link(path, path.with_extension("link")).expect("the directory is ours"), false),
        // An open file stays available.
        (
            "replaced",
            |path| {
                fs::write(path.with_extension("new"), vec![b'n'; SIZE]).expect("the directory is ours");
                fs::rename(path.with_extension("new"), path).expect("the directory is ours");
            },
            false,
        ),
        ("removed", |path| fs::remove_file(path).expect("the directory is ours"), false),
    ];
    let host = Host::new();
    for (what, change, is_error) in changes {
        fs::write(host.path("large"), vec![b'o'; SIZE]).expect("the directory is ours");
        let mut run = Running::new(&host, &["halves", "/data/large"]);
        assert_eq!(run.line(), "half", "{what}");
        change(&host.path("large"));
        run.go_on();
        assert_eq!(run.line(), if is_error { "I/O error" } else { "whole" }, "{what}");
        let (status, errors) = run.end();
        let is_named = errors.lines().count() == 1 && errors.contains("/large' has changed");
        assert!(status == 0 && if is_error { is_named } else { errors.is_empty() }, "{what}: {status} {errors}");
    }
}

/// Runs a program in a cell with a writable file system of its own, created with these options and mounted at `DIR` in the
/// arguments. `None`: this host does not let the test mount one.
fn on_file_system(options: &str, words: &[&str]) -> Option<CaseOutcome> {
    let place = tempfile::tempdir().expect("a temporary directory");
    let script = r#"mount -t tmpfs -o "$1" none "$2" || exit 77; shift 2; exec "$@""#;
    let mut command = Command::new(host_program("unshare"));
    command.args(["--mount", "sh", "-c", script, "sh", options]).arg(place.path()).args([PANDO, "run", "-v"]);
    command.arg(format!("{}:/data", place.path().display())).arg("--").args(words);
    let outcome = finish(command, Input::Nothing);
    let is_there = outcome.status != 77 && !outcome.errors.starts_with("unshare");
    if !is_there {
        println!("left out: no permission to mount a file system");
    }
    is_there.then_some(outcome)
}

#[test]
fn a_full_host_is_an_error_of_fsync_and_of_pando() {
    needs_kvm!();
    let program = program("volumes", Linkage::MUSL);
    let words = [program.to_str().expect("a plain name"), "fill", "/data/file"];
    if let Some(outcome) = on_file_system("size=256k", &words) {
        assert_eq!((outcome.status, &outcome.output[..]), (125, &b"No space left on device\n"[..]), "{}", outcome.errors);
        assert!(outcome.errors.contains("`file` was not written back: no space left on device"), "{}", outcome.errors);
    }
    if let Some(outcome) = on_file_system("size=256k,ro", &words) {
        assert_eq!((outcome.status, &outcome.output[..]), (125, &b""[..]), "{}", outcome.errors);
        let says_so = ["pando: -v ", "read-only file system", "`:ro`"].iter().all(|words| outcome.errors.contains(words));
        assert!(says_so && outcome.errors.lines().count() == 1, "{}", outcome.errors);
    }
}

#[test]
fn repeated_volumes_count_once() {
    needs_kvm!();
    let host = Host::new();
    let twice = [host.at("/data"), host.at("/data"), ["-v".into(), format!("{}:/words", host.path("text").display())]].concat();
    let twice = [&twice[..], &twice[4..]].concat();
    Case::new("busybox", &["cp", "/words", "/data/copy"]).options(&twice).cell();
    assert_eq!(host.read("copy"), host.read("text"));
}

#[test]
fn an_enormous_sparse_file_beside_others_takes_neither_time_nor_memory() {
    const BYTES: u64 = 8 << 40;
    needs_kvm!();
    let host = Host::new();
    let sparse = fs::File::create(host.path("sparse")).expect("the directory is ours");
    if let Err(error) = sparse.set_len(BYTES) {
        println!("left out: this file system has no files of 8 TiB: {error}");
        return;
    }
    let script = "stat -c %s /data/sparse; cat /data/text; echo four >> /data/text; \
                  for refused in 'head -c 1 /data/sparse' 'mv /data/sparse /data/moved' 'tee -a /data/sparse'; do $refused < /data/text; echo $?; done";
    for end in ["", ":ro"] {
        let volume = format!("{}:/data{end}", host.0.path().display());
        let outcome = Case::new("busybox", &["sh", "-c", script]).options(&["-m", "64M", "-v", &volume]).cell();
        let lines: Vec<String> =
            outcome.output.split(|byte| *byte == b'\n').map(|line| String::from_utf8_lossy(line).into_owned()).collect();
        assert_eq!(lines[0], BYTES.to_string(), "{outcome:?}");
        assert!(lines[1..].starts_with(&["one", "two", "three"].map(String::from)), "{outcome:?}");
        // It is too large to be seen, and so to be changed.
        let count = |error| outcome.errors.matches(error).count();
        assert_eq!(
            (count("Input/output error"), count("Read-only file system")),
            if end.is_empty() { (3, 0) } else { (1, 3) },
            "{outcome:?}"
        );
        assert_eq!(host.read("text"), "one\ntwo\nthree\nfour\n", "{outcome:?}");
    }
    assert_eq!(fs::metadata(host.path("sparse")).map(|metadata| (metadata.len(), metadata.blocks())).ok(), Some((BYTES, 0)));
    // Alone it is shown the same way.
    for end in ["", ":ro"] {
        let volume = format!("{}:/sparse{end}", host.path("sparse").display());
        let script = "stat -c %s /sparse; head -c 1 /sparse";
        let outcome = Case::new("busybox", &["sh", "-c", script]).options(&["-v", &volume]).cell();
        assert_eq!(String::from_utf8_lossy(&outcome.output).trim(), BYTES.to_string(), "{outcome:?}");
        assert!(outcome.status == 1 && outcome.errors.contains("Input/output error"), "{outcome:?}");
    }
}
