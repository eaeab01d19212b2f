// SPDX-License-Identifier: MIT OR Apache-2.0
//! Text from cells, archives and file names, made fit for a terminal.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

/// Bytes of a name that are shown at most: more than any path that Linux takes.
const SHOWN_MAX: usize = 4096;

/// A name with everything escaped that a terminal might obey: control characters, what turns the direction of writing, and what is invisible. Bytes that are no text become `\u{fffd}`. What is escaped already stays as it is.
#[must_use]
pub fn escaped(name: impl AsRef<OsStr>) -> String {
    let bytes = name.as_ref().as_bytes();
    let shown = escaped_text(&String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN_MAX)]), is_obeyed);
    if bytes.len() > SHOWN_MAX { shown + "..." } else { shown }
}

/// The same for text of several lines, of any length: they stay lines.
#[must_use]
pub fn escaped_lines(text: &str) -> String {
    escaped_text(text, |character| is_obeyed(character) && character != '\n')
}

fn escaped_text(text: &str, is_escaped: impl Fn(char) -> bool) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if is_escaped(character) { shown.extend(character.escape_default()) } else { shown.push(character) }
    }
    shown
}

/// Whether a terminal does something other than to show it.
fn is_obeyed(character: char) -> bool {
    let is_invisible = matches!(character, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}');
    character.is_control() || is_invisible || character == char::REPLACEMENT_CHARACTER
}

#[cfg(test)]
mod tests {
    use super::{escaped, escaped_lines};

    #[test]
    fn what_a_terminal_might_obey_is_escaped() {
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
