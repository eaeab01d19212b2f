// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames between two processes: two rings of bytes in shared memory, one for each direction.
//!
//! A ring holds records: a length of eight bytes, then the frame, padded to eight bytes. A record is contiguous. If one does not fit
//! before the end of the ring, a record without a frame ([`SKIP`]) fills the rest. The producer advances `head`, the consumer `tail`;
//! both count bytes and wrap around.
//!
//! Only the peer trusts the other side. [`RingOwner`] reads each value once, as a copy, and checks it before use, because the other
//! process may write anything at any time. [`RingPeer`] reads and writes frames in place, because it runs on behalf of the owner and
//! has no protection from it anyway.
//!
//! No function here waits. Each side has a flag: it was woken and has not looked since. So it is woken only once, by a mechanism that
//! its user chooses.

use crate::retry::retry;
use pando_abi::frame::FRAME_MAX;
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Bytes of one ring: a power of two, sixteen of the longest frames.
const RING: u32 = 1 << 20;
/// Bytes in front of the rings, for the header. Each of its words has a cache line of its own.
const HEADER: usize = 4096;
const LINE: usize = 128;
const LENGTH: usize = HEADER + 2 * RING as usize;
/// Bytes of a record's length; all records begin at a multiple of it.
const UNIT: u32 = 8;
/// The length of a record that only fills the ring up to its end.
const SKIP: u32 = u32::MAX;

const _: () = assert!(FRAME_MAX < RING as usize / 4);

/// Words of the header.
#[derive(Clone, Copy)]
enum Word {
    /// The owner's write position.
    OwnerHead,
    /// The peer's read position in the owner's ring.
    PeerTail,
    /// The peer's write position.
    PeerHead,
    /// The owner's read position in the peer's ring.
    OwnerTail,
    /// The owner was woken and has not looked since.
    OwnerWoken,
    /// The peer was woken and has not looked since.
    PeerWoken,
    /// The owner waits for room.
    OwnerWaits,
    /// The peer waits for room.
    PeerWaits,
    /// The peer must stop.
    Stopped,
}

/// The other process broke the rules of the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the ring of frames that it shares with this process is damaged")]
pub struct RingError;

/// The shared memory, mapped.
#[derive(Debug)]
struct Mapping {
    start: NonNull<u8>,
}

// SAFETY: the memory stays mapped for the value's life, and belongs to no thread.
unsafe impl Send for Mapping {}
// SAFETY: as above; words are atomics. Bytes are accessed only by raw copies, or by the ring's one user through `&mut`.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(memory: BorrowedFd<'_>) -> Result<Mapping> {
        // SAFETY: the call maps an object of at least this length, as `create` makes it and seals it, at an address of the host's choice.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), LENGTH, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, memory.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        NonNull::new(start.cast()).map(|start| Mapping { start }).ok_or_else(|| Error::other("a mapping at address zero"))
    }

    fn word(&self, word: Word) -> &AtomicU32 {
        // SAFETY: the word lies in the header, is aligned to a cache line, and both processes access it only as an atomic.
        unsafe { self.start.add(word as usize * LINE).cast::<AtomicU32>().as_ref() }
    }

    /// The address of a position of a ring. Positions wrap around; the bytes from there to the ring's end belong to the ring.
    fn at(&self, ring: usize, position: u32) -> NonNull<u8> {
        // SAFETY: the offset is less than the mapping's length: there are two rings, and the position is taken modulo one's length.
        unsafe { self.start.add(HEADER + ring * RING as usize + (position % RING) as usize) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference into it exists any more.
        unsafe { libc::munmap(self.start.as_ptr().cast(), LENGTH) };
    }
}

/// Creates shared memory for two rings, on which both ends are opened. Its length cannot be changed.
///
/// # Errors
/// The host has no memory or descriptor for it.
pub fn create_rings() -> Result<OwnedFd> {
    // SAFETY: the name is a C string.
    let memory = unsafe { libc::memfd_create(c"frames".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if memory < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: it is open, and nothing else owns it.
    let memory = unsafe { OwnedFd::from_raw_fd(memory) };
    let checked = |outcome: libc::c_int| if outcome < 0 { Err(vmm_sys_util::errno::Error::last()) } else { Ok(()) };
    // SAFETY: the call takes numbers alone.
    retry(|| checked(unsafe { libc::ftruncate(memory.as_raw_fd(), LENGTH as libc::off_t) }))?;
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: the call takes numbers alone.
    retry(|| checked(unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_ADD_SEALS, seals) }))?;
    Ok(memory)
}

