// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of system calls, with Linux's names and numbers.

use linux_raw_sys::errno;
use pando_abi::Refusal;
use pando_rt::user::Fault;

use crate::erofs;

/// The number of [`Errno::WAITS`], which no error of Linux has that programs see.
const WAITS: u32 = 512;
/// The number of [`Errno::QUEUED`], which programs do not see either.
const QUEUED: u32 = 529;

/// Declares the errors with their texts. The numbers are those of `linux-raw-sys`.
macro_rules! errors {
    ($($(#[doc = $doc:literal])+ $name:ident,)*) => {
        /// The error of a failed system call. The names are Linux's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Errno {
            $($(#[doc = $doc])+ $name = errno::$name as u16,)*
            /// The call waits, and is made again. Programs never see it.
            WAITS = WAITS as u16,
            /// The call needs the answer of a file server, and is made again then. Programs never see it.
            QUEUED = QUEUED as u16,
        }

        impl Errno {
            /// The error's description, as Linux programs print it.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Errno::$name => concat!($($doc),+).trim_ascii(),)*
                    Errno::WAITS => "the call waits",
                    Errno::QUEUED => "the call waits for a file server",
                }
            }

            /// The error of this number; `None`: it does not occur here.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Errno> {
                match number {
                    $(errno::$name => Some(Errno::$name),)*
                    WAITS => Some(Errno::WAITS),
                    QUEUED => Some(Errno::QUEUED),
                    _ => None,
                }
            }
        }
    };
}

errors! {
    /// operation not permitted
    EPERM,
    /// no such file or directory
    ENOENT,
    /// no such process
    ESRCH,
    /// interrupted system call
    EINTR,
    /// input/output error
    EIO,
    /// no such device or address
    ENXIO,
    /// argument list too long
    E2BIG,
    /// exec format error
    ENOEXEC,
    /// bad file descriptor
    EBADF,
    /// no child processes
    ECHILD,
    /// resource temporarily unavailable
    EAGAIN,
    /// cannot allocate memory
    ENOMEM,
    /// permission denied
    EACCES,
    /// bad address
    EFAULT,
    /// device or resource busy
    EBUSY,
    /// file exists
    EEXIST,
    /// invalid cross-device link
    EXDEV,
    /// no such device
    ENODEV,
    /// not a directory
    ENOTDIR,
    /// is a directory
    EISDIR,
    /// invalid argument
    EINVAL,
    /// too many open files
    EMFILE,
    /// inappropriate ioctl for device
    ENOTTY,
    /// text file busy
    ETXTBSY,
    /// file too large
    EFBIG,
    /// no space left on device
    ENOSPC,
    /// illegal seek
    ESPIPE,
    /// read-only file system
    EROFS,
    /// broken pipe
    EPIPE,
    /// numerical argument out of domain
    EDOM,
    /// numerical result out of range
    ERANGE,
    /// resource deadlock avoided
    EDEADLK,
    /// file name too long
    ENAMETOOLONG,
    /// no locks available
    ENOLCK,
    /// function not implemented
    ENOSYS,
    /// directory not empty
    ENOTEMPTY,
    /// too many levels of symbolic links
    ELOOP,
    /// no message of desired type
    ENOMSG,
    /// identifier removed
    EIDRM,
    /// no data available
    ENODATA,
    /// machine is not on the network
    ENONET,
    /// protocol error
    EPROTO,
    /// value too large for defined data type
    EOVERFLOW,
    /// accessing a corrupted shared library
    ELIBBAD,
    /// interrupted system call that is restarted with `SA_RESTART`: never seen by programs
    ERESTART,
    /// socket operation on non-socket
    ENOTSOCK,
    /// destination address required
    EDESTADDRREQ,
    /// message too long
    EMSGSIZE,
    /// protocol wrong type for socket
    EPROTOTYPE,
    /// protocol not available
    ENOPROTOOPT,
    /// protocol not supported
    EPROTONOSUPPORT,
    /// socket type not supported
    ESOCKTNOSUPPORT,
    /// operation not supported
    EOPNOTSUPP,
    /// address family not supported by protocol
    EAFNOSUPPORT,
    /// address already in use
    EADDRINUSE,
    /// cannot assign requested address
    EADDRNOTAVAIL,
    /// network is unreachable
    ENETUNREACH,
    /// software caused connection abort
    ECONNABORTED,
    /// connection reset by peer
    ECONNRESET,
    /// no buffer space available
    ENOBUFS,
    /// transport endpoint is already connected
    EISCONN,
    /// transport endpoint is not connected
    ENOTCONN,
    /// too many references: cannot splice
    ETOOMANYREFS,
    /// connection timed out
    ETIMEDOUT,
    /// connection refused
    ECONNREFUSED,
    /// host is down
    EHOSTDOWN,
    /// no route to host
    EHOSTUNREACH,
    /// operation already in progress
    EALREADY,
    /// operation now in progress
    EINPROGRESS,
}

impl Errno {
    /// The same for a call that is never restarted: `ERESTART` becomes `EINTR`.
    #[must_use]
    pub const fn without_restart(self) -> Errno {
        match self {
            Errno::ERESTART => Errno::EINTR,
            other => other,
        }
    }

    /// The value of a result register. Errors that do not occur here are values.
    ///
    /// # Errors
    /// The error that it holds.
    pub fn from_result(raw: u64) -> Result<u64, Errno> {
        let number = u32::try_from(raw.wrapping_neg()).ok().filter(|number| *number != 0);
        number.and_then(Errno::from_number).map_or(Ok(raw), Err)
    }

    /// The value that the result register holds.
    #[must_use]
    pub const fn to_result(self) -> u64 {
        (self as u16 as u64).wrapping_neg()
    }
}

impl From<Fault> for Errno {
    fn from(_: Fault) -> Errno {
        Errno::EFAULT
    }
}

impl From<Refusal> for Errno {
    fn from(refusal: Refusal) -> Errno {
        match refusal {
            Refusal::BadAddress | Refusal::BadArgument => Errno::EINVAL,
            Refusal::ReadOnly => Errno::EACCES,
            _ => Errno::ENOMEM,
        }
    }
}

impl From<erofs::Error> for Errno {
    fn from(error: erofs::Error) -> Errno {
        match error {
            erofs::Error::NotFound => Errno::ENOENT,
            erofs::Error::NotADirectory => Errno::ENOTDIR,
            erofs::Error::NotASymlink => Errno::EINVAL,
            erofs::Error::NameTooLong => Errno::ENAMETOOLONG,
            erofs::Error::TooManyLinks => Errno::ELOOP,
            erofs::Error::Compressed(_) | erofs::Error::Chunked(_) => Errno::EOPNOTSUPP,
            _ => Errno::EIO,
        }
    }
}
