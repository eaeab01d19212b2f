// SPDX-License-Identifier: MIT OR Apache-2.0
//! Texts in the columns of tables.

/// Shortens a text to this many characters, with three dots at its end.
pub(crate) fn shortened(text: &str, width: usize) -> String {
    if text.chars().nth(width).is_none() {
        return text.into();
    }
    text.chars().take(width.saturating_sub(3)).chain("...".chars()).collect()
}

#[cfg(test)]
mod tests {
    use super::shortened;

    #[test]
    fn texts_longer_than_the_column_end_with_dots() {
        assert_eq!(shortened("sleep 10", 8), "sleep 10");
        assert_eq!(shortened("sleep 100", 8), "sleep...");
        assert_eq!(shortened("\u{e9}\u{1f333}", 2), "\u{e9}\u{1f333}");
    }
}
