// SPDX-License-Identifier: MIT OR Apache-2.0
//! Container images, from archives of the tests' own making to running programs.

mod commit;
mod manage;
mod registry;
mod run;
mod servers;

use crate::archives::{Archive, Fixture as Image, Layer, archive, docker_archive, layout};
use crate::fixture::{Fixture, ProgramOutput};
use pando_testing::host_program;
use serde_json::{Value, json};
use std::fs;

/// The layer with busybox, its links, and lists of users and groups.
fn busybox() -> Layer {
    let mut layer = Archive::new();
    layer.file("bin/busybox", &found(host_program("busybox")));
    for name in ["sh", "cat", "env", "id", "ls", "pwd", "sleep", "stat", "touch", "kill"] {
        layer.symlink(&format!("bin/{name}"), "busybox");
    }
    layer.file("etc/passwd", b"root:x:0:0:root:/root:/bin/sh\nweb:x:33:44:web:/srv:/bin/sh\n");
    layer.file("etc/group", b"root:x:0:\nwww:x:44:\nstaff:x:50:\naudio:x:29:root,web\n");
    layer.file("data/old", b"old");
    layer.file("data/hidden/x", b"hidden");
    Layer(layer.bytes())
}

/// The file of a program in PATH.
fn found(program: &str) -> Vec<u8> {
    let path = std::env::var_os("PATH").expect("it is set");
    std::env::split_paths(&path).find_map(|directory| fs::read(directory.join(program)).ok()).expect("it is in PATH")
}

/// The layer above it.
fn upper() -> Layer {
    Layer::of(&[("data/.wh.old", ""), ("data/hidden/.wh..wh..opq", ""), ("data/hidden/y", "shown"), ("data/new", "new")])
}

/// An image of both layers with this configuration, in the store of a new directory under the name `app:v1`.
fn loaded(config: Value) -> Fixture {
    let fixture = Fixture::new();
    let image = Image::with_config(vec![busybox(), upper()], config);
    fs::write(fixture.path("app.tar"), docker_archive(&image, &["app:v1"])).expect("there is room");
    assert_printed(&fixture.image(&["load", "app.tar"]), "Loaded image: app:v1\n");
    fixture
}

impl Fixture {
    /// Runs `pando image`.
    fn image(&self, words: &[&str]) -> ProgramOutput {
        self.pando(&[&["image"], words].concat())
    }

    /// Runs the image in a cell.
    fn run(&self, words: &[&str]) -> ProgramOutput {
        self.pando(&[&["run", "--image", "app:v1"], words].concat())
    }
}

#[track_caller]
fn assert_printed(found: &ProgramOutput, output: &str) {
    assert_eq!((found.status, &found.output[..], &found.errors[..]), (0, output, ""));
}

#[track_caller]
fn refused(found: &ProgramOutput, status: i32, words: &[&str]) {
    assert_eq!((found.status, &found.output[..]), (status, ""), "{}", found.errors);
    assert!(words.iter().all(|word| found.errors.contains(word)), "{:?} lacks one of {words:?}", found.errors);
}

/// An archive of an OCI layout.
fn oci_archive(image: &Image, name: &str) -> Vec<u8> {
    archive(&layout(image, Some(name)))
}

/// A configuration that runs a line of the shell.
fn shell(line: &str) -> Value {
    json!({ "Cmd": ["/bin/sh", "-c", line] })
}
