// SPDX-License-Identifier: MIT OR Apache-2.0
//! The configuration of an image: its layers, and how to run it.

use crate::limits::{LAYERS_MAX, STRINGS_MAX};
use crate::{Digest, Error};
use oci_spec::image::ImageConfiguration;
use std::path::PathBuf;
use std::str::FromStr;

/// The platform whose images Pando runs.
pub(crate) const PLATFORM: (&str, &str) = ("linux", "amd64");

/// An image's configuration, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// The digests of its layers' archives, the lowest layer first.
    pub layers: Vec<Digest>,
    /// When it was created, as RFC 3339 writes it.
    pub created: Option<String>,
    /// The user that it runs as: `USER[:GROUP]`, by name or number. Empty: root.
    pub user: String,
    /// Its environment, each as NAME=VALUE.
    pub environment: Vec<String>,
    /// The first part of its command line, which arguments do not replace.
    pub entrypoint: Vec<String>,
    /// The rest of its command line, which arguments replace.
    pub command: Vec<String>,
    /// Its working directory.
    pub directory: Option<PathBuf>,
    /// The ports on which it listens.
    pub ports: Vec<ExposedPort>,
    /// Directories for data that should outlive it.
    pub volumes: Vec<PathBuf>,
    /// The signal that asks it to end.
    pub stop_signal: Option<StopSignal>,
    /// Its labels.
    pub labels: Vec<(String, String)>,
}

/// A port on which an image listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExposedPort {
    /// The port.
    pub number: u16,
    /// It is a UDP port, not a TCP port.
    pub is_udp: bool,
}

/// The signal that asks an image's program to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSignal(pub u8);

/// Names and numbers of signals on x86-64 Linux.
const SIGNALS: [(&str, u8); 31] = [
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("ILL", 4),
    ("TRAP", 5),
    ("ABRT", 6),
    ("BUS", 7),
    ("FPE", 8),
    ("KILL", 9),
    ("USR1", 10),
    ("SEGV", 11),
    ("USR2", 12),
    ("PIPE", 13),
    ("ALRM", 14),
    ("TERM", 15),
    ("STKFLT", 16),
    ("CHLD", 17),
    ("CONT", 18),
    ("STOP", 19),
    ("TSTP", 20),
    ("TTIN", 21),
    ("TTOU", 22),
    ("URG", 23),
    ("XCPU", 24),
    ("XFSZ", 25),
    ("VTALRM", 26),
    ("PROF", 27),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
    ("SYS", 31),
];
/// The first and the last real-time signal, as glibc numbers them.
const REAL_TIME: (u8, u8) = (34, 64);

impl FromStr for StopSignal {
    type Err = ();

    /// Reads a name with or without `SIG`, a number, or `SIGRTMIN+N`.
    fn from_str(text: &str) -> Result<StopSignal, ()> {
        let name = text.to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        let offset = |rest: &str, sign: char| match rest {
            "" => Some(0),
            rest => rest.strip_prefix(sign)?.parse::<u8>().ok(),
        };
        let real_time = match (name.strip_prefix("RTMIN"), name.strip_prefix("RTMAX")) {
            (Some(rest), _) => offset(rest, '+').and_then(|offset| REAL_TIME.0.checked_add(offset)),
            (None, Some(rest)) => offset(rest, '-').and_then(|offset| REAL_TIME.1.checked_sub(offset)),
            (None, None) => None,
        };
        let known = SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
        let number = known.or(real_time).or_else(|| name.parse().ok());
        number.filter(|number| (1..=REAL_TIME.1).contains(number)).map(StopSignal).ok_or(())
    }
}

impl FromStr for ExposedPort {
    type Err = ();

    /// Reads `PORT[/tcp|/udp]`.
    fn from_str(text: &str) -> Result<ExposedPort, ()> {
        let (number, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
        let is_udp = match protocol {
            "tcp" => false,
            "udp" => true,
            _ => return Err(()),
        };
        Ok(ExposedPort { number: number.parse().ok().filter(|number| *number != 0).ok_or(())?, is_udp })
    }
}

impl ImageConfig {
    /// Reads and checks a configuration; `source` stands in errors.
    pub(crate) fn read(bytes: &[u8], source: &str) -> Result<ImageConfig, Error> {
        let read: ImageConfiguration =
            serde_json::from_slice(bytes).map_err(|error| Error::damaged(source, format!("its configuration is not valid: {error}")))?;
        let (os, architecture) = (read.os().to_string(), read.architecture().to_string());
        if (&os[..], &architecture[..]) != PLATFORM {
            return Err(Error::unsupported(source, format!("it is for {os}/{architecture}, and Pando runs images for linux/amd64")));
        }
        let layers = read.rootfs().diff_ids();
        if layers.len() > LAYERS_MAX {
            return Err(Error::damaged(source, format!("it has {} layers, and {LAYERS_MAX} are supported", layers.len())));
        }
        let digest = |text: &String| text.parse().map_err(|()| Error::damaged(source, format!("`{text}` is not a SHA-256 digest")));
        let layers = layers.iter().map(digest).collect::<Result<_, _>>()?;
        let mut config = ImageConfig { layers, created: read.created().clone(), ..ImageConfig::default() };
        if let Some(run) = read.config() {
            config.user = run.user().clone().unwrap_or_default();
            config.environment = run.env().clone().unwrap_or_default();
            config.entrypoint = run.entrypoint().clone().unwrap_or_default();
            config.command = run.cmd().clone().unwrap_or_default();
            config.directory =
                run.working_dir().clone().filter(|directory| !directory.is_empty()).map(|path| PathBuf::from("/").join(path));
            config.ports = run.exposed_ports().iter().flatten().filter_map(|port| port.parse().ok()).collect();
            config.volumes = run.volumes().iter().flatten().map(|path| PathBuf::from("/").join(path)).collect();
            config.stop_signal = run.stop_signal().as_deref().and_then(|signal| signal.parse().ok());
            config.labels = run.labels().clone().into_iter().flatten().collect();
        }
        config.ports.sort_unstable();
        config.ports.dedup();
        config.volumes.sort();
        config.labels.sort();
        config.check(source)?;
        Ok(config)
    }

    /// Checks that all strings can be given to a program.
    fn check(&self, source: &str) -> Result<(), Error> {
        let ImageConfig { user, environment, entrypoint, command, directory, volumes, .. } = self;
        let paths = directory.iter().chain(volumes).filter_map(|path| path.to_str());
        let strings = [environment, entrypoint, command].into_iter().flatten().map(String::as_str).chain(paths).chain([&user[..]]);
        if strings.clone().count() + self.ports.len() + self.labels.len() > STRINGS_MAX {
            return Err(Error::damaged(source, "its configuration has more than 10,000 strings"));
        }
        match strings.into_iter().find(|string| string.contains('\0')) {
            Some(_) => Err(Error::damaged(source, "its configuration has a string with a zero byte")),
            None => Ok(()),
        }
    }
}
