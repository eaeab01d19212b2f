// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of system calls, with Linux's names and numbers.

use pando_abi::Refusal;
use pando_rt::user::Fault;

use crate::erofs;

/// Declares the errors with numbers and texts.
macro_rules! errors {
    ($($(#[doc = $doc:literal])+ $name:ident = $number:literal,)*) => {
        /// The error of a failed system call. The names are Linux's.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u16)]
        pub enum Errno { $($(#[doc = $doc])+ $name = $number,)* }

        impl Errno {
            /// The error's description, as Linux programs print it.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self { $(Errno::$name => concat!($($doc),+).trim_ascii(),)* }
            }

            /// The error of this number; `None`: it does not occur here.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Errno> {
                match number { $($number => Some(Errno::$name),)* _ => None }
            }
        }
    };
}

errors! {
    /// operation not permitted
    EPERM = 1,
    /// no such file or directory
    ENOENT = 2,
    /// no such process
    ESRCH = 3,
    /// interrupted system call
    EINTR = 4,
    /// input/output error
    EIO = 5,
    /// no such device or address
    ENXIO = 6,
    /// argument list too long
    E2BIG = 7,
    /// exec format error
    ENOEXEC = 8,
    /// bad file descriptor
    EBADF = 9,
    /// no child processes
    ECHILD = 10,
    /// resource temporarily unavailable
    EAGAIN = 11,
    /// cannot allocate memory
    ENOMEM = 12,
    /// permission denied
    EACCES = 13,
    /// bad address
    EFAULT = 14,
    /// device or resource busy
    EBUSY = 16,
    /// file exists
    EEXIST = 17,
    /// invalid cross-device link
    EXDEV = 18,
    /// no such device
    ENODEV = 19,
    /// not a directory
    ENOTDIR = 20,
    /// is a directory
    EISDIR = 21,
    /// invalid argument
    EINVAL = 22,
    /// too many open files
    EMFILE = 24,
    /// inappropriate ioctl for device
    ENOTTY = 25,
    /// text file busy
    ETXTBSY = 26,
    /// file too large
    EFBIG = 27,
    /// no space left on device
    ENOSPC = 28,
    /// illegal seek
    ESPIPE = 29,
    /// read-only file system
    EROFS = 30,
    /// broken pipe
    EPIPE = 32,
    /// numerical argument out of domain
    EDOM = 33,
    /// numerical result out of range
    ERANGE = 34,
    /// resource deadlock avoided
    EDEADLK = 35,
    /// file name too long
    ENAMETOOLONG = 36,
    /// no locks available
    ENOLCK = 37,
    /// function not implemented
    ENOSYS = 38,
    /// directory not empty
    ENOTEMPTY = 39,
    /// too many levels of symbolic links
    ELOOP = 40,
    /// no message of desired type
    ENOMSG = 42,
    /// identifier removed
    EIDRM = 43,
    /// no data available
    ENODATA = 61,
    /// machine is not on the network
    ENONET = 64,
    /// protocol error
    EPROTO = 71,
    /// value too large for defined data type
    EOVERFLOW = 75,
    /// accessing a corrupted shared library
    ELIBBAD = 80,
    /// interrupted system call that is restarted with `SA_RESTART`: never seen by programs
    ERESTART = 85,
    /// socket operation on non-socket
    ENOTSOCK = 88,
    /// destination address required
    EDESTADDRREQ = 89,
    /// message too long
    EMSGSIZE = 90,
    /// protocol wrong type for socket
    EPROTOTYPE = 91,
    /// protocol not available
    ENOPROTOOPT = 92,
    /// protocol not supported
    EPROTONOSUPPORT = 93,
    /// socket type not supported
    ESOCKTNOSUPPORT = 94,
    /// operation not supported
    EOPNOTSUPP = 95,
    /// address family not supported by protocol
    EAFNOSUPPORT = 97,
    /// address already in use
    EADDRINUSE = 98,
    /// cannot assign requested address
    EADDRNOTAVAIL = 99,
    /// network is unreachable
    ENETUNREACH = 101,
    /// software caused connection abort
    ECONNABORTED = 103,
    /// connection reset by peer
    ECONNRESET = 104,
    /// no buffer space available
    ENOBUFS = 105,
    /// transport endpoint is already connected
    EISCONN = 106,
    /// transport endpoint is not connected
    ENOTCONN = 107,
    /// too many references: cannot splice
    ETOOMANYREFS = 109,
    /// connection timed out
    ETIMEDOUT = 110,
    /// connection refused
    ECONNREFUSED = 111,
    /// host is down
    EHOSTDOWN = 112,
    /// no route to host
    EHOSTUNREACH = 113,
    /// operation already in progress
    EALREADY = 114,
    /// operation now in progress
    EINPROGRESS = 115,
    /// the call waits, and is made again: never seen by programs
    WAITS = 512,
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
