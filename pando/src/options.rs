// SPDX-License-Identifier: MIT OR Apache-2.0
//! Values of options: each type accepts only sensible values, and its parse error says how to write one.

use crate::size::Size;
use pando_abi::limits::{HOST_NAME_BYTES, MAX_CPU_WEIGHT};
use pando_kernel::{CpuLimit, Weight};
use pando_machine::PageCount;
use pando_manager::cells::RestartPolicy;
use pando_manager::host;
use pando_manager::view::{UserName, VolumeName, VolumeSpec};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Bytes of a domain: names of cells stand before it.
const DOMAIN_BYTES: usize = 180;

/// Parses `HOST:CELL[:MODE]` or `NAME:CELL[:MODE]`. As with docker, a path that could be a name begins with `./`. `PATH` alone, made
/// absolute, is shown under its own name, and changes of it are lost with the cell.
pub(crate) fn volume(text: OsString) -> Result<VolumeSpec, String> {
    let parts: Vec<&OsStr> = text.as_bytes().split(|byte| *byte == b':').map(OsStr::from_bytes).collect();
    let (host, cell, writable, read_only, live) = match parts[..] {
        [path] => (path, path, false, false, false),
        [host, cell] => (host, cell, true, false, false),
        [host, cell, mode] => match mode.as_bytes() {
            b"copy" | b"rw" => (host, cell, true, false, false),
            b"live" => (host, cell, false, false, true),
            b"live,ro" | b"ro,live" => (host, cell, false, true, true),
            b"ro" => (host, cell, false, true, false),
            b"snapshot" => (host, cell, false, false, false),
            _ => {
                return Err(format!("`live`, `live,ro`, `ro`, `copy` or `snapshot` may follow the second colon, not `{}`", mode.display()));
            }
        },
        _ => return Err("too many colons: give HOST:CELL or HOST:CELL:ro; a path with a colon cannot be named".into()),
    };
    if host.is_empty() || cell.is_empty() {
        return Err("a path is missing: give HOST:CELL, HOST:CELL:ro, or a PATH to see under its own name".into());
    }
    let absolute = |path: &OsStr| host::absolute(Path::new(path)).map_err(|error| host::plain(&error));
    if parts.len() > 1 && !Path::new(cell).is_absolute() {
        return Err(format!("`{}` is not an absolute path: give one for the cell, such as /data", cell.display()));
    }
    if without_dots(Path::new(cell)).is_ok_and(|path| path == Path::new("/")) {
        return Err("cannot mount a volume at `/`: use --root DIR to replace the root".into());
    }
    if parts.len() > 1
        && let Some(name) = host.to_str().and_then(|text| text.parse::<VolumeName>().ok())
    {
        if parts.get(2).is_some_and(|mode| matches!(mode.as_bytes(), b"copy" | b"snapshot")) {
            return Err(format!("a named volume is live: give {name}:{0} or {name}:{0}:ro", cell.display()));
        }
        let (host, cell) = (PathBuf::from(name.to_string()), without_dots(Path::new(cell))?);
        return Ok(VolumeSpec { host, cell, writable: false, read_only, live: true, name: Some(name) });
    }
    let host = absolute(host)?;
    let cell = if parts.len() > 1 { without_dots(Path::new(cell))? } else { host.clone() };
    Ok(VolumeSpec { host, cell, writable, read_only, live, name: None })
}

/// Checks that a volume promises no changes on the host: a nested cell makes none.
pub(crate) fn unchanging_volume(text: OsString) -> Result<OsString, String> {
    let volume = volume(text.clone())?;
    match volume.writable || (volume.live && !volume.read_only) {
        true => Err("a nested cell cannot write to the host: mount the volume with `:ro`, `:live,ro` or `:snapshot`".into()),
        false => Ok(text),
    }
}

/// Resolves `.` and `..` in a path of the cell lexically: it contains no links yet.
fn without_dots(path: &Path) -> Result<PathBuf, String> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if !plain.pop() => return Err(format!("`{}` is above the root", path.display())),
            Component::ParentDir | Component::CurDir => {}
            part => plain.push(part),
        }
    }
    Ok(plain)
}

/// The number of a log's last lines; `None`: all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TailLines(pub(crate) Option<u64>);

/// Parses the number of a log's last lines.
pub(crate) fn lines(text: &str) -> Result<TailLines, String> {
    match text {
        "all" => Ok(TailLines(None)),
        text => text
            .parse()
            .map(|lines| TailLines(Some(lines)))
            .map_err(|_| format!("`{text}` is not a number of lines: give a number, or all")),
    }
}

