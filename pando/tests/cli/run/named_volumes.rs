// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named volumes: they outlive cells, are shared by them, and stay while one uses them.

use crate::fixture::{Fixture, assert_output};
use pando_testing::needs_kvm;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

#[test]
fn volumes_are_created_shared_and_removed() {
    needs_kvm!();
    let fixture = Fixture::new();
    for _ in 0..2 {
        assert_output(&fixture.pando(&["volume", "create", "data"]), "data\n");
    }
    assert_output(&fixture.pando(&["run", "-v", "data:/data", "--", "sh", "-c", "echo kept > /data/file"]), "");
    let mut command = fixture.command(&["run", "-v", "data:/data:ro", "--", "sh"]);
    let mut reader = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts");
    let (mut commands, output) = (reader.stdin.take().expect("it is a pipe"), reader.stdout.take().expect("it is a pipe"));
    let mut output = BufReader::new(output);
    let mut line = |text: &str| {
        writeln!(commands, "{text}").expect("the cell reads");
        let mut line = String::new();
        output.read_line(&mut line).expect("the cell writes");
        line
    };
    assert_eq!(line("cat /data/file; echo lost 2>/dev/null > /data/file"), "kept\n");
    assert_output(&fixture.pando(&["run", "-v", "data:/mnt", "--", "sh", "-c", "cat /mnt/file; echo changed > /mnt/file"]), "kept\n");
    assert_eq!(line("cat /data/file"), "changed\n");
    let listed: Value = serde_json::from_str(&fixture.pando(&["volume", "ls", "--json"]).output).expect("it is one object");
    assert_eq!((&listed["name"], &listed["in_use"]), (&"data".into(), &true.into()));
    let refused = fixture.pando(&["volume", "rm", "data"]);
    assert_eq!((refused.status, &refused.errors[..]), (1, "pando: volume data is in use by a cell: end its `pando run` first\n"));
    drop(commands);
    assert!(reader.wait().expect("it is our child").success());
    let described: Value = serde_json::from_str(&fixture.pando(&["volume", "inspect", "data"]).output).expect("it is an array");
    assert_eq!(described[0]["mountpoint"].as_str(), fixture.path("data/pando/volumes/data").to_str());
    assert_output(&fixture.pando(&["volume", "rm", "data"]), "data\n");
    assert_output(&fixture.pando(&["volume", "ls", "-q"]), "");
}

#[test]
fn a_volume_is_no_file_and_no_path() {
    needs_kvm!();
    let fixture = Fixture::new();
    std::fs::write(fixture.path("notes"), "a file").expect("the directory is ours");
    for (words, message) in [
        (&["run", "-v", "notes:/notes:ro", "true"][..], "write ./notes for that"),
        (&["run", "-v", "data:/data:snapshot", "true"], "a named volume is live: give data:/data or data:/data:ro"),
        (&["run", "-d", "-v", "data:/data", "true"], "if NAME is a file or a directory, write ./NAME"),
        (&["template", "create", "-v", "data:/data", "made", "true"], "if data is a file or a directory, write ./data"),
        (&["volume", "create", "../x"], "is not a valid volume name"),
        (&["volume", "inspect", "missing"], "there is no volume missing: `pando volume ls` lists the volumes"),
        (&["volume", "rm", "missing"], "there is no volume missing"),
    ] {
        let refused = fixture.pando(words);
        assert!(refused.status != 0 && refused.errors.contains(message), "{words:?}: {}", refused.errors);
    }
    assert_output(&fixture.pando(&["run", "-v", "./notes:/notes:ro", "cat", "/notes"]), "a file");
    assert_output(&fixture.pando(&["volume", "ls", "-q"]), "");
}
