// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates and clones on the command line: created once, kept in a file, cloned any number of times.

use crate::case::text;
use crate::fixture::{Fixture, ProgramOutput, assert_output};
use pando_testing::{are_installed, host_program, needs_kvm};
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};

#[test]
fn a_template_is_made_once_and_cloned_as_often_as_anybody_likes() {
    needs_kvm!();
    let fixture = Fixture::new();
    let script = r#"cd /tmp; echo kept > file; x=5; echo made >&2; eval "$(pando-ready -s)"
echo "$x $(cat file) $# [$1] [$2] $NAME"; exit "${STATUS:-0}""#;
    let made = fixture.pando(&["template", "create", "sh", "--", "busybox", "sh", "-c", script]);
    assert_eq!((made.status, &made.output[..], &made.errors[..]), (0, "", "made\n"));
    assert_output(&fixture.pando(&["clone", "sh"]), "5 kept 0 [] [] \n");
    assert_output(&fixture.pando(&["clone", "-e", "NAME=it's", "sh", "a  b", "c'd"]), "5 kept 2 [a  b] [c'd] it's\n");
    // Arguments are passed unchanged, whatever they contain.
    assert_output(
        &fixture.pando(&["clone", "-e", "x-y=$(echo no >&2)", "-e", "NAME=a\nb", "sh", "$(echo no)`echo no`\\", "a\nb;echo no"]),
        "5 kept 2 [$(echo no)`echo no`\\] [a\nb;echo no] a\nb\n",
    );
    let ended = fixture.pando(&["clone", "-e", "STATUS=3", "sh"]);
    assert_eq!((ended.status, &ended.errors[..]), (3, ""));
    // The template works by its file name, too.
    assert_output(&fixture.pando(&["clone", fixture.file("sh").to_str().expect("it is text"), "--", "-x"]), "5 kept 1 [-x] [] \n");
}

#[test]
fn many_clones_say_whole_lines_and_whether_all_ended_well() {
    const COUNT: usize = 40;
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", "echo ready > /dev/pando; n=$(cat /proc/pando/clone); printf 'clone '; printf '%s\\n' $n; [ $n != \"$(tr -d '\\0' < /proc/pando/arguments)\" ]");
    let many = fixture.pando(&["clone", "--count", &COUNT.to_string(), "sh"]);
    let lines: HashSet<&str> = many.output.lines().collect();
    let wanted: Vec<String> = (0..COUNT).map(|number| format!("clone {number}")).collect();
    assert_eq!((many.status, lines), (0, wanted.iter().map(|line| &line[..]).collect()));
    // One of them fails on purpose.
    let one = fixture.pando(&["clone", "--count", "4", "--output", "said", "sh", "2"]);
    assert_eq!((one.status, &one.output[..]), (1, ""));
    assert!(one.errors.contains("exited with status 1\n") && one.errors.contains("1 of 4 clones failed"), "{}", one.errors);
    let mut said: Vec<String> =
        (0..4).map(|number| fs::read_to_string(fixture.path(&format!("said/{number}.out"))).expect("each has a file")).collect();
    said.sort();
    assert_eq!(said.concat(), "clone 0\nclone 1\nclone 2\nclone 3\n");
    assert_eq!(fs::read(fixture.path("said/0.err")).expect("each has a file"), b"");
}

#[test]
fn a_clone_that_exceeds_its_time_is_ended_alone() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", "echo ready > /dev/pando; [ $(cat /proc/pando/clone) != 1 ] || while :; do :; done; echo done");
    let many = fixture.pando(&["clone", "--count", "3", "--timeout", "2s", "sh"]);
    assert_eq!((many.status, &many.output[..]), (1, "done\ndone\n"), "{}", many.errors);
    assert!(many.errors.contains("its time limit expired"), "{}", many.errors);
}

