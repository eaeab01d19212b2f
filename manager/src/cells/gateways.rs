// SPDX-License-Identifier: MIT OR Apache-2.0
//! The uplinks of cells' networks. Each gateway has a process of its own, and one of the threads started in advance forwards its frames.

use super::ManagerError;
use super::tasks::lock;
use crate::descriptors::Descriptors;
use crate::network::{
    CellDirectory, GatewaySpec, Launcher, NetworkError, Pump, PumpWaker, SharedNetwork, connect_gateway, connect_virtual_hosts,
};
use crate::report::{Reporter, Warning};
use pando_confine::Ports;
use pando_gateway::{PortForward, Rule, VirtualHosts};
use pando_kernel::network::address::Addresses;
use pando_kernel::{CellId, Kernel};
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a request waits for a free gateway: a little longer than one may take to stop.
const SLOT_WAIT_MAX: Duration = Duration::from_secs(6);

/// The pool of gateways: their threads and free slots.
pub(crate) struct Gateways {
    count: usize,
    free: Arc<Semaphore>,
    /// Descriptors for each gateway.
    descriptors: usize,
    launcher: Option<Arc<Launcher>>,
    virtual_hosts: Option<VirtualHosts>,
    jobs: Sender<RunningGateway>,
    reporter: Reporter,
}

/// The launcher of gateways, before their threads are started.
pub struct PreparedGateways {
    count: usize,
    descriptors: usize,
    launcher: Option<Arc<Launcher>>,
    virtual_hosts: Option<VirtualHosts>,
}

/// A slot for a gateway. It is free again when this is dropped.
pub(crate) struct GatewaySlot(#[expect(dead_code, reason = "it is kept to be dropped")] OwnedSemaphorePermit);

/// A running gateway.
struct RunningGateway {
    pump: Pump,
    /// The cell's program, for messages.
    program: String,
    /// Kept until the gateway has ended.
    _network: Arc<SharedNetwork>,
    /// `None`: it is not one of the pool.
    _slot: Option<GatewaySlot>,
}

/// The uplink of a cell's network. Dropping it stops the gateway.
pub(crate) struct CellUplink(Arc<PumpWaker>);

impl PreparedGateways {
    /// Starts the launcher for `count` gateways and for that of virtual hosts, if there is any. The calling process must still have a
    /// single thread.
    ///
    /// # Errors
    /// The host allows no more processes, or has too few descriptors for `count` gateways.
    pub fn start(count: usize, virtual_hosts: Option<VirtualHosts>, descriptors: Descriptors) -> Result<PreparedGateways, NetworkError> {
        let all = count + usize::from(virtual_hosts.is_some());
        if all == 0 {
            return Ok(PreparedGateways { count, descriptors: 0, launcher: None, virtual_hosts });
        }
        let descriptors = descriptors.per_gateway(all)?;
        // The gateways' own rules limit the ports.
        let launcher = Launcher::start(None, Ports::All, descriptors, all)?;
        Ok(PreparedGateways { count, descriptors, launcher: Some(Arc::new(launcher)), virtual_hosts })
    }

    /// Starts a waiting thread for each gateway, because a confined process cannot start more.
    ///
    /// # Errors
    /// The host allows no more threads.
    pub(crate) fn threads(self, reporter: &Reporter) -> Result<Gateways, ManagerError> {
        let PreparedGateways { count, descriptors, launcher, virtual_hosts } = self;
        let (jobs, received) = mpsc::channel();
        let received = Arc::new(Mutex::new(received));
        for _ in 0..count + usize::from(virtual_hosts.is_some()) {
            let (received, reporter) = (Arc::clone(&received), reporter.clone());
            std::thread::Builder::new()
                .name("gateway".into())
                .spawn(move || run_gateways(&received, &reporter))
                .map_err(ManagerError::Thread)?;
        }
        let (free, reporter) = (Arc::new(Semaphore::new(count)), reporter.clone());
        Ok(Gateways { count, free, descriptors, launcher, virtual_hosts, jobs, reporter })
    }
}

impl Gateways {
    /// The number of gateways.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Waits briefly for a free slot.
    ///
    /// # Errors
    /// All slots are in use.
    pub(crate) async fn slot(&self) -> Result<GatewaySlot, ManagerError> {
        let full = || ManagerError::NoGateway(self.count);
        if self.count == 0 {
            return Err(full());
        }
        let waited = tokio::time::timeout(SLOT_WAIT_MAX, Arc::clone(&self.free).acquire_owned()).await;
        waited.ok().and_then(Result::ok).map(GatewaySlot).ok_or_else(full)
    }

    /// Starts a gateway for a cell that is connected to a network of its own. Returns its uplink and its port forwards.
    ///
    /// # Errors
    /// A port forward cannot listen, or resources for another gateway are missing.
    pub(crate) fn open(
        &self,
        kernel: &Arc<Kernel>,
        (cell, own, program): (CellId, &Addresses, String),
        network: &Arc<SharedNetwork>,
        (rules, forwards, slot): (Vec<Rule>, Vec<PortForward>, GatewaySlot),
    ) -> Result<(CellUplink, Vec<PortForward>), ManagerError> {
        let Some(launcher) = &self.launcher else { return Err(ManagerError::NoGateway(self.count)) };
        let spec = GatewaySpec { rules, forwards, descriptors: self.descriptors };
        let (pump, forwards) = connect_gateway(kernel, (cell, own), network.id(), launcher, spec, &program, &self.reporter)?;
        let waker = pump.waker();
        let job = RunningGateway { pump, program, _network: Arc::clone(network), _slot: Some(slot) };
        self.jobs.send(job).map_err(ManagerError::internal)?;
        Ok((CellUplink(waker), forwards))
    }

    /// The configuration of virtual hosts, if the service has them.
    pub(crate) fn virtual_hosts(&self) -> Option<&VirtualHosts> {
        self.virtual_hosts.as_ref()
    }

    /// Starts the gateway of virtual hosts. Returns its uplink and the address at which the host listens.
    ///
    /// # Errors
    /// The host does not listen there, or resources for a gateway are missing.
    pub(crate) fn open_shared(
        &self,
        kernel: &Arc<Kernel>,
        network: &Arc<SharedNetwork>,
        config: VirtualHosts,
        directory: Arc<dyn CellDirectory>,
    ) -> Result<(CellUplink, SocketAddr), ManagerError> {
        let Some(launcher) = &self.launcher else { return Err(ManagerError::NoVirtualHosts) };
        let config = (config, self.descriptors);
        let (pump, address) = connect_virtual_hosts(kernel, network.id(), launcher, config, directory, &self.reporter)?;
        let waker = pump.waker();
        let job = RunningGateway { pump, program: "the service".into(), _network: Arc::clone(network), _slot: None };
        self.jobs.send(job).map_err(ManagerError::internal)?;
        Ok((CellUplink(waker), address))
    }
}

impl Drop for CellUplink {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs the pump of one gateway after the other, until the pool is dropped.
fn run_gateways(jobs: &Mutex<Receiver<RunningGateway>>, reporter: &Reporter) {
    loop {
        // One thread waits for the next gateway, the others for the lock.
        let job = lock(jobs).recv();
        let Ok(RunningGateway { pump, program, _network, _slot }) = job else { return };
        // Even after a panic, the thread runs the next gateway, and the slot is freed.
        let run = catch_unwind(AssertUnwindSafe(|| pump.run()));
        if let Err(error) = run.unwrap_or_else(|_| Err(io::Error::other("it panicked"))) {
            reporter.warn(Warning::GatewayFailed { program, error });
        }
    }
}
