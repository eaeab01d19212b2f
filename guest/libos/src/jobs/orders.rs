// SPDX-License-Identifier: MIT OR Apache-2.0
//! Orders, put together from the pieces in which they come.

use alloc::vec::Vec;

use pando_abi::control::{Frame, Start};

use crate::errno::Errno;
use crate::loader::words::Words;

/// Whether what comes can be understood.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Sense {
    #[default]
    Makes,
    /// Something came that was no order, or for which there was no memory: nothing that follows can be.
    Lost,
    /// The operator knows.
    Confessed,
}

/// What has come and is no whole order yet.
#[derive(Debug, Default)]
pub struct Orders {
    bytes: Vec<u8>,
    sense: Sense,
}

impl Orders {
    /// Takes bytes that have come.
    pub fn add(&mut self, bytes: &[u8]) {
        if self.sense != Sense::Makes {
            return;
        }
        if self.bytes.try_reserve(bytes.len()).is_ok() {
            self.bytes.extend_from_slice(bytes);
        } else {
            self.lose();
        }
    }

    fn lose(&mut self) {
        (self.sense, self.bytes) = (Sense::Lost, Vec::new());
    }

    /// The next whole order, and what follows its header.
    pub fn take(&mut self) -> Option<(Frame, Vec<u8>)> {
        let Ok(frame) = Frame::parse(&self.bytes) else {
            self.lose();
            return None;
        };
        let frame = frame?;
        let end = Frame::SIZE + frame.length as usize;
        let following = self.bytes.get(Frame::SIZE..end)?;
        let mut bytes = Vec::new();
        if bytes.try_reserve_exact(following.len()).is_err() {
            self.lose();
            return None;
        }
        bytes.extend_from_slice(following);
        self.bytes.drain(..end);
        Some((frame, bytes))
    }

    /// Says once that nothing is obeyed any more: by what is no report, so that the operator gives all jobs up. `report` says whether there was room for it.
    pub fn confess(&mut self, report: impl FnOnce(&[u8]) -> bool) {
        if self.sense == Sense::Lost && report(&[0xff; Frame::SIZE]) {
            self.sense = Sense::Confessed;
        }
    }
}

/// A program that shall run.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Its path.
    pub path: Vec<u8>,
    /// Its working directory.
    pub directory: Vec<u8>,
    /// Its arguments.
    pub arguments: Words,
    /// Its environment.
    pub environment: Words,
}

/// Reads an order to start a job.
///
/// # Errors
/// `EINVAL`: it does not hold what it says. `E2BIG`.
pub fn understand(bytes: &[u8]) -> Result<(Start, Wanted), Errno> {
    let (start, strings) = Start::split(bytes).ok_or(Errno::EINVAL)?;
    let mut strings = strings.strip_suffix(&[0]).ok_or(Errno::EINVAL)?.split(|byte| *byte == 0);
    let mut next = || strings.next().ok_or(Errno::EINVAL);
    let (path, directory) = (next()?.to_vec(), next()?.to_vec());
    let mut words = |count: u32| {
        let mut words = Words::default();
        (0..count).try_for_each(|_| words.push(next()?))?;
        Ok::<Words, Errno>(words)
    };
    let (arguments, environment) = (words(start.arguments)?, words(start.environment)?);
    Ok((start, Wanted { path, directory, arguments, environment }))
}

#[cfg(test)]
mod tests {
    use super::{Orders, understand};
    use crate::errno::Errno;
    use pando_abi::control::{Frame, Kind, Malformed, Start};
    use std::vec::Vec;

    #[test]
    fn orders_are_put_together_from_any_pieces() {
        let start = Start { user: 5, group: 6, arguments: 2, environment: 1 };
        let bytes: Vec<u8> = start.to_bytes().into_iter().chain(*b"/bin/a\0/tmp\0a\0b c\0X=1\0").collect();
        let frame = Frame { kind: Kind::Start, job: 7, detail: 0, length: bytes.len() as u32 };
        let all: Vec<u8> = frame.to_bytes().into_iter().chain(bytes.clone()).chain(Frame::new(Kind::InputEnd, 7, 0).to_bytes()).collect();
        for piece in [1, 15, 16, 17, all.len()] {
            let mut orders = Orders::default();
            let mut found = Vec::new();
            for piece in all.chunks(piece) {
                orders.add(piece);
                found.extend(core::iter::from_fn(|| orders.take()));
            }
            assert_eq!(found, [(frame, bytes.clone()), (Frame::new(Kind::InputEnd, 7, 0), Vec::new())]);
        }
        let (found, wanted) = understand(&bytes).expect("it is whole");
        assert_eq!((found, &wanted.path[..], &wanted.directory[..]), (start, &b"/bin/a"[..], &b"/tmp"[..]));
        assert_eq!((wanted.arguments.bytes(), wanted.environment.bytes()), (&b"a\0b c\0"[..], &b"X=1\0"[..]));
        for length in 0..bytes.len() - 1 {
            assert_eq!(understand(&bytes[..length]).err(), Some(Errno::EINVAL));
        }
    }

    #[test]
    fn after_nonsense_nothing_is_understood() {
        let mut orders = Orders::default();
        orders.add(&[0xff; 16]);
        assert_eq!(orders.take(), None);
        orders.add(&Frame::new(Kind::InputEnd, 1, 0).to_bytes());
        assert_eq!(orders.take(), None);
        // That is said once, when there is room.
        let mut said = Vec::new();
        for has_room in [false, true, true] {
            orders.confess(|nonsense| {
                said.push(Frame::parse(nonsense));
                has_room
            });
        }
        assert_eq!(said, [Err(Malformed); 2]);
        Orders::default().confess(|_| panic!("all is well"));
    }
}
