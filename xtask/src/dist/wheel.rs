// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Python wheel: the package of `clients/python` with the program inside, so that Python needs nothing else of Pando.
//!
//! Its metadata comes from `pyproject.toml`. The format is that of the specification "Binary distribution format" of Python's packages.

use super::glibc;
use super::release::Release;
use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

/// The program's path in the wheel; `clients/python/src/pando/_program.py` looks for it there.
const PROGRAM: &str = "pando/_bin/pando";

#[derive(Debug, Deserialize)]
struct PyProject {
    project: Project,
}

/// The fields of `[project]` that the wheel's metadata has, too.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Project {
    name: String,
    version: String,
    description: String,
    readme: String,
    license: License,
    requires_python: String,
    dependencies: Vec<String>,
    classifiers: Vec<String>,
    scripts: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
struct License {
    text: String,
}

/// A wheel that is being written.
struct Wheel {
    zip: ZipWriter<File>,
    time: DateTime,
    /// The list of its files with their digests.
    record: String,
}

/// Writes the wheel of the Python package in `package`, and returns its path.
pub(super) fn write(release: &Release, package: &Path, folder: &Path) -> Result<PathBuf> {
    let text = fs::read_to_string(package.join("pyproject.toml")).context("reading pyproject.toml")?;
    let PyProject { project } = toml::from_str(&text).context("reading pyproject.toml")?;
    let tag = format!("py3-none-manylinux_{}_{}_x86_64", glibc::BASELINE.major, glibc::BASELINE.minor);
    // A dash separates the parts of a wheel's name.
    let name = format!("{}-{}", project.name.replace('-', "_"), project.version);
    let path = folder.join(format!("{name}-{tag}.whl"));
    let mut wheel = Wheel::create(&path, release.time)?;
    let sources = package.join("src/pando");
    let mut files: Vec<PathBuf> = fs::read_dir(&sources)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    for file in files.iter().filter(|file| file.is_file()) {
        let file_name = file.file_name().context("a file has a name")?;
        wheel.add(&format!("pando/{}", file_name.display()), &fs::read(file)?, 0o644)?;
    }
    wheel.add(PROGRAM, release.program().context("a release has a program")?, 0o755)?;
    let info = format!("{name}.dist-info");
    let readme = fs::read_to_string(package.join(&project.readme)).with_context(|| format!("reading {}", project.readme))?;
    wheel.add(&format!("{info}/METADATA"), metadata(&project, &readme).as_bytes(), 0o644)?;
    let about = format!("Wheel-Version: 1.0\nGenerator: cargo xtask dist\nRoot-Is-Purelib: false\nTag: {tag}\n");
    wheel.add(&format!("{info}/WHEEL"), about.as_bytes(), 0o644)?;
    let scripts: String = project.scripts.iter().map(|(name, function)| format!("{name} = {function}\n")).collect();
    wheel.add(&format!("{info}/entry_points.txt"), format!("[console_scripts]\n{scripts}").as_bytes(), 0o644)?;
    for file in release.files.iter().filter(|file| file.path.contains("/LICENSE-")) {
        let licence = file.path.rsplit('/').next().unwrap_or(&file.path);
        wheel.add(&format!("{info}/licenses/{licence}"), &file.content, 0o644)?;
    }
    wheel.finish(&format!("{info}/RECORD"))?;
    Ok(path)
}

impl Wheel {
    fn create(path: &Path, time: u64) -> Result<Wheel> {
        let zip = ZipWriter::new(File::create(path)?);
        Ok(Wheel { zip, time: date_time(time)?, record: String::new() })
    }

    /// Adds a file with these permissions.
    fn add(&mut self, name: &str, content: &[u8], mode: u32) -> Result<()> {
        let digest = URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        writeln!(self.record, "{name},sha256={digest},{}", content.len())?;
        self.append(name, content, mode)
    }

    /// Appends a file that the list does not name.
    fn append(&mut self, name: &str, content: &[u8], mode: u32) -> Result<()> {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        self.zip.start_file(name, options.last_modified_time(self.time).unix_permissions(mode))?;
        Ok(self.zip.write_all(content)?)
    }

    /// Writes the list of files, which names itself without a digest.
    fn finish(mut self, record: &str) -> Result<()> {
        writeln!(self.record, "{record},,")?;
        let list = std::mem::take(&mut self.record);
        self.append(record, list.as_bytes(), 0o644)?;
        self.zip.finish()?;
        Ok(())
    }
}

/// The metadata of the package, as its specification "Core metadata" has it.
fn metadata(project: &Project, readme: &str) -> String {
    let Project { name, version, description, license, requires_python, dependencies, classifiers, .. } = project;
    let mut text = format!("Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {description}\nLicense: {}\n", license.text);
    let mut line = |key: &str, value: &str| text.push_str(&format!("{key}: {value}\n"));
    classifiers.iter().for_each(|classifier| line("Classifier", classifier));
    line("Requires-Python", requires_python);
    dependencies.iter().for_each(|dependency| line("Requires-Dist", dependency));
    line("Description-Content-Type", "text/markdown");
    text + "\n" + readme
}

/// A time in UTC as an archive stores it, in steps of two seconds.
fn date_time(seconds: u64) -> Result<DateTime> {
    let time = TimeZone::UTC.to_datetime(Timestamp::from_second(seconds.try_into()?)?);
    let part = |value: i8| value.unsigned_abs();
    let (day, clock) = ((part(time.month()), part(time.day())), (part(time.hour()), part(time.minute()), part(time.second())));
    DateTime::from_date_and_time(time.year().try_into()?, day.0, day.1, clock.0, clock.1, clock.2)
        .context("the time of the release is not between 1980 and 2107")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        let text = |seconds| date_time(seconds).expect("it is after 1980").to_string();
        assert_eq!(text(315_532_800), "1980-01-01 00:00:00");
        assert_eq!(text(951_827_696), "2000-02-29 12:34:56");
        assert_eq!(text(1_767_225_598), "2025-12-31 23:59:58");
        assert!(date_time(0).is_err());
    }
}
