// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of timers, without time passing.

use super::{Clock, ClockReadings, ClockSource, Interval, Timer, TimerSpec, Timers};
use crate::signals::Signal;
use crate::signals::info::SigInfo;
use std::vec::Vec;

const fn at(clock: u64, cpu: u64) -> ClockReadings {
    ClockReadings { clock, cpu }
}

fn expired(timers: &mut Timers, now: ClockReadings) -> Vec<SigInfo> {
    let mut sent = Vec::new();
    timers.expire(now, &mut |info| sent.push(info));
    sent
}

#[test]
fn a_timer_runs_out_once_or_at_intervals() {
    let mut timer = Timer::new(ClockSource::Clock);
    assert_eq!((timer.take(at(u64::MAX, 0)), timer.setting(at(5, 0))), (0, TimerSpec::default()));
    timer.set(Some(100), 0);
    assert_eq!(timer.setting(at(30, 0)), TimerSpec { value: 70, interval: 0 });
    assert_eq!(timer.setting(at(300, 0)).value, 1, "it has not been looked at yet");
    assert_eq!((timer.take(at(99, 0)), timer.take(at(100, 0)), timer.take(at(200, 0))), (0, 1, 0));
    timer.set(Some(100), 50);
    assert_eq!((timer.take(at(249, 0)), timer.next()), (3, Some(250)));
    assert_eq!(timer.setting(at(260, 0)), TimerSpec { value: 40, interval: 50 });
    timer.set(Some(10), u64::MAX);
    assert_eq!((timer.take(at(20, 0)), timer.next()), (1, None), "the next time is never");
}

#[test]
fn each_timer_of_setitimer_counts_its_own_time_and_sends_its_own_signal() {
    let mut timers = Timers::default();
    timers.interval(Interval::Real).set(Some(1000), 0);
    for which in [Interval::Virtual, Interval::Profiling] {
        *timers.interval(which) = Timer::new(which.source());
        timers.interval(which).set(Some(500), 0);
    }
    assert_eq!(timers.next(at(10, 10)), Some(1000), "no sooner than CPU time is watched");
    assert_eq!(timers.next_by_clock(), Some(1000));
    assert!(expired(&mut timers, at(999, 499)).is_empty());
    let signals: Vec<Signal> = expired(&mut timers, at(1000, 500)).iter().map(SigInfo::signal).collect();
    assert_eq!(signals, [Signal::SIGALRM, Signal::SIGVTALRM, Signal::SIGPROF]);
    assert_eq!(timers.next(at(1000, 500)), None);
}

#[test]
fn a_created_timer_counts_overruns_while_its_signal_is_pending() {
    let mut timers = Timers::default();
    let number = timers.create(Clock::Monotonic, |number| Some((Signal(40), u64::from(number) + 7))).expect("room");
    assert_eq!(timers.create(Clock::Monotonic, |_| None), Some(number + 1));
    timers.get(number).expect("it is there").timer.set(Some(100), 10);
    assert_eq!(expired(&mut timers, at(125, 0)), [SigInfo::timer(Signal(40), number, 7)]);
    assert_eq!((expired(&mut timers, at(150, 0)).len(), timers.next(at(150, 0))), (0, None), "its signal waits");
    assert_eq!(timers.delivered(number, at(155, 0)), 5);
    assert_eq!(timers.get(number).expect("it is there").last_overrun, 5);
    assert_eq!(timers.next(at(155, 0)), Some(160));
    assert_eq!(timers.delivered(number, at(300, 0)), 0, "nothing was sent");
    assert!(timers.delete(number) && !timers.delete(number));
    assert_eq!(timers.delivered(number, at(400, 0)), 0);
}
