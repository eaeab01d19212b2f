// SPDX-License-Identifier: MIT OR Apache-2.0
//! Headers of tar archives in the form of POSIX (`pax`): an extended header precedes a member whose values do not fit into the old one.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use crate::erofs::Time;
use crate::errno::Errno;

/// Bytes of a block: headers and contents in an archive are padded to blocks.
pub const BLOCK_SIZE: usize = 512;

/// The type of a regular file.
pub const REGULAR: u8 = b'0';
/// The type of another name of an earlier file.
pub const LINK: u8 = b'1';
/// The type of a symbolic link.
pub const SYMLINK: u8 = b'2';
/// The type of a character device.
pub const CHARACTER_DEVICE: u8 = b'3';
/// The type of a block device.
pub const BLOCK_DEVICE: u8 = b'4';
/// The type of a directory.
pub const DIRECTORY: u8 = b'5';
/// The type of a FIFO.
pub const FIFO: u8 = b'6';
/// The type of an extended header for the next member.
const EXTENDED: u8 = b'x';

/// The fields of a header: offset and length.
mod field {
    pub type Field = (usize, usize);
    pub const NAME: Field = (0, 100);
    pub const MODE: Field = (100, 8);
    pub const UID: Field = (108, 8);
    pub const GID: Field = (116, 8);
    pub const SIZE: Field = (124, 12);
    pub const MTIME: Field = (136, 12);
    pub const CHECKSUM: Field = (148, 8);
    pub const TYPE: Field = (156, 1);
    pub const LINK_NAME: Field = (157, 100);
    pub const MAGIC: Field = (257, 8);
    pub const DEVICE_MAJOR: Field = (329, 8);
    pub const DEVICE_MINOR: Field = (337, 8);
}
use field::Field;

/// The name and the value of an extended attribute.
pub type ExtendedAttribute = (Box<[u8]>, Box<[u8]>);

/// The prefix of extended attributes.
const XATTR: &[u8] = b"SCHILY.xattr.";

/// The metadata of a member.
#[derive(Default)]
pub struct Member<'a> {
    /// Its path, without a slash at its end.
    pub path: &'a [u8],
    /// The target of a link.
    pub link: &'a [u8],
    /// Its type.
    pub kind: u8,
    /// Its permissions.
    pub permissions: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// Bytes of its content, which follows.
    pub size: u64,
    /// When its content was changed.
    pub modified: Time,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// Its extended attributes.
    pub attributes: &'a [ExtendedAttribute],
}

/// Appends the header of a member.
///
/// # Errors
/// `ENOSPC`: there is no memory.
pub fn write(member: &Member<'_>, out: &mut Vec<u8>) -> Result<(), Errno> {
    let mut path = member.path.to_vec();
    if member.kind == DIRECTORY {
        path.push(b'/');
    }
    let mut extended = Vec::new();
    if path.len() > field::NAME.1 {
        pax_record(&mut extended, b"path", &path);
    }
    if member.link.len() > field::LINK_NAME.1 {
        pax_record(&mut extended, b"linkpath", member.link);
    }
    let Time { seconds, nanoseconds } = member.modified;
    if let Some(time) = time_text(seconds, nanoseconds) {
        pax_record(&mut extended, b"mtime", time.as_bytes());
    }
    for (name, value) in member.attributes {
        pax_record(&mut extended, &[XATTR, name].concat(), value);
    }
    out.try_reserve(extended.len() + 4 * BLOCK_SIZE).map_err(|_| Errno::ENOSPC)?;
    if !extended.is_empty() {
        let size = extended.len();
        header(&Member { kind: EXTENDED, permissions: 0o644, size: size as u64, ..Member::default() }, b"pax", out);
        out.extend_from_slice(&extended);
        out.resize(out.len() + size.next_multiple_of(BLOCK_SIZE) - size, 0);
    }
    header(member, &path, out);
    Ok(())
}

/// A time that does not fit into a header, as text.
fn time_text(seconds: i64, nanoseconds: u32) -> Option<alloc::string::String> {
    match (seconds, nanoseconds) {
        (0.., 0) => None,
        (0.., _) => Some(format!("{seconds}.{nanoseconds:09}")),
        (_, 0) => Some(seconds.to_string()),
        // Nanoseconds count forward, also before 1970.
        (-1, _) => Some(format!("-0.{:09}", 1_000_000_000_u32.saturating_sub(nanoseconds))),
        (..) => Some(format!("{}.{:09}", seconds + 1, 1_000_000_000_u32.saturating_sub(nanoseconds))),
    }
}