/// Checks that memory from another process cannot shrink later: accessing it would then end this process by SIGBUS.
fn check(memory: BorrowedFd<'_>) -> Result<()> {
    // SAFETY: the call takes numbers alone.
    let seals = unsafe { libc::fcntl(memory.as_raw_fd(), libc::F_GET_SEALS) };
    // SAFETY: the structure is plain data, for which zero is a value.
    let mut found: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is live and exclusively ours.
    let asked = unsafe { libc::fstat(memory.as_raw_fd(), &mut found) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 || asked < 0 || found.st_size < LENGTH as libc::off_t {
        return Err(Error::other("the memory is not that of two rings"));
    }
    Ok(())
}

/// Bytes of a record.
const fn record(length: u32) -> u32 {
    UNIT + length.next_multiple_of(UNIT)
}

/// The producer of one ring.
#[derive(Debug)]
struct Producer {
    ring: usize,
    head: u32,
    words: [Word; 2],
}

/// The consumer of one ring.
#[derive(Debug)]
struct Consumer {
    ring: usize,
    tail: u32,
    words: [Word; 2],
}

impl std::fmt::Debug for Word {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (*self as usize).fmt(formatter)
    }
}

impl Producer {
    /// Finds space for a frame of up to `length` bytes, behind a record's length. `None`: the ring is too full now.
    fn reserve(&mut self, map: &Mapping, length: u32) -> Option<u32> {
        let [head, tail] = self.words;
        let used = self.head.wrapping_sub(map.word(tail).load(Ordering::SeqCst));
        let free = RING.checked_sub(used)?;
        let to_end = RING - self.head % RING;
        let skipped = if record(length) > to_end { to_end } else { 0 };
        if free < skipped + record(length) {
            return None;
        }
        if skipped > 0 {
            self.write_length(map, SKIP);
            self.head = self.head.wrapping_add(skipped);
            map.word(head).store(self.head, Ordering::SeqCst);
        }
        Some(self.head.wrapping_add(UNIT))
    }

    /// Sends the frame that was written into the reserved space.
    fn commit(&mut self, map: &Mapping, length: u32) {
        self.write_length(map, length);
        self.head = self.head.wrapping_add(record(length));
        map.word(self.words[0]).store(self.head, Ordering::SeqCst);
    }

    fn write_length(&self, map: &Mapping, length: u32) {
        // SAFETY: a record's length lies in the ring, is aligned, and only the producer writes it until `head` has passed it.
        unsafe { map.at(self.ring, self.head).cast::<u32>().write_volatile(length) };
    }
}

impl Consumer {
    /// The length of the next frame.
    fn next(&mut self, map: &Mapping) -> std::result::Result<Option<u32>, RingError> {
        let [head, tail] = self.words;
        loop {
            let filled = map.word(head).load(Ordering::SeqCst).wrapping_sub(self.tail);
            if filled == 0 {
                return Ok(None);
            }
            let to_end = RING - self.tail % RING;
            if filled > RING || !filled.is_multiple_of(UNIT) {
                return Err(RingError);
            }
            // SAFETY: the word lies in the ring and is aligned, because `tail` is a multiple of eight. It is read once.
            let length = unsafe { map.at(self.ring, self.tail).cast::<u32>().read_volatile() };
            if length != SKIP {
                let fits = length as usize <= FRAME_MAX && record(length) <= filled.min(to_end);
                return if fits { Ok(Some(length)) } else { Err(RingError) };
            }
            if to_end > filled {
                return Err(RingError);
            }
            self.tail = self.tail.wrapping_add(to_end);
            map.word(tail).store(self.tail, Ordering::SeqCst);
        }
    }

    /// Advances past a frame of this length.
    fn advance(&mut self, map: &Mapping, length: u32) {
        self.tail = self.tail.wrapping_add(record(length));
        map.word(self.words[1]).store(self.tail, Ordering::SeqCst);
    }
}

/// Sets a flag. Returns whether it was clear.
fn set(map: &Mapping, word: Word) -> bool {
    map.word(word).swap(1, Ordering::SeqCst) == 0
}

