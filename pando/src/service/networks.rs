// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named networks of cells: created with their first user and removed with their last.

use super::lock;
use pando_kernel::{Kernel, NetworkConfig, NetworkId, OperatorError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

/// All networks.
pub(super) struct Networks {
    kernel: Arc<Kernel>,
    named: Mutex<BTreeMap<String, Weak<Network>>>,
}

/// A network. Its holders' cells may be connected to it.
pub(super) struct Network {
    kernel: Arc<Kernel>,
    id: NetworkId,
}

impl Networks {
    pub(super) fn new(kernel: Arc<Kernel>) -> Networks {
        Networks { kernel, named: Mutex::default() }
    }

    /// The network of a name, created if there is none.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn get(&self, name: &str) -> Result<Arc<Network>, OperatorError> {
        let mut named = lock(&self.named);
        if let Some(network) = named.get(name).and_then(Weak::upgrade) {
            return Ok(network);
        }
        named.retain(|_, network| network.strong_count() > 0);
        let network = self.make()?;
        named.insert(name.into(), Arc::downgrade(&network));
        Ok(network)
    }

    /// A network without a name.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn make(&self) -> Result<Arc<Network>, OperatorError> {
        // The kernel gets no name: the last network of the same name may still exist.
        let id = self.kernel.add_network(NetworkConfig::default())?;
        Ok(Arc::new(Network { kernel: Arc::clone(&self.kernel), id }))
    }
}

impl Network {
    /// Its ID in the kernel.
    pub(super) fn id(&self) -> NetworkId {
        self.id
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Its users' cells have ended and are disconnected.
        let _ = self.kernel.remove_network(self.id);
    }
}
