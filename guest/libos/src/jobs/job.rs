// SPDX-License-Identifier: MIT OR Apache-2.0
//! A job: its first process, its streams, and flow control of their bytes.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use pando_abi::control::{Frame, Kind, PIECE, WINDOW};
use pando_abi::ring;

use super::file_task::FileTask;
use crate::errno::Errno;
use crate::files::Files;
use crate::files::pipe::PipeId;
use crate::process::{Pid, ProcessStateChange};
use crate::terminal::PtyId;
use crate::terminal::settings::Character;

/// Exit status of a job whose file could not be read or written completely.
pub const FAILED: u8 = 1;

/// The streams of a job with a process.
#[derive(Clone, Copy, Debug)]
pub enum JobStreams {
    /// Pipes: stdin, stdout, stderr.
    Pipes([PipeId; 3]),
    /// A pseudo terminal for all three.
    Terminal(PtyId),
}

/// Sends a frame and the bytes that follow it to the operator. `false`: the channel has no space for it yet.
type SendFrame<'a> = &'a mut dyn FnMut(Frame, &[u8]) -> bool;

/// A job.
#[derive(Debug)]
pub struct Job {
    /// The operator's number for it.
    pub(super) number: u32,
    /// Its first process, until it has ended.
    pub process: Option<Pid>,
    /// How that process ended.
    pub end: Option<ProcessStateChange>,
    input: Option<PipeId>,
    /// Input that has not fitted into the pipe yet.
    pending_input: VecDeque<u8>,
    input_ended: bool,
    /// Bytes of input consumed but not yet acknowledged to the operator.
    unacknowledged: u32,
    outputs: [Option<PipeId>; 2],
    /// Its terminal, in place of pipes.
    pub(super) terminal: Option<PtyId>,
    /// The task that the libOS executes itself.
    task: Option<FileTask>,
    /// The libOS's own messages for its stderr.
    messages: Vec<u8>,
    /// Bytes of output that may still be sent.
    window: u32,
}

impl Job {
    /// A job with this first process, on these streams.
    #[must_use]
    pub fn new(number: u32, process: Pid, streams: JobStreams) -> Job {
        let job = Job { process: Some(process), end: None, ..Job::failed(number, Vec::new(), 0) };
        match streams {
            JobStreams::Pipes([input, output, errors]) => Job { input: Some(input), outputs: [Some(output), Some(errors)], ..job },
            JobStreams::Terminal(id) => Job { terminal: Some(id), ..job },
        }
    }

    /// A job that the libOS executes itself.
    #[must_use]
    pub fn of_task(number: u32, task: FileTask) -> Job {
        Job { end: None, task: Some(task), ..Job::failed(number, Vec::new(), 0) }
    }

    /// A job that failed to start, with its exit status and an error message.
    #[must_use]
    pub fn failed(number: u32, messages: Vec<u8>, status: u8) -> Job {
        Job {
            number,
            process: None,
            end: Some(ProcessStateChange::Exited(status)),
            input: None,
            pending_input: VecDeque::new(),
            input_ended: false,
            unacknowledged: 0,
            outputs: [None; 2],
            terminal: None,
            task: None,
            messages,
            window: WINDOW,
        }
    }

    /// Queues a message for its stderr, ahead of the output of its processes.
    pub fn add_error_message(&mut self, message: &[u8]) {
        self.messages.extend_from_slice(message);
    }

    /// Adds input. Bytes beyond the window are dropped.
    pub(super) fn add_input(&mut self, bytes: &[u8]) {
        let room = (WINDOW as usize).saturating_sub(self.pending_input.len());
        self.pending_input.extend(&bytes[..bytes.len().min(room)]);
    }

    pub(super) fn end_input(&mut self) {
        self.input_ended = true;
    }

    pub(super) fn widen_window(&mut self, bytes: u32) {
        self.window = self.window.saturating_add(bytes).min(WINDOW);
    }

    /// The operator has closed an output.
    pub(super) fn close_output(&mut self, index: usize, files: &mut Files) {
        if let Some(id) = self.terminal.take_if(|_| index == 0) {
            files.hang_up(id);
        }
        if let Some(pipe) = self.outputs[index].take() {
            files.close_pipe(pipe, true);
        }
    }

    /// Closes its pipes, or hangs up its terminal.
    pub(super) fn close(&mut self, files: &mut Files) {
        self.close_input(files);
        (0..self.outputs.len()).for_each(|index| self.close_output(index, files));
        self.abort_task(ProcessStateChange::Exited(FAILED), files);
    }

    /// Whether the cell's programs must not run while it does.
    pub(super) fn suspends_programs(&self) -> bool {
        self.task.as_ref().is_some_and(FileTask::suspends_programs)
    }

    /// Closes the file of its incomplete task and ends the job.
    pub(super) fn abort_task(&mut self, how: ProcessStateChange, files: &mut Files) {
        if let Some(task) = self.task.take() {
            task.close(files);
            self.end.get_or_insert(how);
        }
    }

    /// Completes its task after the last byte and ends the job.
    fn finish_task(&mut self, how: Result<(), Errno>, files: &mut Files) {
        let Some(mut task) = self.task.take() else { return };
        let status = match how.and_then(|()| task.finish(files)) {
            Ok(()) => 0,
            Err(error) => {
                self.messages.extend(task.error_message(error));
                FAILED
            }
        };
        task.close(files);
        self.end.get_or_insert(ProcessStateChange::Exited(status));
    }