#[test]
fn templates_are_listed_saved_loaded_and_removed() {
    needs_kvm!();
    let fixture = Fixture::new();
    let empty = fixture.pando(&["template", "ls"]).output;
    assert!(empty.starts_with("NAME ") && empty.ends_with(" PROGRAM\n") && empty.lines().count() == 1, "{empty}");
    assert_output(&fixture.pando(&["template", "ls", "--json"]), "");
    fixture.plant("one", "pando-ready; echo $0");
    let listed = fixture.pando(&["template", "ls", "--json"]);
    let shown: serde_json::Value = serde_json::from_str(&listed.output).expect("it is JSON");
    assert_eq!((shown["name"].as_str(), shown["arguments"][0].as_str()), (Some("one"), Some("busybox")));
    let listed = fixture.pando(&["template", "ls"]).output;
    assert!(listed.lines().nth(1).is_some_and(|line| line.starts_with("one  ")), "{listed}");
    let inspected = fixture.pando(&["template", "inspect", "one"]);
    let shown: serde_json::Value = serde_json::from_str(&inspected.output).expect("it is JSON");
    assert!(shown["content_bytes"].as_u64().is_some_and(|bytes| bytes > 100_000), "{}", inspected.output);
    assert_output(&fixture.pando(&["template", "save", "one", "kept.pando"]), "");
    assert_output(&fixture.pando(&["template", "rm", "one"]), "");
    assert_eq!(fixture.pando(&["clone", "one"]).status, 125);
    assert_output(&fixture.pando(&["template", "load", "kept.pando", "two"]), "");
    assert_output(&fixture.pando(&["template", "load", "kept.pando"]), "");
    for template in ["one", "two", "./kept.pando"] {
        assert_output(&fixture.pando(&["clone", template]), "sh\n");
    }
}

#[test]
fn impossible_requests_are_refused_with_reasons() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("there", "pando-ready");
    let refused = |words: &[&str], wanted: &str| {
        let ProgramOutput { status, output, errors } = fixture.pando(words);
        assert_eq!((status, &output[..]), (125, ""), "{words:?}");
        assert!(errors.contains(wanted), "{words:?}: {errors}");
    };
    refused(&["clone", "nothing"], "there is no template `nothing`");
    refused(&["template", "inspect", "nothing"], "there is no template `nothing`");
    refused(&["template", "rm", "nothing"], "there is no template `nothing`");
    refused(&["template", "create", "there", "true"], "--replace");
    refused(&["template", "create", "../there", "true"], "is not a valid template name");
    refused(&["template", "create", "early", "true"], "exited with status 0 before it reported that it is ready");
    refused(&["template", "create", "-v", ".:/data", "lent", "true"], "add `:ro`");
    refused(
        &["template", "create", "--timeout", "1s", "slow", "sleep", "100"],
        "its time limit expired before it reported that it is ready",
    );
    refused(&["clone", "--count", "2", "--net", "gateway", "there"], "a single clone");
    refused(&["clone", "./there"], "cannot read");
    refused(&["template", "save", "nothing", "./nothing"], "there is no template `nothing`");
    fs::write(fixture.path("other"), "x".repeat(10_000)).expect("there is room");
    refused(&["clone", "./other"], "is not a template that `pando template save` wrote");
    assert!(!fixture.file("early").exists());
}

#[test]
fn a_damaged_template_is_refused() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", "pando-ready; echo well");
    let whole = fs::read(fixture.file("sh")).expect("it was kept");
    let refused = |bytes: &[u8]| {
        fs::write(fixture.path("damaged"), bytes).expect("there is room");
        let loaded = fixture.pando(&["template", "load", "./damaged", "again"]);
        assert!(loaded.status == 125 && loaded.errors.starts_with("pando: "), "{}", loaded.errors);
    };
    refused(&whole[..whole.len() / 2]);
    refused(&whole[..whole.len() - 1]);
    for part in 0..8 {
        let mut altered = whole.clone();
        altered[part * whole.len() / 8 + 100] ^= 1;
        refused(&altered);
    }
}

/// The number of files in the directory of templates, besides that of views.
fn template_files(fixture: &Fixture) -> usize {
    let all = fs::read_dir(fixture.path("data/pando/templates")).expect("it was made").map(|entry| entry.expect("it can be read"));
    all.filter(|entry| entry.file_name() != "views").count()
}

