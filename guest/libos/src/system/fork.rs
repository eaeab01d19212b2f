// SPDX-License-Identifier: MIT OR Apache-2.0
//! Creates threads and processes.

use alloc::boxed::Box;

use pando_abi::SpaceIndex;
use pando_abi::memory::CURRENT_SPACE;
use pando_rt::clock;
use pando_rt::hypercall::{self, NO_DEADLINE};

use super::{Effect, System};
use crate::errno::Errno;
use crate::limits::PROCESSES_MAX;
use crate::pid::Pid;
use crate::thread::Thread;
use crate::uapi::{CAP_CHECKPOINT_RESTORE, CAP_SYS_ADMIN, CAP_SYS_RESOURCE, RLIMIT_NPROC};
use crate::user::{set_word32, word32};
use crate::wait::{Channel, Tid};

/// Upper limit (exclusive) on the numbers of processes and threads.
const NUMBERS: u32 = 32_768;
/// Numbers below this are not reused after the first wraparound.
const RESERVED: u32 = 300;
/// Upper limit on the threads of a cell.
const THREADS_MAX: usize = 4096;

/// The parameters of `clone`: the resources that a new thread or process shares with its creator, and its initial state.
#[derive(Clone, Copy, Debug, Default)]
pub struct CloneArgs {
    /// The requested number; `None`: any.
    pub number: Option<u32>,
    /// It is a thread of the same process (`CLONE_THREAD`).
    pub is_thread: bool,
    /// It shares the memory (`CLONE_VM`).
    pub shares_memory: bool,
    /// Its creator waits until it no longer uses that memory (`CLONE_VFORK`).
    pub is_vfork: bool,
    /// Its parent is its creator's parent (`CLONE_PARENT`).
    pub is_sibling: bool,
    /// Its signal handlers are reset (`CLONE_CLEAR_SIGHAND`).
    pub clears_handlers: bool,
    /// The signal that its parent gets when it ends.
    pub end_signal: u8,
    /// Its stack pointer; 0: its creator's.
    pub stack: u64,
    /// Its FS base, if it gets one (`CLONE_SETTLS`).
    pub base: Option<u64>,
    /// The address in the creator's memory for its pidfd (`CLONE_PIDFD`).
    pub descriptor: Option<u64>,
    /// The address in the creator's memory for its number (`CLONE_PARENT_SETTID`); 0: none.
    pub parent_tid: u64,
    /// The address in its own memory for its number (`CLONE_CHILD_SETTID`); 0: none.
    pub set_child_tid: u64,
    /// The address that is set to zero when it ends (`CLONE_CHILD_CLEARTID`); 0: none.
    pub clear_child_tid: u64,
}

impl System {
    /// Creates a thread or a process that continues where the running thread is. Returns its number.
    ///
    /// # Errors
    /// `EAGAIN`: there are too many. `ENOMEM`. `WAITS`: the new one borrows the memory.
    pub fn clone(&mut self, wanted: &CloneArgs) -> Result<u64, Errno> {
        if self.thread.call.done != 0 {
            return self.await_release(self.thread.call.done as Pid);
        }
        self.check_room(wanted.is_thread)?;
        let number = match wanted.number {
            Some(number) => self.wanted_number(number)?,
            None => self.free_number()?,
        };
        let process = if wanted.is_thread { self.process.number } else { number };
        if let Some(address) = wanted.descriptor {
            // Once there is a child, nothing may fail any more.
            self.files.free_from(0)?;
            set_word32(address, word32(address)?)?;
        }
        if !wanted.is_thread {
            self.make_process(number, wanted)?;
        }
        if let Some(address) = wanted.descriptor {
            // The child has neither the open file nor its descriptor.
            let fd = self.files.open_process(number, false, 0)?;
            set_word32(address, fd as u32)?;
        }
        if wanted.parent_tid != 0 {
            // Writing to an invalid address is no error, as on Linux.
            let _ = set_word32(wanted.parent_tid, number);
        }
        let mut thread = Thread { process, clear_child_tid: wanted.clear_child_tid, ..self.thread.child(number) };
        thread.credentials = self.thread.credentials.as_ref().filter(|_| wanted.is_thread).map(|_| self.files.current.credentials.clone());
        thread.set_child_tid = wanted.set_child_tid;
        if wanted.shares_memory && !wanted.is_vfork {
            thread.signals.stack = Default::default();
        }
        thread.rseq = self.thread.rseq.filter(|_| !wanted.shares_memory);
        thread.saved.bases = [wanted.base.unwrap_or_else(pando_rt::thread_base::fs), pando_rt::thread_base::gs()];
        self.others.threads.insert(number, Box::new(thread));
        if wanted.is_thread {
            self.process.threads.insert(number);
            self.files.threads.insert((process, number));
        }
        self.effect = Some(Effect::Copy { to: number, stack: wanted.stack });
        self.others.queue.push_back(number);
        if wanted.is_vfork {
            self.thread.call.done = number.into();
            return self.await_release(number);
        }
        self.arm();
        Ok(number.into())
    }

