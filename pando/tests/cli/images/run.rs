// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run --image`: the configuration of the image, and the options that change it.

use super::{assert_printed, busybox, loaded, refused, shell};
use crate::archives::{Archive, Fixture as Image, Layer, docker_archive};
use crate::fixture::Fixture;
use pando_testing::needs_kvm;
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn an_image_runs_with_its_layers_united() {
    needs_kvm!();
    let fixture = loaded(shell("ls /data /data/hidden; cat /data/new /data/hidden/y; stat -c '%a %u' /tmp; touch /data/new && ls /data"));
    assert_printed(&fixture.run(&[]), "/data:\nhidden\nnew\n\n/data/hidden:\ny\nnewshown1777 0\nhidden\nnew\n");
    // A second start finds the stack; so does one that has to make it again.
    assert_printed(&fixture.run(&["cat", "/data/new"]), "new");
    let stacks = fixture.path("data/pando/containers/stacks");
    fs::remove_dir_all(&stacks).expect("it is there");
    assert_printed(&fixture.run(&["cat", "/data/new"]), "new");
}

#[test]
fn the_configuration_says_how_the_program_runs() {
    needs_kvm!();
    let fixture = loaded(json!({
        "Entrypoint": ["/bin/sh", "-c"], "Cmd": ["id; pwd; env; stat -c '%a %u' /work/deep /volume"], "User": "web",
        "Env": ["A=b c", "PATH=/bin", "HOME_OF=image"], "WorkingDir": "/work/deep", "Volumes": { "/volume": {} },
    }));
    let of_web = "uid=33(web) gid=44(www) groups=29(audio)\n/work/deep\n";
    let environment = "SHLVL=1\nHOME=/srv\nA=b c\nPATH=/bin\nHOME_OF=image\nPWD=/work/deep\n";
    let found = fixture.run(&[]);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(Into::into).collect();
        lines.sort();
        lines
    };
    assert_eq!((sorted(&found.output), &found.errors[..]), (sorted(&format!("{of_web}{environment}755 0\n755 0\n")), ""));
    // Arguments replace the command and follow the entrypoint.
    assert_printed(&fixture.run(&["echo one; echo $0", "zero"]), "one\nzero\n");
    assert_printed(&fixture.run(&["--entrypoint", "id"]), "uid=33(web) gid=44(www) groups=29(audio)\n");
    assert_printed(&fixture.run(&["--entrypoint", "/bin/cat", "/data/new"]), "new");
    assert_printed(&fixture.run(&["--entrypoint", "", "pwd"]), "/work/deep\n");
    assert_printed(&fixture.run(&["-w", "/other", "--entrypoint", "pwd"]), "/other\n");
}

#[test]
fn programs_are_found_by_the_images_path() {
    needs_kvm!();
    let fixture = loaded(json!({ "Cmd": ["sh", "-c", "echo found"], "Env": ["PATH=/nowhere"] }));
    refused(&fixture.run(&[]), 127, &["`sh` was not found"]);
    assert_printed(&fixture.run(&["-e", "PATH=/bin"]), "found\n");
    refused(&fixture.run(&["-e", "PATH=/bin", "-e", "PATH=/nowhere"]), 127, &["`sh` was not found"]);
}

#[test]
fn users_have_names_from_the_image() {
    needs_kvm!();
    let fixture = loaded(shell("id"));
    for (user, found) in [
        ("web", "uid=33(web) gid=44(www) groups=29(audio)\n"),
        ("33", "uid=33(web) gid=44(www) groups=29(audio)\n"),
        ("web:staff", "uid=33(web) gid=50(staff)\n"),
        ("4711", "uid=4711 gid=0(root)\n"),
        ("4711:50", "uid=4711 gid=50(staff)\n"),
        ("root", "uid=0(root) gid=0(root) groups=29(audio)\n"),
    ] {
        assert_printed(&fixture.run(&["-u", user]), found);
    }
    refused(&fixture.run(&["-u", "bob"]), 125, &["image app:v1", "no user `bob`"]);
    refused(&fixture.run(&["-u", "web:bobs"]), 125, &["no group `bobs`"]);
    refused(&fixture.run(&["-u", ":"]), 125, &["USER:GROUP"]);
}

