// SPDX-License-Identifier: MIT OR Apache-2.0
//! The oldest glibc with which the released program runs: stated here, checked against the program's versioned symbols.

use anyhow::{Context, Result, bail};
use object::elf::{FileHeader64, SHT_DYNSYM};
use object::read::elf::{FileHeader, Sym};
use object::{Endianness, SymbolIndex};
use std::fmt::{self, Display};

/// The glibc of Debian 12 is 2.36, that of Ubuntu 22.04 is 2.35, that of RHEL 9 is 2.34.
pub(super) const BASELINE: GlibcVersion = GlibcVersion { major: 2, minor: 34 };
/// The beginning of the versions of glibc's symbols.
const PREFIX: &str = "GLIBC_";

/// A version of glibc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GlibcVersion {
    pub(super) major: u32,
    pub(super) minor: u32,
}

impl Display for GlibcVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Returns the newest version among the symbols that a program takes from glibc.
///
/// # Errors
/// A symbol is newer than the baseline, or the program is no ELF file with versioned symbols.
pub(super) fn check(program: &[u8], baseline: GlibcVersion) -> Result<GlibcVersion> {
    let symbols = imported(program)?;
    let (newest, symbol) = symbols.into_iter().max().context("it has no symbols of glibc")?;
    if newest > baseline {
        bail!(
            "`{symbol}` is a symbol of glibc {newest}, and a release runs with glibc {baseline}: \
            build it on a system with an older glibc, or raise BASELINE in xtask/src/dist/glibc.rs and the documents that state it"
        );
    }
    Ok(newest)
}

/// The versioned symbols that a program takes from glibc.
fn imported(program: &[u8]) -> Result<Vec<(GlibcVersion, String)>> {
    let header = FileHeader64::<Endianness>::parse(program)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, program)?;
    let symbols = sections.symbols(endian, program, SHT_DYNSYM)?;
    let versions = sections.versions(endian, program)?.context("it has no versioned symbols")?;
    let mut found = Vec::new();
    for (index, symbol) in symbols.enumerate().filter(|(_, symbol)| symbol.is_undefined(endian)) {
        let Some(version) = versions.version(versions.version_index(endian, SymbolIndex(index.0)).into())? else { continue };
        let version = String::from_utf8_lossy(version.name());
        let name = String::from_utf8_lossy(symbols.symbol_name(endian, symbol)?).into_owned();
        // GLIBC_PRIVATE and the like have no number.
        if let Some(version) = version.strip_prefix(PREFIX) {
            found.push((parse(version).with_context(|| format!("`{name}` has the unknown version {PREFIX}{version}"))?, name));
        }
    }
    Ok(found)
}

/// Parses `2.34`; a third number, as in `2.2.5`, does not count.
fn parse(text: &str) -> Option<GlibcVersion> {
    let mut numbers = text.split('.').map(|number| number.parse().ok());
    Some(GlibcVersion { major: numbers.next()??, minor: numbers.next()?? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symbol_that_is_too_new_is_named() {
        let program = std::fs::read(std::env::current_exe().expect("a test has a file")).expect("it can be read");
        let newest = check(&program, GlibcVersion { major: 9, minor: 0 }).expect("it uses glibc");
        assert!(newest >= GlibcVersion { major: 2, minor: 2 }, "{newest}");
        let refusal = check(&program, GlibcVersion { major: 2, minor: 3 }).expect_err("Rust needs a newer one").to_string();
        assert!(refusal.contains(&format!("is a symbol of glibc {newest}")), "{refusal}");
        assert!(check(b"#!/bin/sh", BASELINE).is_err());
    }

    #[test]
    fn versions_are_compared_by_number() {
        assert_eq!(parse("2.2.5"), Some(GlibcVersion { major: 2, minor: 2 }));
        assert!(parse("2.10") > parse("2.9"));
        assert_eq!(parse("PRIVATE"), None);
    }
}
