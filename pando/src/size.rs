// SPDX-License-Identifier: MIT OR Apache-2.0
//! Parsers of sizes and times.

use pando_machine::PageCount;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(u64);

impl fmt::Display for Size {
    /// The exact number of bytes.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} byte{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

impl Size {
    /// The number of bytes.
    pub(crate) fn in_bytes(self) -> u64 {
        self.0
    }

    /// The number of pages, rounded up.
    pub(crate) fn pages(self) -> PageCount {
        PageCount::covering(self.0)
    }
}

/// Splits a text into a number and its unit.
pub(crate) fn split(text: &str) -> Option<(f64, &str)> {
    let end = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let number: f64 = text[..end].parse().ok()?;
    Some((number, text[end..].trim()))
}

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        let help = || format!("`{text}` is not a size: give bytes, or a number with K, M, G or T, such as 64M");
        let (number, unit) = split(text).ok_or_else(help)?;
        let shift = match unit.to_ascii_uppercase().as_str() {
            "" | "B" => 0,
            "K" | "KB" | "KIB" => 10,
            "M" | "MB" | "MIB" => 20,
            "G" | "GB" | "GIB" => 30,
            "T" | "TB" | "TIB" => 40,
            _ => return Err(help()),
        };
        let bytes = number * f64::from(1u32 << (shift / 2)) * f64::from(1u32 << (shift - shift / 2));
        if bytes.is_finite() && bytes < (1u64 << 52) as f64 {
            Ok(Size(bytes as u64))
        } else {
            Err(format!("`{text}` is more memory than any machine has"))
        }
    }
}

/// Parses a time.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let help = || format!("`{text}` is not a time: give seconds, or a number with ms, s, m or h, such as 1.5s");
    match seconds(text).map(Duration::try_from_secs_f64) {
        Some(Ok(Duration::ZERO)) => Err(format!("`{text}` is not a time: give one above zero, or omit the option")),
        Some(Ok(time)) => Ok(time),
        _ => Err(help()),
    }
}

/// The seconds of a time: a number, with its unit unless these are seconds.
pub(crate) fn seconds(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    match unit {
        "ns" => Some(number / 1e9),
        "us" => Some(number / 1e6),
        "ms" => Some(number / 1e3),
        "" | "s" => Some(number),
        "m" | "min" => Some(number * 60.0),
        "h" => Some(number * 3600.0),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Size, duration};
    use std::time::Duration;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [("4096", 4096), ("1K", 1024), ("64M", 64 << 20), ("1.5g", 3 << 29), ("2GiB", 2 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for text in ["", "M", "1X", "-1", "1 2", "999999999T", "1..2M"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, millis) in
            [("2", 2000), ("1.5s", 1500), ("250ms", 250), ("5000us", 5), ("3000000ns", 3), ("2m", 120_000), ("1h", 3_600_000)]
        {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1", "1x", "1e400s", "0", "0ms"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
