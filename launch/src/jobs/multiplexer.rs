// SPDX-License-Identifier: MIT OR Apache-2.0
//! The multiplexer between the ports of jobs and a cell's control channel. The cell is not trusted: if it exceeds its window or sends
//! malformed frames, the channel is closed.

use super::{Job, JobEnd, MultiplexerState};
use pando_abi::control::{Frame, FrameError, JOBS, Kind, PIECE, START_MAX, WINDOW};
use pando_abi::ring;
use pando_kernel::{ConsoleOutput, Stream};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pieces that are received from a cell per turn.
const TURN: u32 = 64;
/// Maximal bytes queued for a cell: all windows and requests of the maximal number of jobs, twice.
const REST_MAX: usize = 2 * JOBS * (START_MAX + 2 * WINDOW as usize);

/// The state of a job's streams.
struct JobStreams {
    job: Arc<Job>,
    /// Bytes of input that may still be sent.
    window: u32,
    /// The end of its input was sent.
    has_ended: bool,
    /// Bytes of output that were received and not yet acknowledged to the cell.
    unacknowledged: u32,
    /// Outputs whose closed read end was reported to the cell.
    closed: [bool; 2],
}

/// Multiplexes the streams of all jobs of a cell.
pub struct Multiplexer {
    shared: Arc<MultiplexerState>,
    streams: BTreeMap<u32, JobStreams>,
    /// Received bytes of an incomplete frame.
    bytes: Vec<u8>,
    /// Bytes that the cell has no space for yet.
    rest: Vec<u8>,
}

impl Multiplexer {
    pub(super) fn new(shared: Arc<MultiplexerState>) -> Multiplexer {
        Multiplexer { shared, streams: BTreeMap::new(), bytes: Vec::new(), rest: Vec::new() }
    }

    /// Transfers all that is possible now, without blocking. `false`: the channel is closed, and nothing is left to transfer.
    pub fn turn(&mut self) -> bool {
        if self.transfer().is_ok() {
            return true;
        }
        let mut state = self.shared.lock();
        state.is_over = true;
        for job in std::mem::take(&mut state.jobs).into_values() {
            job.finish(JobEnd::Lost);
        }
        false
    }

    fn transfer(&mut self) -> Result<(), FrameError> {
        let requests = {
            let mut state = self.shared.lock();
            for (number, job) in &state.jobs {
                let streams =
                    || JobStreams { job: Arc::clone(job), window: WINDOW, has_ended: false, unacknowledged: 0, closed: [false; 2] };
                self.streams.entry(*number).or_insert_with(streams);
            }
            std::mem::take(&mut state.requests)
        };
        self.rest.extend(requests);
        let (mut is_over, mut is_quiet) = (false, false);
        for _ in 0..TURN {
            match self.shared.control.try_receive() {
                ConsoleOutput::Bytes(_, bytes) => self.parse_reports(&bytes)?,
                ConsoleOutput::Nothing => {
                    is_quiet = true;
                    break;
                }
                ConsoleOutput::End => {
                    is_over = true;
                    break;
                }
            }
        }
        let Multiplexer { shared, streams, rest, .. } = self;
        if !is_quiet && !is_over {
            // Yield to other tasks first.
            (shared.ring)();
        }
        streams.values_mut().for_each(|streams| streams.serve(rest));
        let taken = shared.control.try_send(rest).filter(|_| !is_over).ok_or(FrameError)?;
        rest.drain(..taken);
        // A cell that sends without reading is cut off.
        if rest.len() > REST_MAX { Err(FrameError) } else { Ok(()) }
    }

