// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `reboot`: `reboot.h`.

constants! { general as u32 {
    LINUX_REBOOT_MAGIC1, LINUX_REBOOT_MAGIC2, LINUX_REBOOT_MAGIC2A, LINUX_REBOOT_MAGIC2B, LINUX_REBOOT_MAGIC2C,
} }
