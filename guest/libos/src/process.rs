// SPDX-License-Identifier: MIT OR Apache-2.0
//! The process: all that the libOS knows about the one program that it runs.

use alloc::format;
use alloc::vec::Vec;

use pando_abi::Event;

use pando_rt::hypercall::{NO_DEADLINE, exit};
use pando_rt::{clock, console, events};

use crate::errno::Errno;

use crate::files::Files;
use crate::memory::AddressSpace;
use crate::random::Random;
use crate::signals::info::{Info, code};
use crate::signals::{Signal, Signals};
use crate::timers::{Moment, Timers};

/// The number of the cell's one process, and of its one thread.
pub const NUMBER: u64 = 1;

/// The one process of the cell.
#[derive(Debug)]
pub struct Process {
    /// Its memory.
    pub memory: AddressSpace,
    /// Its open files.
    pub files: Files,
    /// Its signals.
    pub signals: Signals,
    /// Its timers.
    pub timers: Timers,
    /// The cell's randomness.
    pub random: Random,
    /// Its name, as `PR_GET_NAME` gives it.
    pub name: [u8; 16],
    /// When it started, in nanoseconds of the cell's clock.
    pub started: u64,
    /// The numbers of its auxiliary vector.
    pub auxiliary: Vec<(u64, u64)>,
    /// What names this start of the cell, once somebody has asked.
    pub boot_id: Option<[u8; 16]>,
}

impl Process {
    /// A process that has not been loaded yet.
    #[must_use]
    pub fn new(files: Files, random: Random) -> Process {
        Process {
            memory: AddressSpace::default(),
            files,
            signals: Signals::default(),
            timers: Timers::default(),
            random,
            name: [0; 16],
            started: clock::now(),
            auxiliary: Vec::new(),
            boot_id: None,
        }
    }

    /// Sets the process's name, cut to what fits.
    pub fn set_name(&mut self, name: &[u8]) {
        let length = name.len().min(self.name.len() - 1);
        self.name.fill(0);
        self.name[..length].copy_from_slice(&name[..length]);
    }

    /// The user that it is.
    #[must_use]
    pub fn user(&self) -> u32 {
        self.files.who.user.real
    }

    /// What time it is. The time that the program runs is its age less what it has waited: nothing here knows how long others had the CPU.
    #[must_use]
    pub fn moment(&self) -> Moment {
        let clock = clock::now();
        Moment { clock, cpu: clock.saturating_sub(self.started).saturating_sub(events::waited()) }
    }

    /// Makes the next timer be noticed, after timers were set.
    pub fn watch_timers(&mut self) {
        events::set_timer(self.timers.next(self.moment()).unwrap_or(NO_DEADLINE));
    }

    /// What a signal that is being delivered tells: a timer's, how often it has run out meanwhile.
    pub fn seen(&mut self, info: Info) -> Info {
        if info.code() != code::TIMER {
            return info;
        }
        let overrun = self.timers.delivered(info.first(), self.moment());
        self.watch_timers();
        info.with_overrun(overrun)
    }

    /// Looks at the events that were noted, and makes signals of them.
    pub fn notice(&mut self) {
        let events = events::take();
        if events.is_empty() {
            return;
        }
        for (event, signal) in [(Event::Interrupt, Signal::INT), (Event::Terminate, Signal::TERM)] {
            if events.contains(event) {
                self.raise(Info::kernel(signal));
            }
        }
        if events.contains(Event::Timer) {
            let now = self.moment();
            let Process { timers, signals, .. } = self;
            // One that finds no room is lost, as on Linux.
            timers.expire(now, &mut |info| {
                let _ = signals.send(info);
            });
            self.watch_timers();
        }
    }

    /// Sends the process a signal that nobody waits to see accepted.
    pub fn raise(&mut self, info: Info) {
        // Too many wait already: it is lost, as on Linux.
        let _ = self.signals.send(info);
    }

    /// Tells the process that nobody reads what it writes.
    pub fn broken_pipe(&mut self) -> Errno {
        self.raise(Info::sent(Signal::PIPE, code::USER, NUMBER as u32, self.user()));
        Errno::EPIPE
    }

    /// Looks whether a system call that waits has to make way for a signal.
    ///
    /// # Errors
    /// `ERESTART`: it has; the call ends with this, or with `EINTR` if Linux would never make it again.
    pub fn interruption(&mut self) -> Result<(), Errno> {
        self.notice();
        if self.signals.want_handling() { Err(Errno::ERESTART) } else { Ok(()) }
    }

    /// Sees to it that what the program said and wrote arrives, before the cell ends.
    fn finish(&mut self) {
        console::flush();
        // What the host cannot take it says to whoever started the cell; the program is no more.
        let _ = self.files.sync_all();
    }

    /// Waits until `ready` has something, or the clock reaches `deadline`. What makes it ready must be an event.
    ///
    /// # Errors
    /// `ERESTART`: a signal came first.
    pub fn wait<T>(&mut self, deadline: u64, mut ready: impl FnMut(&mut Process) -> Option<T>) -> Result<Option<T>, Errno> {
        loop {
            // What is noticed may be what makes it ready.
            let interruption = self.interruption();
            if let Some(result) = ready(self) {
                return Ok(Some(result));
            }
            interruption?;
            if clock::now() >= deadline {
                return Ok(None);
            }
            events::wait(deadline);
        }
    }
}

/// Ends the cell as a program ends itself.
pub fn leave(process: &mut Process, status: u64) -> ! {
    process.finish();
    exit(status, 0, 0, 0)
}

/// Ends the cell as a signal ends a program. `address` is what it touched, `instruction` where it stood; 0 where that says nothing.
pub fn die(process: &mut Process, signal: Signal, address: u64, instruction: u64) -> ! {
    process.finish();
    kill(signal, address, instruction)
}

/// The same at once: what was not taken of the output is lost.
pub fn kill(signal: Signal, address: u64, instruction: u64) -> ! {
    exit(0, signal.0.into(), address, instruction)
}

/// Ends the cell before its program ran, with a message.
pub fn refuse(status: u64, path: &[u8], why: &dyn core::fmt::Display) -> ! {
    let path = alloc::string::String::from_utf8_lossy(path);
    // Whoever does not read it is not told.
    let _ = console::send_bytes(console::Stream::Errors, format!("pando: {path}: {why}\n").as_bytes());
    exit(status, 0, 0, 0)
}