    /// Creates the process of a new thread.
    fn make_process(&mut self, number: Pid, wanted: &CloneArgs) -> Result<(), Errno> {
        let mut process = self.process.child(number, clock::now());
        process.end_signal = wanted.end_signal;
        process.is_vfork = wanted.is_vfork;
        if wanted.is_sibling {
            process.parent = self.process.parent;
        }
        if wanted.clears_handlers {
            process.signals.executed();
        }
        if !wanted.shares_memory {
            process.space = self.clone_space()?;
        }
        self.files.fork(number);
        self.others.processes.insert(number, Box::new(process));
        Ok(())
    }

    /// Clones the running process's memory.
    fn clone_space(&mut self) -> Result<SpaceIndex, Errno> {
        self.make_files_before_fork()?;
        let space = hypercall::space_clone(CURRENT_SPACE).map_err(|_| Errno::EAGAIN)?;
        let mut memory = self.memory.clone();
        memory.space = space;
        memory.linker_start = memory.linker_start.forked();
        memory.patches.reset_counts();
        if let Err(error) = memory.wipe().and_then(|()| memory.withhold()) {
            // If the space cannot be destroyed, the cell loses it.
            let _ = hypercall::space_destroy(space);
            return Err(error);
        }
        self.others.memories.insert(space, memory);
        Ok(space)
    }

    /// Waits uninterruptibly until a child no longer uses the memory.
    fn await_release(&mut self, child: Pid) -> Result<u64, Errno> {
        let is_vfork = self.process_of(child).is_some_and(|child| child.is_vfork);
        if !is_vfork {
            return Ok(child.into());
        }
        self.thread.call.is_uninterruptible = true;
        Err(self.wait_on(&[Channel::Released(child)], NO_DEADLINE))
    }

    /// Checks that the limits allow one more.
    pub(super) fn check_room(&self, is_thread: bool) -> Result<(), Errno> {
        let others = &self.others;
        let is_full = others.threads.len() + 1 >= THREADS_MAX || !is_thread && others.processes.len() as u64 + 1 >= PROCESSES_MAX;
        let most = self.process.limits.get(RLIMIT_NPROC)?.soft;
        let counted = || others.threads.values().filter(|thread| self.files.user_of(thread.process) == self.user()).count() as u64 + 1;
        let credentials = &self.files.current.credentials;
        let has_enough = !credentials.is_capable(CAP_SYS_RESOURCE) && !credentials.is_capable(CAP_SYS_ADMIN) && counted() >= most;
        if is_full || has_enough { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    /// A number that the caller requested.
    fn wanted_number(&self, number: u32) -> Result<Tid, Errno> {
        if !(1..NUMBERS).contains(&number) {
            return Err(Errno::EINVAL);
        }
        let credentials = &self.files.current.credentials;
        if !credentials.is_capable(CAP_SYS_ADMIN) && !credentials.is_capable(CAP_CHECKPOINT_RESTORE) {
            return Err(Errno::EPERM);
        }
        if self.is_taken(number) { Err(Errno::EEXIST) } else { Ok(number) }
    }

    /// Whether a process, a thread, a group or a session has a number.
    fn is_taken(&self, number: Tid) -> bool {
        let has = |process: &crate::process::Process| process.number == number || process.group == number || process.session == number;
        self.thread_of(number).is_some() || has(&self.process) || self.others.processes.values().any(|process| has(process))
    }

    /// An unused number.
    pub(super) fn free_number(&mut self) -> Result<Tid, Errno> {
        let last = self.others.last_number;
        let number = (last + 1..NUMBERS).chain(RESERVED..=last).find(|number| !self.is_taken(*number)).ok_or(Errno::EAGAIN)?;
        self.others.last_number = number;
        Ok(number)
    }
}
