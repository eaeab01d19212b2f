// SPDX-License-Identifier: MIT OR Apache-2.0
//! What an operator and a libOS say to each other through the control channel: programs that run in a cell beside its first one, as *jobs*.
//!
//! Both directions carry *frames*: a [`Frame`], and as many bytes as it says. From the operator come orders, from the libOS reports. Each job has a window of [`WINDOW`] bytes in each
//! direction: nobody sends more than that which the other side has not said to have taken. So no job holds up another, and neither side keeps more than it wants to.

/// Jobs that a cell may have at a time.
pub const JOBS: usize = 16;
/// Bytes of a job's input, and of its outputs together, that may be under way.
pub const WINDOW: u32 = 64 << 10;
/// Bytes of the longest frame that carries a stream.
pub const PIECE: usize = 4096 - Frame::SIZE;
/// Bytes of the longest frame that starts a job.
pub const START_MAX: usize = 256 << 10;
/// [`Frame::detail`] of [`Kind::Start`]: run the program at the path.
pub const RUN: u32 = 0;
/// Report what the file at the path holds, as output; nothing runs.
pub const READ: u32 = 1;
/// Put a file that holds the input in the place of that at the path, once all of it came; nothing runs.
pub const WRITE: u32 = 2;

/// What a frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Order: start this job, of which `detail` says what it is ([`RUN`], [`READ`], [`WRITE`]). [`Start`] and its strings follow.
    Start = 1,
    /// Order: bytes of its input follow.
    Input = 2,
    /// Order: its input ends here.
    InputEnd = 3,
    /// Order: send its processes the signal `detail`; one that has none breaks off.
    Signal = 4,
    /// Order or report: `detail` bytes of what came were taken.
    Taken = 5,
    /// Order: nobody reads its output `detail` any more: [`OUTPUT`](crate::ring::OUTPUT) or [`ERRORS`](crate::ring::ERRORS).
    Unread = 6,
    /// Report: bytes of its output `detail` follow.
    Output = 7,
    /// Report: it has ended as `detail` says: the status in bits 8 to 15, or the signal below. The last of a job.
    Ended = 8,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 8] =
        [Kind::Start, Kind::Input, Kind::InputEnd, Kind::Signal, Kind::Taken, Kind::Unread, Kind::Output, Kind::Ended];
}

/// The beginning of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it says.
    pub kind: Kind,
    /// Of which job, by the operator's number for it.
    pub job: u32,
    /// What that means depends on the kind.
    pub detail: u32,
    /// Bytes that follow.
    pub length: u32,
}

impl Frame {
    /// Bytes of it.
    pub const SIZE: usize = 16;

    /// A frame that nothing follows.
    #[must_use]
    pub const fn new(kind: Kind, job: u32, detail: u32) -> Frame {
        Frame { kind, job, detail, length: 0 }
    }

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Frame::SIZE] {
        let mut bytes = [0; Frame::SIZE];
        for (room, word) in bytes.chunks_exact_mut(4).zip([self.kind as u32, self.job, self.detail, self.length]) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The frame that bytes begin with. `None`: there are too few.
    ///
    /// # Errors
    /// [`Malformed`]: it is none, or longer than any.
    pub fn parse(bytes: &[u8]) -> Result<Option<Frame>, Malformed> {
        let Some(bytes) = bytes.first_chunk::<{ Frame::SIZE }>() else { return Ok(None) };
        let [kind, job, detail, length] = words(bytes);
        let kind = Kind::ALL.into_iter().find(|known| *known as u32 == kind).ok_or(Malformed)?;
        let most = match kind {
            Kind::Start => START_MAX,
            Kind::Input | Kind::Output => PIECE,
            _ => 0,
        };
        if length as usize > most { Err(Malformed) } else { Ok(Some(Frame { kind, job, detail, length })) }
    }
}

/// What came is no frame: nothing that follows can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// What shall be done. Strings follow, each ended by a zero byte: the path, the working directory, the program's arguments (the first is its name as it will see it), and the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The user that it is.
    pub user: u32,
    /// Its group.
    pub group: u32,
    /// How many arguments there are.
    pub arguments: u32,
    /// How many strings its environment has.
    pub environment: u32,
}

impl Start {
    /// Bytes of it.
    pub const SIZE: usize = 16;

    /// Its bytes.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Start::SIZE] {
        let mut bytes = [0; Start::SIZE];
        for (room, word) in bytes.chunks_exact_mut(4).zip([self.user, self.group, self.arguments, self.environment]) {
            room.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// What bytes begin with, and the strings. `None`: there are too few.
    #[must_use]
    pub fn split(bytes: &[u8]) -> Option<(Start, &[u8])> {
        let (bytes, strings) = bytes.split_first_chunk::<{ Start::SIZE }>()?;
        let [user, group, arguments, environment] = words(bytes);
        Some((Start { user, group, arguments, environment }, strings))
    }
}

fn words(bytes: &[u8; 16]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    words
}
