// SPDX-License-Identifier: MIT OR Apache-2.0
//! The files of a release below a prefix such as `/usr/local`: the program, its manual pages, completions and systemd units.

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};
use regex::Regex;
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use crate::workspace;

/// The program's path below the prefix.
pub(super) const PROGRAM: &str = "bin/pando";
/// The program's path in the units of `dist/systemd`.
const INSTALLED: &str = "/usr/local/bin/pando";
/// The units, with their folders below the prefix.
const UNITS: [(&str, &str); 2] = [("system", "lib/systemd/system"), ("user", "lib/systemd/user")];
/// Completions: the shell, and the file below the prefix in which it looks for those of a program.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/pando"),
    ("zsh", "share/zsh/site-functions/_pando"),
    ("fish", "share/fish/vendor_completions.d/pando.fish"),
];
/// The folder of documents below the prefix.
pub(super) const DOCUMENTS: &str = "share/doc/pando";
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// A file of a release.
#[derive(Clone, Debug)]
pub(super) struct ReleaseFile {
    /// Its path below the prefix.
    pub(super) path: String,
    pub(super) is_executable: bool,
    pub(super) content: Vec<u8>,
}

impl ReleaseFile {
    pub(super) fn mode(&self) -> u32 {
        if self.is_executable { 0o755 } else { 0o644 }
    }
}

/// All files of a release, in the order of their paths.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) version: String,
    /// The time of all files, in seconds since 1970.
    pub(super) time: u64,
    pub(super) files: Vec<ReleaseFile>,
}

impl Release {
    /// Collects the files of a release around its program, whose `content` was read and which prints its own pages.
    ///
    /// # Errors
    /// The program does not print a page, or a file of the repository is missing.
    pub(super) fn collect(program: &Path, content: Vec<u8>) -> Result<Release> {
        let mut files = vec![ReleaseFile { path: PROGRAM.into(), is_executable: true, content }];
        let mut add = |path: String, content: Vec<u8>| files.push(ReleaseFile { path, is_executable: false, content });
        let print = |words: &[&str]| workspace::run(Command::new(program).args(words)).map(String::into_bytes);
        for (shell, path) in COMPLETIONS {
            add(path.into(), print(&["completions", shell])?);
        }
        let whole = print(&["manual"])?;
        for command in subcommands(&String::from_utf8_lossy(&whole))? {
            add(format!("share/man/man1/pando-{command}.1.gz"), compress(&print(&["manual", &command])?)?);
        }
        add("share/man/man1/pando.1.gz".into(), compress(&whole)?);
        let root = workspace::root();
        for (folder, installed) in UNITS {
            for entry in fs::read_dir(root.join("dist/systemd").join(folder)).context("reading the units")? {
                let unit = entry?;
                add(format!("{installed}/{}", unit.file_name().display()), fs::read(unit.path())?);
            }
        }
        for licence in LICENCES {
            add(format!("{DOCUMENTS}/{licence}"), fs::read(root.join(licence)).with_context(|| format!("reading {licence}"))?);
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        Ok(Release { version: version()?, time: time()?, files })
    }

    /// A copy for another prefix than that in the units, such as `/usr`.
    pub(super) fn below(&self, prefix: &str) -> Vec<ReleaseFile> {
        let installed = |file: &ReleaseFile| {
            let mut file = file.clone();
            if UNITS.iter().any(|(_, folder)| file.path.starts_with(folder)) {
                let text = String::from_utf8_lossy(&file.content);
                file.content = text.replace(INSTALLED, &format!("{prefix}/{PROGRAM}")).into_bytes();
            }
            file
        };
        self.files.iter().map(installed).collect()
    }

    /// The program's bytes.
    pub(super) fn program(&self) -> Option<&[u8]> {
        self.files.iter().find(|file| file.path == PROGRAM).map(|file| &file.content[..])
    }
}

/// The subcommands that a manual page refers to as `pando-run(1)`.
fn subcommands(page: &str) -> Result<Vec<String>> {
    let reference = Regex::new(r"^pando\\?-([a-z]+)\(1\)$").context("the expression is constant")?;
    let found = page.lines().filter_map(|line| Some(reference.captures(line)?[1].to_owned()));
    // clap adds the command `help`, which has no page of its own.
    Ok(found.filter(|command| command != "help").collect())
}

/// Compresses a file as gzip does, without its name and time.
pub(super) fn compress(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(content)?;
    Ok(encoder.finish()?)
}

/// The version of the workspace.
fn version() -> Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    let client = fs::read_to_string(workspace::root().join("clients/python/pyproject.toml")).context("reading pyproject.toml")?;
    ensure!(client.contains(&format!("version = \"{version}\"")), "clients/python/pyproject.toml has another version than {version}");
    Ok(version.into())
}

/// The time of a release: `SOURCE_DATE_EPOCH`, or the time of the last commit; 1980, the earliest time in a wheel, without git.
fn time() -> Result<u64> {
    const EARLIEST: u64 = 315_532_800;
    if let Some(time) = std::env::var_os("SOURCE_DATE_EPOCH") {
        let time = time.to_str().and_then(|time| time.parse().ok()).context("SOURCE_DATE_EPOCH is not a number of seconds")?;
        return Ok(EARLIEST.max(time));
    }
    let commit = workspace::run(Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(workspace::root()));
    Ok(commit.ok().and_then(|time| time.trim().parse().ok()).unwrap_or(EARLIEST))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_subcommands_are_found_in_the_whole_page() {
        let page = ".SH SUBCOMMANDS\n.TP\npando\\-run(1)\nRun a program, see pando\\-clone(1)\n.TP\npando\\-help(1)\n";
        assert_eq!(subcommands(page).expect("it is text"), ["run"]);
    }

    #[test]
    fn units_start_the_program_below_the_prefix() {
        let unit = ReleaseFile {
            path: "lib/systemd/user/pando.service".into(),
            is_executable: false,
            content: format!("ExecStart={INSTALLED} serve\n").into(),
        };
        let release = Release { version: String::new(), time: 0, files: vec![unit] };
        let text = String::from_utf8_lossy(&release.below("/usr")[0].content).into_owned();
        assert_eq!(text, format!("ExecStart=/usr/{PROGRAM} serve\n"));
    }
}
