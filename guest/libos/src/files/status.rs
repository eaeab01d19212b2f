// SPDX-License-Identifier: MIT OR Apache-2.0
//! What files say about themselves, in the layouts of `stat` and `statx`.

use pando_rt::clock;

use super::names::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, Special, special};
use super::{Device, Files, Kind};
use crate::erofs::{BLOCK_SIZE, FileType, Inode, LastLink};
use crate::errno::Errno;

const NANOSECONDS: u64 = 1_000_000_000;
/// Bytes of the blocks that `st_blocks` counts.
const SECTOR: u64 = 512;

/// Number of the device that holds the image, and of the one that holds what the libOS makes up.
const IMAGE_DEVICE: u64 = 1;
const MADE_UP_DEVICE: u64 = 2;

const S_IFIFO: u32 = 0o010_000;
const S_IFCHR: u32 = 0o020_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFBLK: u32 = 0o060_000;
const S_IFREG: u32 = 0o100_000;
const S_IFLNK: u32 = 0o120_000;
const S_IFSOCK: u32 = 0o140_000;

/// What is known of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    device: u64,
    inode: u64,
    mode: u32,
    links: u32,
    uid: u32,
    gid: u32,
    /// Major and minor number of a device.
    numbers: (u32, u32),
    size: u64,
    seconds: i64,
    nanoseconds: u32,
}

impl Status {
    /// Of a file of the image.
    #[must_use]
    pub fn of_inode(inode: &Inode) -> Status {
        let kind = match inode.kind {
            FileType::Regular => S_IFREG,
            FileType::Directory => S_IFDIR,
            FileType::Symlink => S_IFLNK,
            FileType::CharacterDevice => S_IFCHR,
            FileType::BlockDevice => S_IFBLK,
            FileType::Fifo => S_IFIFO,
            FileType::Socket => S_IFSOCK,
        };
        Status {
            device: IMAGE_DEVICE,
            inode: inode.nid.number(),
            mode: kind | u32::from(inode.permissions),
            links: inode.links,
            uid: inode.uid,
            gid: inode.gid,
            numbers: (0, 0),
            size: inode.size,
            seconds: inode.modified.seconds,
            nanoseconds: inode.modified.nanoseconds,
        }
    }

    /// Something that has no place in the image.
    fn made_up(inode: u64, mode: u32, numbers: (u32, u32), now: u64) -> Status {
        Status {
            device: MADE_UP_DEVICE,
            inode,
            mode,
            links: 1,
            uid: 0,
            gid: 0,
            numbers,
            size: 0,
            seconds: (now / NANOSECONDS).cast_signed(),
            nanoseconds: (now % NANOSECONDS) as u32,
        }
    }

    fn of_device(device: Device, now: u64) -> Status {
        let minor = match device {
            Device::Null => 3,
            Device::Zero => 5,
            Device::Full => 7,
            Device::Random => 9,
        };
        Status::made_up(minor.into(), S_IFCHR | 0o666, (1, minor), now)
    }

    /// Of an open file, at time `now`.
    #[must_use]
    pub fn of_kind(kind: &Kind, now: u64) -> Status {
        match kind {
            Kind::Console { stream, terminal: true } => Status::made_up(16 + *stream as u64, S_IFCHR | 0o620, (136, 0), now),
            Kind::Console { stream, .. } => Status::made_up(16 + *stream as u64, S_IFIFO | 0o600, (0, 0), now),
            Kind::Regular(inode, _) | Kind::Directory(inode) | Kind::Name(inode) => Status::of_inode(inode),
            Kind::Device(device) => Status::of_device(*device, now),
        }
    }

    /// What `st_blocks` says: files take whole blocks.
    fn sectors(&self) -> u64 {
        self.size.div_ceil(BLOCK_SIZE) * (BLOCK_SIZE / SECTOR)
    }