/// Runs a program of the host as a template, and a clone of it.
fn cloned(program: &[&str], words: &[&str]) -> ProgramOutput {
    let fixture = Fixture::new();
    let made = fixture.pando(&[&["template", "create", "--no-train", "it", "--"], program].concat());
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    fixture.pando(&[&["clone", "it"], words].concat())
}

#[test]
fn programs_say_it_in_python_node_and_c() {
    needs_kvm!();
    let python = "import pando, sys\nprint('made', end='')\nnumber = pando.ready()\nprint(number, sys.argv[1:])";
    let said = cloned(&["/usr/bin/python3", "-c", python], &["a", "b c"]);
    assert_output(&said, "0 ['a', 'b c']\n");
    if are_installed(&["/usr/bin/node"]) {
        let node = "const pando = require('pando'); const number = pando.ready(); console.log(number, process.argv.slice(2), pando.randomBytes(9).length)";
        let said = cloned(&["/usr/bin/node", "-e", node, "x"], &["a", "b c"]);
        assert_output(&said, "0 [ 'a', 'b c' ] 9\n");
    }
    let place = tempfile::tempdir().expect("there is room");
    let source = "#include <pando.h>\n#include <stdio.h>\nint main() { long number = pando_ready(); printf(\"%ld\\n\", number); return pando_ready() == -1 ? 0 : 1; }\n";
    fs::write(place.path().join("ready.c"), source).expect("there is room");
    fs::write(place.path().join("pando.h"), include_str!("../../../../manager/src/view/parts/pando.h")).expect("there is room");
    let compiled = Command::new(host_program("cc"))
        .args(["-I.", "-o", "ready", "ready.c"])
        .current_dir(place.path())
        .status()
        .expect("there is a compiler");
    assert!(compiled.success());
    assert_output(&cloned(&[place.path().join("ready").to_str().expect("it is text")], &[]), "0\n");
    // Without a request for a template it changes nothing.
    let native = Command::new(place.path().join("ready")).output().expect("it starts");
    assert_eq!(text(&native.stdout), "-1\n");
}

