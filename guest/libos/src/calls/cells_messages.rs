// SPDX-License-Identifier: MIT OR Apache-2.0
//! Calls of ports that programs make through `/dev/cells`. They block the calling thread, not the cell.
//!
//! A call is posted, and its thread waits for the event that the answer raises. A `receive` that finds no call waits for the event that a
//! call raises, and tries again. Messages go through buffers of the libOS, because the kernel knows no processes.

use pando_abi::limits::MAX_MESSAGE_BYTES;
use pando_abi::message::{ANSWER_OFFSET, CALLER_WORDS, MessageResult, RECORD_WORDS};
use pando_abi::{HoldingName, Hypercall, MessageRecord, Refusal};
use pando_rt::messages::{self, MessageMemory, PostedCall};
use pando_rt::user;

use super::cells_device::{buffer, check_writable, copied, may_pass_on, read_words};
use crate::errno::Errno;
use crate::files::cells_file::CellsFile;
use crate::system::System;
use crate::wait::Channel;

/// Bytes of the kernel's part of a record.
const ANSWER_BYTES: u64 = (RECORD_WORDS - CALLER_WORDS) as u64 * 8;
/// The offset of the argument `reply` in the record of a `receive`.
const REPLY_OFFSET: u64 = 4 * 8;

impl CellsFile {
    /// Makes a call of a port, whose record lies at `argument`. `None`: it is another call.
    ///
    /// # Errors
    /// `EFAULT`. `EPERM`: the message has a holding that the program may not pass on. `EINVAL`: the record is invalid, or the call has no
    /// deadline. `ENOMEM`. `EINTR`: a signal has come; the call is withdrawn. `WAITS`.
    pub(super) fn message_call(self, system: &mut System, call: Hypercall, argument: u64) -> Result<Option<Result<u64, Refusal>>, Errno> {
        let result = match call {
            Hypercall::Call { deadline: 0, .. } => Err(Errno::EINVAL),
            Hypercall::Call { reference, message, deadline } => self.call(system, reference, message, deadline),
            Hypercall::Receive { port, message, deadline, reply } => self.receive(system, (port, reply), (message, argument), deadline),
            Hypercall::Reply { reply, message } => {
                let mut memory = self.memory(system, message)?;
                let result = messages::reply(reply, &mut memory);
                if result.is_ok() {
                    self.forget(system, reply);
                }
                Ok(result)
            }
            _ => return Ok(None),
        };
        result.map(Some)
    }

    fn forget(self, system: &mut System, bits: u64) {
        if let Some(name) = HoldingName::from_bits(bits) {
            self.remove(&mut system.files.cells_files, name);
        }
    }

    /// The message that a program describes, with room for one that comes, in memory of the libOS.
    fn memory(self, system: &System, address: u64) -> Result<MessageMemory, Errno> {
        let record = read_record(address)?;
        if !record.holdings.iter().flatten().all(|name| may_pass_on(self, system, name.bits())) {
            return Err(Errno::EPERM);
        }
        let sent = copied(record.address, record.bytes, MAX_MESSAGE_BYTES)?;
        let room = buffer(record.size.into(), MAX_MESSAGE_BYTES)?;
        check_writable(address + ANSWER_OFFSET, ANSWER_BYTES)?;
        if record.size > 0 {
            check_writable(record.buffer, record.size.into())?;
        }
        MessageMemory::new(sent, record.holdings, room, record.accepted).map_err(|_| Errno::ENOMEM)
    }

    /// Gives a program a message that has come.
    fn pass_on(self, system: &mut System, address: u64, answer: MessageResult, bytes: &[u8]) -> Result<(), Errno> {
        let files = &mut system.files.cells_files;
        answer.holdings.into_iter().chain([answer.reply]).flatten().for_each(|name| self.add(files, name));
        user::write(read_record(address)?.buffer, bytes)?;
        for (place, word) in (address + ANSWER_OFFSET..).step_by(size_of::<u64>()).zip(answer.to_words()) {
            user::write(place, &word.to_le_bytes())?;
        }
        Ok(())
    }

    fn call(self, system: &mut System, reference: u64, message: u64, deadline: u64) -> Result<Result<u64, Refusal>, Errno> {
        let thread = system.thread.number;
        if !system.thread.call.is_restarted {
            system.files.withdraw_left_calls(thread);
            let memory = self.memory(system, message)?;
            match PostedCall::post(reference, memory) {
                Ok(call) => self.add_posted(&mut system.files.cells_files, thread, call),
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        let waited = system.wait(&[Channel::Cells], deadline, |system| system.files.cells_files.answer(thread));
        if matches!(waited, Err(Errno::WAITS)) {
            return Err(Errno::WAITS);
        }
        let posted = system.files.cells_files.take_posted(thread);
        let (Some(answer), Some(mut call)) = (waited.map_err(Errno::without_restart)?, posted) else { return Ok(Err(Refusal::TimedOut)) };
        let result = Refusal::from_result(answer.result);
        call.note_taken();
        if let Ok(count) = result {
            self.pass_on(system, message, answer, call.received(count))?;
        }
        Ok(result)
    }

    /// Takes a call. The program's argument `reply` becomes 0 once the answer was sent, because the call may be made again.
    fn receive(
        self,
        system: &mut System,
        (port, reply): (u64, u64),
        (message, argument): (u64, u64),
        deadline: u64,
    ) -> Result<Result<u64, Refusal>, Errno> {
        let mut memory = self.memory(system, message)?;
        let mut right = reply;
        let mut attempt = |_: &mut System| {
            let (result, left) = messages::receive(port, &mut memory, right);
            right = left;
            Some(result).filter(|result| *result != Err(Refusal::NothingWaits))
        };
        let waited = match deadline {
            0 => Ok(attempt(system).or(Some(Err(Refusal::NothingWaits)))),
            _ => system.wait(&[Channel::Cells], deadline, attempt),
        };
        if right == 0 && reply != 0 {
            self.forget(system, reply);
            user::write(argument + REPLY_OFFSET, &0_u64.to_le_bytes())?;
        }
        let result = waited?.unwrap_or(Err(Refusal::TimedOut));
        if let (Ok(count), Some(answer)) = (result, memory.answer()) {
            self.pass_on(system, message, answer, memory.received(count))?;
        }
        Ok(result)
    }
}

fn read_record(address: u64) -> Result<MessageRecord, Errno> {
    address.checked_add(ANSWER_OFFSET + ANSWER_BYTES).ok_or(Errno::EFAULT)?;
    MessageRecord::from_words(read_words::<CALLER_WORDS>(address)?).ok_or(Errno::EINVAL)
}
