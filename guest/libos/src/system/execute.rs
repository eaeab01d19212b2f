// SPDX-License-Identifier: MIT OR Apache-2.0
//! Executes another program in place of the running one.

use alloc::boxed::Box;

use pando_abi::Registers;
use pando_abi::layout::{EMPTY_SPACE, SLOTS};
use pando_abi::limits::{MAX_MOUNTS, MAX_SPACES};
use pando_rt::hypercall::{self, NextSpace};

use super::{Effect, System};
use crate::errno::Errno;
use crate::loader::{LoadError, PreparedProgram};
use crate::memory::AddressSpace;
use crate::signals::Signal;
use crate::uapi::ADDR_NO_RANDOMIZE;

/// Spaces that must be free before a program executes another one.
const SPACES_LEFT: u64 = 4;
/// So many spaces never reach the kernel's limit of mounts, whatever is mapped in them: a clone cannot fail, as it needs no memory.
const SPACES_SAFE: u64 = MAX_MOUNTS as u64 / SLOTS as u64;

impl System {
    /// Loads the first program into empty memory.
    ///
    /// # Errors
    /// Memory or the program's file failed.
    pub fn load(&mut self, prepared: PreparedProgram) -> Result<Registers, LoadError> {
        let is_randomized = self.is_randomized();
        let loaded = prepared.load(&mut self.memory, &self.files, &mut self.random, is_randomized)?;
        self.process.auxiliary = loaded.auxiliary;
        let name = prepared.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        self.thread.set_name(name);
        self.files.set_program(prepared.program().clone());
        Ok(loaded.registers)
    }

    /// Whether the addresses of programs are randomised (ASLR).
    fn is_randomized(&self) -> bool {
        self.process.personality & ADDR_NO_RANDOMIZE == 0
    }

    /// Executes a program in place of the running one.
    ///
    /// # Errors
    /// `EAGAIN`: there are too many spaces. After an error the old program continues.
    pub fn execute(&mut self, prepared: PreparedProgram) -> Result<u64, Errno> {
        let (next, memory) = self.memory_for(&prepared)?;
        // From here on the call cannot fail any more.
        self.end_other_threads();
        self.sync_mappings();
        if !self.shares_memory() {
            self.leave_all_shared();
        }
        self.release_robust_futexes();
        if !self.run_in(next, memory) {
            self.kill_by_signal(Signal::SIGKILL, 0, 0);
            return Ok(0);
        }
        self.become_executed();
        match self.load(prepared) {
            Ok(registers) => self.effect = Some(Effect::Start(registers)),
            Err(_) => self.kill_by_signal(Signal::SIGKILL, 0, 0),
        }
        Ok(0)
    }

    /// Memory of which the new program gets a clone: none, or that of its zygote. It is checked that the clone can be made, or, where that
    /// is uncertain, made.
    fn memory_for(&mut self, prepared: &PreparedProgram) -> Result<(NextSpace, Box<AddressSpace>), Errno> {
        if self.others.spaces() >= u64::from(MAX_SPACES) - SPACES_LEFT {
            return Err(Errno::EAGAIN);
        }
        // A debugger sees the program's code as it is in its file.
        let program = prepared.first_block().filter(|_| self.is_randomized() && self.thread_table.is_none());
        let mut memory = program.and_then(|program| self.others.zygotes.find(program)).unwrap_or_else(|| {
            let patches = self.memory.patches.fresh();
            Box::new(AddressSpace::new(EMPTY_SPACE, patches))
        });
        if self.others.spaces() < SPACES_SAFE {
            return Ok((NextSpace::CloneOf(memory.space), memory));
        }
        memory.space = hypercall::space_clone(memory.space.0.into()).map_err(|_| Errno::EAGAIN)?;
        Ok((NextSpace::Existing(memory.space), memory))
    }

    /// Switches to this space, which gets this memory, and leaves the old memory to the processes that share it. `false`: there is no
    /// room for the clone.
    fn run_in(&mut self, next: NextSpace, memory: Box<AddressSpace>) -> bool {
        let is_used = self.is_memory_of_others();
        let Ok(space) = self.enter_memory(next, memory, is_used) else { return false };
        self.process.space = space;
        self.release_memory();
        self.others.turns += 1;
        true
    }

    /// Resets the state that `execve` does not preserve.
    fn become_executed(&mut self) {
        self.process.signals.executed();
        self.process.executed = true;
        self.process.fakes_new_pid = false;
        self.process.clone_signal = None;
        self.process.timers.executed();
        self.files.close_on_exec();
        self.thread.credentials = None;
        let credentials = &mut self.files.current.credentials;
        for roles in [&mut credentials.user, &mut credentials.group] {
            (roles.saved, roles.file) = (roles.effective, roles.effective);
        }
        credentials.capabilities.executed(credentials.user, !self.process.settings.no_new_privileges);
        let process = self.process.number;
        if self.thread.number != process {
            // The calling thread becomes the process's first thread.
            self.process.threads.remove(&self.thread.number);
            self.files.threads.remove(&(process, self.thread.number));
            self.thread.number = process;
            self.files.thread = process;
            self.process.threads.insert(process);
        }
        let signals = &mut self.thread.signals;
        (signals.stack, signals.interrupted) = (Default::default(), None);
        self.thread.rseq = None;
        (self.thread.robust_list, self.thread.clear_child_tid, self.thread.set_child_tid) = (0, 0, 0);
    }
}
