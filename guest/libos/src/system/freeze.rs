// SPDX-License-Identifier: MIT OR Apache-2.0
//! Templates and clones: where the operator wants a template, the cell freezes between two instructions of its programs, and each clone goes on from there under its own name.
//!
//! Wherever this is called, every thread stands in the program's own code, in a call that is made again, or in the call that asked for it; nothing of the libOS is half done.

use pando_abi::note::options;
use pando_rt::{console, hypercall, memory};

use super::System;
use crate::wait::Channel;

impl System {
    /// Becomes a template where the operator wants one, and returns in each of its clones; otherwise returns at once.
    pub fn freeze(&mut self) {
        if memory::arguments().header.options & options::TEMPLATE == 0 {
            return;
        }
        self.charge();
        // What was said is the template's to say.
        console::flush();
        hypercall::freeze();
        self.go_on();
    }

    /// What is to be done first in a clone. Random numbers come from the clone's own entropy as soon as one is asked for ([`crate::random`]), and the clock goes on where it stood
    /// ([`pando_rt::clock`]).
    fn go_on(&mut self) {
        console::begin_anew();
        self.terminal.ended = false;
        self.files.saw_clone();
        self.boot_id = None;
        self.traced = memory::arguments().header.options & options::TRACE != 0;
        // Without names for hosts it is as well off as most.
        let _ = self.connect();
        self.notice();
        self.wake(Channel::Generation);
        self.wake(Channel::Input);
        self.watch_timers();
    }
}