/// Clears a flag. Returns whether it was set.
fn clear(map: &Mapping, word: Word) -> bool {
    map.word(word).swap(0, Ordering::SeqCst) != 0
}

/// The end of the process that does not trust the other process.
#[derive(Debug)]
pub struct RingOwner {
    map: Mapping,
    sends: Producer,
    receives: Consumer,
    /// The length of the frame that was announced and not received yet. It is not read from the ring again.
    announced: Option<u32>,
}

impl RingOwner {
    /// Opens the owner's end of new rings.
    ///
    /// # Errors
    /// The memory is not from [`create_rings`], or cannot be mapped.
    pub fn open(memory: impl AsFd) -> Result<RingOwner> {
        check(memory.as_fd())?;
        Ok(RingOwner {
            map: Mapping::new(memory.as_fd())?,
            sends: Producer { ring: 0, head: 0, words: [Word::OwnerHead, Word::PeerTail] },
            receives: Consumer { ring: 1, tail: 0, words: [Word::PeerHead, Word::OwnerTail] },
            announced: None,
        })
    }

    /// Sends a frame. `false`: the ring is too full now, and the peer will wake this end when it has space.
    pub fn send(&mut self, frame: &[u8]) -> bool {
        if frame.len() > FRAME_MAX {
            return true;
        }
        let length = frame.len() as u32;
        let mut place = self.sends.reserve(&self.map, length);
        if place.is_none() {
            set(&self.map, Word::OwnerWaits);
            // The peer may have freed space before it could see the flag.
            place = self.sends.reserve(&self.map, length);
        }
        let Some(place) = place else { return false };
        // SAFETY: the reserved bytes are in the ring, and belong to this end until they are committed. The other process may see them
        // early, or write there itself; no reference to them exists.
        unsafe { std::ptr::copy_nonoverlapping(frame.as_ptr(), self.map.at(0, place).as_ptr(), frame.len()) };
        self.sends.commit(&self.map, length);
        true
    }

    /// The length of the next frame to receive.
    ///
    /// # Errors
    /// The peer broke the rules.
    pub fn next_length(&mut self) -> std::result::Result<Option<usize>, RingError> {
        if self.announced.is_none() {
            self.announced = self.receives.next(&self.map)?;
        }
        Ok(self.announced.map(|length| length as usize))
    }

    /// Receives the frame whose length [`RingOwner::next_length`] returned, as far as it fits into `place`.
    pub fn receive(&mut self, place: &mut [u8]) {
        let Some(length) = self.announced.take() else { return };
        // SAFETY: `next` found that `length` bytes lie between here and the ring's end. The other process may change them meanwhile; no
        // reference to them exists.
        unsafe {
            let from = self.map.at(1, self.receives.tail.wrapping_add(UNIT));
            std::ptr::copy_nonoverlapping(from.as_ptr(), place.as_mut_ptr(), place.len().min(length as usize));
        }
        self.receives.advance(&self.map, length);
    }

    /// Clears this end's flag before it looks at the rings. After this call, the peer wakes this end again.
    pub fn poll(&self) {
        clear(&self.map, Word::OwnerWoken);
    }

    /// Whether the caller must wake the peer: it was not woken since it last looked. Sets the peer's flag.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        set(&self.map, Word::PeerWoken)
    }

    /// Whether the peer waits for space that receiving has freed. If so, the caller must wake it.
    #[must_use]
    pub fn peer_waits_for_space(&self) -> bool {
        clear(&self.map, Word::PeerWaits)
    }

    /// Whether the peer was woken and has not looked since.
    #[must_use]
    pub fn is_wakeup_pending(&self) -> bool {
        self.map.word(Word::PeerWoken).load(Ordering::SeqCst) != 0
    }

    /// Requests the peer to stop. The caller must then wake it.
    pub fn stop(&self) {
        set(&self.map, Word::Stopped);
    }
}

/// The end of the process that trusts the other process.
#[derive(Debug)]
pub struct RingPeer {
    shared: Arc<Shared>,
    sends: Producer,
    receives: Consumer,
    /// The position and length of the space that was reserved last.
    room: Option<(u32, u32)>,
}

#[derive(Debug)]
struct Shared {
    map: Mapping,
    /// A frame has been received and is in use.
    lent: AtomicBool,
}

/// A frame in the ring. Dropping it frees its space.
#[derive(Debug)]
pub struct RingFrame {
    shared: Arc<Shared>,
    receives: Consumer,
    length: u32,
}

