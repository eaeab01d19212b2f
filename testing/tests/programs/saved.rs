// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates that are saved to a file in one kernel and loaded in another.

use crate::clones::CloneFixture;
use crate::{APPLETS, ARENA, QUOTA, common};
use pando_kernel::RunState;
use pando_kernel::{Config, DiskId};
use pando_launch::{Calls, Root, Template, Volume};
use pando_machine::PageCount;
use pando_machine::kvm::Omit;
use pando_store::{TemplateFile, save};
use pando_testing::lab::Lab;
use pando_testing::needs_kvm;

fn lab() -> Lab {
    Lab::kvm(ARENA, 1, Config::default(), Omit::NOTHING)
}

/// Loads a template with these volumes.
fn load(lab: &Lab, saved: &TemplateFile, volumes: Vec<Volume>) -> Root {
    let add = |volume: &Volume| lab.kernel.add_disk(volume.disk.clone()).expect("room for a disk");
    let disks: Vec<DiskId> = volumes.iter().map(add).collect();
    let (cell, _) = saved.load(&lab.kernel, &disks, QUOTA).expect("the same machine");
    Root::loaded(cell, volumes, disks)
}

#[test]
fn a_shell_that_was_saved_goes_on_in_another_kernel() {
    needs_kvm!();
    // Files of its own, one of them open; a signal handler; a waiting child; patched code.
    const SCRIPT: &str = "
cd /tmp; seq 1 5000 > file; exec 3< file; trap 'echo heard' USR1
{ sleep 0.05; echo late > late; } & child=$!
for round in 1 2 3; do seq 1 200 | sort -rn | head -n 1 > /dev/null; done
echo ready > /dev/pando
read line <&3; read next <&3
echo $line $next $(tr '\\0' ' ' < /proc/pando/arguments)$(cat /proc/pando/clone)
kill -USR1 $$; wait $child; cat late; seq 1 3000 | sha256sum; sha256sum < file; sha256sum < /bin/busybox
";
    for calls in [Calls::default(), Calls { trap: true, ..Calls::default() }] {
        let directory = tempfile::tempdir().expect("room for a directory");
        let path = directory.path().join("shell");
        let mut fixture = CloneFixture::plant(SCRIPT, calls);
        let summary = save(&fixture.lab.kernel, fixture.template.cell(), &path, |_| Ok(Vec::new())).expect("a template can be saved");
        assert!(summary.stored < summary.pages && summary.bytes < 8 << 20, "{summary:?}");
        let here = ["a", "b"].map(|word| fixture.output_of(&[word]));
        assert!(here[0].starts_with("1 2 a 0\nheard\nlate\n"), "{}", here[0]);
        let program = fixture.program;
        drop(fixture.lab);

        let lab = lab();
        let template = load(&lab, &TemplateFile::open(&path).expect("it was just written"), common::volumes(&APPLETS, &[]));
        let mut fixture = CloneFixture { lab, template, program };
        // First read from the file, then from memory.
        assert_eq!(["a", "b"].map(|word| fixture.output_of(&[word])), here);
    }
}

/// The libOS alone, before it has volumes or a program.
#[test]
fn a_libos_that_was_saved_runs_programs() {
    needs_kvm!();
    let directory = tempfile::tempdir().expect("room for a directory");
    let path = directory.path().join("libos");
    let mut old = lab();
    let template = Template::boot(&old.kernel).expect("the libOS boots");
    while !matches!(old.kernel.inspect(template.cell()), Ok((RunState::Frozen, ..))) {
        assert!(old.turn(0), "the libOS waits for ever");
    }
    save(&old.kernel, template.cell(), &path, |_| Ok(Vec::new())).expect("a template can be saved");
    drop(old);

    let mut lab = lab();
    let loaded = load(&lab, &TemplateFile::open(&path).expect("it was just written"), Vec::new());
    let root = Root::new(&lab.kernel, &Template::loaded(loaded.cell()), common::volumes(&APPLETS, &[])).expect("room for a root");
    let cell = common::script("echo hello", PageCount(1 << 14), Calls::default()).prepare(&lab.kernel, &root).expect("room for a cell");
    let port = lab.kernel.console(cell).expect("it has a console");
    port.close_input();
    lab.kernel.start(cell).expect("it was not started before");
    assert_eq!(common::output_until_end(&mut lab, cell, &port), "hello\n");
}
