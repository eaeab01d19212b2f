// SPDX-License-Identifier: MIT OR Apache-2.0
//! Compressed streams, recognised by their first bytes.

use flate2::read::MultiGzDecoder;
use std::io::{self, BufReader, Cursor, Read};

/// Magic numbers of compressions that are not supported, and the programs that decompress them.
const UNSUPPORTED: [(&[u8], &str); 4] = [(b"\xfd7zXZ\0", "xz"), (b"BZh", "bzip2"), (b"\x04\x22\x4d\x18", "lz4"), (b"LZIP", "lzip")];

/// Decompresses a stream that is compressed with gzip or zstd, and passes on others.
///
/// # Errors
/// The stream cannot be read, or is compressed otherwise.
pub(crate) fn decompressed<'a>(mut stream: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut start = Vec::new();
    (&mut stream).take(6).read_to_end(&mut start)?;
    let whole = Cursor::new(start.clone()).chain(stream);
    if start.starts_with(b"\x1f\x8b") {
        return Ok(Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole))));
    }
    if start.starts_with(b"\x28\xb5\x2f\xfd") || start.get(1..4) == Some(b"\x2a\x4d\x18") && start[0] & 0xf0 == 0x50 {
        return Ok(Box::new(zstd::stream::read::Decoder::new(whole)?));
    }
    match UNSUPPORTED.iter().find(|(magic, _)| start.starts_with(magic)) {
        Some((_, program)) => {
            let problem = format!("it is compressed with {program}: decompress it first (`{program} -d`); gzip and zstd need no such step");
            Err(io::Error::new(io::ErrorKind::Unsupported, problem))
        }
        None => Ok(Box::new(whole)),
    }
}
