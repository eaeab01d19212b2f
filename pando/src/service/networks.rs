// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks of cells, by names: made for the first who wants one, and gone with the last who has it.

use super::lock;
use pando_kernel::{Kernel, NetworkConfig, NetworkId, OperatorError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

/// All networks.
pub(super) struct Networks {
    kernel: Arc<Kernel>,
    named: Mutex<BTreeMap<String, Weak<Network>>>,
}

/// A network. Whoever has it may be plugged into it.
pub(super) struct Network {
    kernel: Arc<Kernel>,
    id: NetworkId,
}

impl Networks {
    pub(super) fn new(kernel: Arc<Kernel>) -> Networks {
        Networks { kernel, named: Mutex::default() }
    }

    /// The network of a name, which is made if nobody has it.
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

    /// A network that nobody finds by a name.
    ///
    /// # Errors
    /// There are too many.
    pub(super) fn make(&self) -> Result<Arc<Network>, OperatorError> {
        // Names are the service's affair: the last one of a name may be about to go.
        let id = self.kernel.add_network(NetworkConfig::default())?;
        Ok(Arc::new(Network { kernel: Arc::clone(&self.kernel), id }))
    }
}

impl Network {
    /// What the kernel calls it.
    pub(super) fn id(&self) -> NetworkId {
        self.id
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // Who had it has ended, and is not plugged in any more.
        let _ = self.kernel.remove_network(self.id);
    }
}