/// Checks a restart policy.
pub(crate) fn restart_policy(text: &str) -> Result<String, String> {
    text.parse::<RestartPolicy>().map(|_| text.to_owned())
}

/// Parses a user and group by name or number: `USER[:GROUP]`.
pub(crate) fn user_name(text: &str) -> Result<UserName, String> {
    UserName::parse(text).ok_or_else(|| format!("`{text}` is not a user: give USER or USER:GROUP, by name or number, such as 1000:1000"))
}

/// Parses `DIR[:OPTIONS]` of a temporary directory, with its permissions.
pub(crate) fn temporary(text: OsString) -> Result<(PathBuf, u16), String> {
    let text = text.into_string().map_err(|text| format!("`{}` is not text", text.display()))?;
    let (path, options) = text.split_once(':').unwrap_or((&text, ""));
    let path = without_dots(&directory(path.into())?)?;
    if path.parent().is_none() {
        return Err("`/` cannot be a temporary directory: name one below it".into());
    }
    let mut permissions = 0o1777;
    for option in options.split(',').filter(|option| !matches!(*option, "" | "rw")) {
        let mode = option.strip_prefix("mode=").and_then(|mode| u16::from_str_radix(mode, 8).ok()).filter(|mode| *mode <= 0o7777);
        permissions = mode.ok_or_else(|| {
            format!("`{option}` is not supported: give `mode=1777` in octal digits; --memory limits the size of all that a cell writes")
        })?;
    }
    Ok((path, permissions))
}

/// Parses a cell's memory limit.
pub(crate) fn memory(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    let least = PageCount(pando_kernel::limits::MIN_QUOTA);
    if size.pages() < least {
        return Err(format!(
            "{size} is too little memory for a cell: it needs at least {least}; a number without a letter counts bytes, so give for example 64M"
        ));
    }
    let most = host::memory();
    if size.pages() > most {
        return Err(format!("`{text}` is more memory than this machine has: it has {most}"));
    }
    Ok(size)
}

/// The smallest share of a core with which a program makes progress.
const MIN_CPU_SHARE: f64 = 0.001;

/// Parses a directory and the size of its swap file.
pub(crate) fn swap(text: OsString) -> Result<(PathBuf, Size), String> {
    let words = || "give a directory and a size, such as /var/tmp:10G".to_owned();
    let text = text.into_string().map_err(|_| words())?;
    let (directory, size) = text.rsplit_once(':').filter(|(directory, _)| !directory.is_empty()).ok_or_else(words)?;
    let size: Size = size.parse()?;
    let directory = host::absolute(directory.as_ref()).map_err(|error| host::plain(&error))?;
    Ok((directory, size))
}

/// Parses a share of a core.
pub(crate) fn share(text: &str) -> Result<CpuLimit, String> {
    text.parse().ok().filter(|part| *part >= MIN_CPU_SHARE).and_then(CpuLimit::new).ok_or_else(|| {
        format!("`{text}` is not a share of a core: give a number from {MIN_CPU_SHARE} to 1, such as 0.5; a cell uses one core")
    })
}

/// Parses a CPU weight.
pub(crate) fn weight(text: &str) -> Result<Weight, String> {
    text.parse().ok().filter(|weight| *weight > 0).and_then(Weight::new).ok_or_else(|| {
        format!("`{text}` is not a CPU weight: give a number from 1 to {MAX_CPU_WEIGHT}, such as 200; a cell without this option has 100")
    })
}

/// Parses a directory of the cell.
pub(crate) fn directory(text: OsString) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if path.is_absolute() {
        return Ok(path);
    }
    Err(format!("`{}` is not an absolute path: give one of the cell, such as /tmp", path.display()))
}

/// Parses a cell's number or name.
pub(crate) fn cell(text: &str) -> Result<String, String> {
    plain_name(text, "cell's number or name").map_err(|error| format!("{error}; `pando ps` lists the cells"))
}

/// Parses a name for a cell.
pub(crate) fn cell_name(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(format!("`{text}` is not a valid name of a cell: it would be a cell's number; add a letter"));
    }
    plain_name(text, "name of a cell")
}

