// SPDX-License-Identifier: MIT OR Apache-2.0
//! The identities of an image's files on the host, if the image has them.

use pando_erofs::{HostIdentity, IdentityTable};

use super::{Image, Nid};

impl Image<'_> {
    /// The file of the host that an inode shows; `None`: the image does not say.
    #[must_use]
    pub fn identity(&self, nid: Nid) -> Option<HostIdentity> {
        let index = IdentityTable::index(nid);
        // The first record has the volume's device.
        if index == 0 { None } else { self.record(index).filter(|record| record.inode != 0) }
    }

    /// The device of what the image shows; `None`: it does not say.
    #[must_use]
    pub fn device(&self) -> Option<u64> {
        self.record(0)?.device
    }

    fn record(&self, index: u64) -> Option<HostIdentity> {
        HostIdentity::decode(self.slice(self.identities?.offset(index)?, HostIdentity::SIZE as u64)?)
    }
}
