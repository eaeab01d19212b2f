// SPDX-License-Identifier: MIT OR Apache-2.0
//! Named networks of cells: created with their first user and removed with their last.

use pando_kernel::{Kernel, NetworkConfig, NetworkId, OperatorError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The networks of one kernel that cells share by name.
pub struct NamedNetworks {
    kernel: Arc<Kernel>,
    named: Mutex<BTreeMap<String, Weak<SharedNetwork>>>,
}

/// A network, which is removed when this is dropped. The cells of its holders may be connected to it.
pub struct SharedNetwork {
    kernel: Arc<Kernel>,
    id: NetworkId,
}

impl NamedNetworks {
    /// No networks yet.
    pub fn new(kernel: Arc<Kernel>) -> NamedNetworks {
        NamedNetworks { kernel, named: Mutex::default() }
    }

    /// The network of a name, created if there is none.
    ///
    /// # Errors
    /// There are too many.
    pub fn get(&self, name: &str) -> Result<Arc<SharedNetwork>, OperatorError> {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(network) = named.get(name).and_then(Weak::upgrade) {
            return Ok(network);
        }
        named.retain(|_, network| network.strong_count() > 0);
        let network = self.create()?;
        named.insert(name.into(), Arc::downgrade(&network));
        Ok(network)
    }

    /// A network without a name.
    ///
    /// # Errors
    /// There are too many.
    pub fn create(&self) -> Result<Arc<SharedNetwork>, OperatorError> {
        // The kernel gets no name: the last network of the same name may still exist.
        let id = self.kernel.add_network(NetworkConfig::default())?;
        Ok(Arc::new(SharedNetwork { kernel: Arc::clone(&self.kernel), id }))
    }

    /// A network without a name, whose cells reach host ports only.
    ///
    /// # Errors
    /// There are too many.
    pub fn create_isolated(&self) -> Result<Arc<SharedNetwork>, OperatorError> {
        let id = self.kernel.add_network(NetworkConfig { is_isolated: true, ..NetworkConfig::default() })?;
        Ok(Arc::new(SharedNetwork { kernel: Arc::clone(&self.kernel), id }))
    }
}

impl SharedNetwork {
    /// Its ID in the kernel.
    pub fn id(&self) -> NetworkId {
        self.id
    }
}

impl Drop for SharedNetwork {
    fn drop(&mut self) {
        // Its users' cells have ended and are disconnected.
        let _ = self.kernel.remove_network(self.id);
    }
}
