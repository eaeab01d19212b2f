// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is asked for, what waits, and in which order it comes.

use super::action::{Action, Disposition};
use super::info::{Info, code};
use super::stack::AlternateStack;
use super::{Set, Signal, Signals};
use crate::errno::Errno;
use std::vec::Vec;

fn sent(number: u8) -> Info {
    Info::sent(Signal(number), code::USER, 1, 0)
}

fn handled() -> Action {
    Action { handler: 0x1000, ..Action::default() }
}

/// Takes what would be delivered, in order.
fn delivered(signals: &mut Signals) -> Vec<u8> {
    std::iter::from_fn(|| signals.take(signals.deliverable())).map(|info| info.signal().0).collect()
}

#[test]
fn a_blocked_signal_waits_until_it_is_unblocked_and_comes_once() {
    let mut signals = Signals::default();
    signals.set_mask(Set(u64::MAX));
    assert_eq!(signals.mask(), Set(!(1 << 8 | 1 << 18)), "SIGKILL and SIGSTOP cannot be blocked");
    for number in [10, 10, 15] {
        signals.send(sent(number)).expect("room");
    }
    assert_eq!((signals.deliverable(), signals.want_handling()), (Set(0), false));
    assert_eq!(signals.pending(), Set(1 << 9 | 1 << 14));
    signals.set_mask(Set(0));
    assert!(signals.want_handling());
    assert_eq!(delivered(&mut signals), [10, 15]);
    assert_eq!(signals.pending(), Set(0));
}

#[test]
fn real_time_signals_are_queued_with_what_they_carry_and_lower_ones_come_first() {
    let mut signals = Signals::default();
    signals.set_mask(Set(u64::MAX));
    for (number, process) in [(40, 1), (34, 2), (40, 3), (1, 4), (11, 5)] {
        signals.send(Info::sent(Signal(number), code::USER, process, 0)).expect("room");
    }
    signals.set_mask(Set(0));
    let order: Vec<_> = std::iter::from_fn(|| signals.take(signals.deliverable())).map(|info| (info.signal().0, info.first())).collect();
    assert_eq!(order, [(11, 5), (1, 4), (34, 2), (40, 1), (40, 3)], "faults first");
    signals.set_mask(Set(u64::MAX));
    let room = (0..5000).take_while(|_| signals.send(sent(50)).is_ok()).count();
    assert_eq!((room, signals.send(sent(51))), (super::PENDING_MAX, Err(Errno::EAGAIN)));
}

#[test]
fn what_is_ignored_is_forgotten_unless_it_is_blocked() {
    let mut signals = Signals::default();
    signals.send(sent(17)).expect("room");
    assert_eq!(signals.pending(), Set(0), "SIGCHLD is ignored by default");
    signals.set_mask(Set(1 << 16));
    signals.send(sent(17)).expect("room");
    assert_eq!(signals.pending(), Set(1 << 16));
    signals.set_action(Signal(17), handled());
    assert_eq!(signals.pending(), Set(1 << 16));
    signals.set_action(Signal(17), Action { handler: 1, ..Action::default() });
    assert_eq!(signals.pending(), Set(0));
    assert_eq!(Action::default().disposition(Signal::TSTP), Disposition::Ignore, "nobody could continue the process");
    assert_eq!(Action::default().disposition(Signal(30)), Disposition::End);
}

#[test]
fn a_forced_signal_ends_who_blocks_or_ignores_it() {
    let mut signals = Signals::default();
    signals.set_action(Signal::SEGV, handled());
    signals.force(Info::fault(Signal::SEGV, 1, 0x10));
    assert_eq!(signals.action(Signal::SEGV), handled());
    assert_eq!(delivered(&mut signals), [11]);
    signals.set_mask(Set(u64::MAX));
    signals.force(Info::fault(Signal::SEGV, 1, 0x10));
    assert_eq!(signals.action(Signal::SEGV).disposition(Signal::SEGV), Disposition::End);
    assert_eq!(delivered(&mut signals), [11]);
}

#[test]
fn stopping_and_continuing_take_each_other_back() {
    let mut signals = Signals::default();
    signals.set_mask(Set(u64::MAX));
    signals.send(sent(20)).expect("room");
    signals.send(sent(18)).expect("room");
    assert_eq!(signals.pending(), Set(1 << 17));
    signals.send(sent(21)).expect("room");
    assert_eq!(signals.pending(), Set(1 << 20));
}

#[test]
fn a_mask_for_a_call_ends_with_it() {
    let mut signals = Signals::default();
    signals.set_mask(Set(2));
    signals.set_mask_for_call(Set(4));
    assert_eq!(signals.mask(), Set(4));
    signals.restore_mask();
    signals.restore_mask();
    assert_eq!(signals.mask(), Set(2));
}

#[test]
fn an_alternate_stack_is_checked_and_not_replaced_while_it_is_used() {
    let none = AlternateStack::default();
    assert_eq!((none.told(5), none.top(5), none.in_use(0)), ([0, 2, 0], None, false));
    assert_eq!(none.replaced([0x1000, 0, 2047], 0), Err(Errno::ENOMEM));
    assert_eq!(none.replaced([0x1000, 8, 4096], 0), Err(Errno::EINVAL));
    let stack = none.replaced([0x1000, 0, 4096], 0).expect("it is one");
    assert_eq!((stack.top(0x9000), stack.top(0x1800), stack.top(0x2000)), (Some(0x2000), None, None));
    assert_eq!((stack.told(0x1800), stack.told(0x1000)), ([0x1000, 1, 4096], [0x1000, 0, 4096]));
    assert_eq!(stack.replaced([0, 2, 0], 0x1800), Err(Errno::EPERM));
    let disarmed = none.replaced([0x1000, 1 << 31, 4096], 0).expect("it is one").entered();
    assert_eq!((disarmed.told(0x1800), disarmed.top(0x1800)), ([0, 2, 0], None));
    // At the top of the address space nothing runs over.
    assert_eq!(none.replaced([u64::MAX, 0, u64::MAX], 0).expect("it is one").top(5), Some(u64::MAX - 1));
}