#[test]
fn no_two_clones_of_python_draw_the_same_numbers() {
    const COUNT: usize = 24;
    needs_kvm!();
    let fixture = Fixture::new();
    let python = "import pando, random, uuid, secrets, ssl, tempfile, os
random.random(); uuid.uuid1(); ssl.RAND_bytes(4); next(tempfile._get_candidate_names())
pando.ready()
print(random.random(), uuid.uuid1(), uuid.uuid4(), secrets.token_hex(), ssl.RAND_bytes(8).hex(), next(tempfile._get_candidate_names()), flush=True)
os._exit(0)";
    let made = fixture.pando(&["template", "create", "it", "--", "/usr/bin/python3", "-c", python]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    let said = fixture.pando(&["clone", "--count", &COUNT.to_string(), "it"]);
    assert_eq!(said.status, 0, "{}", said.errors);
    let lines: Vec<Vec<&str>> = said.output.lines().map(|line| line.split(' ').collect()).collect();
    assert_eq!(lines.len(), COUNT);
    for column in 0..6 {
        let drawn: HashSet<&str> = lines.iter().map(|line| line[column]).collect();
        assert_eq!(drawn.len(), COUNT, "column {column}");
    }
}

#[test]
fn a_clone_of_a_server_is_reached_where_it_was_published() {
    needs_kvm!();
    let fixture = Fixture::new();
    let script = "mkdir /tmp/site; echo warm > /tmp/site/index.html; cd /tmp/site; busybox httpd -p 80; pando-ready; busybox ip -4 addr show dev eth0 | grep -c 'inet 10.77'; exec sleep 1000";
    fixture.plant("web", script);
    let mut child =
        fixture.command(&["clone", "-p", "0:80", "web"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("pando starts");
    let port = crate::network::reach::port_of(&mut child);
    let mut first = String::new();
    BufReader::new(child.stdout.take().expect("it is a pipe")).read_line(&mut first).expect("the clone says it");
    assert_eq!(first, "1\n", "it has addresses");
    let mut answer = String::new();
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("it is forwarded");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("it is open");
    stream.read_to_string(&mut answer).expect("it answers");
    assert!(answer.ends_with("warm\n"), "{answer}");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).expect("it is ours");
    child.wait().expect("it is ours");
}

#[test]
fn pages_that_a_clone_touched_are_prefetched_for_later_clones() {
    /// The limit for a clone that prints a line and exits: 11 were measured, plus a margin.
    const EXITS_MAX: u64 = 25;
    const ATTEMPTS: usize = 5;
    needs_kvm!();
    let fixture = Fixture::new();
    // With numpy, if it is installed.
    let python = "import pando, sys
try:
    import numpy
except ImportError:
    pass
pando.ready()
print(sum(map(int, sys.argv[1:])))";
    let make = |name: &str, more: &[&str]| {
        let made = fixture.pando(&[&["template", "create", "--replace"], more, &[name, "--", "/usr/bin/python3", "-c", python]].concat());
        assert_eq!((made.status, &made.output[..], &made.errors[..]), (0, "", ""));
    };
    make("plain", &["--no-train"]);
    make("unasked", &[]);
    make("trained", &["--train-arg", "5", "--train-arg=7"]);
    make("learned", &["--train-arg", "5", "--train-count", "2"]);
    // Interrupts by the host are not counted: they depend on its load.
    let exits = |name: &str| {
        let said = fixture.pando(&["clone", "--stats=json", name, "1", "2"]);
        assert_eq!(&said.output[..], "3\n");
        let told: serde_json::Value = serde_json::from_str(&said.errors).expect("it is JSON");
        let count = |kind: &str| told[kind].as_u64().unwrap_or_else(|| panic!("{told}"));
        ["hypercalls", "syscall_exits", "faults_resolved", "exceptions"].map(count).iter().sum::<u64>()
    };
    let [plain, mut others @ ..] = ["plain", "unasked", "trained", "learned"].map(exits);
    // Unless it is asked for, training has a time limit, which a busy host may reach.
    for _ in 0..ATTEMPTS {
        if others[0] > EXITS_MAX {
            make("unasked", &[]);
            others[0] = exits("unasked");
        }
    }
    assert!(others.iter().all(|exits| *exits <= EXITS_MAX) && plain > 4 * EXITS_MAX, "{others:?} exits, {plain} without");
    let left = template_files(&fixture);
    assert_eq!(left, 4, "training leaves no files");
}

#[test]
fn a_clone_to_learn_from_that_fails_or_never_ends_fails_nothing() {
    needs_kvm!();
    let fixture = Fixture::new();
    let picky = r#"eval "$(pando-ready -s)"; [ $# -eq 1 ] || { echo usage >&2; exit 2; }; read line; echo "$1 $line""#;
    // A failure of the default training, which was not requested, is not reported.
    let make =
        |name: &str, script: &str| assert_output(&fixture.pando(&["template", "create", name, "--", "busybox", "sh", "-c", script]), "");
    make("picky", picky);
    assert_output(&fixture.pando(&["clone", "picky", "x"]), "x \n");
    make("server", "pando-ready; echo on; while :; do sleep 1000; done");
    assert_eq!(fixture.pando(&["clone", "--timeout", "2s", "server"]).output, "on\n");
    make("again", "pando-ready; pando-ready; exec busybox false");
    assert_eq!(fixture.pando(&["clone", "again"]).status, 1);
    let asked = fixture.pando(&["template", "create", "--train", "--replace", "picky", "--", "busybox", "sh", "-c", picky]);
    assert!(asked.status == 0 && asked.errors.contains("training clone: exited with status 2"), "{}", asked.errors);
}

#[test]
fn a_clone_has_streams_and_news_of_its_own() {
    needs_kvm!();
    let fixture = Fixture::new();
    // The template has read the end of its input, and waits for clones in another epoll.
    let python = "import os, pando, select, sys
assert sys.stdin.read() == ''
news = os.open('/dev/pando', os.O_RDONLY | os.O_NONBLOCK)
poll = select.epoll(); poll.register(news, select.EPOLLIN); assert poll.poll(0) == []
pando.ready()
assert [event for _, event in poll.poll(5)] == [select.EPOLLIN]
generation, number = os.read(news, 64).split(); assert poll.poll(0) == []
print(int(number), os.read(0, 100))";
    let made = fixture.pando(&["template", "create", "--no-train", "it", "--", "/usr/bin/python3", "-c", python]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    let mut child = fixture.command(&["clone", "it"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts");
    child.stdin.take().expect("it is a pipe").write_all(b"mine").expect("it is open");
    let said = child.wait_with_output().expect("it is ours");
    assert_eq!(text(&said.stdout), "0 b'mine'\n");
}

#[test]
fn a_template_may_be_as_large_as_a_program() {
    needs_kvm!();
    let fixture = Fixture::new();
    let python = "import pando\nbytes = bytearray(b'x' * 400_000_000)\npando.ready()\nprint(len(bytes), bytes[-1:])";
    let made = fixture.pando(&["template", "create", "it", "--", "/usr/bin/python3", "-c", python]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    assert_output(&fixture.pando(&["clone", "it"]), "400000000 bytearray(b'x')\n");
}

#[test]
fn each_clone_has_a_name_of_its_own_and_says_no_more_than_it_may() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", r#"eval "$(pando-ready -s)"; eval "$1""#);
    assert_output(&fixture.pando(&["clone", "sh", "hostname"]), "sh\n");
    assert_output(&fixture.pando(&["clone", "--hostname", "me.example", "sh", "hostname"]), "me.example\n");
    let many = fixture.pando(&["clone", "--count", "3", "sh", "hostname"]);
    let names: HashSet<&str> = many.output.lines().collect();
    assert_eq!(names, HashSet::from(["sh-0", "sh-1", "sh-2"]));
    assert_output(&fixture.pando(&["run", "--hostname", "other", "--", "busybox", "hostname"]), "other\n");
    assert!(fixture.pando(&["run", "--hostname", "no name", "--", "busybox", "true"]).errors.contains("not a valid host name"));
    for count in [&["--count", "2"][..], &[]] {
        let said = fixture.pando(&[&["clone", "--output-limit", "1000"], count, &["sh", "yes"]].concat());
        assert!(said.status != 0 && said.errors.contains("it exceeded its output limit"), "{}", said.errors);
        assert!(said.output.len() <= 2002, "{}", said.output.len());
    }
}

#[test]
fn clones_are_drawn_from_variants_that_lie_elsewhere_in_memory() {
    needs_kvm!();
    let fixture = Fixture::new();
    // The shell reads the file itself, because the memory layout of a new program differs each time.
    let script = "pando-ready; while read line; do case $line in *stack*) echo $line;; esac; done < /proc/self/maps";
    let words = ["template", "create", "--variants", "4", "many", "--", "busybox", "sh", "-c", script];
    assert_eq!(fixture.pando(&words).status, 0);
    let files = || template_files(&fixture);
    assert_eq!(files(), 4);
    let listed = fixture.pando(&["template", "ls"]);
    assert_eq!(listed.output.lines().count(), 2, "{}", listed.output);
    // All sixty are the same by chance once in 4^59 runs.
    let mut places = HashSet::new();
    for _ in 0..60 {
        places.insert(fixture.pando(&["clone", "many"]).output);
        if places.len() > 1 {
            break;
        }
    }
    assert!(places.len() > 1, "{places:?}");
    // Replacing it with fewer variants removes the others.
    assert_eq!(fixture.pando(&["template", "create", "--replace", "many", "--", "busybox", "sh", "-c", script]).status, 0);
    assert_eq!(files(), 1);
    assert_output(&fixture.pando(&["template", "rm", "many"]), "");
    assert_eq!(files(), 0);
}