#[test]
fn variables_come_from_files_and_directories_may_be_temporary() {
    needs_kvm!();
    let fixture = loaded(json!({ "Cmd": ["/bin/sh"], "Env": ["A=image", "B=image"] }));
    fs::write(fixture.path("variables"), "# a comment\n\nB=file\r\n  C=a b = c \nGIVEN\nUNSET\n").expect("there is room");
    let mut command = fixture.command(&[
        "run",
        "--image",
        "app:v1",
        "--env-file",
        "variables",
        "-e",
        "D=option",
        "sh",
        "-c",
        "echo \"$A|$B|$C|$D|$GIVEN|${UNSET-no}\"",
    ]);
    let output = command.env("GIVEN", "caller").output().expect("pando starts");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "image|file|a b = c |option|caller|no\n");
    refused(&fixture.run(&["--env-file", "missing", "sh"]), 125, &["missing", "no such file"]);
    let listed = "ls -A /data /cache; stat -c %a /data /cache; touch /data/x && ls /data";
    assert_printed(
        &fixture.run(&["--tmpfs", "/data", "--tmpfs", "/cache/a:mode=700", "sh", "-c", listed]),
        "/cache:\na\n\n/data:\n1777\n755\nx\n",
    );
    refused(&fixture.run(&["--tmpfs", "/", "sh"]), 125, &["cannot be a temporary directory"]);
    refused(&fixture.run(&["--tmpfs", "/x:noexec", "sh"]), 125, &["`noexec` is not supported"]);
}

#[test]
fn a_request_to_end_is_the_images_stop_signal() {
    needs_kvm!();
    let line = "trap 'echo stopped; exit 3' QUIT; trap 'echo terminated; exit 4' TERM; echo ready; while :; do sleep 0.05; done";
    let mut config = shell(line);
    config["StopSignal"] = json!("SIGQUIT");
    let fixture = loaded(config);
    let mut child = fixture.command(&["run", "--image", "app:v1"]).stdout(Stdio::piped()).spawn().expect("pando starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it was asked for")).lines().map_while(Result::ok);
    assert_eq!(lines.next().as_deref(), Some("ready"));
    let process = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(process, rustix::process::Signal::TERM).expect("it runs");
    assert_eq!(lines.next().as_deref(), Some("stopped"));
    assert_eq!(child.wait().expect("it ends").code(), Some(3));
}

#[test]
fn an_image_sees_nothing_of_the_host() {
    needs_kvm!();
    let fixture = loaded(shell("ls -A /home /root /srv; ls /etc; cat secret"));
    fs::write(fixture.path("secret"), "secret").expect("there is room");
    let found = fixture.run(&[]);
    assert!(found.output.ends_with("group\npasswd\n") && !found.output.contains("secret"), "{}", found.output);
    // A file that -v shows is there.
    assert_printed(&fixture.run(&["-v", "./secret:/mnt/secret:ro", "cat", "/mnt/secret"]), "secret");
}

#[test]
fn programs_that_are_missing_are_named() {
    let fixture = Fixture::new();
    let image = Image::with_config(vec![Layer::of(&[("a", "a")])], json!({}));
    fs::write(fixture.path("app.tar"), docker_archive(&image, &["app:v1"])).expect("there is room");
    assert_eq!(fixture.image(&["load", "-i", "app.tar"]).status, 0);
    refused(&fixture.run(&[]), 125, &["app:v1", "neither an entrypoint nor a command"]);
    refused(&fixture.run(&["sh"]), 127, &["`sh` was not found"]);
    refused(&fixture.pando(&["run", "--image", "missing", "sh"]), 125, &["no image `missing`", "pando image ls"]);
    refused(&fixture.pando(&["run", "--image", "app:v1", "--root", ".", "sh"]), 125, &["cannot be used with"]);
    refused(&fixture.pando(&["run", "--image", "missing", "-d", "sh"]), 125, &["no image `missing`", "pando image ls"]);
}

#[test]
fn hostile_content_of_layers_stays_inside_of_the_cell() {
    needs_kvm!();
    let mut layer = Archive::new();
    layer.symlink("host", "/../../../../../etc/hostname");
    layer.symlink("loop", "loop");
    layer.symlink("work", "/data");
    let image = Image::with_config(vec![busybox(), Layer(layer.bytes())], json!({ "Cmd": ["pwd"], "WorkingDir": "/work/x" }));
    let fixture = Fixture::new();
    fs::write(fixture.path("app.tar"), docker_archive(&image, &["app:v1"])).expect("there is room");
    assert_eq!(fixture.image(&["load", "app.tar"]).status, 0);
    assert_printed(&fixture.run(&[]), "/data/x\n");
    assert_printed(
        &fixture.run(&["sh", "-c", "cat /host 2>&1; cat /loop 2>&1; true"]),
        "cat: can't open '/host': No such file or directory\ncat: can't open '/loop': Too many levels of symbolic links\n",
    );
}
