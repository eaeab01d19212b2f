// SPDX-License-Identifier: MIT OR Apache-2.0
//! Failures of the host: the failed request, and the remedy.

use crate::frame::PageCount;
use crate::retry::retry;
use vmm_sys_util::errno::Error;

/// The host could not do what the machine needs.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// There is no KVM.
    #[error(
        "/dev/kvm is not there: load the kvm module (kvm-intel or kvm-amd), enable virtualisation in the firmware, or use a host that offers it"
    )]
    NoKvm,
    /// KVM is there, but not for this user.
    #[error(
        "/dev/kvm may not be opened by this user: give the group that owns it (usually `kvm`) access, and add the user to it; or run as root"
    )]
    KvmForbidden,
    /// KVM is there and the file's permissions let this user in, but something else forbids a request.
    #[error(
        "cannot {action}: {source}: if this process runs in a container or a sandbox, let it use the device and its requests (`docker run --device /dev/kvm`; KVM's ioctl calls in its seccomp filter), or run it outside"
    )]
    KvmDenied {
        /// The request.
        action: &'static str,
        /// The host's error.
        source: std::io::Error,
    },
    /// KVM is too old or was built without something.
    #[error("this host's KVM lacks {0}: a newer Linux is needed")]
    KvmLacks(&'static str),
    /// The CPU, or the part of it that KVM exposes, is too old.
    #[error(
        "this host's CPU, or its KVM, lacks {0}, which keeps code of cells from privileged mode: use a newer CPU, or a host that offers it"
    )]
    CpuLacks(&'static str),
    /// The arena would have more frames than can be numbered.
    #[error("an arena of {0} is larger than Pando can address; ask for less")]
    ArenaTooLarge(PageCount),
    /// A call to the host failed.
    #[error("the host could not {action}: {source}")]
    Os {
        /// The request.
        action: &'static str,
        /// The host's error.
        source: std::io::Error,
    },
}

impl HostError {
    /// Makes a KVM request, and repeats it while signals interrupt it. `action` names it in errors.
    ///
    /// # Errors
    /// KVM refused it.
    pub(crate) fn kvm<T>(action: &'static str, request: impl FnMut() -> Result<T, Error>) -> Result<T, HostError> {
        retry(request).map_err(|error| HostError::Os { action, source: error.into() })
    }

    /// Makes a system call that returns 0 on success, and repeats it while signals interrupt it. `action` names it in errors.
    ///
    /// # Errors
    /// The host refused it.
    pub(crate) fn os(action: &'static str, mut call: impl FnMut() -> libc::c_int) -> Result<(), HostError> {
        HostError::kvm(action, || if call() == 0 { Ok(()) } else { Err(Error::last()) })
    }
}