    /// `struct stat`.
    #[must_use]
    pub fn to_stat(self) -> [u8; 144] {
        let number = u64::from(self.numbers.0) << 8 | u64::from(self.numbers.1);
        let (seconds, nanoseconds) = (self.seconds.cast_unsigned(), u64::from(self.nanoseconds));
        let owner = u64::from(self.mode) | u64::from(self.uid) << 32;
        let words = [self.device, self.inode, self.links.into(), owner, self.gid.into(), number, self.size, BLOCK_SIZE, self.sectors()];
        let times = [seconds, nanoseconds, seconds, nanoseconds, seconds, nanoseconds];
        to_bytes(words.into_iter().chain(times))
    }

    /// `struct statx`, with all that is known.
    #[must_use]
    pub fn to_statx(self) -> [u8; 256] {
        /// Everything that `stat` knows.
        const BASIC_STATS: u64 = 0x7ff;
        let time = [self.seconds.cast_unsigned(), self.nanoseconds.into()];
        let owners = u64::from(self.uid) << 32 | u64::from(self.links);
        let mode = u64::from(self.mode & 0xffff) << 32 | u64::from(self.gid);
        let words = [BLOCK_SIZE << 32 | BASIC_STATS, 0, owners, mode, self.inode, self.size, self.sectors(), 0];
        let times = [time, [0; 2], time, time].into_iter().flatten();
        let numbers = u64::from(self.numbers.1) << 32 | u64::from(self.numbers.0);
        // The device's own numbers: major, minor.
        to_bytes(words.into_iter().chain(times).chain([numbers, self.device << 32]))
    }
}

/// The words in order, the rest zero.
fn to_bytes<const N: usize>(words: impl Iterator<Item = u64>) -> [u8; N] {
    let mut bytes = [0; N];
    for (room, word) in bytes.chunks_exact_mut(8).zip(words) {
        room.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

impl Files {
    /// What is known of the file that a path names, or of the descriptor if the path is empty and may be.
    ///
    /// # Errors
    /// Those of looking up paths; `EBADF`.
    pub fn status(&mut self, directory: u64, path: &[u8], flags: u64) -> Result<Status, Errno> {
        let now = clock::wall();
        if path.is_empty() && flags & AT_EMPTY_PATH != 0 {
            if directory as i32 == AT_FDCWD {
                return Ok(Status::of_inode(&self.root.image.inode(self.working_directory)?));
            }
            return Ok(Status::of_kind(&self.get(directory)?.kind, now));
        }
        let keep = flags & AT_SYMLINK_NOFOLLOW != 0;
        let made_up_link = |inode| Ok(Status::made_up(inode, S_IFLNK | 0o777, (0, 0), now));
        match special(path) {
            Some(Special::Device(device)) => Ok(Status::of_device(device, now)),
            Some(Special::Terminal) => Ok(Status::made_up(32, S_IFCHR | 0o666, (5, 0), now)),
            Some(Special::Program) if keep => made_up_link(33),
            Some(Special::Program) => {
                let program = self.program.clone();
                Ok(Status::of_inode(&self.resolve(super::names::CURRENT, &program, LastLink::Follow)?))
            }
            Some(Special::Descriptor(fd)) if keep => made_up_link(fd.wrapping_add(64)),
            Some(Special::Descriptor(fd)) => Ok(Status::of_kind(&self.get(fd).map_err(|_| Errno::ENOENT)?.kind, now)),
            None => {
                let last_link = if keep { LastLink::Keep } else { LastLink::Follow };
                Ok(Status::of_inode(&self.resolve(directory, path, last_link)?))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Device, Status};

    #[test]
    fn a_device_looks_as_on_linux() {
        let bytes = Status::of_device(Device::Null, 5_000_000_007).to_stat();
        let word = |index: usize| u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes"));
        assert_eq!(word(3) & 0xffff_ffff, 0o020_666, "st_mode");
        assert_eq!(word(5), 0x103, "st_rdev of /dev/null");
        assert_eq!((word(11), word(12)), (5, 7), "st_mtim");
        let bytes = Status::of_device(Device::Null, 0).to_statx();
        assert_eq!(u16::from_le_bytes([bytes[28], bytes[29]]), 0o020_666, "stx_mode");
        assert_eq!((bytes[128], bytes[132]), (1, 3), "stx_rdev_major, stx_rdev_minor");
    }
}
