// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that report that they are ready, and their clones: each clone is exactly its template, and distinct from its siblings.

use crate::{APPLETS, ARENA, QUOTA, common};
use pando_kernel::RunState;
use pando_kernel::{CellId, Config, Kernel};
use pando_launch::{Calls, Program, Root};
use pando_machine::kvm::Omit;
use pando_testing::lab::Lab;
use pando_testing::needs_kvm;
use std::collections::HashSet;
use std::time::Duration;

/// A template made from a script, and the request for its clones.
pub struct CloneFixture {
    pub lab: Lab,
    pub template: Root,
    pub program: Program,
}

impl CloneFixture {
    pub fn plant(script: &str, calls: Calls) -> CloneFixture {
        let mut lab = Lab::kvm(ARENA, 1, Config::default(), Omit::NOTHING);
        let root = common::root(&mut lab, &APPLETS, &[]);
        let program = Program { is_template: true, ..common::script(script, QUOTA, calls) };
        let template = CloneFixture::freeze(&mut lab, &root, &program);
        CloneFixture { lab, template, program: Program { is_template: false, ..program } }
    }

    /// Runs a program until it is ready.
    fn freeze(lab: &mut Lab, root: &Root, program: &Program) -> Root {
        let cell = program.prepare(&lab.kernel, root).expect("room for a cell");
        lab.kernel.console(cell).expect("it has a console").close_input();
        lab.kernel.start(cell).expect("it was not started before");
        while !matches!(lab.kernel.inspect(cell).expect("it lives").0, RunState::Frozen) {
            assert!(lab.turn(0), "it waits for ever");
        }
        root.frozen(cell)
    }

    /// Returns the output of a clone with these arguments.
    pub fn output_of(&mut self, words: &[&str]) -> String {
        let program = Program { arguments: words.iter().map(|word| word.as_bytes().to_vec()).collect(), ..self.program.clone() };
        let cell = program.prepare(&self.lab.kernel, &self.template).expect("room for a cell");
        let port = self.lab.kernel.console(cell).expect("it has a console");
        port.close_input();
        self.lab.kernel.start(cell).expect("it was not started before");
        common::output_until_end(&mut self.lab, cell, &port)
    }
}

fn both() -> [Calls; 2] {
    [Calls::default(), Calls { trap: true, ..Calls::default() }]
}

#[test]
fn a_clone_goes_on_where_its_template_stood_with_words_of_its_own() {
    needs_kvm!();
    const SCRIPT: &str = "
cd /tmp; echo kept > file; x=5; exec 3< file; trap 'echo heard' USR1
sleep 0.01 & late=$!
echo before; echo ready > /dev/pando
read line <&3
echo $x $line $(tr '\\0' ' ' < /proc/pando/arguments)$(cat /proc/pando/clone)
kill -USR1 $$; echo more >> file; cat file; wait $late; echo $?
";
    for calls in both() {
        let mut fixture = CloneFixture::plant(SCRIPT, calls);
        for (index, words) in [&["a", "b c"][..], &[], &["d"]].into_iter().enumerate() {
            let said = words.iter().map(|word| format!("{word} ")).collect::<String>();
            assert_eq!(fixture.output_of(words), format!("5 kept {said}{index}\nheard\nkept\nmore\n0\n"));
        }
    }
}

#[test]
fn no_two_clones_share_random_numbers() {
    const CLONES: usize = 50;
    needs_kvm!();
    // Draws before the freeze, so that left-over buffered bytes would be the same.
    const SCRIPT: &str = "
head -c 5 /dev/urandom > /dev/null
echo ready > /dev/pando
head -c 16 /dev/urandom | sha256sum
cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id
";
    let mut fixture = CloneFixture::plant(SCRIPT, Calls::default());
    let said: HashSet<String> = (0..CLONES).flat_map(|_| fixture.output_of(&[]).lines().map(String::from).collect::<Vec<_>>()).collect();
    assert_eq!(said.len(), 3 * CLONES);
}

#[test]
fn a_clone_can_become_a_template_too() {
    needs_kvm!();
    const SCRIPT: &str = "
for level in 1 2 3; do echo ready > /dev/pando; path=$path.$(cat /proc/pando/clone); done
echo $path
";
    let mut fixture = CloneFixture::plant(SCRIPT, Calls::default());
    for _ in 0..2 {
        let again = Program { is_template: true, ..fixture.program.clone() };
        // A sibling started before it, so that its cell number differs.
        let spare = again.prepare(&fixture.lab.kernel, &fixture.template).expect("room for a cell");
        fixture.lab.kernel.end(spare, pando_kernel::End::Killed).expect("it has not started");
        fixture.template = CloneFixture::freeze(&mut fixture.lab, &fixture.template, &again);
    }
    assert_eq!(fixture.output_of(&[]), ".1.1.0\n");
    // Templates are no longer requested: reporting readiness changes nothing.
    assert_eq!(fixture.output_of(&[]), ".1.1.1\n");
}