/// Appends `LENGTH KEY=VALUE\n`, where the length counts its own digits.
fn pax_record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + 1;
    while length.to_string().len() + rest != length {
        length = length.to_string().len() + rest;
    }
    out.extend_from_slice(format!("{length} ").as_bytes());
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Appends a header without an extended one. Names that are too long for it are cut off.
fn header(member: &Member<'_>, path: &[u8], out: &mut Vec<u8>) {
    let mut bytes = [0; BLOCK_SIZE];
    let put = |bytes: &mut [u8; BLOCK_SIZE], (offset, length): Field, text: &[u8]| {
        let count = text.len().min(length);
        bytes[offset..offset + count].copy_from_slice(&text[..count]);
    };
    put(&mut bytes, field::NAME, path);
    put(&mut bytes, field::LINK_NAME, member.link);
    put(&mut bytes, field::TYPE, &[member.kind]);
    put(&mut bytes, field::MAGIC, b"ustar\x0000");
    let numbers = [
        (field::MODE, member.permissions.into()),
        (field::UID, member.uid.into()),
        (field::GID, member.gid.into()),
        (field::SIZE, member.size),
        (field::MTIME, u64::try_from(member.modified.seconds).unwrap_or(0)),
        (field::DEVICE_MAJOR, member.device.0.into()),
        (field::DEVICE_MINOR, member.device.1.into()),
    ];
    for (place, number) in numbers {
        let mut text = [0; 12];
        let text = &mut text[..place.1];
        encode(number, text);
        put(&mut bytes, place, text);
    }
    put(&mut bytes, field::CHECKSUM, b"        ");
    let sum: u32 = bytes.iter().map(|byte| u32::from(*byte)).sum();
    put(&mut bytes, field::CHECKSUM, format!("{sum:06o}\0 ").as_bytes());
    out.extend_from_slice(&bytes);
}

/// Encodes a number: octal digits and a zero byte, or, if it is too large for these, binary with the first bit set.
fn encode(number: u64, buffer: &mut [u8]) {
    let digits = buffer.len() - 1;
    if number >> (3 * digits) != 0 {
        buffer.fill(0);
        for (byte, value) in buffer.iter_mut().rev().zip(number.to_le_bytes()) {
            *byte = value;
        }
        buffer[0] |= 0x80;
        return;
    }
    let mut rest = number;
    for byte in buffer[..digits].iter_mut().rev() {
        *byte = b'0' + (rest & 7) as u8;
        rest >>= 3;
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK_SIZE, Member, SYMLINK, encode, pax_record, time_text, write};
    use crate::erofs::Time;
    use std::vec::Vec;

    #[test]
    fn records_count_their_own_digits() {
        for length in [1, 80, 90, 91, 92, 93, 985, 990, 991, 992, 993, 9_985] {
            let mut out = Vec::new();
            pax_record(&mut out, b"path", &std::vec![b'a'; length]);
            let text = std::string::String::from_utf8(out.clone()).expect("it is text");
            assert_eq!(text.split(' ').next().and_then(|digits| digits.parse().ok()), Some(out.len()));
        }
    }

    #[test]
    fn numbers_that_need_more_digits_are_binary() {
        let mut room = [0; 8];
        encode(0o755, &mut room);
        assert_eq!(&room, b"0000755\0");
        encode(0o7777777, &mut room);
        assert_eq!(&room, b"7777777\0");
        encode(0o10000000, &mut room);
        assert_eq!(room, [0x80, 0, 0, 0, 0, 0x20, 0, 0]);
    }

    #[test]
    fn times_before_1970_and_fractions_have_a_text() {
        assert_eq!(time_text(5, 0), None);
        assert_eq!(time_text(5, 7).as_deref(), Some("5.000000007"));
        assert_eq!(time_text(-1, 250_000_000).as_deref(), Some("-0.750000000"));
        assert_eq!(time_text(-3, 250_000_000).as_deref(), Some("-2.750000000"));
        assert_eq!(time_text(-3, 0).as_deref(), Some("-3"));
    }

    #[test]
    fn long_names_are_in_an_extended_header() {
        let mut out = Vec::new();
        let path = [b'a'; 300];
        let time = Time { seconds: 1, nanoseconds: 0 };
        write(&Member { path: &path, link: b"to", kind: SYMLINK, modified: time, ..Member::default() }, &mut out).expect("there is memory");
        assert_eq!((out.len(), out[156], out[2 * BLOCK_SIZE + 156]), (3 * BLOCK_SIZE, b'x', SYMLINK));
        assert!(out[BLOCK_SIZE..].starts_with(b"310 path=aaa"));
        for header in [&out[..BLOCK_SIZE], &out[2 * BLOCK_SIZE..]] {
            let sum: u32 = header.iter().enumerate().map(|(at, byte)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte })).sum();
            assert_eq!(&header[148..155], std::format!("{sum:06o}\0").as_bytes());
        }
    }
}
