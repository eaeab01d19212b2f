// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando commit`: images of the files of running cells.

use super::{assert_printed, loaded, refused};
use crate::fixture::{Fixture, Service};
use pando_testing::needs_kvm;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

/// Lists all files of a cell but those of the libOS, with their metadata and content.
const LIST: &str = r#"
    all() { busybox find / \( -path /proc -o -path /dev -o -path /sys -o -path /scratch \) -prune -o "$@"; }
    { all -mindepth 1 -type d -exec busybox stat -c '%n %F %a %u %g %Y' {} +
      all ! -type d -exec busybox stat -c '%n %F %a %u %g %s %h %Y %t %T %N' {} +
      all -type f -exec busybox md5sum {} +; } | busybox sort"#;

/// Changes of every kind: content, modes, owners, names, types, links.
const CHANGES: &str = r#"set -e; b=busybox
    echo fresh > /data/fresh; chmod 640 /data/fresh 2>/dev/null || $b chmod 640 /data/fresh; $b chown 33:44 /data/fresh
    echo more >> /data/new
    $b rm /bin/kill /data/hidden/y; $b rmdir /data/hidden
    $b mkdir -m 700 /data/hidden; echo inner > /data/hidden/inner
    $b ln /data/fresh /data/second; $b ln /bin/busybox /bin/a; $b ln -s ../data/fresh /bin/link
    $b chmod 600 /etc/group; $b chown -h 5:6 /bin/link
    $b mkfifo -m 622 /fifo; $b mknod /node c 1 3
    long=$($b printf '%0200d' 7); $b mkdir -p /deep/$long; echo long > /deep/$long/$long; $b ln -s $long$long /deep/to
    $b dd if=/dev/zero of=/sparse bs=1 count=1 seek=5000000 2>/dev/null
    $b touch -d '1969-12-31 12:00:00' /data/early; $b mkdir /empty; echo x > /tmp/kept; $b chmod u+s /data/early
    echo lost > /scratch/lost; echo lost > /dev/shm/lost
    $b touch -d @1000000000 /data /bin /deep /tmp"#;

/// A cell of the image that waits.
fn waiting(fixture: &Fixture, name: &str, image: &str) {
    let words = ["run", "-d", "--name", name, "--image", image, "--tmpfs", "/scratch", "sh", "-c", "while :; do sleep 1000; done"];
    let started = fixture.pando(&words);
    assert_eq!((started.status, &started.errors[..]), (0, ""));
}

/// Runs a script in a cell of the service.
fn execute(fixture: &Fixture, name: &str, script: &str) -> String {
    let done = fixture.pando(&["exec", "-w", "/", name, "sh", "-c", script]);
    assert_eq!((done.status, &done.errors[..]), (0, ""));
    done.output
}

fn listed(fixture: &Fixture, image: &str) -> String {
    let words = ["run", "--image", image, "--tmpfs", "/scratch", "sh", "-c", LIST];
    let done = fixture.pando(&words);
    assert_eq!((done.status, &done.errors[..]), (0, ""));
    done.output
}

#[test]
fn a_committed_image_has_the_files_of_its_cell() {
    needs_kvm!();
    let fixture = loaded(json!({ "Cmd": ["/bin/sh"], "Env": ["A=1", "PATH=/bin"], "User": "0", "WorkingDir": "/data" }));
    let _service = fixture.serve(&[]);
    waiting(&fixture, "box", "app:v1");
    execute(&fixture, "box", CHANGES);
    let wanted = execute(&fixture, "box", LIST);
    for part in
        ["/deep/", "/fifo fifo 622", "/node character special file", "/bin/link symbolic link 777 5 6", "/data/hidden directory 700"]
    {
        assert!(wanted.contains(part), "{wanted}");
    }
    let made = fixture.pando(&["commit", "-m", "with changes", "-c", "ENV A=2", "-c", "CMD [\"cat\", \"/data/new\"]", "box", "app:v2"]);
    assert!(made.status == 0 && made.output.starts_with("sha256:") && made.errors.is_empty(), "{}", made.errors);
    assert_eq!(listed(&fixture, "app:v2"), wanted);
    assert_printed(&fixture.pando(&["run", "--image", "app:v2"]), "newmore\n");
    assert_printed(
        &fixture.pando(&["run", "--image", "app:v2", "sh", "-c", "echo $A; pwd; ls /scratch 2>&1 || true"]),
        "2\n/data\nls: /scratch: No such file or directory\n",
    );
    // The image below it is as it was.
    assert_printed(&fixture.run(&["cat", "/data/new"]), "new");
    let described: Value = serde_json::from_str(&fixture.image(&["inspect", "app:v2"]).output).expect("it is JSON");
    assert_eq!(described[0]["RootFS"]["Layers"].as_array().map(Vec::len), Some(3));
    // An image of an image, in which a directory of a lower layer has moved.
    waiting(&fixture, "second", "app:v2");
    execute(&fixture, "second", "busybox mv /data /moved; busybox mv /moved/hidden /hidden; busybox rm /bin/a; busybox touch -d @5 /bin");
    let wanted = execute(&fixture, "second", LIST);
    assert_eq!(fixture.pando(&["commit", "-c", "WORKDIR /", "second", "app:v3"]).status, 0);
    assert_eq!(listed(&fixture, "app:v3"), wanted);
    // The other cell goes on, and its image is not removed.
    assert_printed(&fixture.pando(&["exec", "box", "cat", "/data/hidden/inner"]), "inner\n");
}