#[test]
fn clones_leave_nothing() {
    const CLONES: usize = 20;
    needs_kvm!();
    let mut fixture = CloneFixture::plant("echo ready > /dev/pando; echo $(seq 1 3)", Calls::default());
    let free = |kernel: &Kernel| {
        kernel.free_unused_frames();
        kernel.free()
    };
    fixture.output_of(&[]);
    let before = free(&fixture.lab.kernel);
    for _ in 0..CLONES {
        assert_eq!(fixture.output_of(&[]), "1 2 3\n");
    }
    assert_eq!(free(&fixture.lab.kernel), before);
}

/// Starts a program whose input stays open, and drives it until it waits for external input, or for this many turns.
fn begin(lab: &mut Lab, root: &Root, program: &Program, turns: u32) -> CellId {
    let cell = program.prepare(&lab.kernel, root).expect("room for a cell");
    lab.kernel.start(cell).expect("it was not started before");
    (0..turns).all(|_| lab.turn(0));
    cell
}

/// Freezes a program from outside, and returns the output of some clones with this input.
fn said_by_clones(lab: &mut Lab, root: &Root, cell: CellId, program: &Program, input: &[u8]) -> Vec<String> {
    while !lab.kernel.wait_frozen_for(cell, Duration::ZERO).expect("it does not end") {
        assert!(lab.turn(0), "it waits for ever");
    }
    let template = root.frozen(cell);
    let mut said = Vec::new();
    for _ in 0..3 {
        let cell = program.prepare(&lab.kernel, &template).expect("room for a cell");
        let port = lab.kernel.console(cell).expect("it has a console");
        assert!(port.send(input));
        port.close_input();
        lab.kernel.start(cell).expect("it was not started before");
        said.push(common::output_until_end(lab, cell, &port));
    }
    said
}

#[test]
fn the_operator_freezes_a_program_that_waits_or_computes() {
    needs_kvm!();
    const ENDLESS: u32 = u32::MAX;
    // Alone in a call that waits for input; beside a sleeping child; computing beside such a child.
    let cases = [
        ("read line; echo $line; head -c 16 /dev/urandom | sha256sum", ENDLESS, "word\n"),
        ("sleep 1000 & read line; kill $!; echo $line; head -c 16 /dev/urandom | sha256sum", 100, "word\n"),
        (
            "sleep 1000 & i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; kill $!; read line; echo $i; head -c 16 /dev/urandom | sha256sum",
            2,
            "200000\n",
        ),
    ];
    for calls in both() {
        for (script, turns, common) in cases {
            let mut lab = Lab::kvm(ARENA, 1, Config::default(), Omit::NOTHING);
            let root = common::root(&mut lab, &APPLETS, &[]);
            let program = common::script(script, QUOTA, calls);
            let cell = begin(&mut lab, &root, &program, turns);
            assert_eq!(lab.kernel.request_freeze(cell), Ok(()), "{script}: it has ended");
            let said = said_by_clones(&mut lab, &root, cell, &program, b"word\n");
            // Shells do not notice that they were cloned.
            assert_eq!(lab.kernel.is_forced(cell), Ok(true));
            let sums: HashSet<&str> = said.iter().map(|said| said.strip_prefix(common).expect("it goes on where it stood")).collect();
            assert_eq!(sums.len(), said.len(), "{script}: {said:?}");
        }
    }
}

#[test]
fn clones_of_a_program_that_was_stopped_as_it_stood_hear_that_they_are_clones() {
    needs_kvm!();
    const SCRIPT: &str = "i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; read line; echo $i $line; head -c 16 /dev/urandom | sha256sum";
    for calls in both() {
        let mut seen = HashSet::new();
        for turns in 1..6 {
            let mut lab = Lab::kvm(ARENA, 1, Config::default(), Omit::NOTHING);
            let root = common::root(&mut lab, &APPLETS, &[]);
            let program = common::script(SCRIPT, QUOTA, calls);
            let cell = begin(&mut lab, &root, &program, turns);
            lab.kernel.force_freeze(cell).expect("it was started");
            for said in said_by_clones(&mut lab, &root, cell, &program, b"word\n") {
                assert!(said.starts_with("40000 word\n") && seen.insert(said.clone()), "{said}");
            }
            assert_eq!(lab.kernel.is_forced(cell), Ok(true));
        }
    }
}
