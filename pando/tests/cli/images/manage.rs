// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando image`: loading, listing, removing; templates of images.

use super::{assert_printed, busybox, loaded, oci_archive, refused, shell, upper};
use crate::archives::{Fixture as Image, Layer, docker_archive, gzip, zstd};
use crate::fixture::{Fixture, assert_output};
use pando_testing::needs_kvm;
use serde_json::{Value, json};
use std::fs;
use std::process::Stdio;

#[test]
fn archives_are_loaded_from_files_and_from_standard_input() {
    let image = Image::with_config(vec![busybox(), upper()], shell("true"));
    let archives = [
        ("docker.tar", docker_archive(&image, &["app:v1", "team/app:v2"]), "Loaded image: app:v1\nLoaded image: team/app:v2\n"),
        ("oci.tar.gz", gzip(&oci_archive(&image, "docker.io/library/app:v1")), "Loaded image: app:v1\n"),
        ("oci.tar.zst", zstd(&oci_archive(&image, "v3")), "Loaded image: localhost/oci:v3\n"),
    ];
    for (file, bytes, expected) in archives {
        let fixture = Fixture::new();
        fs::write(fixture.path(file), &bytes).expect("there is room");
        assert_printed(&fixture.image(&["load", file]), expected);
        assert_printed(&fixture.image(&["load", "-q", "-i", file, "-t", "named"]), "");
        let input = fs::File::open(fixture.path(file)).expect("it was just written");
        let output = fixture.command(&["image", "load"]).stdin(Stdio::from(input)).output().expect("pando starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let id = format!("{}\n", &image.id()[..12]);
        assert_printed(&fixture.image(&["ls", "-q"]), &id);
    }
}

#[test]
fn other_files_are_refused_with_their_content_named() {
    let fixture = Fixture::new();
    fs::write(fixture.path("rootfs.tar"), &busybox().0).expect("there is room");
    refused(
        &fixture.image(&["load", "rootfs.tar"]),
        125,
        &["not a container image", "neither manifest.json nor index.json, but bin, data, etc", "pando image import"],
    );
    refused(&fixture.image(&["load", "missing.tar"]), 125, &["missing.tar", "no such file"]);
    refused(&fixture.pando(&["run", "--root", "app.tar", "sh"]), 125, &["app.tar"]);
    // A container image is no root file system.
    let image = Image::with_config(vec![busybox()], shell("true"));
    for (file, bytes) in [("docker.tar", docker_archive(&image, &["app"])), ("oci.tar", oci_archive(&image, "app:v1"))] {
        fs::write(fixture.path(file), bytes).expect("there is room");
        refused(&fixture.pando(&["run", "--root", file, "sh"]), 125, &[file, "a container image", "pando image load"]);
        refused(&fixture.image(&["build", file, "-o", "root.image"]), 125, &[file, "a container image", "pando image load"]);
    }
}

#[test]
fn images_are_listed_described_tagged_and_removed() {
    let fixture = loaded(shell("true"));
    let table = fixture.image(&["ls"]);
    let lines: Vec<Vec<&str>> = table.output.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((&lines[0][..3], &lines[1][..2]), (&["REPOSITORY", "TAG", "IMAGE"][..], &["app", "v1"][..]));
    let listed: Value = serde_json::from_str(&fixture.image(&["ls", "--json"]).output).expect("it is JSON");
    assert_eq!(listed["names"], json!(["app:v1"]));
    let id = listed["id"].as_str().expect("it is text").to_string();
    let described: Value = serde_json::from_str(&fixture.image(&["inspect", "app:v1"]).output).expect("it is JSON");
    assert_eq!((&described[0]["Id"], &described[0]["Config"]["Cmd"][2]), (&json!(id), &json!("true")));
    assert_eq!(described[0]["RootFS"]["Layers"].as_array().map(Vec::len), Some(2));
    assert_printed(&fixture.image(&["tag", "app:v1", "example.org/app"]), "");
    let hex = id.trim_start_matches("sha256:");
    refused(&fixture.image(&["rm", &hex[..12]]), 1, &["several names", "--force"]);
    assert_printed(&fixture.image(&["rm", "app:v1"]), "Untagged: app:v1\n");
    let removed = fixture.image(&["rm", &hex[..12]]);
    assert!(
        removed.output.starts_with(&format!("Untagged: example.org/app:latest\nDeleted: {id}\nDeleted: sha256:")),
        "{}",
        removed.output
    );
    refused(&fixture.image(&["rm", "app:v1"]), 1, &["no image `app:v1`"]);
    assert_printed(&fixture.image(&["ls", "-q"]), "");
    assert_printed(&fixture.image(&["prune"]), "Total reclaimed space: 0 B\n");
}

#[test]
fn root_file_systems_are_imported() {
    needs_kvm!();
    let fixture = Fixture::new();
    fs::write(fixture.path("root.tar.zst"), zstd(&busybox().0)).expect("there is room");
    let imported = fixture.image(&["import", "-c", "CMD [\"cat\", \"/data/old\"]", "-c", "USER web", "root.tar.zst", "app:v1"]);
    assert_eq!((imported.status, imported.output.starts_with("sha256:"), &imported.errors[..]), (0, true, ""));
    assert_printed(&fixture.run(&[]), "old");
    refused(&fixture.image(&["import", "-c", "RUN x", "root.tar.zst", "app:v1"]), 125, &["`RUN` is not supported"]);
}

#[test]
fn a_template_of_an_image_needs_nothing_else_and_holds_the_image() {
    needs_kvm!();
    let fixture = loaded(json!({ "Entrypoint": ["/bin/sh", "-c"], "User": "web", "WorkingDir": "/work" }));
    let script = "X=warm; eval \"$(pando-ready -s)\"; echo $X $1; id -u; pwd; cat /data/new";
    let created = fixture.pando(&["template", "create", "--no-train", "--image", "app:v1", "--tmpfs", "/cache", "warm", script]);
    assert_eq!((created.status, &created.errors[..]), (0, ""));
    assert_output(&fixture.pando(&["clone", "warm", "clone"]), "warm clone\n33\n/work\nnew");
    // The image may get another name, and its files other times, as on another host.
    let layers = fixture.path("data/pando/containers/layers");
    for entry in fs::read_dir(&layers).expect("it is there").flatten() {
        let copy = layers.join("copy");
        fs::copy(entry.path(), &copy).and_then(|_| fs::rename(&copy, entry.path())).expect("there is room");
    }
    fs::remove_dir_all(fixture.path("data/pando/containers/stacks")).expect("it is there");
    assert_printed(&fixture.image(&["tag", "app:v1", "other"]), "");
    assert_printed(&fixture.image(&["rm", "app:v1"]), "Untagged: app:v1\n");
    assert_output(&fixture.pando(&["clone", "warm", "again"]), "warm again\n33\n/work\nnew");
    refused(&fixture.image(&["rm", "other"]), 1, &["in use", "template `warm`"]);
    assert_printed(&fixture.image(&["prune", "-a"]), "Total reclaimed space: 0 B\n");
    assert_eq!(fixture.pando(&["template", "rm", "warm"]).status, 0);
    assert_eq!(fixture.image(&["rm", "other"]).status, 0);
    assert_eq!(fs::read_dir(&layers).map(Iterator::count).ok(), Some(0));
}

#[test]
fn a_service_clones_templates_of_images_that_were_loaded_after_its_start() {
    needs_kvm!();
    let fixture = Fixture::new();
    let service = fixture.serve(&[]);
    let image = Image::with_config(vec![busybox(), upper()], json!({ "Entrypoint": ["/bin/sh", "-c"], "User": "web" }));
    fs::write(fixture.path("app.tar"), docker_archive(&image, &["app:v1"])).expect("there is room");
    assert_eq!(fixture.image(&["load", "app.tar"]).status, 0);
    let script = "eval \"$(pando-ready -s)\"; echo $1; id -u; cat /data/new; sleep 1000";
    assert_eq!(fixture.pando(&["template", "create", "--no-train", "--image", "app:v1", "one", script]).status, 0);
    let made = json!({ "name": "two", "image": "app:v1", "arguments": [script], "train": false });
    service.json("POST", "/v1/templates", made);
    for template in ["one", "two"] {
        let started = fixture.pando(&["clone", "-d", template, "hello"]);
        assert_eq!((started.status, &started.errors[..]), (0, ""));
        let cell = started.output.trim();
        service.wait_for_output(&format!("/v1/cells/{cell}"), "33");
        assert_output(&fixture.pando(&["exec", cell, "id"]), "uid=33(web) gid=44(www) groups=29(audio)\n");
        assert_output(&fixture.pando(&["exec", "-u", "7", cell, "id", "-G"]), "7\n");
        let described: Value = serde_json::from_str(&fixture.pando(&["template", "inspect", template]).output).expect("it is JSON");
        assert_eq!(described["image"]["name"], "app:v1");
    }
}

#[test]
fn programs_of_images_run_in_the_service() {
    needs_kvm!();
    let fixture = loaded(json!({ "Entrypoint": ["/bin/sh", "-c"], "User": "web", "WorkingDir": "/work", "Env": ["A=1"],
        "ExposedPorts": { "80/tcp": {} } }));
    let service = fixture.serve(&["--gateways", "1"]);
    let script = "echo $A$B $(id -u) $(pwd) $(cat /data/new); sleep 1000";
    let started = fixture.pando(&["run", "-d", "-P", "--name", "web", "-e", "B=2", "--image", "app:v1", script]);
    assert!(started.status == 0 && started.errors.contains("is forwarded to port 80"), "{}", started.errors);
    service.wait_for_output("/v1/cells/web", "12 33 /work new");
    assert_output(&fixture.pando(&["exec", "web", "sh", "-c", "echo $A$B; id -G"]), "12\n44 29\n");
    let second = fixture.pando(&["run", "-d", "--image", "app:v1", "--entrypoint", "cat", "/data/new"]);
    service.wait_for_output(&format!("/v1/cells/{}", second.output.trim_end()), "new");
    let listed = fixture.pando(&["ps", "-a"]).output;
    assert_eq!(listed.lines().filter(|line| line.contains(" app:v1 ")).count(), 2, "{listed}");
    refused(&fixture.image(&["rm", "-f", "app:v1"]), 1, &["in use", "a cell runs it"]);
    refused(&fixture.pando(&["run", "-d", "--image", "nothing"]), 125, &["nothing"]);
    assert_eq!(fixture.pando(&["kill", "web"]).status, 0);
    service.json("GET", "/v1/cells/web/wait", json!(null));
    assert_eq!(fixture.image(&["rm", "app:v1"]).status, 0);
}

#[test]
fn a_running_image_is_not_removed() {
    needs_kvm!();
    let fixture = loaded(shell("echo ready; cat; cat /data/new"));
    let mut child =
        fixture.command(&["run", "--image", "app:v1"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts");
    let mut ready = [0; 6];
    std::io::Read::read_exact(child.stdout.as_mut().expect("it was asked for"), &mut ready).expect("it runs");
    refused(&fixture.image(&["rm", "-f", "app:v1"]), 1, &["in use", "a cell runs it"]);
    drop(child.stdin.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!((output.status.code(), &output.stdout[..]), (Some(0), &b"new"[..]));
    assert_eq!(fixture.image(&["rm", "app:v1"]).status, 0);
}

#[test]
fn images_share_their_layers() {
    let fixture = Fixture::new();
    for (name, content) in [("one", "1"), ("two", "2")] {
        let image = Image::with_config(vec![busybox(), Layer::of(&[("own", content)])], shell("true"));
        fs::write(fixture.path(name), docker_archive(&image, &[name])).expect("there is room");
        assert_eq!(fixture.image(&["load", name]).status, 0);
    }
    let layers = fixture.path("data/pando/containers/layers");
    assert_eq!(fs::read_dir(layers).map(Iterator::count).ok(), Some(3));
}
