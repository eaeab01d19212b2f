// SPDX-License-Identifier: MIT OR Apache-2.0
//! The FS and GS bases, which belong to the application: the runtime never uses them.

use core::arch::asm;

/// Sets the FS base. `false`: the address is not canonical, or not the application's.
pub fn set_fs(base: u64) -> bool {
    let allowed = base < crate::user::END;
    if allowed {
        // SAFETY: the base is canonical, so the instruction cannot fault, and no code of the runtime uses FS.
        unsafe { asm!("wrfsbase {}", in(reg) base, options(nomem, nostack, preserves_flags)) };
    }
    allowed
}

/// Sets the GS base. `false`: the address is not canonical, or not the application's.
pub fn set_gs(base: u64) -> bool {
    let allowed = base < crate::user::END;
    if allowed {
        // SAFETY: the base is canonical, so the instruction cannot fault, and no code of the runtime uses GS.
        unsafe { asm!("wrgsbase {}", in(reg) base, options(nomem, nostack, preserves_flags)) };
    }
    allowed
}

/// The FS base.
#[must_use]
pub fn fs() -> u64 {
    let base: u64;
    // SAFETY: the instruction only reads the base.
    unsafe { asm!("rdfsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}

/// The GS base.
#[must_use]
pub fn gs() -> u64 {
    let base: u64;
    // SAFETY: the instruction only reads the base.
    unsafe { asm!("rdgsbase {}", out(reg) base, options(nomem, nostack, preserves_flags)) };
    base
}