    fn close_input(&mut self, files: &mut Files) {
        if let Some(pipe) = self.input.take() {
            files.close_pipe(pipe, false);
        }
    }

    /// Transfers as many bytes as possible. `false`: the job has ended, and its operator has received everything. Without
    /// `are_files_writable`, a job that writes a file keeps its input, because another one reads the changes of the cell.
    pub(super) fn pump(&mut self, files: &mut Files, are_files_writable: bool, report: SendFrame<'_>) -> bool {
        if are_files_writable || !self.task.as_ref().is_some_and(FileTask::writes) {
            self.write_input(files);
        }
        if self.unacknowledged > 0 && report(Frame::new(Kind::Taken, self.number, self.unacknowledged), &[]) {
            self.unacknowledged = 0;
        }
        let is_complete = self.send_messages(report) && self.send_terminal_output(files, report) && self.send_output(files, report);
        match self.end {
            Some(end) if is_complete => {
                // Its remaining processes have no peer any more.
                self.close(files);
                !report(Frame::new(Kind::Ended, self.number, end.status()), &[])
            }
            _ => true,
        }
    }

    /// Types input at its terminal, as much as that accepts. The system then executes what was typed.
    pub(super) fn type_input(&mut self, files: &mut Files) {
        let Some(id) = self.terminal else { return };
        while !self.pending_input.is_empty() {
            match files.add_keys(id, self.pending_input.as_slices().0) {
                0 => return,
                moved => {
                    self.pending_input.drain(..moved);
                    self.unacknowledged += moved as u32;
                }
            }
        }
        if self.input_ended {
            // 0 is no character: the program has none for this.
            let end = files.ptys.get(id).map_or(0, |pty| pty.terminal.settings.value(Character::EndOfFile));
            self.input_ended = end != 0 && files.add_keys(id, &[end]) == 0;
        }
    }

    /// Moves input into its pipe, if it has no terminal.
    fn write_input(&mut self, files: &mut Files) {
        if self.terminal.is_some() {
            return;
        }
        while let (Some(task), false) = (self.task.as_mut().filter(|task| task.writes()), self.pending_input.is_empty()) {
            match task.write(files, self.pending_input.as_slices().0) {
                Ok(moved) => {
                    self.pending_input.drain(..moved);
                    self.unacknowledged += moved as u32;
                }
                Err(error) => self.finish_task(Err(error), files),
            }
        }
        while let (Some(pipe), false) = (self.input, self.pending_input.is_empty()) {
            match files.feed(pipe, self.pending_input.as_slices().0) {
                Ok(0) => return,
                Ok(moved) => {
                    self.pending_input.drain(..moved);
                    self.unacknowledged += moved as u32;
                }
                // The pipe has no reader.
                Err(_) => self.close_input(files),
            }
        }
        self.unacknowledged += core::mem::take(&mut self.pending_input).len() as u32;
        if self.input_ended {
            self.close_input(files);
            if self.task.as_ref().is_some_and(FileTask::writes) {
                self.finish_task(Ok(()), files);
            }
        }
    }

    fn send_messages(&mut self, report: SendFrame<'_>) -> bool {
        while !self.messages.is_empty() {
            let length = self.messages.len().min(PIECE).min(self.window as usize);
            if length == 0 || !report(Frame::new(Kind::Output, self.number, ring::ERRORS), &self.messages[..length]) {
                return false;
            }
            self.messages.drain(..length);
            self.window -= length as u32;
        }
        true
    }

    /// Sends the output of its terminal. `true`: there is no more.
    fn send_terminal_output(&mut self, files: &mut Files, report: SendFrame<'_>) -> bool {
        let mut piece = [0; PIECE];
        while let Some(id) = self.terminal {
            let room = PIECE.min(self.window as usize);
            let length = files.peek_terminal(id, &mut piece[..room.max(1)]);
            if length == 0 {
                break;
            }
            if room == 0 || !report(Frame::new(Kind::Output, self.number, ring::OUTPUT), &piece[..length]) {
                return false;
            }
            files.skip_terminal_output(id, length);
            self.window -= length as u32;
        }
        true
    }

    /// Sends the content of its pipes. `true`: they are empty.
    fn send_output(&mut self, files: &mut Files, report: SendFrame<'_>) -> bool {
        let mut piece = [0; PIECE];
        while let Some(task) = self.task.as_mut().filter(|task| !task.writes()) {
            let room = PIECE.min(self.window as usize);
            match task.peek(files, &mut piece[..room.max(1)]) {
                Ok(0) if task.is_endless() => return true,
                Ok(0) => self.finish_task(Ok(()), files),
                Ok(length) => {
                    if room == 0 || !report(Frame::new(Kind::Output, self.number, ring::OUTPUT), &piece[..length]) {
                        return false;
                    }
                    task.skip(length);
                    self.window -= length as u32;
                }
                Err(error) => {
                    self.finish_task(Err(error), files);
                    return self.send_messages(report);
                }
            }
        }
        for (index, stream) in [ring::OUTPUT, ring::ERRORS].into_iter().enumerate() {
            while let Some(pipe) = self.outputs[index] {
                let room = PIECE.min(self.window as usize);
                let length = files.peek(pipe, &mut piece[..room.max(1)]);
                if length == 0 {
                    break;
                }
                if room == 0 || !report(Frame::new(Kind::Output, self.number, stream), &piece[..length]) {
                    return false;
                }
                files.consume(pipe, length);
                self.window -= length as u32;
            }
        }
        true
    }
}
