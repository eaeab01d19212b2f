// SPDX-License-Identifier: MIT OR Apache-2.0
//! File metadata, in the layouts of `stat` and `statx`.

use super::tree::content::PAGE;
use super::tree::node::{Body, LiveInode, Node, Times};
use super::tree::volume::VolumeIndex;
use crate::credentials::Credentials;
use crate::credentials::Owner;
use crate::erofs::{FileType, HostIdentity, Image, Inode, Nid, Time};

/// Unit of `st_blocks` in bytes.
const SECTOR: u64 = 512;
/// Nanoseconds per second.
const NANOSECONDS: u64 = 1_000_000_000;

/// Minor numbers of the devices (their major number is 0), less [`ANONYMOUS_MINOR`], that files without a volume lie on.
pub mod minor {
    /// Sockets.
    pub const SOCKETS: u32 = 8;
    /// Pipes.
    pub const PIPES: u32 = 14;
    /// Anonymous inodes (`anon_inode`).
    pub const ANONYMOUS: u32 = 15;
    /// `/proc`.
    pub const PROC: u32 = 22;
    /// `/sys`
    pub const SYSTEM: u32 = 23;
    /// The first volume; further volumes follow.
    pub const VOLUMES: u32 = 32;
}

/// The first minor number of devices that are made up: Linux counts its own without hardware from 1.
const ANONYMOUS_MINOR: u32 = 1 << 19;
/// The first inode number for inodes without a known host file, in an image that records host inode numbers. Those are lower.
const UNKNOWN: u64 = 1 << 47;

/// A device as `st_dev` has it.
#[must_use]
pub const fn device(major: u32, minor: u32) -> u64 {
    let (major, minor) = (major as u64, minor as u64);
    minor & 0xff | (major & 0xfff) << 8 | (minor & !0xff) << 12 | (major & !0xfff) << 32
}

/// Major and minor number of a device.
#[must_use]
pub const fn numbers(device: u64) -> (u32, u32) {
    ((device >> 8 & 0xfff | device >> 32 & !0xfff) as u32, (device & 0xff | device >> 12 & 0xffff_ff00) as u32)
}

/// A device that is made up.
#[must_use]
pub const fn anonymous_device(minor: u32) -> u64 {
    device(0, ANONYMOUS_MINOR + minor)
}

/// The device of a volume: of what it shows of the host, if it says that.
#[must_use]
pub fn device_of(index: VolumeIndex, image: &Image<'_>) -> u64 {
    image.device().unwrap_or(anonymous_device(minor::VOLUMES + u32::from(index.0)))
}

/// The number of an inode of a volume.
#[must_use]
pub fn number_of(index: VolumeIndex, image: &Image<'_>, nid: Nid) -> u64 {
    let unknown = || if image.device().is_some() { UNKNOWN | u64::from(index.0) << 40 | nid.number() } else { nid.number() };
    image.identity(nid).map_or_else(unknown, |identity| identity.inode)
}

/// A time, from nanoseconds since 1970.
#[must_use]
pub const fn time(nanoseconds: u64) -> Time {
    Time { seconds: (nanoseconds / NANOSECONDS).cast_signed(), nanoseconds: (nanoseconds % NANOSECONDS) as u32 }
}

/// The metadata of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The device that it lies on.
    pub device: u64,
    /// Its number there.
    pub number: u64,
    /// Its type and permissions.
    pub mode: u32,
    /// The number of its hard links.
    pub links: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Major and minor number, if it is a device.
    pub numbers: (u32, u32),
    /// Its size in bytes.
    pub size: u64,
    /// The number of pages that it occupies.
    pub blocks: u64,
    /// Its timestamps.
    pub times: Times,
}

impl Status {
    /// The mode of a FIFO without a name.
    pub const FIFO: u32 = 0o010_600;
    /// The mode of a socket.
    pub const SOCKET: u32 = 0o140_777;

    /// The metadata of a volume's inode.
    #[must_use]
    pub fn of_inode(volume: VolumeIndex, image: &Image<'_>, inode: &Inode) -> Status {
        let identity = image.identity(inode.nid);
        let device = match identity {
            Some(HostIdentity { device: None, .. }) => anonymous_device(minor::VOLUMES + u32::from(volume.0)),
            Some(HostIdentity { device: Some(device), .. }) => device,
            None => device_of(volume, image),
        };
        let is_directory = inode.kind == FileType::Directory;
        let has_blocks = matches!(inode.kind, FileType::Regular | FileType::Directory | FileType::Symlink);
        Status {
            device,
            number: number_of(volume, image, inode.nid),
            mode: inode.kind.mode() | u32::from(inode.permissions),
            // Not all directories in a directory are shown.
            links: identity.filter(|_| !is_directory).map_or(inode.links, |identity| identity.links),
            uid: inode.uid,
            gid: inode.gid,
            numbers: inode.device,
            size: if has_blocks { inode.size } else { 0 },
            blocks: if has_blocks { inode.size.div_ceil(PAGE) } else { 0 },
            times: Times { changed: identity.map_or(inode.modified, |identity| identity.changed), ..Times::all(inode.modified) },
        }
    }

