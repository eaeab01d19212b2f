// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of actions, pending signals and their order.

use super::action::{Action, Disposition};
use super::info::SigInfo;
use super::stack::AlternateStack;
use super::{Pending, ProcessSignals, Signal, SignalSet, ThreadSignals};
use crate::errno::Errno;
use crate::uapi::SI_USER;
use std::vec::Vec;

fn sent(number: u8) -> SigInfo {
    SigInfo::sent(Signal(number), SI_USER, 1, 0)
}

fn handled() -> Action {
    Action { handler: 0x1000, ..Action::default() }
}

/// Takes the pending signals, in order.
fn taken(pending: &mut Pending) -> Vec<(u8, u32)> {
    std::iter::from_fn(|| pending.take(SignalSet(u64::MAX))).map(|info| (info.signal().0, info.first())).collect()
}

#[test]
fn of_most_signals_one_waits_of_real_time_signals_all_and_lower_ones_come_first() {
    let mut pending = Pending::default();
    for (number, process) in [(40, 1), (34, 2), (40, 3), (1, 4), (11, 5), (1, 6)] {
        pending.add(SigInfo::sent(Signal(number), SI_USER, process, 0)).expect("room");
    }
    assert_eq!(taken(&mut pending), [(11, 5), (1, 4), (34, 2), (40, 1), (40, 3)], "faults first");
    assert!(pending.set().is_empty());
    let room = (0..5000).take_while(|_| pending.add(sent(50)).is_ok()).count();
    assert_eq!((room, pending.add(sent(51))), (super::PENDING_MAX, Err(Errno::EAGAIN)));
    assert_eq!((pending.add(sent(14)), pending.set().contains(Signal::SIGALRM)), (Ok(()), true), "one of a kind finds room");
}

#[test]
fn pending_signals_that_become_ignored_are_dropped() {
    let mut shared = ProcessSignals::default();
    shared.pending.add(sent(17)).expect("room");
    shared.set_action(Signal(17), handled());
    assert_eq!(shared.pending.set(), SignalSet(1 << 16));
    shared.set_action(Signal(17), Action::ignoring());
    assert!(shared.pending.set().is_empty() && shared.forgets_children());
    assert_eq!(Action::default().disposition(Signal::SIGTSTP), Disposition::Stop);
    assert_eq!(Action::default().disposition(Signal(30)), Disposition::End);
}

#[test]
fn execve_keeps_ignored_signals_and_resets_handlers() {
    let mut shared = ProcessSignals::default();
    shared.set_action(Signal::SIGINT, handled());
    shared.set_action(Signal::SIGHUP, Action::ignoring());
    shared.pending.add(sent(15)).expect("room");
    assert!(shared.inherited().pending.set().is_empty(), "a child has its parent's handlers, not its signals");
    shared.executed();
    assert_eq!((shared.action(Signal::SIGINT), shared.action(Signal::SIGHUP)), (Action::default(), Action::ignoring()));
    assert_eq!(shared.pending.set(), SignalSet::only(Signal::SIGTERM), "what waits waits on");
}

#[test]
fn a_mask_for_a_call_ends_with_it() {
    let mut signals = ThreadSignals::default();
    signals.set_mask(SignalSet(2));
    signals.set_mask_for_call(SignalSet(4));
    signals.set_mask_for_call(SignalSet(4));
    assert_eq!((signals.mask(), signals.inherited().mask()), (SignalSet(4), SignalSet(2)), "made again, it remembers what was before");
    signals.restore_mask();
    signals.restore_mask();
    assert_eq!(signals.mask(), SignalSet(2));
}

#[test]
fn an_alternate_stack_is_checked_and_not_replaced_while_it_is_used() {
    let none = AlternateStack::default();
    assert_eq!((none.sigaltstack_words(5), none.top(5), none.in_use(0)), ([0, 2, 0], None, false));
    assert_eq!(none.replaced([0x1000, 0, 2047], 0), Err(Errno::ENOMEM));
    assert_eq!(none.replaced([0x1000, 8, 4096], 0), Err(Errno::EINVAL));
    let stack = none.replaced([0x1000, 0, 4096], 0).expect("it is one");
    assert_eq!((stack.top(0x9000), stack.top(0x1800), stack.top(0x2000)), (Some(0x2000), None, None));
    assert_eq!((stack.sigaltstack_words(0x1800), stack.sigaltstack_words(0x1000)), ([0x1000, 1, 4096], [0x1000, 0, 4096]));
    assert_eq!(stack.replaced([0, 2, 0], 0x1800), Err(Errno::EPERM));
    let disarmed = none.replaced([0x1000, 1 << 31, 4096], 0).expect("it is one").entered();
    assert_eq!((disarmed.sigaltstack_words(0x1800), disarmed.top(0x1800)), ([0, 2, 0], None));
    // At the top of the address space nothing overflows.
    assert_eq!(none.replaced([u64::MAX, 0, u64::MAX], 0).expect("it is one").top(5), Some(u64::MAX - 1));
}
