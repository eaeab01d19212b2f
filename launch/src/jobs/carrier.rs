// SPDX-License-Identifier: MIT OR Apache-2.0
//! What carries between the ports of jobs and a cell's control channel. What comes from the cell is checked: who sends more than its window, or nonsense, is not listened to any more.

use super::{Job, JobEnd, Shared};
use pando_abi::control::{Frame, Kind, Malformed, PIECE, WINDOW};
use pando_abi::ring;
use pando_kernel::{Heard, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How far a job's streams have come.
struct Flow {
    job: Arc<Job>,
    /// Bytes of input that may be sent.
    window: u32,
    /// The end of its input was sent.
    has_ended: bool,
    /// Bytes of output that came, and that the cell was not told to be taken.
    came: u32,
    /// Of which outputs the cell was told that nobody reads them.
    unread: [bool; 2],
}

/// Carries for all jobs of a cell.
pub struct Carrier {
    shared: Arc<Shared>,
    flows: BTreeMap<u32, Flow>,
    /// What has come and is no whole frame yet.
    bytes: Vec<u8>,
    /// What the cell has no room for yet.
    rest: Vec<u8>,
}

impl Carrier {
    pub(super) fn new(shared: Arc<Shared>) -> Carrier {
        Carrier { shared, flows: BTreeMap::new(), bytes: Vec::new(), rest: Vec::new() }
    }

    /// Does all that can be done now. Never waits. `false`: the channel is closed, and nothing is left to be done.
    pub fn turn(&mut self) -> bool {
        if self.carry().is_ok() {
            return true;
        }
        let mut state = self.shared.lock();
        state.is_over = true;
        for job in std::mem::take(&mut state.jobs).into_values() {
            job.finish(JobEnd::Lost);
        }
        false
    }

    fn carry(&mut self) -> Result<(), Malformed> {
        let orders = {
            let mut state = self.shared.lock();
            for (number, job) in &state.jobs {
                let flow = || Flow { job: Arc::clone(job), window: WINDOW, has_ended: false, came: 0, unread: [false; 2] };
                self.flows.entry(*number).or_insert_with(flow);
            }
            std::mem::take(&mut state.orders)
        };
        self.rest.extend(orders);
        let mut is_over = false;
        loop {
            match self.shared.control.hear() {
                Heard::Bytes(_, bytes) => self.understand(&bytes)?,
                Heard::Nothing => break,
                Heard::End => {
                    is_over = true;
                    break;
                }
            }
        }
        let Carrier { shared, flows, rest, .. } = self;
        // What is sent is bounded: by windows, and by who starts jobs.
        flows.values_mut().for_each(|flow| flow.serve(rest));
        let taken = shared.control.offer(rest).filter(|_| !is_over).ok_or(Malformed)?;
        rest.drain(..taken);
        Ok(())
    }

    /// Takes what the cell reports.
    fn understand(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        self.bytes.extend_from_slice(bytes);
        let mut rest = &self.bytes[..];
        while let Some(frame) = Frame::parse(rest)? {
            let end = Frame::SIZE + frame.length as usize;
            let Some(bytes) = rest.get(Frame::SIZE..end) else { break };
            if let Some(flow) = self.flows.get_mut(&frame.job)
                && let Some(end) = flow.report(frame, bytes)?
            {
                self.flows.remove(&frame.job);
                if let Some(job) = self.shared.lock().jobs.remove(&frame.job) {
                    job.finish(end);
                }
            }
            rest = &rest[end..];
        }
        let left = rest.len();
        self.bytes.drain(..self.bytes.len() - left);
        Ok(())
    }
}

impl Flow {
    /// Takes a report. Returns how the job has ended, if that is what it says.
    fn report(&mut self, Frame { kind, detail, .. }: Frame, bytes: &[u8]) -> Result<Option<JobEnd>, Malformed> {
        match kind {
            Kind::Taken => self.window = self.window.checked_add(detail).filter(|window| *window <= WINDOW).ok_or(Malformed)?,
            Kind::Output => {
                let stream = match detail {
                    ring::OUTPUT => Stream::Output,
                    ring::ERRORS => Stream::Errors,
                    _ => return Err(Malformed),
                };
                self.came = self.came.checked_add(bytes.len() as u32).filter(|came| *came <= WINDOW).ok_or(Malformed)?;
                self.job.port.say(stream, bytes.to_vec());
            }
            Kind::Ended => {
                let [signal, status, ..] = detail.to_le_bytes();
                return Ok(Some(if signal == 0 { JobEnd::Exited(status) } else { JobEnd::Signalled(signal) }));
            }
            _ => return Err(Malformed),
        }
        Ok(None)
    }

    /// Adds the frames that are to be sent for it.
    fn serve(&mut self, frames: &mut Vec<u8>) {
        let (number, port) = (self.job.number, &self.job.port);
        for (index, (stream, tag)) in [(Stream::Output, ring::OUTPUT), (Stream::Errors, ring::ERRORS)].into_iter().enumerate() {
            if port.is_unread(stream) && !std::mem::replace(&mut self.unread[index], true) {
                frames.extend(Frame::new(Kind::Unread, number, tag).to_bytes());
            }
        }
        let heard = self.came.saturating_sub(u32::try_from(port.unheard()).unwrap_or(u32::MAX));
        if heard > 0 {
            self.came -= heard;
            frames.extend(Frame::new(Kind::Taken, number, heard).to_bytes());
        }
        while !self.has_ended {
            let (bytes, is_last) = port.take_input(PIECE.min(self.window as usize));
            if !bytes.is_empty() {
                self.window -= bytes.len() as u32;
                frames.extend(Frame { kind: Kind::Input, job: number, detail: 0, length: bytes.len() as u32 }.to_bytes());
                frames.extend(&bytes);
            }
            if is_last {
                self.has_ended = true;
                frames.extend(Frame::new(Kind::InputEnd, number, 0).to_bytes());
            } else if bytes.is_empty() {
                return;
            }
        }
    }
}