    /// The metadata of a node.
    #[must_use]
    pub fn of_node(node: &Node) -> Status {
        let (size, blocks, numbers) = match &node.body {
            Body::Regular(content) => (content.size(), content.blocks(), (0, 0)),
            Body::Directory(_) => (PAGE, 1, (0, 0)),
            Body::Symlink(target) => {
                let unread = node.live.as_deref().map_or(0, LiveInode::size);
                ((target.len() as u64).max(unread), 0, (0, 0))
            }
            Body::Special(_, numbers) => (0, 0, *numbers),
        };
        Status {
            device: node.device,
            number: node.number,
            mode: node.kind().mode() | u32::from(node.owner.permissions),
            links: node.links.saturating_add(node.hidden_links),
            uid: node.owner.uid,
            gid: node.owner.gid,
            numbers,
            size,
            blocks,
            times: node.times,
        }
    }

    /// The metadata of a file in a pseudo filesystem.
    #[must_use]
    pub fn anonymous_device(minor: u32, number: u64, mode: u32, now: Time) -> Status {
        let (times, device) = (Times::all(now), anonymous_device(minor));
        Status { device, number, mode, links: 1, uid: 0, gid: 0, numbers: (0, 0), size: 0, blocks: 0, times }
    }

    /// The metadata with the owner that a file of a process with these credentials has.
    #[must_use]
    pub fn owned_by(self, credentials: &Credentials) -> Status {
        Status { uid: credentials.user.effective, gid: credentials.group.effective, ..self }
    }

    /// The file type; `None`: an anonymous inode.
    #[must_use]
    pub fn kind(&self) -> Option<FileType> {
        FileType::from_mode(self.mode)
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_directory(&self) -> bool {
        self.kind() == Some(FileType::Directory)
    }

    /// The owner and permissions.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner { uid: self.uid, gid: self.gid, permissions: (self.mode & 0o7777) as u16 }
    }

    /// `struct stat`.
    #[must_use]
    pub fn to_stat(&self) -> [u8; 144] {
        let number = device(self.numbers.0, self.numbers.1);
        let owner = u64::from(self.mode) | u64::from(self.uid) << 32;
        let sectors = self.blocks * (PAGE / SECTOR);
        let words = [self.device, self.number, self.links.into(), owner, self.gid.into(), number, self.size, PAGE, sectors];
        let times = [self.times.accessed, self.times.modified, self.times.changed];
        to_bytes(words.into_iter().chain(times.into_iter().flat_map(time_words)))
    }

    /// `struct statx`, with all known fields.
    #[must_use]
    pub fn to_statx(&self) -> [u8; 256] {
        /// `STATX_BASIC_STATS` and the creation time.
        const KNOWN: u64 = 0xfff;
        let owners = u64::from(self.uid) << 32 | u64::from(self.links);
        let mode = u64::from(self.mode & 0xffff) << 32 | u64::from(self.gid);
        let sectors = self.blocks * (PAGE / SECTOR);
        let words = [PAGE << 32 | KNOWN, 0, owners, mode, self.number, self.size, sectors, 0];
        let Times { accessed, modified, changed, born } = self.times;
        let times = [accessed, born, changed, modified].into_iter().flat_map(time_words);
        let numbers = u64::from(self.numbers.1) << 32 | u64::from(self.numbers.0);
        // The device's own numbers: major, minor.
        let (major, minor) = self::numbers(self.device);
        to_bytes(words.into_iter().chain(times).chain([numbers, u64::from(minor) << 32 | u64::from(major)]))
    }
}

fn time_words(time: Time) -> [u64; 2] {
    [time.seconds.cast_unsigned(), time.nanoseconds.into()]
}

/// The words in order, followed by zeros.
fn to_bytes<const N: usize>(words: impl Iterator<Item = u64>) -> [u8; N] {
    let mut bytes = [0; N];
    for (room, word) in bytes.chunks_exact_mut(8).zip(words) {
        room.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::{FileType, Status, minor, time};

    #[test]
    fn a_device_looks_as_on_linux() {
        let device = FileType::CharacterDevice.mode() | 0o666;
        let status = Status { numbers: (1, 3), ..Status::anonymous_device(minor::VOLUMES, 7, device, time(5_000_000_007)) };
        let bytes = status.to_stat();
        let word = |index: usize| u64::from_le_bytes(bytes[index * 8..][..8].try_into().expect("eight bytes"));
        assert_eq!(word(3) & 0xffff_ffff, 0o020_666, "st_mode");
        assert_eq!(word(5), 0x103, "st_rdev of /dev/null");
        assert_eq!((word(11), word(12)), (5, 7), "st_mtim");
        let bytes = status.to_statx();
        assert_eq!(u16::from_le_bytes([bytes[28], bytes[29]]), 0o020_666, "stx_mode");
        assert_eq!((bytes[128], bytes[132]), (1, 3), "stx_rdev_major, stx_rdev_minor");
    }
}
