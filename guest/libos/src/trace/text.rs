// SPDX-License-Identifier: MIT OR Apache-2.0
//! Numbers and strings, formatted as by strace.

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

use pando_rt::user;

use crate::user::PATH_MAX;

/// Most bytes of a string that are printed.
const SHOWN: usize = 32;

/// An address, or a number in hexadecimal.
pub(super) fn hexadecimal(value: u64) -> String {
    if value == 0 { "0".into() } else { format!("{value:#x}") }
}

/// An address.
pub(super) fn pointer(value: u64) -> String {
    if value == 0 { "NULL".into() } else { format!("{value:#x}") }
}

/// Permissions and other octal numbers.
pub(super) fn octal(value: u64) -> String {
    match value {
        0 => "000".into(),
        0o1..=0o77 => format!("0{value:02o}"),
        _ => format!("0{value:o}"),
    }
}

/// A message with a capital, as the C library prints it.
pub(super) fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(characters).collect()
}

/// Bytes in quotes.
pub(super) fn quoted(bytes: &[u8]) -> String {
    let mut text = String::from("\"");
    for (index, &byte) in bytes.iter().enumerate() {
        match byte {
            b'"' | b'\\' => text.extend(['\\', byte.into()]),
            b'\n' => text += "\\n",
            b'\t' => text += "\\t",
            b'\r' => text += "\\r",
            11 => text += "\\v",
            12 => text += "\\f",
            b' '..=b'~' => text.push(byte.into()),
            // The shortest form that the next byte permits.
            _ if bytes.get(index + 1).is_some_and(u8::is_ascii_digit) => text += &format!("\\{byte:03o}"),
            _ => text += &format!("\\{byte:o}"),
        }
    }
    text.push('"');
    text
}

/// Formats memory of the program, truncated if it is long, or the address if it cannot be read.
pub(super) fn bytes(address: u64, length: u64) -> String {
    if address == 0 {
        return pointer(address);
    }
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(SHOWN)];
    match user::read(address, &mut bytes) {
        Ok(()) => quoted(&bytes) + if length > SHOWN as u64 { "..." } else { "" },
        Err(_) => pointer(address),
    }
}

/// Formats memory of the program that is random, with all bytes in hexadecimal.
pub(super) fn random_bytes(address: u64, length: u64) -> String {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(SHOWN)];
    match user::read(address, &mut bytes) {
        Ok(()) => {
            let digits: String = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            format!("\"{digits}\"{}", if length > SHOWN as u64 { "..." } else { "" })
        }
        Err(_) => pointer(address),
    }
}

/// Formats a string of the program that ends with a zero byte, or the address if it cannot be read.
pub(super) fn string(address: u64) -> String {
    match crate::user::path(address) {
        Ok(path) => quoted(&path),
        Err(crate::errno::Errno::ENAMETOOLONG) => bytes(address, PATH_MAX as u64),
        Err(_) => pointer(address),
    }
}

/// Reads words of the program's memory; `None`: it cannot be read.
pub(super) fn words<const N: usize>(address: u64) -> Option<[u64; N]> {
    crate::user::words(address).ok()
}

/// Reads bytes of the program's memory; `None`: it cannot be read.
pub(super) fn copy(address: u64, length: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length];
    user::read(address, &mut bytes).ok().map(|()| bytes)
}

#[cfg(test)]
mod tests {
    use super::{octal, quoted, sentence};

    #[test]
    fn strings_are_written_as_strace_writes_them() {
        assert_eq!(quoted(b"a \"b\"\\\n\t\x0b\x00"), r#""a \"b\"\\\n\t\v\0""#);
        assert_eq!(quoted(b"\x001\x1bx\xc3\xa9"), r#""\0001\33x\303\251""#);
        assert_eq!((octal(0), octal(0o22), octal(0o644), octal(0o4755)), ("000".into(), "022".into(), "0644".into(), "04755".into()));
        assert_eq!(sentence("no such file or directory"), "No such file or directory");
    }
}
