// SPDX-License-Identifier: MIT OR Apache-2.0
//! The Landlock rules: an allow list of files and ports.

use crate::{Authority, ConfineError};
use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};
use std::path::PathBuf;

/// The required Landlock version; an older host enforces what it can.
const VERSION: ABI = ABI::V6;

/// The allow list. A directory includes everything in it; missing paths are skipped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Paths {
    /// Readable files.
    pub read: Vec<PathBuf>,
    /// Directories that may be listed, without reading files.
    pub list: Vec<PathBuf>,
    /// Readable files that may also be changed, by making, replacing and removing regular files, directories and links.
    pub change: Vec<PathBuf>,
    /// Directories and files that are served to a cell: everything in them may be read and changed, but devices.
    pub serve: Vec<PathBuf>,
    /// The required part of root's authority over these files; more is kept if a path itself belongs to another user.
    pub authority: Authority,
    /// Allowed destination ports of TCP connections.
    pub ports: Ports,
    /// Sockets may be bound to TCP ports.
    pub may_bind: bool,
}

/// A set of ports, of other hosts and of this one.
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
pub enum Enforcement {
    /// As requested.
    Limited,
    /// As far as this host's Linux can.
    Partly,
    /// Not at all: this host's Linux has no Landlock, or has it disabled.
    Unlimited,
}

/// How far this host's Linux can limit files.
#[must_use]
pub fn supported_enforcement() -> Enforcement {
    let has = |version| {
        let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::from_all(version));
        rules.and_then(Ruleset::create).is_ok()
    };
    match (has(ABI::V1), has(VERSION)) {
        (_, true) => Enforcement::Limited,
        (true, false) => Enforcement::Partly,
        (false, false) => Enforcement::Unlimited,
    }
}

/// Limits the calling thread, and all that it will start, to these files and ports. No thread can bind a TCP port
/// unless `may_bind`, and none can signal other processes or connect to their abstract sockets. Open files stay open, and
/// listening sockets keep listening.
///
/// # Errors
/// The host has Landlock and refuses.
pub fn limit_paths(paths: &Paths) -> Result<Enforcement, ConfineError> {
    let (mut limited, ports) = match &paths.ports {
        Ports::All => (AccessNet::BindTcp.into(), &[][..]),
        Ports::Only(ports) => (AccessNet::from_all(VERSION), &ports[..]),
    };
    if paths.may_bind {
        limited.remove(AccessNet::BindTcp);
    }
    let mut rules = Ruleset::default().set_compatibility(CompatLevel::BestEffort).handle_access(AccessFs::from_all(VERSION))?;
    if !limited.is_empty() {
        rules = rules.handle_access(limited)?;
    }
    let mut rules = rules.scope(Scope::from_all(VERSION))?.create()?;
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
    let serving = changing | AccessFs::Refer | AccessFs::MakeFifo | AccessFs::MakeSock;
    let lists = [(&paths.read, reading), (&paths.list, AccessFs::ReadDir.into()), (&paths.change, changing), (&paths.serve, serving)];
    for (list, access) in lists {
        for path in list {
            // A path that is missing, or inaccessible anyway, needs no rule.
            let Ok(opened) = PathFd::new(path) else { continue };
            let access = if path.is_dir() { access } else { access & AccessFs::from_file(VERSION) };
            rules = rules.add_rule(PathBeneath::new(opened, access))?;
        }
    }
    Ok(match rules.restrict_self()?.ruleset {
        RulesetStatus::FullyEnforced => Enforcement::Limited,
        RulesetStatus::PartiallyEnforced => Enforcement::Partly,
        RulesetStatus::NotEnforced => Enforcement::Unlimited,
    })
}
