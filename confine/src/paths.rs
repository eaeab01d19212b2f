// SPDX-License-Identifier: MIT OR Apache-2.0
//! Files: Landlock leaves those of a list.

use crate::{Authority, ConfineError};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};
use std::path::PathBuf;

/// What of Landlock is asked for; an older host gives what it has.
const VERSION: ABI = ABI::V6;

/// What may be reached. A directory stands for all that lies in it; what is not there is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// To be read.
    pub read: Vec<PathBuf>,
    /// Of which directories are to be listed, and nothing read.
    pub list: Vec<PathBuf>,
    /// To be read, and to be changed by making, replacing and removing regular files, directories and links.
    pub change: Vec<PathBuf>,
    /// The part of root's authority over these files that is needed; more where a path itself is another user's.
    pub authority: Authority,
    /// Ports that connections by TCP may lead to.
    pub ports: Ports,
}

/// Ports of other hosts, and of this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ports {
    /// These.
    Only(Vec<u16>),
    /// Any.
    All,
}

impl Default for Ports {
    fn default() -> Ports {
        Ports::Only(Vec::new())
    }
}

/// How far files were limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// As asked.
    Limited,
    /// As far as this host's Linux can.
    Partly,
    /// Not at all: this host's Linux has no Landlock, or has it switched off.
    Unlimited,
}

/// How far this host's Linux can limit files.
#[must_use]
pub fn reach() -> Reach {
    let has = |version| {
        let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(version));
        rules.and_then(Ruleset::create).is_ok()
    };
    match (has(ABI::V1), has(VERSION)) {
        (_, true) => Reach::Limited,
        (true, false) => Reach::Partly,
        (false, false) => Reach::Unlimited,
    }
}

/// Limits the calling thread, and all that it will start, to these files and ports; nobody can listen by TCP, send signals to other processes or reach their abstract sockets.
/// Files that are open stay open, and who listens goes on.
///
/// # Errors
/// The host has Landlock and refuses.
pub fn limit_paths(paths: &Paths) -> Result<Reach, ConfineError> {
    let (limited, ports) = match &paths.ports {
        Ports::All => (AccessNet::BindTcp.into(), &[][..]),
        Ports::Only(ports) => (AccessNet::from_all(VERSION), &ports[..]),
    };
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(VERSION))?
        .handle_access(limited)?
        .scope(Scope::from_all(VERSION))?
        .create()?;
    for port in ports {
        rules = rules.add_rule(NetPort::new(*port, AccessNet::ConnectTcp))?;
    }
    let reading = AccessFs::ReadFile | AccessFs::ReadDir;
    let changing = reading
        | AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::MakeReg
        | AccessFs::MakeDir
        | AccessFs::MakeSym
        | AccessFs::RemoveFile
        | AccessFs::RemoveDir;
    for (list, access) in [(&paths.read, reading), (&paths.list, AccessFs::ReadDir.into()), (&paths.change, changing)] {
        for path in list {
            // A path that is not there, or not to be reached anyway, needs no rule.
            let Ok(opened) = PathFd::new(path) else { continue };
            let access = if path.is_dir() { access } else { access & AccessFs::from_file(VERSION) };
            rules = rules.add_rule(PathBeneath::new(opened, access))?;
        }
    }
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Reach::Limited,
        RulesetStatus::PartiallyEnforced => Reach::Partly,
        RulesetStatus::NotEnforced => Reach::Unlimited,
    })
}
