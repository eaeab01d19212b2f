// SPDX-License-Identifier: MIT OR Apache-2.0
//! Code that the tests of several crates share.

pub use pando_packages::{are_installed, host_program};

pub mod asm;
pub mod compile;
pub mod disk;
pub mod lab;
pub mod model;
pub mod mutate;
pub mod network_lab;
pub mod swap;
pub mod virtual_registers;

/// Leaves the calling test out, and prints the reason, unless KVM and these programs of the host are there:
/// `needs_kvm!()`, `needs_kvm!(&["git", "make"])`.
#[macro_export]
macro_rules! needs_kvm {
    ($($programs:expr)?) => {
        if !$crate::lab::is_kvm_available() $(|| !$crate::are_installed($programs))? {
            return;
        }
    };
}
