// SPDX-License-Identifier: MIT OR Apache-2.0
//! A child that reads and writes its pages while its parent takes some of them at random. The result is the one without a parent.

use crate::actor::call;
use crate::taking::BUFFER;
use crate::watching::Family;
use pando_abi::holding::ChildState;
use pando_abi::memory::TakenPages;
use pando_abi::watch::{HaltReason, mask, resume};
use pando_abi::{Hypercall, PAGE_SIZE};
use pando_testing::asm::Asm;
use pando_testing::asm::Condition::{Below, NotZero};
use pando_testing::asm::Register::{R10, R12, R13, R14, R15, Rax, Rbx, Rdi, Rdx, Rsi};
use pando_testing::lab::{DATA, Lab, seeds};
use std::collections::HashMap;

/// The child's pages, a power of two.
const AREA: u64 = 32;
/// From one word to the next: all pages are visited, not in order.
const STRIDE: u64 = 5 * PAGE_SIZE + 104;
/// Words that are read and written.
const WORDS: u64 = 600;
/// Words between two halts of the child, a power of two.
const HALT_INTERVAL: u64 = 32;

/// Adds up words, and changes each. Halts at times. Exits with the lowest byte of the sum.
fn add_up(asm: &mut Asm) {
    asm.mov_imm(Rbx, DATA).mov_imm(R12, 0).mov_imm(R13, AREA * PAGE_SIZE - 8).mov_imm(R14, 0).mov_imm(R15, 0);
    let again = asm.here();
    asm.mov(Rdx, Rbx).add(Rdx, R12).load(Rax, Rdx, 0).add(R14, Rax).add(Rax, R15).inc(Rax).store(Rdx, 0, Rax);
    let go_on = asm.label();
    asm.mov_imm(Rdx, HALT_INTERVAL - 1).and(Rdx, R15).cmp_imm(Rdx, 0).jump_if(NotZero, go_on).int3().bind(go_on);
    asm.add_imm(R12, STRIDE as i32).and(R12, R13).inc(R15).cmp_imm(R15, WORDS as i32).jump_if(Below, again);
    asm.mov_imm(Rdi, 0xff).and(Rdi, R14).mov_imm(Rax, 0).mov_imm(Rsi, 0).mov_imm(Rdx, 0).mov_imm(R10, 0).hypercall();
}

/// The same, computed here.
fn expected() -> u8 {
    let mut words: HashMap<u64, u64> = HashMap::new();
    let (mut place, mut sum) = (0, 0_u64);
    for count in 0..WORDS {
        let word = words.entry(place).or_default();
        sum = sum.wrapping_add(*word);
        *word = word.wrapping_add(count + 1);
        place = (place + STRIDE) & (AREA * PAGE_SIZE - 8);
    }
    sum as u8
}

/// The pages that were taken, by number.
#[derive(Default)]
struct Swap {
    contents: HashMap<u32, Vec<u8>>,
    next: u32,
}

impl Swap {
    /// Takes some pages, wherever they are.
    fn take(&mut self, family: &mut Family, random: &mut fastrand::Rng) {
        let (address, pages) = (DATA + random.u64(0..AREA) * PAGE_SIZE, random.u64(1..30));
        let take = Hypercall::Take { space: family.name.current_space(), address, pages, buffer: BUFFER, swap: self.next.into() };
        let taken = TakenPages::from_bits(call(&mut family.lab, family.parent, take).expect("the child is halted"));
        for page in 0..taken.count {
            let mut content = vec![0; PAGE_SIZE as usize];
            family.lab.kernel.read(family.parent, BUFFER + u64::from(page) * PAGE_SIZE, &mut content).expect("it waits");
            self.contents.insert(self.next + page, content);
        }
        self.next += taken.count;
    }

    /// Gives a page that the child needs, and perhaps others with the next numbers.
    fn give(&mut self, family: &mut Family, address: u64, number: u32, random: &mut fastrand::Rng) {
        let pages = random.u32(1..8);
        for page in 0..pages {
            let content = self.contents.get(&(number + page)).cloned().unwrap_or_default();
            family.lab.kernel.write(family.parent, BUFFER + u64::from(page) * PAGE_SIZE, &content).expect("it waits");
        }
        let space = family.name.current_space();
        let give = Hypercall::Give { space, address, pages: pages.into(), buffer: BUFFER, swap: number.into() };
        let given = call(&mut family.lab, family.parent, give).expect("the child is halted");
        assert!((1..=u64::from(pages)).contains(&given), "{given}");
    }
}

#[test]
fn pages_that_come_and_go_keep_their_content() {
    let expected = ChildState::Exited(expected());
    for seed in seeds(1, 2, 60) {
        for lab in Lab::both() {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut family = Family::new(lab, mask::EXCEPTIONS, add_up);
            let mut swap = Swap::default();
            let mut state = family.run();
            while state == Some(ChildState::Halted) {
                match family.reason() {
                    Some(HaltReason::Taken { address, number, .. }) => swap.give(&mut family, address, number, &mut random),
                    Some(HaltReason::Exception { .. }) => {}
                    other => panic!("{other:?}"),
                }
                // It may take what it has just given.
                if random.bool() {
                    swap.take(&mut family, &mut random);
                }
                state = family.resume(resume::CONTINUE);
            }
            assert_eq!(state, Some(expected));
            println!("seed {seed}: {} pages were taken", swap.next);
            family.close();
        }
    }
}
