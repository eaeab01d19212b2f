// SPDX-License-Identifier: MIT OR Apache-2.0
//! The owner of a file, which credentials are compared with.

use crate::uapi::{S_ISGID, S_ISUID, S_IXGRP};

/// The owner and permissions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The lower twelve bits of the mode.
    pub permissions: u16,
}

impl Owner {
    /// Clears the set-user-ID and set-group-ID bits (`file_remove_privs`), as a write without `CAP_FSETID` does. The bit for the group
    /// stays if no group may execute the file and `keeps_group_id` is set.
    pub fn remove_privileges(&mut self, keeps_group_id: bool) {
        self.permissions &= !S_ISUID;
        if self.permissions & S_IXGRP != 0 || !keeps_group_id {
            self.permissions &= !S_ISGID;
        }
    }
}
