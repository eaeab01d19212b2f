// SPDX-License-Identifier: MIT OR Apache-2.0
//! TAP devices of the host, opened with checksum and segmentation offload to the host.

use crate::retry::retry;
use libc::{IFF_NO_PI, IFF_TAP, IFF_UP, IFF_VNET_HDR, TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6, c_int, c_short, c_ulong, ifreq};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use vmm_sys_util::errno::Error as Errno;
use vmm_sys_util::ioctl::{ioctl_with_mut_ref, ioctl_with_ref, ioctl_with_val};

/// The clone device of the TUN/TAP driver.
const CLONE_DEVICE: &str = "/dev/net/tun";
/// Bytes in front of each frame: `struct virtio_net_hdr`.
const HEADER: c_int = 10;

/// A TAP device, open for this process alone.
#[derive(Debug)]
pub struct TapDevice {
    /// Each read returns a frame and each write sends one, with a virtio header in front (ten bytes, as of legacy devices). Neither blocks.
    pub descriptor: OwnedFd,
    /// The MTU of the host's side.
    pub mtu: u16,
    /// Whether the host's side is up.
    pub is_up: bool,
}

/// A failure to open a TAP device.
#[derive(Debug, thiserror::Error)]
pub enum TapError {
    /// The name is invalid for a device.
    #[error("`{0}` is no name of a network device: use one to fifteen characters without blanks, slashes, colons and percent signs")]
    Name(String),
    /// There is no such device.
    #[error(
        "this host has no network device `{0}`: make it, as root, with `ip tuntap add dev {0} mode tap user $USER` and `ip link set {0} up`"
    )]
    NoDevice(String),
    /// The device is of another kind.
    #[error("`{0}` is no TAP device, or one of several queues: make one with `ip tuntap add dev NAME mode tap`")]
    NoTap(String),
    /// Another process uses it.
    #[error("`{0}` is in use: end the program that has it, or make another with `ip tuntap add dev NAME mode tap`")]
    Busy(String),
    /// This user has no permission.
    #[error("this user may not use `{0}`: as root, delete it and make it again with `ip tuntap add dev {0} mode tap user $USER`")]
    Forbidden(String),
    /// The host has no TUN/TAP driver.
    #[error("this host has no {CLONE_DEVICE}: load the module `tun`; in a container pass `--device {CLONE_DEVICE}`")]
    NoDriver,
    /// This user has no access to the driver.
    #[error("{CLONE_DEVICE} may not be opened by this user: give it read and write access to it, or run as root")]
    DriverForbidden,
    /// The driver is too old.
    #[error("this host's TUN/TAP driver lacks {0}: a newer Linux is needed")]
    Lacks(&'static str),
    /// Another error.
    #[error("`{name}` cannot be used: {source}")]
    Host {
        /// The device.
        name: String,
        /// The host's error.
        source: Error,
    },
}

/// Opens an existing TAP device.
///
/// # Errors
/// It does not exist, another process uses it, or the host lacks a required feature.
pub fn open_tap(name: &str) -> Result<TapDevice, TapError> {
    let mut request = request(name).ok_or_else(|| TapError::Name(name.into()))?;
    let host = |source| TapError::Host { name: name.into(), source };
    let asking = socket().map_err(host)?;
    let ask = |request: &mut ifreq, what: c_ulong| {
        // SAFETY: these requests read the device's name out of the structure and write into it; it is live and exclusively ours.
        made(|| unsafe { ioctl_with_mut_ref(&asking, what, request) })
    };
    // A misspelt name must not create a device.
    ask(&mut request, libc::SIOCGIFMTU).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV) => TapError::NoDevice(name.into()),
        _ => host(error),
    })?;
    // SAFETY: the call above has filled in this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    ask(&mut request, libc::SIOCGIFFLAGS).map_err(host)?;
    // SAFETY: the call above has filled in this member.
    let is_up = c_int::from(unsafe { request.ifr_ifru.ifru_flags }) & IFF_UP != 0;
    let driver = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(CLONE_DEVICE);
    let driver = driver.map_err(|error| match error.kind() {
        ErrorKind::NotFound => TapError::NoDriver,
        ErrorKind::PermissionDenied => TapError::DriverForbidden,
        // The file exists, but no module provides it.
        _ if matches!(error.raw_os_error(), Some(libc::ENXIO | libc::ENODEV)) => TapError::NoDriver,
        _ => host(error),
    })?;
    request.ifr_ifru.ifru_flags = (IFF_TAP | IFF_NO_PI | IFF_VNET_HDR) as c_short;
    // SAFETY: the request reads a name and flags out of the structure and writes the name back; it is live and exclusively ours.
    made(|| unsafe { ioctl_with_mut_ref(&driver, libc::TUNSETIFF, &mut request) }).map_err(|error| match error.raw_os_error() {
        Some(libc::EBUSY) => TapError::Busy(name.into()),
        Some(libc::EPERM | libc::EACCES) => TapError::Forbidden(name.into()),
        Some(libc::EINVAL) => TapError::NoTap(name.into()),
        _ => host(error),
    })?;
    leave_work(&driver)?;
    Ok(TapDevice { descriptor: driver.into(), mtu: u16::try_from(mtu).unwrap_or(u16::MAX), is_up })
}

/// A request for the device of this name; `None` if the name is invalid.
fn request(name: &str) -> Option<ifreq> {
    let is_name = !name.is_empty()
        && name.len() < libc::IFNAMSIZ
        && !matches!(name, "." | "..")
        && name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%'));
    is_name.then(|| {
        // SAFETY: the structure is plain data, for which zero is a value.
        let mut request: ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name.iter_mut().zip(name.bytes()).for_each(|(place, byte)| *place = byte as libc::c_char);
        request
    })
}

/// Makes a request, and repeats it while signals interrupt it.
fn made(mut request: impl FnMut() -> c_int) -> Result<(), Error> {
    Ok(retry(|| if request() == 0 { Ok(()) } else { Err(Errno::last()) })?)
}

/// A socket for requests about devices.
fn socket() -> Result<OwnedFd, Error> {
    // SAFETY: the call takes numbers alone.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: it is open, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Sets the size of the frame headers, and the offloads that frames may use: checksums and TCP segmentation.
fn leave_work(driver: &File) -> Result<(), TapError> {
    // SAFETY: the request reads one number of this type.
    let headers = made(|| unsafe { ioctl_with_ref(driver, libc::TUNSETVNETHDRSZ, &HEADER) });
    headers.map_err(|_| TapError::Lacks("frame headers (IFF_VNET_HDR)"))?;
    // SAFETY: the request takes a number and touches no memory of ours.
    let cutting = made(|| unsafe { ioctl_with_val(driver, libc::TUNSETOFFLOAD, c_ulong::from(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) });
    cutting.map_err(|_| TapError::Lacks("TCP segmentation offload (TUN_F_TSO4)"))
}
