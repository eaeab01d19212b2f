// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--read-only`: programs change volumes and temporary directories only, and devices and terminals work.

use crate::fixture::{Fixture, assert_output};
use pando_testing::needs_kvm;

/// Tries changes of the root and of the places that stay writable.
const SCRIPT: &str = r#"
for change in 'echo x > /new' 'mkdir /etc/new' 'rm /etc/passwd' 'chmod 700 /usr' 'touch /etc/passwd' 'echo x > /etc/passwd' 'echo x > /root/new' 'ln -s x /home/new'; do
    error=$(sh -c "$change" 2>&1) && echo "$change worked"
    case $error in *"Read-only file system"*) ;; *) echo "$change: $error";; esac
done
for place in /scratch /dev/shm /data /seen; do echo x > $place/new && mkdir $place/dir && mv $place/new $place/dir && rm -r $place/dir || echo $place; done
ln /scratch /dev/shm/hard 2>/dev/null && echo linked
echo kept > /data/kept; echo lost > /seen/lost; echo lost > /dev/null; grep -q localhost /etc/hosts && echo hosts
grep -E ' (/|/scratch|/dev) ' /proc/mounts | cut -d ' ' -f 1-3 | sort; grep ' / ' /proc/mounts | grep -c ' ro,'
stat -c %a /scratch; python3 -c 'import os, pty; print(os.ttyname(pty.openpty()[1]))'
"#;

#[test]
fn nothing_but_volumes_and_temporary_directories_changes() {
    needs_kvm!();
    let fixture = Fixture::new();
    for name in ["live", "seen"] {
        std::fs::create_dir(fixture.path(name)).expect("the directory is ours");
    }
    let volumes = ["-v", "./live:/data:live", "-v", "./seen:/seen:snapshot", "--tmpfs", "/scratch:mode=1770"];
    let words = [&["run", "--read-only", "-w", "/"], &volumes[..], &["--", "sh", "-c", SCRIPT]].concat();
    let expected = "hosts\noverlay / overlay\ntmpfs /dev tmpfs\ntmpfs /scratch tmpfs\n1\n1770\n/dev/pts/0\n";
    assert_output(&fixture.pando(&words), expected);
    assert_eq!(std::fs::read_to_string(fixture.path("live/kept")).ok().as_deref(), Some("kept\n"));
    assert!(!fixture.path("seen/lost").exists());
    std::fs::write(fixture.path("file"), "").expect("the directory is ours");
    let refused = fixture.pando(&["run", "--read-only", "-v", "./file:/file", "true"]);
    assert!(refused.status == 125 && refused.errors.contains("a single file cannot be changed"), "{}", refused.errors);
}

#[test]
fn clones_and_programs_of_a_service_are_read_only_too() {
    needs_kvm!();
    let fixture = Fixture::new();
    let script = r#"eval "$(pando-ready -s)"; echo x > /new || grep -q localhost /etc/hosts && echo hosts"#;
    let created = fixture.pando(&["template", "create", "--no-train", "--read-only", "made", "--", "busybox", "sh", "-c", script]);
    assert_eq!((created.status, &created.errors[..]), (0, ""));
    let cloned = fixture.pando(&["clone", "made"]);
    assert!(cloned.output == "hosts\n" && cloned.errors.contains("Read-only file system"), "{} {}", cloned.output, cloned.errors);
    let service = fixture.serve(&[]);
    let started = fixture.pando(&[
        "run",
        "-d",
        "--read-only",
        "--name",
        "box",
        "busybox",
        "sh",
        "-c",
        "echo x > /new; echo kept > /dev/shm/y; cat /dev/shm/y",
    ]);
    assert_eq!((started.status, &started.errors[..]), (0, ""));
    service.wait_for_output("/v1/cells/box", "kept");
    let logs = fixture.pando(&["logs", "box"]);
    assert!(logs.output == "kept\n" && logs.errors.contains("Read-only file system"), "{} {}", logs.output, logs.errors);
}
