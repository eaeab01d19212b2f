// SPDX-License-Identifier: MIT OR Apache-2.0
//! The job protocol of the control channel: an operator runs programs in a cell besides its first one, as *jobs*.
//!
//! Both directions carry *frames*: a [`Frame`] header and its payload. The operator sends requests, the libOS sends
//! reports. Each job has a flow control window of [`WINDOW`] bytes in each direction: the sender stops when so many
//! bytes are not yet confirmed. So no job holds up another, and neither side needs to buffer more.

/// Maximum number of jobs of a cell at a time.
pub const JOBS: usize = 16;
/// The number of the cell's first program, which is no job: it is only sent signals.
pub const FIRST_PROGRAM: u32 = 0;
/// Maximum number of unconfirmed bytes of a job's input, and of its outputs together.
pub const WINDOW: u32 = 64 << 10;
/// Maximum payload of a frame that carries a stream.
pub const PIECE: usize = 4096 - Frame::SIZE;
/// Maximum payload of a frame that starts a job.
pub const START_MAX: usize = 256 << 10;
/// [`Frame::detail`] of [`Kind::Start`]: run the program at the path.
pub const RUN: u32 = 0;
/// Report the content of the file at the path as output; no program runs.
pub const READ: u32 = 1;
/// Replace the file at the path by the input, once all of it has arrived; no program runs.
pub const WRITE: u32 = 2;
/// Run the program at the path in a new session, with a new pseudo terminal for all its streams. The end of the input is typed as the
/// end-of-file character.
pub const RUN_IN_TERMINAL: u32 = 3;
/// Report the changes of the root volume as output: a tar archive in the form of a container image's layer. No program of the cell runs
/// meanwhile.
pub const LAYER: u32 = 4;
/// Report what happens to the file or directory at the path, with the argument `recursive` also below it; no program runs. The output is
/// records: the events as inotify has them, its cookie, and the length of the path, in 32 bits each; then the path. The first record, all
/// zero, reports that the watch has begun.
pub const WATCH: u32 = 5;

/// The type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Request: start this job; `detail` is its type ([`RUN`], [`READ`], [`WRITE`], [`RUN_IN_TERMINAL`], [`LAYER`], [`WATCH`]).
    /// [`Start`] and its strings follow.
    Start = 1,
    /// Request: bytes of its input follow.
    Input = 2,
    /// Request: its input ends here.
    InputEnd = 3,
    /// Request: send its processes the signal `detail`; a job without processes is aborted. The job may be [`FIRST_PROGRAM`].
    Signal = 4,
    /// Request or report: `detail` received bytes were consumed.
    Taken = 5,
    /// Request: its output `detail` is closed, [`OUTPUT`](crate::ring::OUTPUT) or [`ERRORS`](crate::ring::ERRORS).
    CloseOutput = 6,
    /// Report: bytes of its output `detail` follow.
    Output = 7,
    /// Report: it has ended with wait status `detail`: the exit status in bits 8 to 15, or the signal below. The last frame of a job.
    Ended = 8,
    /// Request: the size of its terminal is `detail`: rows in the upper 16 bits, columns in the lower ones; 0 is unknown.
    Resize = 9,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 9] =
        [Kind::Start, Kind::Input, Kind::InputEnd, Kind::Signal, Kind::Taken, Kind::CloseOutput, Kind::Output, Kind::Ended, Kind::Resize];
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The type.
    pub kind: Kind,
    /// The operator's number of the job.
    pub job: u32,
    /// A parameter of the type.
    pub detail: u32,
    /// Bytes of the payload.
    pub length: u32,
}

impl Frame {
    /// Bytes of it.
    pub const SIZE: usize = 16;

    /// A frame without payload.
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

    /// Decodes the frame at the start of `bytes`. `None`: there are too few.
    ///
    /// # Errors
    /// [`FrameError`]: it is invalid, or too long.
    pub fn parse(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
        let Some(bytes) = bytes.first_chunk::<{ Frame::SIZE }>() else { return Ok(None) };
        let [kind, job, detail, length] = words(bytes);
        let kind = Kind::ALL.into_iter().find(|known| *known as u32 == kind).ok_or(FrameError)?;
        let most = match kind {
            Kind::Start => START_MAX,
            Kind::Input | Kind::Output => PIECE,
            _ => 0,
        };
        if length as usize > most { Err(FrameError) } else { Ok(Some(Frame { kind, job, detail, length })) }
    }
}

/// The received bytes are no frame, so no later bytes can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameError;

/// The parameters of a job. Strings follow, each ended by a zero byte: the path, the working directory, the program's
/// arguments (`argv`, its name first), and the environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// The user id.
    pub user: u32,
    /// The group id.
    pub group: u32,
    /// Number of arguments.
    pub arguments: u32,
    /// Number of environment strings.
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

    /// Splits `bytes` into the parameters and the strings. `None`: there are too few.
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
