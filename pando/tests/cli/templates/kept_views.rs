// SPDX-License-Identifier: MIT OR Apache-2.0
//! Views of templates that have more than a directory: programs of their own, single files, container images, configuration of the host.

use super::changed_files::wait_for_text;
use crate::case::text;
use crate::fixture::{Fixture, assert_output};
use pando_testing::{host_program, needs_kvm};
use serde_json::json;
use std::fs;
use std::process::Command;

#[test]
fn a_file_beside_a_mount_point_can_change() {
    needs_kvm!();
    let fixture = Fixture::new();
    let (outer, inner) = (fixture.path("outer"), fixture.path("inner"));
    for directory in [&outer, &inner] {
        fs::create_dir_all(directory).expect("there is room");
        (0..600).for_each(|number| fs::write(directory.join(number.to_string()), "old\n").expect("there is room"));
    }
    // The mount point and the file of its own are added to the directory's image.
    let volumes = [format!("{}:/work:ro", outer.display()), format!("{}:/work/models:ro", inner.display())];
    let file = format!("{}:/work/own:ro", inner.join("1").display());
    let words = ["template", "create", "--no-train", "-v", &volumes[0], "-v", &volumes[1], "-v", &file, "sees", "--"];
    let script = "eval \"$(pando-ready -s)\"; cat \"$@\"";
    let made = fixture.pando(&[&words[..], &["busybox", "sh", "-c", script]].concat());
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    // Its inode is in the first block of the directory's.
    fs::write(outer.join("0"), "a newer text\n").expect("there is room");
    assert_output(&fixture.pando(&["clone", "sees", "/work/0", "/work/models/5", "/work/own"]), "a newer text\nold\nold\n");
}

#[test]
fn a_library_of_the_host_can_be_installed() {
    needs_kvm!();
    let fixture = Fixture::new();
    let code = "import pando, subprocess; pando.ready(); print(subprocess.run(['/bin/true']).returncode)";
    let made = fixture.pando(&["template", "create", "--no-train", "starts", "--", "/usr/bin/python3", "-c", code]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    // As `ldconfig` does it, with another file.
    let cache = fixture.path("ld.so.cache");
    let script = format!("cp /etc/ld.so.cache {0} && mount --bind {0} /etc/ld.so.cache && exec \"$0\" \"$@\"", cache.display());
    let clone = fixture.command(&["clone", "starts"]);
    let mut command = Command::new(host_program("unshare"));
    command.args(["--mount", "sh", "-c", &script]).arg(clone.get_program()).args(clone.get_args());
    for (name, value) in clone.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    if !Command::new(host_program("unshare")).args(["--mount", "true"]).output().is_ok_and(|output| output.status.success()) {
        println!("left out: mounting a file needs root");
        return;
    }
    let outcome = command.output().expect("it starts");
    assert_eq!((text(&outcome.stdout), text(&outcome.stderr)), ("0\n", ""));
}

#[test]
fn a_service_notices_that_a_single_file_has_changed() {
    needs_kvm!();
    let fixture = Fixture::new();
    let file = fixture.path("configuration");
    fs::write(&file, "old\n").expect("there is room");
    let volume = format!("{}:/etc/own.conf:ro", file.display());
    let script = "pando-ready; read name; echo asked; read line; cat /etc/own.conf; echo \"for $name\"";
    let made = fixture.pando(&["template", "create", "--no-train", "-v", &volume, "asks", "--", "busybox", "sh", "-c", script]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    let service = fixture.serve(&[]);
    let start = || format!("/v1/cells/{}", service.json("POST", "/v1/cells", json!({ "template": "asks" }))["id"]);
    let place = start();
    service.bytes("POST", &format!("{place}/input?end=false"), b"session\n");
    wait_for_text(&service, &place, "asked");
    fs::write(&file, "a newer text\n").expect("there is room");
    // It could not be resumed.
    let (status, answer) = service.ask("POST", &format!("{place}/freeze"), r#"{"name":"paused"}"#);
    assert!(status == 409 && answer.contains("configuration"), "{status} {answer}");
    service.bytes("POST", &format!("{place}/input?end=false"), b"\n");
    wait_for_text(&service, &place, "for session");
    // One clone may find out, and not all of them.
    let (status, answer) = service.ask("POST", "/v1/cells", r#"{"template":"asks"}"#);
    assert!(status == 409 && answer.contains("changed since it was created"), "{status} {answer}");
}

#[test]
fn a_service_removes_the_images_of_a_template_with_it() {
    needs_kvm!();
    let fixture = Fixture::new();
    let shown = fixture.path("shown");
    fs::create_dir_all(&shown).expect("there is room");
    (0..600).for_each(|number| fs::write(shown.join(number.to_string()), "").expect("there is room"));
    let volume = format!("{}:/data:ro", shown.display());
    let create = |name: &str, more: &[&str]| {
        let words =
            [&["template", "create", "--no-train", "-v", &volume], more, &[name, "--", "busybox", "sh", "-c", "pando-ready"]].concat();
        let made = fixture.pando(&words);
        assert_eq!((made.status, &made.errors[..]), (0, ""));
    };
    create("first", &[]);
    let views = fixture.file("first").with_file_name("views");
    let images = || {
        fs::read_dir(&views)
            .map_or(0, |all| all.flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "image")).count())
    };
    let before = images();
    assert_eq!(before, 2, "the host's software, and the directory");
    let service = fixture.serve(&[]);
    let cell = service.json("POST", "/v1/cells", json!({ "template": "first" }));
    service.json("GET", &format!("/v1/cells/{}/wait", cell["id"]), json!({}));
    assert_eq!(service.ask("DELETE", "/v1/templates/first", "").0, 204);
    // Other tests may use that of the host's software, which has a name in the cache, too.
    assert!(images() < before, "no template needs them");
}

#[test]
fn directories_beside_a_root_of_its_own_keep_their_names() {
    needs_kvm!();
    let fixture = Fixture::new();
    let (root, shown) = (fixture.path("root"), fixture.path("shown"));
    fs::create_dir_all(root.join("bin")).expect("there is room");
    fs::copy("/bin/busybox", root.join("bin/busybox")).expect("there is room");
    fs::create_dir_all(&shown).expect("there is room");
    fs::write(shown.join("old"), "").expect("there is room");
    let (root, volume) = (root.display().to_string(), format!("{}:/data:ro", shown.display()));
    let words = ["template", "create", "--no-train", "--root", &root, "-v", &volume, "sees", "--", "/bin/busybox", "sh", "-c"];
    let made = fixture.pando(&[&words[..], &["echo ready >/dev/pando; /bin/busybox ls /data"]].concat());
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    fs::write(shown.join("new"), "").expect("there is room");
    assert_output(&fixture.pando(&["clone", "sees"]), "old\n");
}

#[test]
fn a_damaged_image_is_as_if_the_template_had_none() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("greets", "pando-ready; echo hello");
    let views = fixture.file("greets").with_file_name("views");
    for entry in
        fs::read_dir(&views).expect("it has views").flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "image"))
    {
        // The cache has the same file.
        let copy = entry.path().with_extension("copy");
        let mut bytes = fs::read(entry.path()).expect("it is there");
        // The root directory's inode and its neighbours.
        bytes[1024 + 4096..][..4096].fill(0xff);
        fs::write(&copy, bytes).expect("there is room");
        fs::set_permissions(&copy, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("it is ours");
        fs::rename(&copy, entry.path()).expect("it is ours");
    }
    assert_output(&fixture.pando(&["clone", "greets"]), "hello\n");
}
