// SPDX-License-Identifier: MIT OR Apache-2.0
//! The budget of file descriptors: all that the process may have, shared out once, so that nobody's use takes what others need.

use crate::failure::Failure;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that nobody is given: streams, KVM's, threads' own, what is open for a moment, and what `accept` needs to answer that there are too many connections.
const RESERVE: usize = 128;
/// Descriptors of a process without a limit.
const UNLIMITED: usize = 1 << 20;
/// Host files that images keep open at most: a file that is read again is opened again.
const IMAGE_FILES: usize = 256;
/// Connections to the service at most.
const CONNECTIONS: usize = 4096;
/// Descriptors with which a gateway can do something: 8 connections, 4 conversations by datagrams, 2 questions.
const GATEWAY_LEAST: usize = 16;
/// Descriptors of a gateway's own: what it waits with, and what wakes it.
const GATEWAY_OWN: usize = 2;
/// Descriptors with which a service can do something.
const SERVICE_LEAST: usize = 256;

/// How the process's descriptors are shared out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptors {
    /// All.
    total: usize,
    /// Host files that images keep open.
    images: usize,
    /// Connections to the service.
    pub(crate) connections: usize,
    /// Files of templates that are loaded.
    pub(crate) templates: usize,
    /// Sockets of all gateways together.
    gateways: usize,
}

/// Raises the limit of the process to what it may be. One that cannot be raised is enough for less.
pub(crate) fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

impl Descriptors {
    /// Shares out what the process may have, and tells those of its libraries that keep files open.
    pub(crate) fn share_out() -> Descriptors {
        let current = getrlimit(Resource::Nofile).current;
        let shares = Descriptors::of(current.map_or(UNLIMITED, |limit| usize::try_from(limit).unwrap_or(UNLIMITED).min(UNLIMITED)));
        pando_image::limit_open_files(shares.images);
        shares
    }

    fn of(total: usize) -> Descriptors {
        // A process with fewer than the reserve still runs a cell.
        let free = total.saturating_sub(RESERVE).max(total / 4);
        let (images, connections, templates) = (IMAGE_FILES.min(free / 8), CONNECTIONS.min(free / 4), free / 4);
        Descriptors { total, images, connections, templates, gateways: free - images - connections - templates }
    }

    /// The descriptors that each of so many gateways may use.
    ///
    /// # Errors
    /// There are too few for each.
    pub(crate) fn of_gateway(&self, count: usize) -> Result<usize, Failure> {
        let share = (self.gateways / count.max(1)).saturating_sub(GATEWAY_OWN);
        if share < GATEWAY_LEAST { Err(Failure::FewDescriptors { total: self.total, what: "so many gateways" }) } else { Ok(share) }
    }

    /// Checks that there are enough for a service.
    ///
    /// # Errors
    /// There are not.
    pub(crate) fn check_service(&self) -> Result<(), Failure> {
        if self.total < SERVICE_LEAST { Err(Failure::FewDescriptors { total: self.total, what: "a service" }) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::{Descriptors, RESERVE};

    #[test]
    fn shares_leave_the_reserve() {
        for total in [256, 1024, 4096, 1 << 20] {
            let shares = Descriptors::of(total);
            let Descriptors { images, connections, templates, gateways, .. } = shares;
            assert_eq!(images + connections + templates + gateways, total - RESERVE);
            assert!([images, connections, templates, gateways].into_iter().all(|share| share >= 16), "{shares:?}");
        }
        assert!(Descriptors::of(1024).of_gateway(12).is_ok());
        assert!(Descriptors::of(1024).of_gateway(100).is_err());
        assert!(Descriptors::of(64).check_service().is_err());
    }
}
