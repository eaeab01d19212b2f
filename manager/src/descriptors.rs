// SPDX-License-Identifier: MIT OR Apache-2.0
//! The budget of file descriptors: the process's limit, divided once, so that no consumer starves another.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Descriptors that are not assigned: streams, KVM's, the threads' own, briefly opened files, and those with which `accept`
/// reports that there are too many connections.
const RESERVE: usize = 128;
/// Descriptors to assume if the process has no limit.
const UNLIMITED: usize = 1 << 20;
/// Host files that images keep open at most; others are reopened when they are read.
const IMAGE_FILES: usize = 256;
/// Maximal number of connections to the service.
const CONNECTIONS: usize = 4096;
/// The minimum for a gateway: 8 connections, 4 UDP flows, 2 DNS queries.
const GATEWAY_MIN: usize = 16;
/// Descriptors for a gateway's connections at most: more than it makes use of.
const GATEWAY_MAX: usize = 1 << 14;
/// Descriptors that this process has for each gateway's process: the rings, an eventfd for each side, and the socket for messages. The
/// gateway's connections belong to its own process.
const DESCRIPTORS_PER_GATEWAY: usize = 4;
/// Descriptors with which a service can do something.
const SERVICE_MIN: usize = 256;

/// The process's limit of open files is too low.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the limit of {total} open files is too low for {purpose}: raise it (`ulimit -Hn`, LimitNOFILE= of a unit), or request less")]
pub struct TooFewDescriptors {
    /// The limit.
    pub total: usize,
    /// The purpose for which it is too low.
    pub purpose: &'static str,
}

/// The division of the process's descriptors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptors {
    /// All.
    total: usize,
    /// Host files that images keep open.
    images: usize,
    /// Connections to the service.
    pub connections: usize,
    /// Files of templates that are loaded.
    pub templates: usize,
    /// This process's descriptors for all gateways together.
    gateways: usize,
}

/// Raises the process's soft limit to the hard limit. If that fails, the current limit applies.
pub fn raise() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

impl Descriptors {
    /// Divides the process's limit, and configures the libraries that keep files open.
    pub fn divide() -> Descriptors {
        let current = getrlimit(Resource::Nofile).current;
        let shares = Descriptors::of(current.map_or(UNLIMITED, |limit| usize::try_from(limit).unwrap_or(UNLIMITED).min(UNLIMITED)));
        pando_image::limit_open_files(shares.images);
        shares
    }

    fn of(total: usize) -> Descriptors {
        // A process with fewer than the reserve can still run a cell.
        let free = total.saturating_sub(RESERVE).max(total / 4);
        let (images, connections, templates) = (IMAGE_FILES.min(free / 8), CONNECTIONS.min(free / 4), free / 4);
        Descriptors { total, images, connections, templates, gateways: free - images - connections - templates }
    }

    /// The descriptors that each of so many gateways may use: they have processes of their own, each with the limit of this one.
    ///
    /// # Errors
    /// There are too few for each, or too few here for so many.
    pub fn per_gateway(&self, count: usize) -> Result<usize, TooFewDescriptors> {
        let share = self.total.saturating_sub(RESERVE).max(self.total / 4).min(GATEWAY_MAX);
        if share < GATEWAY_MIN || count * DESCRIPTORS_PER_GATEWAY > self.gateways {
            Err(TooFewDescriptors { total: self.total, purpose: "so many gateways" })
        } else {
            Ok(share)
        }
    }

    /// Checks that there are enough descriptors for the service.
    ///
    /// # Errors
    /// There are too few.
    pub fn check_service(&self) -> Result<(), TooFewDescriptors> {
        if self.total < SERVICE_MIN { Err(TooFewDescriptors { total: self.total, purpose: "a service" }) } else { Ok(()) }
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
        assert!(Descriptors::of(1024).per_gateway(12).is_ok());
        assert!(Descriptors::of(1024).per_gateway(100).is_err());
        assert!(Descriptors::of(64).check_service().is_err());
    }
}