#[test]
fn only_running_cells_of_images_are_committed() {
    needs_kvm!();
    let fixture = loaded(json!({ "Cmd": ["/bin/sh"] }));
    refused(&fixture.pando(&["commit", "box", "app:v2"]), 125, &["start `pando serve`"]);
    let service = fixture.serve(&[]);
    refused(&fixture.pando(&["commit", "box", "app:v2"]), 125, &["there is no cell box"]);
    assert_eq!(fixture.pando(&["run", "-d", "--name", "ended", "--image", "app:v1", "sh", "-c", "exit"]).status, 0);
    service.json("GET", "/v1/cells/ended/wait", Value::Null);
    refused(&fixture.pando(&["commit", "ended", "app:v2"]), 125, &["it has ended"]);
    assert_eq!(fixture.pando(&["run", "-d", "--name", "host", "busybox", "sleep", "1000"]).status, 0);
    refused(&fixture.pando(&["commit", "host", "app:v2"]), 125, &["--image NAME"]);
    refused(&fixture.pando(&["commit", "host", "no name"]), 125, &["no name"]);
    // A template of an image has its layers, too.
    let script = "eval \"$(pando-ready -s)\"; echo $1 > /data/given; while :; do sleep 1000; done";
    let made = fixture.pando(&["template", "create", "--no-train", "--image", "app:v1", "warm", "--", "sh", "-c", script]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    assert_eq!(fixture.pando(&["clone", "-d", "--name", "clone", "warm", "word"]).status, 0);
    execute(&fixture, "clone", "until cat /data/given; do :; done 2>/dev/null");
    assert_eq!(fixture.pando(&["commit", "clone", "app:v2"]).status, 0);
    assert_printed(&fixture.pando(&["run", "--image", "app:v2", "cat", "/data/given"]), "word\n");
}

/// The files of an archive of changes, with their content.
fn members(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
    let mut archive = tar::Archive::new(archive);
    let member = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
        let mut entry = entry.expect("an archive");
        let (name, mut content) = (entry.path().expect("a path").display().to_string(), Vec::new());
        entry.read_to_end(&mut content).expect("it is in memory");
        (name, content)
    };
    archive.entries().expect("an archive").map(member).collect()
}

/// The number in a file of an archive.
fn number(members: &BTreeMap<String, Vec<u8>>, name: &str) -> u64 {
    String::from_utf8_lossy(&members[name]).trim().parse().expect("a number")
}

#[test]
fn no_program_runs_while_changes_are_read() {
    needs_kvm!();
    let fixture = loaded(json!({ "Cmd": ["/bin/sh"] }));
    let service = fixture.serve(&[]);
    // The number is in the first file before it is in the last one, and much lies between them.
    let script = "echo 0 > /1; busybox dd if=/dev/urandom of=/2 bs=1M count=8 2>/dev/null; echo 0 > /3; echo ready; i=0; \
        while :; do i=$((i+1)); for file in /1 /3; do echo $i > /new; busybox mv /new $file; done; done";
    assert_eq!(fixture.pando(&["run", "-d", "--name", "box", "--image", "app:v1", "sh", "-c", script]).status, 0);
    service.wait_for_output("/v1/cells/box", "ready");
    for _ in 0..3 {
        let members = members(&service.bytes("GET", "/v1/cells/box/changes", b""));
        let (first, last) = (number(&members, "1"), number(&members, "3"));
        assert!(first == last || first == last + 1, "{first} {last}");
    }
    // A program whose time limit expires meanwhile is not waited for.
    let mut changes = BufReader::new(service.send("GET", "/v1/cells/box/changes", b""));
    assert!(!changes.fill_buf().expect("it answers").is_empty());
    assert_eq!(fixture.pando(&["exec", "--timeout", "100ms", "box", "sh", "-c", "exit 0"]).status, 124);
    drop(changes);
    // An upload that comes meanwhile waits, too.
    let mut changes = BufReader::new(service.send("GET", "/v1/cells/box/changes", b""));
    assert!(!changes.fill_buf().expect("it answers").is_empty());
    let upload = service.send("PUT", "/v1/cells/box/file?path=/2", b"uploaded");
    // The cell has its request, most probably, when a later one is answered.
    service.bytes("GET", "/v1/cells/box/file?path=/etc/group", b"");
    let (status, archive) = Service::receive(changes);
    assert_eq!((status, members(&archive)["2"].len()), (200, 8 << 20));
    assert_eq!(Service::receive(BufReader::new(upload)).0, 204);
    assert_eq!(service.bytes("GET", "/v1/cells/box/file?path=/2", b""), b"uploaded");
    // A client that does not read the archive, and disconnects, does not stop the cell for good.
    let before: u64 = execute(&fixture, "box", "until cat /3 | busybox grep .; do :; done").trim().parse().expect("a number");
    drop(service.send("GET", "/v1/cells/box/changes", b""));
    execute(&fixture, "box", &format!("until [ $(cat /3)0 -gt {before}0 ]; do :; done 2>/dev/null"));
}