/// Parses a label of a cell; without a value, it is empty.
pub(crate) fn label(text: &str) -> Result<(String, String), String> {
    match text.split_once('=').unwrap_or((text, "")) {
        ("", _) => Err(format!("`{text}` is not a valid label: give NAME=VALUE")),
        (name, value) => Ok((name.into(), value.into())),
    }
}

/// Parses a filter of cells: by label, with or without its value.
pub(crate) fn filter(text: &str) -> Result<(String, Option<String>), String> {
    let invalid = || format!("`{text}` is not a valid filter: give label=NAME or label=NAME=VALUE");
    let label = text.strip_prefix("label=").filter(|label| !label.is_empty() && !label.starts_with('=')).ok_or_else(invalid)?;
    Ok(label.split_once('=').map_or((label.into(), None), |(name, value)| (name.into(), Some(value.into()))))
}

/// Parses a host name.
pub(crate) fn host_name(text: &str) -> Result<String, String> {
    plain_name(text, "host name")
}

/// Parses a network's name.
pub(crate) fn network_name(text: &str) -> Result<String, String> {
    plain_name(text, "network name")
}

/// Parses a domain. Names are compared in lower case.
pub(crate) fn domain(text: &str) -> Result<String, String> {
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let domain = text.strip_suffix('.').unwrap_or(text);
    if domain.len() <= DOMAIN_BYTES && domain.split('.').all(is_label) {
        return Ok(domain.to_ascii_lowercase());
    }
    Err(format!("`{text}` is not a domain: give labels of letters, digits and dashes with dots between them, such as cells.example.org"))
}

fn plain_name(text: &str, kind: &str) -> Result<String, String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if !text.is_empty() && text.len() <= HOST_NAME_BYTES && text.bytes().all(is_plain) {
        return Ok(text.into());
    }
    Err(format!("`{text}` is not a valid {kind}: give up to {HOST_NAME_BYTES} letters, digits, dots, dashes and underlines"))
}

/// The format of `--stats`: a table for people, one object for scripts. (Comments on the variants would become part of the
/// help, and spread it over pages.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StatsFormat {
    Table,
    Json,
}

#[cfg(test)]
mod tests {
    use super::{VolumeSpec, share};

    /// The paths, whether changes go back, and whether there may be any.
    fn volume(text: &str) -> Result<(String, String, bool, bool), String> {
        let VolumeSpec { host, cell, writable, read_only, .. } = super::volume(text.into())?;
        Ok((host.display().to_string(), cell.display().to_string(), writable, !read_only))
    }

    #[test]
    fn volumes_are_read_as_people_write_them() {
        assert_eq!(volume("/a:/b"), Ok(("/a".into(), "/b".into(), true, true)));
        assert_eq!(volume("/a:/b:ro"), Ok(("/a".into(), "/b".into(), false, false)));
        let is_live = |text: &str| super::volume(text.into()).map(|volume| (volume.live, volume.read_only));
        assert_eq!(is_live("/a:/b:live"), Ok((true, false)));
        assert_eq!(is_live("/a:/b:live,ro"), Ok((true, true)));
        assert_eq!(is_live("/a:/b:copy"), Ok((false, false)));
        assert_eq!(volume("/a:/b:copy"), volume("/a:/b"));
        assert_eq!(volume("/a:/b:snapshot"), Ok(("/a".into(), "/b".into(), false, true)));
        let here = std::env::current_dir().expect("the test stands somewhere").display().to_string();
        assert_eq!(volume("./a"), Ok((format!("{here}/a"), format!("{here}/a"), false, true)));
        assert_eq!(volume("./a:/b"), Ok((format!("{here}/a"), "/b".into(), true, true)));
        let name =
            |text: &str| super::volume(text.into()).map(|volume| (volume.name.map(|name| name.to_string()), volume.live, volume.read_only));
        assert_eq!(name("a:/b"), Ok((Some("a".into()), true, false)));
        assert_eq!(name("a:/b:ro"), Ok((Some("a".into()), true, true)));
        assert!(name("a:/b:copy").is_err());
        for text in ["", ":", "/a:", ":/b", "/a:b", "/a:ro", "/a:/b:wr", "/a:/b:ro:x", "/a:/", "/a:/b/.."] {
            assert!(volume(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shares_are_parts_of_a_core() {
        assert!(share("1").is_ok() && share(".5").is_ok() && share("0.001").is_ok());
        for text in ["", "0", "1e-9", "2", "1.01", "-0.5", "50%", "NaN", "inf"] {
            assert!(share(text).is_err(), "{text}");
        }
    }
}
