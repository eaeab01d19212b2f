// SPDX-License-Identifier: MIT OR Apache-2.0
//! Programs that say that they are ready, and their clones: each is exactly its template, and nobody but itself.

use crate::{APPLETS, ARENA, QUOTA, common};
use pando_kernel::cell::State;
use pando_kernel::{Config, Kernel};
use pando_launch::{Calls, Program, Root};
use pando_machine::kvm::Omit;
use pando_testing::lab::{Lab, kvm_is_there};
use std::collections::HashSet;

/// A template that a script becomes, and what clones of it are given.
pub struct Grove {
    pub lab: Lab,
    pub template: Root,
    pub program: Program,
}

impl Grove {
    pub fn plant(script: &str, calls: Calls) -> Grove {
        let mut lab = Lab::kvm(ARENA, 1, Config::default(), Omit::NOTHING);
        let root = common::root(&mut lab, &APPLETS, &[]);
        let program = Program { is_template: true, ..common::script(script, QUOTA, calls) };
        let template = Grove::freeze(&mut lab, &root, &program);
        Grove { lab, template, program: Program { is_template: false, ..program } }
    }

    /// Runs a program until it is ready.
    fn freeze(lab: &mut Lab, root: &Root, program: &Program) -> Root {
        let cell = program.prepare(&lab.kernel, root).expect("room for a cell");
        lab.kernel.console(cell).expect("it has a console").close_input();
        lab.kernel.start(cell).expect("it was not started before");
        while !matches!(lab.kernel.inspect(cell).expect("it lives").0, State::Frozen) {
            assert!(lab.turn(0), "it waits for ever");
        }
        root.frozen(cell)
    }

    /// What a clone says that is given these words.
    pub fn said(&mut self, words: &[&str]) -> String {
        let program = Program { arguments: words.iter().map(|word| word.as_bytes().to_vec()).collect(), ..self.program.clone() };
        let cell = program.prepare(&self.lab.kernel, &self.template).expect("room for a cell");
        let port = self.lab.kernel.console(cell).expect("it has a console");
        port.close_input();
        self.lab.kernel.start(cell).expect("it was not started before");
        common::said(&mut self.lab, cell, &port)
    }
}

fn both() -> [Calls; 2] {
    [Calls::default(), Calls { trap: true, ..Calls::default() }]
}

#[test]
fn a_clone_goes_on_where_its_template_stood_with_words_of_its_own() {
    if !kvm_is_there() {
        return;
    }
    const SCRIPT: &str = "
cd /tmp; echo kept > file; x=5; exec 3< file; trap 'echo heard' USR1
sleep 0.01 & late=$!
echo before; echo ready > /dev/pando
read line <&3
echo $x $line $(tr '\\0' ' ' < /proc/pando/arguments)$(cat /proc/pando/clone)
kill -USR1 $$; echo more >> file; cat file; wait $late; echo $?
";
    for calls in both() {
        let mut grove = Grove::plant(SCRIPT, calls);
        for (index, words) in [&["a", "b c"][..], &[], &["d"]].into_iter().enumerate() {
            let said = words.iter().map(|word| format!("{word} ")).collect::<String>();
            assert_eq!(grove.said(words), format!("5 kept {said}{index}\nheard\nkept\nmore\n0\n"));
        }
    }
}

#[test]
fn no_two_clones_share_random_numbers() {
    const CLONES: usize = 50;
    if !kvm_is_there() {
        return;
    }
    // Some was taken before, so that what is left over would be the same.
    const SCRIPT: &str = "
head -c 5 /dev/urandom > /dev/null
echo ready > /dev/pando
head -c 16 /dev/urandom | sha256sum
cat /proc/sys/kernel/random/uuid /proc/sys/kernel/random/boot_id
";
    let mut grove = Grove::plant(SCRIPT, Calls::default());
    let said: HashSet<String> = (0..CLONES).flat_map(|_| grove.said(&[]).lines().map(String::from).collect::<Vec<_>>()).collect();
    assert_eq!(said.len(), 3 * CLONES);
}

#[test]
fn a_clone_can_become_a_template_too() {
    if !kvm_is_there() {
        return;
    }
    const SCRIPT: &str = "
for level in 1 2 3; do echo ready > /dev/pando; path=$path.$(cat /proc/pando/clone); done
echo $path
";
    let mut grove = Grove::plant(SCRIPT, Calls::default());
    for _ in 0..2 {
        let again = Program { is_template: true, ..grove.program.clone() };
        // Siblings before it, so that its number tells.
        let spare = again.prepare(&grove.lab.kernel, &grove.template).expect("room for a cell");
        grove.lab.kernel.end(spare, pando_kernel::End::Killed).expect("it has not started");
        grove.template = Grove::freeze(&mut grove.lab, &grove.template, &again);
    }
    assert_eq!(grove.said(&[]), ".1.1.0\n");
    // Nobody asks for templates any more: saying that it is ready changes nothing.
    assert_eq!(grove.said(&[]), ".1.1.1\n");
}

#[test]
fn clones_leave_nothing() {
    const CLONES: usize = 20;
    if !kvm_is_there() {
        return;
    }
    let mut grove = Grove::plant("echo ready > /dev/pando; echo $(seq 1 3)", Calls::default());
    let free = |kernel: &Kernel| {
        kernel.settle();
        kernel.free()
    };
    grove.said(&[]);
    let before = free(&grove.lab.kernel);
    for _ in 0..CLONES {
        assert_eq!(grove.said(&[]), "1 2 3\n");
    }
    assert_eq!(free(&grove.lab.kernel), before);
}
