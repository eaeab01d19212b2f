// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates and paused sessions, after files of the host have changed.

use crate::case::text;
use crate::fixture::{Fixture, Service, assert_output, wait_until};
use pando_testing::needs_kvm;
use serde_json::json;
use std::fs;
use std::path::PathBuf;

/// Prints the files that a clone is told to, and lists the directory. The template has read one file before.
const SCRIPT: &str = r#"read line </data/used; eval "$(pando-ready -s)"; cat "$@"; ls /data"#;

/// A fixture with a directory of files, and a template that sees it.
fn template(files: usize) -> (Fixture, PathBuf) {
    let fixture = Fixture::new();
    let shown = fixture.path("shown");
    fs::create_dir_all(shown.join("many")).expect("there is room");
    for name in ["used", "unused"] {
        fs::write(shown.join(name), format!("the old {name}\n")).expect("there is room");
    }
    for number in 0..files {
        fs::write(shown.join(format!("many/{number}")), "").expect("there is room");
    }
    let volume = format!("{}:/data:ro", shown.display());
    let made = fixture.pando(&["template", "create", "--no-train", "-v", &volume, "sees", "--", "busybox", "sh", "-c", SCRIPT]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    (fixture, shown)
}

#[test]
fn a_template_is_refused_if_a_file_changes_that_it_has_read_and_no_other() {
    needs_kvm!();
    // Small trees are scanned, and large ones cached.
    for files in [0, 600] {
        let (fixture, shown) = template(files);
        assert_output(&fixture.pando(&["clone", "sees", "/data/unused"]), "the old unused\nmany\nunused\nused\n");
        fs::write(shown.join("new"), "").expect("there is room");
        fs::write(shown.join("many/new"), "").expect("there is room");
        fs::write(shown.join("unused"), "a newer text of another length\n").expect("there is room");
        // It sees the names that there were, and what the files contain now.
        let words = ["clone", "sees", "/data/used", "/data/unused"];
        assert_output(&fixture.pando(&words), "the old used\na newer text of another length\nmany\nunused\nused\n");
        fs::remove_file(shown.join("unused")).expect("it is ours");
        assert_output(&fixture.pando(&["clone", "sees", "/data/used"]), "the old used\nmany\nunused\nused\n");

        let used = shown.join("used");
        fs::write(&used, "a newer text\n").expect("there is room");
        let refused = fixture.pando(&["clone", "sees", "/data/used"]);
        assert_eq!(refused.status, 125);
        let expected = format!("{}, which template `sees` uses, has changed since it was created", used.display());
        assert!(refused.errors.contains(&expected) && refused.errors.contains("--replace"), "{}", refused.errors);
    }
}

#[test]
fn templates_that_see_the_same_share_images_and_do_not_need_the_cache() {
    needs_kvm!();
    let (fixture, shown) = template(600);
    let volume = format!("{}:/data:ro", shown.display());
    let other = ["template", "create", "--no-train", "-v", &volume, "other", "--", "busybox", "sh", "-c", SCRIPT];
    let cache = fixture.path("cache");
    assert!(fixture.command(&other).env("XDG_CACHE_HOME", &cache).status().expect("pando starts").success());
    let views = fixture.file("sees").with_file_name("views");
    let names = || fs::read_dir(&views).expect("templates have views").count();
    let count = names();
    assert_eq!(fixture.pando(&["template", "rm", "sees"]).status, 0);
    assert_eq!(names(), count, "the other template needs them");
    fs::write(shown.join("new"), "").expect("there is room");
    fs::remove_dir_all(&cache).expect("it was made");
    let mut clone = fixture.command(&["clone", "other", "/data/used"]);
    let output = clone.env("XDG_CACHE_HOME", &cache).output().expect("pando starts").stdout;
    assert_eq!(text(&output), "the old used\nmany\nunused\nused\n");
    // Without its images it depends on the host again.
    fs::remove_dir_all(&views).expect("it is ours");
    let refused = fixture.pando(&["clone", "other", "/data/used"]);
    assert!(refused.status == 125 && refused.errors.contains("have changed since it was created"), "{}", refused.errors);
}

/// Runs code in a session.
fn run(service: &Service, place: &str, code: &str) {
    service.bytes("POST", &format!("{place}/input?end=false"), format!("{}\n", json!(code)).as_bytes());
}

/// Waits until a cell has printed this.
pub(super) fn wait_for_text(service: &Service, place: &str, text: &str) {
    wait_until(|| service.ask("GET", &format!("{place}/output?from=0"), "").1.contains(text));
}

#[test]
fn a_paused_session_survives_the_service_and_changes_of_the_host() {
    needs_kvm!();
    let (fixture, shown) = template(600);
    fs::write(shown.join("mapped"), "mapped\n").expect("there is room");
    let directory = session_template(&fixture, &shown);
    let service = fixture.serve(&["--show", &directory]);
    let cell = service.json("POST", "/v1/cells", json!({ "template": "session" }));
    let place = format!("/v1/cells/{}", cell["id"]);
    let read = format!("print(open('{directory}/unused').read(), flush=True)");
    let map = format!("import mmap; file = open('{directory}/mapped'); mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)");
    run(&service, &place, &format!("answer = 42\n{map}\n{read}"));
    wait_for_text(&service, &place, "the old unused");
    // The code has ended, and all of its output was read.
    wait_for_text(&service, &place, "exit_code");
    service.json("POST", &format!("{place}/freeze"), json!({ "name": "paused" }));
    // Killed.
    drop(service);
    fs::write(shown.join("new"), "").expect("there is room");
    // The session has read this file, as a program may that runs, and its template has not.
    fs::write(shown.join("unused"), "changed").expect("there is room");
    let service = fixture.serve(&["--show", &directory]);
    let cell = service.json("POST", "/v1/cells", json!({ "template": "paused" }));
    let place = format!("/v1/cells/{}", cell["id"]);
    run(&service, &place, &format!("{read}; print('the answer', answer, flush=True)"));
    wait_for_text(&service, &place, "the answer 42");
    drop(service);
    // The session has mapped this file, its template has not.
    fs::write(shown.join("mapped"), "changed").expect("there is room");
    let service = fixture.serve(&["--show", &directory]);
    let (status, answer) = service.ask("POST", "/v1/cells", r#"{"template":"paused"}"#);
    assert!(status >= 400 && answer.contains("shown/mapped"), "{status} {answer}");
    service.json("POST", "/v1/cells", json!({ "template": "session" }));
}

/// Creates a template of Python's session that sees the directory, and returns the directory's name.
fn session_template(fixture: &Fixture, shown: &std::path::Path) -> String {
    let directory = shown.display().to_string();
    let volume = format!("{directory}:{directory}:ro");
    let program = ["/usr/bin/python3", "-m", "pando"];
    let words = [&["template", "create", "--no-train", "-v", &volume, "session", "--"], &program[..]].concat();
    assert_eq!(fixture.pando(&words).status, 0);
    directory
}

#[test]
fn a_paused_session_reads_what_it_knew_of_files_that_changed_before() {
    needs_kvm!();
    let (fixture, shown) = template(600);
    // Their inodes are in this order in the image, and are compared with the host in this order, those of a block together.
    let path = |name: &str| shown.join("many").join(format!("{}{name}", if name == "b" { "z" } else { "0" }));
    for name in ["0", "a", "b"] {
        fs::write(path(name), "before").expect("there is room");
    }
    let directory = session_template(&fixture, &shown);
    let content = |name: &str| format!("{name} {}", name.repeat(400_000));
    for name in ["a", "b"] {
        fs::write(path(name), content(name)).expect("there is room");
    }
    let start = |service: &Service, template: &str| {
        let cell = service.json("POST", "/v1/cells", json!({ "template": template }));
        format!("/v1/cells/{}", cell["id"])
    };
    let sum = "print(file.name[-1], {ord(c) for c in set(file.read())}, flush=True)";
    let service = fixture.serve(&["--show", &directory]);
    let place = start(&service, "session");
    run(&service, &place, &format!("file = open('{directory}/many/zb'); print(file.read(1), 'first', flush=True)"));
    wait_for_text(&service, &place, "b first");
    wait_for_text(&service, &place, "exit_code");
    service.json("POST", &format!("{place}/freeze"), json!({ "name": "paused" }));
    drop(service);
    // A file before both of them, of their length: it would have the blocks that the session knows as those of another.
    fs::write(path("0"), content("0")).expect("there is room");
    // Another clone reads the other file first.
    let service = fixture.serve(&["--show", &directory]);
    let other = start(&service, "paused");
    run(&service, &other, &format!("file = open('{directory}/many/0a'); {sum}"));
    wait_for_text(&service, &other, "a {32, 97}");
    for name in ["paused", "paused"] {
        let place = start(&service, name);
        run(
            &service,
            &place,
            &format!("first = file; file = open('{directory}/many/0a'); {sum}\nfile, first = first, file; {sum}\nfile = first"),
        );
        wait_for_text(&service, &place, "a {32, 97}");
        wait_for_text(&service, &place, "b {32, 98}");
        wait_for_text(&service, &place, "exit_code");
        service.json("POST", &format!("{place}/freeze"), json!({ "name": "again", "replace": true }));
    }
    drop(service);
    let service = fixture.serve(&["--show", &directory]);
    let place = start(&service, "again");
    run(&service, &place, &format!("file.seek(0); {sum}\nfile = open('{directory}/many/zb'); {sum}"));
    wait_for_text(&service, &place, "a {32, 97}");
    wait_for_text(&service, &place, "b {32, 98}");
    // A file that changes again is an error, or the present content, and nothing between.
    wait_for_text(&service, &place, "exit_code");
    service.json("POST", &format!("{place}/freeze"), json!({ "name": "again", "replace": true }));
    drop(service);
    fs::write(path("b"), "c".repeat(9000)).expect("there is room");
    let service = fixture.serve(&["--show", &directory]);
    let place = start(&service, "again");
    run(&service, &place, &format!("file = open('{directory}/many/zb'); {sum}"));
    wait_for_text(&service, &place, "b {99}");
}

#[test]
fn a_session_runs_on_if_it_could_not_be_resumed() {
    needs_kvm!();
    let (fixture, shown) = template(0);
    let volume = format!("{}:/data:ro", shown.display());
    let script = "read line </data/used; pando-ready; read name; echo asked; read greeting; echo \"$greeting, $name\"";
    let made = fixture.pando(&["template", "create", "--no-train", "-v", &volume, "asks", "--", "busybox", "sh", "-c", script]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    let service = fixture.serve(&["--show", &shown.display().to_string()]);
    let place = format!("/v1/cells/{}", service.json("POST", "/v1/cells", json!({ "template": "asks" }))["id"]);
    service.bytes("POST", &format!("{place}/input?end=false"), b"session\n");
    wait_for_text(&service, &place, "asked");
    fs::write(shown.join("used"), "a newer text\n").expect("there is room");
    let (status, answer) = service.ask("POST", &format!("{place}/freeze"), r#"{"name":"paused"}"#);
    assert!(status == 409 && answer.contains("shown/used"), "{status} {answer}");
    service.bytes("POST", &format!("{place}/input?end=false"), b"Hello\n");
    wait_for_text(&service, &place, "Hello, session");
    assert_eq!(service.ask("POST", "/v1/cells", r#"{"template":"paused"}"#).0, 404);
}

#[test]
fn a_session_can_be_resumed_if_a_file_changed_that_it_alone_has_mapped() {
    needs_kvm!();
    let (fixture, shown) = template(600);
    fs::write(shown.join("mapped"), "mapped\n").expect("there is room");
    let directory = session_template(&fixture, &shown);
    let service = fixture.serve(&["--show", &directory]);
    let place = format!("/v1/cells/{}", service.json("POST", "/v1/cells", json!({ "template": "session" }))["id"]);
    let map = format!("import mmap; file = open('{directory}/mapped'); mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)");
    run(&service, &place, &format!("{map}\nanswer = 42; print(mapped[:6], flush=True)"));
    wait_for_text(&service, &place, "b'mapped'");
    wait_for_text(&service, &place, "exit_code");
    fs::write(shown.join("mapped"), "changed while it ran\n").expect("there is room");
    service.json("POST", &format!("{place}/freeze"), json!({ "name": "paused" }));
    drop(service);
    let service = fixture.serve(&["--show", &directory]);
    let place = format!("/v1/cells/{}", service.json("POST", "/v1/cells", json!({ "template": "paused" }))["id"]);
    run(&service, &place, "print('the answer', answer, flush=True)");
    wait_for_text(&service, &place, "the answer 42");
}

#[test]
fn a_session_can_be_paused_after_its_template_was_removed() {
    needs_kvm!();
    let (fixture, shown) = template(600);
    let directory = session_template(&fixture, &shown);
    assert_eq!(fixture.pando(&["template", "rm", "sees"]).status, 0);
    let service = fixture.serve(&["--show", &directory]);
    let cell = service.json("POST", "/v1/cells", json!({ "template": "session" }));
    let place = format!("/v1/cells/{}", cell["id"]);
    run(&service, &place, "answer = 42; print('assigned', flush=True)");
    wait_for_text(&service, &place, "assigned");
    wait_for_text(&service, &place, "exit_code");
    // By another process, which knows nothing of the cell.
    assert_eq!(fixture.pando(&["template", "rm", "session"]).status, 0);
    service.json("POST", &format!("{place}/freeze"), json!({ "name": "paused" }));
    drop(service);
    fs::write(shown.join("new"), "").expect("there is room");
    let service = fixture.serve(&["--show", &directory]);
    let cell = service.json("POST", "/v1/cells", json!({ "template": "paused" }));
    let place = format!("/v1/cells/{}", cell["id"]);
    run(&service, &place, "print('the answer', answer, flush=True)");
    wait_for_text(&service, &place, "the answer 42");
    drop(service);
    // With the last template that needs them they are removed.
    let images = || {
        let all = fs::read_dir(fixture.file("paused").with_file_name("views")).expect("there were views");
        all.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().extension().is_some_and(|end| end == "image"))).count()
    };
    let before = images();
    assert_eq!(fixture.pando(&["template", "rm", "paused"]).status, 0);
    // Other tests may use that of the host's software, which has a name in the cache, too.
    assert!(images() < before, "{before} images stay");
}

#[test]
fn templates_that_are_created_at_once_share_their_images() {
    needs_kvm!();
    let (fixture, shown) = template(600);
    let volume = format!("{}:/data:ro", shown.display());
    let views = fixture.file("sees").with_file_name("views");
    assert_eq!(fixture.pando(&["template", "rm", "sees"]).status, 0);
    let names = ["first", "second", "third"];
    let create = |name: &str| {
        let words = ["template", "create", "--no-train", "-v", &volume, name, "--", "busybox", "sh", "-c", SCRIPT];
        fixture.command(&words).spawn().expect("pando starts")
    };
    for child in names.map(create) {
        assert!(child.wait_with_output().expect("it ends").status.success());
    }
    assert!(fs::read_dir(&views).expect("there are views").count() > 1);
    fs::write(shown.join("new"), "").expect("there is room");
    for name in names {
        assert_output(&fixture.pando(&["clone", name, "/data/used"]), "the old used\nmany\nunused\nused\n");
    }
}

#[test]
fn a_file_is_compared_whose_name_is_no_text() {
    use std::os::unix::ffi::OsStrExt;
    needs_kvm!();
    let fixture = Fixture::new();
    let shown = fixture.path("shown");
    fs::create_dir(&shown).expect("there is room");
    let file = shown.join(std::ffi::OsStr::from_bytes(b"caf\xe9"));
    fs::write(&file, "old\n").expect("there is room");
    let volume = format!("{}:/data:ro", shown.display());
    let script = r#"for file in /data/caf*; do read line <"$file"; done; eval "$(pando-ready -s)"; echo $line"#;
    let made = fixture.pando(&["template", "create", "--no-train", "-v", &volume, "sees", "--", "busybox", "sh", "-c", script]);
    assert_eq!((made.status, &made.errors[..]), (0, ""));
    assert_output(&fixture.pando(&["clone", "sees"]), "old\n");
    fs::write(&file, "a newer text\n").expect("there is room");
    let refused = fixture.pando(&["clone", "sees"]);
    assert!(refused.status == 125 && refused.errors.contains("shown/caf"), "{}", refused.errors);
}

#[test]
fn more_sessions_than_stay_loaded_can_be_paused_and_resumed() {
    needs_kvm!();
    const SESSIONS: usize = 10;
    let fixture = Fixture::new();
    fixture.plant("asks", "pando-ready; read name; echo asked; read greeting; echo \"$greeting, $name\"");
    let service = fixture.serve(&[]);
    let start = |template: &str, input: &str| {
        let place = format!("/v1/cells/{}", service.json("POST", "/v1/cells", json!({ "template": template }))["id"]);
        service.bytes("POST", &format!("{place}/input?end=false"), input.as_bytes());
        place
    };
    let pause = |place: &str, name: &str| {
        wait_for_text(&service, place, "asked");
        service.json("POST", &format!("{place}/freeze"), json!({ "name": name, "replace": true }));
    };
    for number in 0..SESSIONS {
        let place = start("asks", &format!("session {number}\n"));
        pause(&place, &format!("paused-{number}"));
    }
    // The last ones are loaded, the first ones are not. Each can be resumed more than once.
    for number in (0..SESSIONS).chain(0..SESSIONS) {
        let place = start(&format!("paused-{number}"), "Hello\n");
        wait_for_text(&service, &place, &format!("Hello, session {number}"));
    }
    // A name that is used again means the later session.
    pause(&start("asks", "another\n"), "paused-9");
    wait_for_text(&service, &start("paused-9", "Hello\n"), "Hello, another");
    service.ask("DELETE", "/v1/templates/paused-9", "");
    let (status, _) = service.ask("POST", "/v1/cells", r#"{"template":"paused-9"}"#);
    assert_eq!(status, 404);
}
