// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of the host: what Pando asked of it, and what to do.

use crate::frame::PageCount;

/// The host could not do what the machine needs.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// There is no KVM.
    #[error(
        "/dev/kvm is not there: load the kvm module (kvm-intel or kvm-amd), switch virtualisation on in the firmware, or use a host that offers it"
    )]
    NoKvm,
    /// KVM is there, but not for this user.
    #[error(
        "/dev/kvm may not be opened by this user: give the group that owns it (usually `kvm`) access, and add the user to it; or run as root"
    )]
    KvmForbidden,
    /// KVM is too old or was built without something.
    #[error("this host's KVM lacks {0}: a newer Linux is needed")]
    KvmLacks(&'static str),
    /// The arena would be larger than frames can be numbered.
    #[error("an arena of {0} is larger than Pando can address; ask for less")]
    ArenaTooLarge(PageCount),
    /// A call to the host failed.
    #[error("the host could not {action}: {source}")]
    Os {
        /// What was asked.
        action: &'static str,
        /// What the host said.
        source: std::io::Error,
    },
}

impl HostError {
    /// The error that the last call to the host left, for `action`.
    pub(crate) fn os(action: &'static str) -> HostError {
        HostError::Os { action, source: std::io::Error::last_os_error() }
    }

    /// An error that KVM returned, for `action`.
    pub(crate) fn kvm(action: &'static str) -> impl FnOnce(kvm_ioctls::Error) -> HostError {
        move |error| HostError::Os { action, source: error.into() }
    }
}
