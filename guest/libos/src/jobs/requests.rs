// SPDX-License-Identifier: MIT OR Apache-2.0
//! Reassembles the operator's requests from the pieces in which they arrive.

use alloc::vec::Vec;

use pando_abi::control::{Frame, Start};

use crate::errno::Errno;
use crate::string_list::StringList;

/// Whether the stream of requests can still be parsed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ParserState {
    #[default]
    Valid,
    /// A malformed request arrived, or memory ran out: everything after it is unusable.
    Invalid,
    /// The error has been reported to the operator.
    Reported,
}

/// The received bytes that form no complete request yet.
#[derive(Debug, Default)]
pub struct JobRequests {
    bytes: Vec<u8>,
    state: ParserState,
}

impl JobRequests {
    /// Appends received bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        if self.state != ParserState::Valid {
            return;
        }
        if self.bytes.try_reserve(bytes.len()).is_ok() {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.invalidate();
        }
    }

    fn invalidate(&mut self) {
        (self.state, self.bytes) = (ParserState::Invalid, Vec::new());
    }

    /// The next complete request, and the bytes that follow its header.
    pub fn take(&mut self) -> Option<(Frame, Vec<u8>)> {
        let Ok(frame) = Frame::parse(&self.bytes) else {
            self.invalidate();
            return None;
        };
        let frame = frame?;
        let end = Frame::SIZE + frame.length as usize;
        let following = self.bytes.get(Frame::SIZE..end)?;
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(following.len()).is_err() {
            self.invalidate();
            return None;
        }
        bytes.extend_from_slice(following);
        self.bytes.drain(..end);
        Some((frame, bytes))
    }

    /// Reports once that no further requests are accepted, by an invalid report that makes the operator give up all jobs. `report`
    /// returns whether the channel had space for it.
    pub fn report_error(&mut self, report: impl FnOnce(&[u8]) -> bool) {
        if self.state == ParserState::Invalid && report(&[0xff; Frame::SIZE]) {
            self.state = ParserState::Reported;
        }
    }
}

/// A program to run.
#[derive(Debug, Default)]
pub struct JobRequest {
    /// Its path, or a name to find in its PATH.
    pub path: Vec<u8>,
    /// Its working directory.
    pub directory: Vec<u8>,
    /// Its arguments.
    pub arguments: StringList,
    /// Its environment.
    pub environment: StringList,
}

/// Parses a request to start a job.
///
/// # Errors
/// `EINVAL`: its lengths do not match its content. `E2BIG`.
pub fn parse(bytes: &[u8]) -> Result<(Start, JobRequest), Errno> {
    let (start, strings) = Start::split(bytes).ok_or(Errno::EINVAL)?;
    let mut strings = strings.strip_suffix(&[0]).ok_or(Errno::EINVAL)?.split(|byte| *byte == 0);
    let mut next = || strings.next().ok_or(Errno::EINVAL);
    let (path, directory) = (next()?.to_vec(), next()?.to_vec());
    let mut words = |count: u32| {
        let mut words = StringList::default();
        (0..count).try_for_each(|_| words.push(next()?))?;
        Ok::<StringList, Errno>(words)
    };
    let (arguments, environment) = (words(start.arguments)?, words(start.environment)?);
    Ok((start, JobRequest { path, directory, arguments, environment }))
}

#[cfg(test)]
mod tests {
    use super::{JobRequests, parse};
    use crate::errno::Errno;
    use pando_abi::control::{Frame, FrameError, Kind, Start};
    use std::vec::Vec;

    #[test]
    fn requests_are_put_together_from_any_pieces() {
        let start = Start { user: 5, group: 6, arguments: 2, environment: 1 };
        let bytes: Vec<u8> = start.to_bytes().into_iter().chain(*b"/bin/a\0/tmp\0a\0b c\0X=1\0").collect();
        let frame = Frame { kind: Kind::Start, job: 7, detail: 0, length: bytes.len() as u32 };
        let all: Vec<u8> = frame.to_bytes().into_iter().chain(bytes.clone()).chain(Frame::new(Kind::InputEnd, 7, 0).to_bytes()).collect();
        for piece in [1, 15, 16, 17, all.len()] {
            let mut requests = JobRequests::default();
            let mut found = Vec::new();
            for piece in all.chunks(piece) {
                requests.add(piece);
                found.extend(core::iter::from_fn(|| requests.take()));
            }
            assert_eq!(found, [(frame, bytes.clone()), (Frame::new(Kind::InputEnd, 7, 0), Vec::new())]);
        }
        let (found, wanted) = parse(&bytes).expect("it is whole");
        assert_eq!((found, &wanted.path[..], &wanted.directory[..]), (start, &b"/bin/a"[..], &b"/tmp"[..]));
        assert_eq!((wanted.arguments.bytes(), wanted.environment.bytes()), (&b"a\0b c\0"[..], &b"X=1\0"[..]));
        for length in 0..bytes.len() - 1 {
            assert_eq!(parse(&bytes[..length]).err(), Some(Errno::EINVAL));
        }
    }

    #[test]
    fn after_a_malformed_request_nothing_is_parsed() {
        let mut requests = JobRequests::default();
        requests.add(&[0xff; 16]);
        assert_eq!(requests.take(), None);
        requests.add(&Frame::new(Kind::InputEnd, 1, 0).to_bytes());
        assert_eq!(requests.take(), None);
        // The error is reported once, when there is space for it.
        let mut results = Vec::new();
        for has_room in [false, true, true] {
            requests.report_error(|malformed| {
                results.push(Frame::parse(malformed));
                has_room
            });
        }
        assert_eq!(results, [Err(FrameError); 2]);
        JobRequests::default().report_error(|_| panic!("all is well"));
    }
}