    /// Parses reports of the cell.
    fn parse_reports(&mut self, bytes: &[u8]) -> Result<(), FrameError> {
        self.bytes.extend_from_slice(bytes);
        let mut rest = &self.bytes[..];
        while let Some(frame) = Frame::parse(rest)? {
            let end = Frame::SIZE + frame.length as usize;
            let Some(bytes) = rest.get(Frame::SIZE..end) else { break };
            if let Some(streams) = self.streams.get_mut(&frame.job)
                && let Some(end) = streams.report(frame, bytes)?
            {
                self.streams.remove(&frame.job);
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

impl JobStreams {
    /// Handles a report. Returns the job's end if it reports that.
    fn report(&mut self, Frame { kind, detail, .. }: Frame, bytes: &[u8]) -> Result<Option<JobEnd>, FrameError> {
        match kind {
            Kind::Taken => self.window = self.window.checked_add(detail).filter(|window| *window <= WINDOW).ok_or(FrameError)?,
            Kind::Output => {
                let stream = match detail {
                    ring::OUTPUT => Stream::Stdout,
                    ring::ERRORS => Stream::Stderr,
                    _ => return Err(FrameError),
                };
                self.unacknowledged = self
                    .unacknowledged
                    .checked_add(bytes.len() as u32)
                    .filter(|unacknowledged| *unacknowledged <= WINDOW)
                    .ok_or(FrameError)?;
                self.job.port.append_output(stream, bytes.to_vec());
            }
            Kind::Ended => {
                let [signal, status, ..] = detail.to_le_bytes();
                return Ok(Some(if signal == 0 { JobEnd::Exited(status) } else { JobEnd::Signalled(signal) }));
            }
            _ => return Err(FrameError),
        }
        Ok(None)
    }

    /// Adds the job's pending frames.
    fn serve(&mut self, frames: &mut Vec<u8>) {
        let (number, port) = (self.job.number, &self.job.port);
        for (index, (stream, tag)) in [(Stream::Stdout, ring::OUTPUT), (Stream::Stderr, ring::ERRORS)].into_iter().enumerate() {
            if port.is_stream_closed(stream) && !std::mem::replace(&mut self.closed[index], true) {
                frames.extend(Frame::new(Kind::CloseOutput, number, tag).to_bytes());
            }
        }
        let consumed = self.unacknowledged.saturating_sub(u32::try_from(port.unread_output()).unwrap_or(u32::MAX));
        if consumed > 0 {
            self.unacknowledged -= consumed;
            frames.extend(Frame::new(Kind::Taken, number, consumed).to_bytes());
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

#[cfg(test)]
mod tests {
    use super::super::{Command, Job, JobEnd, Jobs, MultiplexerState, State};
    use super::Multiplexer;
    use pando_abi::control::{Frame, Kind, PIECE, WINDOW};
    use pando_abi::ring::{ERRORS, OUTPUT};
    use pando_kernel::{ConsoleOutput, ConsolePort, Stream};
    use std::sync::{Arc, Mutex};

    /// A multiplexer for a job of a cell that the test plays.
    fn job() -> (Multiplexer, Arc<Job>, Arc<ConsolePort>) {
        let control = ConsolePort::detached(|| ());
        let shared = MultiplexerState { control: Arc::clone(&control), state: Mutex::new(State::default()), ring: Arc::new(|| ()) };
        let jobs = Jobs(Arc::new(shared));
        let job = jobs.start(&Command::default()).expect("it is the first");
        let mut multiplexer = Multiplexer::new(Arc::clone(&jobs.0));
        multiplexer.transfer().expect("nothing was said");
        let (started, _) = control.take_input(usize::MAX);
        assert!(Frame::parse(&started).is_ok_and(|frame| frame.is_some_and(|frame| frame.kind == Kind::Start)));
        (multiplexer, job, control)
    }

    fn output(detail: u32, bytes: &[u8]) -> Vec<u8> {
        let frame = Frame { kind: Kind::Output, job: 1, detail, length: bytes.len() as u32 };
        frame.to_bytes().into_iter().chain(bytes.iter().copied()).collect()
    }

    /// Frames are parsed in whatever pieces they arrive.
    #[test]
    fn received_output_is_acknowledged_after_it_was_read() {
        let (mut multiplexer, job, control) = job();
        let all: Vec<u8> = output(OUTPUT, b"out").into_iter().chain(output(ERRORS, b"wrong")).collect();
        for byte in &all {
            control.append_output(Stream::Stdout, vec![*byte]);
            multiplexer.transfer().expect("it makes sense so far");
        }
        assert!(control.take_input(usize::MAX).0.is_empty(), "nobody has heard anything");
        assert_eq!(job.port().try_receive(), ConsoleOutput::Bytes(Stream::Stdout, b"out".to_vec()));
        multiplexer.transfer().expect("it makes sense");
        assert_eq!(control.take_input(usize::MAX).0, Frame::new(Kind::Taken, 1, 3).to_bytes());
        control.append_output(Stream::Stdout, Frame::new(Kind::Ended, 1, 7 << 8).to_bytes().to_vec());
        multiplexer.transfer().expect("it makes sense");
        assert_eq!((job.end(), job.port().receive()), (Some(JobEnd::Exited(7)), Some((Stream::Stderr, b"wrong".to_vec()))));
        assert_eq!(job.port().try_receive(), ConsoleOutput::End);
        // Frames of an ended job are ignored.
        control.append_output(Stream::Stdout, output(OUTPUT, b"more"));
        assert!(multiplexer.transfer().is_ok());
    }

    #[test]
    fn no_more_input_goes_than_the_cell_has_room_for() {
        let (mut multiplexer, job, control) = job();
        assert!(job.port().send(&vec![1; 3 * WINDOW as usize]));
        let transferred = |multiplexer: &mut Multiplexer| {
            multiplexer.transfer().expect("nothing was said");
            control.take_input(usize::MAX).0.len()
        };
        let frames = |bytes: usize| bytes + bytes.div_ceil(PIECE) * Frame::SIZE;
        assert_eq!((transferred(&mut multiplexer), transferred(&mut multiplexer)), (frames(WINDOW as usize), 0));
        control.append_output(Stream::Stdout, Frame::new(Kind::Taken, 1, 100).to_bytes().to_vec());
        assert_eq!(transferred(&mut multiplexer), frames(100));
    }

    #[test]
    fn malformed_reports_close_the_channel() {
        let too_much: Vec<u8> = (0..=WINDOW as usize / PIECE).flat_map(|_| output(OUTPUT, &[0; PIECE])).collect();
        let cases = [
            vec![0xff; Frame::SIZE],
            too_much,
            output(7, b"no stream"),
            Frame::new(Kind::Taken, 1, 1).to_bytes().to_vec(),
            Frame::new(Kind::Taken, 1, u32::MAX).to_bytes().to_vec(),
            Frame::new(Kind::Signal, 1, 9).to_bytes().to_vec(),
            Frame { kind: Kind::Output, job: 1, detail: OUTPUT, length: u32::MAX }.to_bytes().to_vec(),
            Frame { kind: Kind::Ended, job: 1, detail: 0, length: 1 }.to_bytes().to_vec(),
        ];
        for case in cases {
            let (mut multiplexer, job, control) = job();
            control.append_output(Stream::Stdout, case.clone());
            assert!(!multiplexer.turn(), "{case:?}");
            assert_eq!((job.end(), job.wait()), (Some(JobEnd::Lost), JobEnd::Lost), "{case:?}");
        }
    }
}
