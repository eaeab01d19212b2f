// SPDX-License-Identifier: MIT OR Apache-2.0
//! The program as `gdbstub` sees it: registers, memory, threads, breakpoints and files.

use super::Debugger;
use super::architecture::{X86_64, merge};
use super::halts::tid as tid_of;
use crate::threads::{self, ThreadState};
use gdbstub::common::{Pid, Tid};
use gdbstub::target::ext::auxv::{Auxv, AuxvOps};
use gdbstub::target::ext::base::BaseOps;
use gdbstub::target::ext::base::multithread::{MultiThreadBase, MultiThreadResumeOps};
use gdbstub::target::ext::breakpoints::{
    Breakpoints, BreakpointsOps, HwWatchpoint, HwWatchpointOps, SwBreakpoint, SwBreakpointOps, WatchKind,
};
use gdbstub::target::ext::exec_file::{ExecFile, ExecFileOps};
use gdbstub::target::ext::thread_extra_info::{ThreadExtraInfo, ThreadExtraInfoOps};
use gdbstub::target::{Target, TargetError, TargetResult};
use std::io::Error;

impl Target for Debugger<'_> {
    type Arch = X86_64;
    type Error = Error;

    fn base_ops(&mut self) -> BaseOps<'_, X86_64, Error> {
        BaseOps::MultiThread(self)
    }

    fn guard_rail_implicit_sw_breakpoints(&self) -> bool {
        true
    }

    fn support_breakpoints(&mut self) -> Option<BreakpointsOps<'_, Self>> {
        Some(self)
    }

    fn support_exec_file(&mut self) -> Option<ExecFileOps<'_, Self>> {
        Some(self)
    }

    fn support_auxv(&mut self) -> Option<AuxvOps<'_, Self>> {
        Some(self)
    }
}

impl MultiThreadBase for Debugger<'_> {
    fn read_registers(&mut self, registers: &mut ThreadState, tid: Tid) -> TargetResult<(), Self> {
        *registers = threads::read_state(self.cell, &self.threads, tid.get() as u64).map_err(|_| TargetError::NonFatal)?;
        Ok(())
    }

    fn write_registers(&mut self, registers: &ThreadState, tid: Tid) -> TargetResult<(), Self> {
        let thread = tid.get() as u64;
        let write = || {
            let mut state = threads::read_state(self.cell, &self.threads, thread)?;
            merge(&mut state.vectors, &registers.vectors);
            let vectors = state.vectors;
            let state = ThreadState { registers: registers.registers, bases: registers.bases, vectors };
            threads::write_state(self.cell, &self.threads, thread, &state)
        };
        write().map_err(|_: Error| TargetError::NonFatal)
    }

    fn read_addrs(&mut self, address: u64, data: &mut [u8], tid: Tid) -> TargetResult<usize, Self> {
        let read = self.space(tid.get() as u64).and_then(|space| self.cell.read(space, address, data));
        let count = read.map_err(|_| TargetError::NonFatal)?;
        if count == 0 && !data.is_empty() {
            return Err(TargetError::NonFatal);
        }
        self.breakpoints.hide(address, &mut data[..count]);
        Ok(count)
    }

    fn write_addrs(&mut self, address: u64, data: &[u8], tid: Tid) -> TargetResult<(), Self> {
        let mut bytes = data.to_vec();
        self.breakpoints.insert_into(address, &mut bytes);
        let written = self.space(tid.get() as u64).and_then(|space| self.cell.write(space, address, &bytes));
        written.map_err(|_| TargetError::NonFatal)?;
        self.breakpoints.note_written(address, data);
        Ok(())
    }

    fn list_active_threads(&mut self, note: &mut dyn FnMut(Tid)) -> Result<(), Error> {
        self.threads.of(self.process).for_each(|record| note(tid_of(record.number)));
        Ok(())
    }

    fn support_resume(&mut self) -> Option<MultiThreadResumeOps<'_, Self>> {
        Some(self)
    }

    fn support_thread_extra_info(&mut self) -> Option<ThreadExtraInfoOps<'_, Self>> {
        Some(self)
    }
}

impl ThreadExtraInfo for Debugger<'_> {
    fn thread_extra_info(&self, tid: Tid, buffer: &mut [u8]) -> Result<usize, Error> {
        let name = self.threads.get(tid.get() as u64).map_or([0; 16], |record| record.name_bytes());
        let shown = name.iter().take_while(|byte| byte.is_ascii_graphic() || **byte == b' ').count().min(buffer.len());
        buffer[..shown].copy_from_slice(&name[..shown]);
        Ok(shown)
    }
}

impl Breakpoints for Debugger<'_> {
    fn support_sw_breakpoint(&mut self) -> Option<SwBreakpointOps<'_, Self>> {
        Some(self)
    }

    fn support_hw_watchpoint(&mut self) -> Option<HwWatchpointOps<'_, Self>> {
        Some(self)
    }
}

impl HwWatchpoint for Debugger<'_> {
    fn add_hw_watchpoint(&mut self, address: u64, bytes: u64, kind: WatchKind) -> TargetResult<bool, Self> {
        // Reads change nothing that could be compared.
        Ok(kind == WatchKind::Write && self.watchpoints.add(address, bytes))
    }

    fn remove_hw_watchpoint(&mut self, address: u64, bytes: u64, _kind: WatchKind) -> TargetResult<bool, Self> {
        Ok(self.watchpoints.remove(address, bytes))
    }
}

impl SwBreakpoint for Debugger<'_> {
    fn add_sw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        let added = self.space(self.process).and_then(|space| self.breakpoints.add(self.cell, space, address));
        added.map_err(|_| TargetError::NonFatal)
    }

    fn remove_sw_breakpoint(&mut self, address: u64, _kind: usize) -> TargetResult<bool, Self> {
        Ok(self.breakpoints.remove(self.cell, self.space(self.process).ok(), address))
    }
}

impl ExecFile for Debugger<'_> {
    fn get_exec_file(&self, _pid: Option<Pid>, offset: u64, length: usize, buffer: &mut [u8]) -> TargetResult<usize, Self> {
        Ok(part(&self.file, offset, length, buffer))
    }
}

impl Auxv for Debugger<'_> {
    fn get_auxv(&self, offset: u64, length: usize, buffer: &mut [u8]) -> TargetResult<usize, Self> {
        Ok(part(&self.auxiliary, offset, length, buffer))
    }
}

/// Copies at most `length` bytes from `offset` on. Returns their number.
fn part(bytes: &[u8], offset: u64, length: usize, buffer: &mut [u8]) -> usize {
    let rest = bytes.get(offset as usize..).unwrap_or_default();
    let count = rest.len().min(length).min(buffer.len());
    buffer[..count].copy_from_slice(&rest[..count]);
    count
}
