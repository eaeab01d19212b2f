// SPDX-License-Identifier: MIT OR Apache-2.0
//! Escaping of untrusted text for terminals.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

/// Maximal length of a printed name: more bytes than any path of Linux.
const SHOWN_MAX: usize = 4096;

/// Escapes everything in a name that could affect a terminal: control characters, changes of the writing direction, and invisible
/// characters. Bytes that are not UTF-8 become `\u{fffd}`. Existing escapes stay unchanged.
#[must_use]
pub fn escaped(name: impl AsRef<OsStr>) -> String {
    let bytes = name.as_ref().as_bytes();
    let shown = escaped_text(&String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]), is_control);
    if bytes.len() > SHOWN_MAX { shown + "..." } else { shown }
}

/// The same for text of any length; line breaks stay.
#[must_use]
pub fn escaped_lines(text: &str) -> String {
    escaped_text(text, |character| is_control(character) && character != '\n')
}

fn escaped_text(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) { shown.extend(character.escape_default()) } else { shown.push(character) }
    }
    shown
}

/// Whether a character affects a terminal instead of being shown.
fn is_control(character: char) -> bool {
    let is_invisible = matches!(character, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    character.is_control() || is_invisible || character == char::REPLACEMENT_CHARACTER
}

#[cfg(test)]
mod tests {
    use super::{escaped, escaped_lines};

    #[test]
    fn terminal_control_characters_are_escaped() {
        for (name, shown) in [
            ("it's \"a\\b\" ä", "it's \"a\\b\" ä"),
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("a\nb\r\tc\u{9b}2J", "a\\nb\\r\\tc\\u{9b}2J"),
            ("exe.\u{202e}txt", "exe.\\u{202e}txt"),
        ] {
            assert_eq!(escaped(name), shown);
            assert_eq!(escaped(escaped(name)), shown);
        }
        assert_eq!(escaped_lines("a\nb\x1b"), "a\nb\\u{1b}");
        assert!(escaped("x".repeat(1 << 20)).len() < 5000);
    }
}