/// A handle to the flags of the peer's end, which may be used by another thread.
#[derive(Clone, Debug)]
pub struct RingFlags(Arc<Shared>);

impl RingPeer {
    /// Opens the peer's end of new rings.
    ///
    /// # Errors
    /// The memory cannot be mapped.
    pub fn open(memory: impl AsFd) -> Result<RingPeer> {
        check(memory.as_fd())?;
        Ok(RingPeer {
            shared: Arc::new(Shared { map: Mapping::new(memory.as_fd())?, lent: AtomicBool::new(false) }),
            sends: Producer { ring: 1, head: 0, words: [Word::PeerHead, Word::OwnerTail] },
            receives: Consumer { ring: 0, tail: 0, words: [Word::OwnerHead, Word::PeerTail] },
            room: None,
        })
    }

    /// The flags.
    #[must_use]
    pub fn flags(&self) -> RingFlags {
        RingFlags(Arc::clone(&self.shared))
    }

    /// Reserves space for one frame of up to `length` bytes. `None`: the ring is too full now, and the owner will wake this end when it
    /// has space.
    pub fn room(&mut self, length: usize) -> Option<&mut [u8]> {
        let map = &self.shared.map;
        let length = u32::try_from(length).ok().filter(|length| *length as usize <= FRAME_MAX)?;
        let mut place = self.sends.reserve(map, length);
        if place.is_none() {
            set(map, Word::PeerWaits);
            place = self.sends.reserve(map, length);
        }
        let place = place?;
        self.room = Some((place, length));
        // SAFETY: the reserved bytes are in the ring, and belong only to this end until they are committed: the owner reads up to
        // `head`, and this end has no other reference, because this one borrows it exclusively.
        Some(unsafe { std::slice::from_raw_parts_mut(map.at(1, place).as_ptr(), length as usize) })
    }

    /// Sends the first `length` bytes of the space that was reserved last.
    pub fn commit(&mut self, length: usize) {
        if let Some((_, room)) = self.room.take() {
            self.sends.commit(&self.shared.map, room.min(u32::try_from(length).unwrap_or(room)));
        }
    }

    /// The next frame. `None`: there is none, or the last one is still in use.
    pub fn receive(&mut self) -> Option<RingFrame> {
        if self.shared.lent.load(Ordering::Acquire) {
            return None;
        }
        // Dropping the last frame has advanced the tail.
        self.receives.tail = self.shared.map.word(Word::PeerTail).load(Ordering::SeqCst);
        let length = self.receives.next(&self.shared.map).ok().flatten()?;
        self.shared.lent.store(true, Ordering::Release);
        let receives = Consumer { ring: 0, tail: self.receives.tail, words: self.receives.words };
        Some(RingFrame { shared: Arc::clone(&self.shared), receives, length })
    }
}

impl AsRef<[u8]> for RingFrame {
    fn as_ref(&self) -> &[u8] {
        let place = self.shared.map.at(0, self.receives.tail.wrapping_add(UNIT));
        // SAFETY: `next` found that `length` bytes lie between there and the ring's end. The owner does not write there before `tail`
        // has passed them, which happens when this is dropped.
        unsafe { std::slice::from_raw_parts(place.as_ptr(), self.length as usize) }
    }
}

impl Drop for RingFrame {
    fn drop(&mut self) {
        self.receives.advance(&self.shared.map, self.length);
        self.shared.lent.store(false, Ordering::Release);
    }
}

impl RingFlags {
    /// Clears this end's flag before it looks at the rings. Returns whether it must stop. After this call, the owner wakes it again.
    #[must_use]
    pub fn poll(&self) -> bool {
        clear(&self.0.map, Word::PeerWoken);
        self.0.map.word(Word::Stopped).load(Ordering::SeqCst) != 0
    }

    /// Whether the caller must wake the owner: it was not woken since it last looked. Sets the owner's flag.
    #[must_use]
    pub fn must_wake(&self) -> bool {
        set(&self.0.map, Word::OwnerWoken)
    }

    /// Whether the owner waits for space that receiving has freed. If so, the caller must wake it.
    #[must_use]
    pub fn peer_waits_for_space(&self) -> bool {
        clear(&self.0.map, Word::OwnerWaits)
    }
}

#[cfg(test)]
mod tests;
