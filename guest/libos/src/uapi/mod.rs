// SPDX-License-Identifier: MIT OR Apache-2.0
//! Constants of Linux's interface, under Linux's names.
//!
//! The values come from `linux-raw-sys`. It has most of them as `u32`; here they have the type that the libOS computes with, which is
//! often the 64 bits of a system call's argument. Constants that the crate lacks are declared at the end of each module, with the header
//! that defines them.

/// Declares constants of a module of `linux-raw-sys` as another integer type. A value that does not fit is an error of compilation.
macro_rules! constants {
    ($module:ident as $type:ty { $($name:ident,)* }) => {$(constants! { $name: $type = linux_raw_sys::$module::$name })*};
    ($module:ident::$enum:ident as $type:ty { $($name:ident,)* }) => {
        $(constants! { $name: $type = linux_raw_sys::$module::$enum::$name })*
    };
    ($name:ident: $type:ty = $value:expr) => {
        #[doc = concat!("`", stringify!($name), "`.")]
        pub const $name: $type = {
            let value = $value as i128;
            assert!(value as $type as i128 == value);
            value as $type
        };
    };
}

pub mod auxvec;
pub mod capability;
pub mod epoll;
pub mod fcntl;
pub mod filter;
pub mod fuse;
pub mod futex;
pub mod inotify;
pub mod ioctl;
pub mod ipc;
pub mod mman;
pub mod mount;
pub mod netlink;
pub mod poll;
pub mod prctl;
pub mod reboot;
pub mod resource;
pub mod sched;
pub mod signal;
pub mod socket;
pub mod sockios;
pub mod stat;
pub mod termios;
pub mod time;
pub mod wait;

pub use auxvec::*;
pub use capability::*;
pub use epoll::*;
pub use fcntl::*;
pub use filter::*;
pub use fuse::*;
pub use futex::*;
pub use inotify::*;
pub use ioctl::*;
pub use ipc::*;
pub use mman::*;
pub use mount::*;
pub use netlink::*;
pub use poll::*;
pub use prctl::*;
pub use reboot::*;
pub use resource::*;
pub use sched::*;
pub use signal::*;
pub use socket::*;
pub use sockios::*;
pub use stat::*;
pub use termios::*;
pub use time::*;
pub use wait::*;
