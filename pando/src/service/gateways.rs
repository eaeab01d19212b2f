// SPDX-License-Identifier: MIT OR Apache-2.0
//! The uplinks of cells' networks. Each gateway has a process of its own, and one of the threads started in advance forwards its frames.

use super::lock;
use super::networks::Network;
use super::problem::Problem;
use crate::descriptors::Descriptors;
use crate::diagnostics;
use crate::failure::Failure;
use crate::network::{Bell, Launcher, Pump, StartedGateway, Uplink, advice, inside, order};
use pando_confine::Ports;
use pando_gateway::{Refused, Rule};
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Kernel};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a request waits for a free gateway: a little longer than one may take to stop.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(6);

/// The pool of gateways: their threads and free slots.
pub(super) struct Gateways {
    count: usize,
    free: Arc<Semaphore>,
    /// Descriptors for each gateway.
    descriptors: usize,
    launcher: Option<Arc<Launcher>>,
    orders: Sender<RunningGateway>,
}

/// The launcher of gateways, before their threads are started.
pub(super) struct Prepared {
    count: usize,
    descriptors: usize,
    launcher: Option<Arc<Launcher>>,
}

/// A slot for a gateway. It is free again when this is dropped.
pub(super) struct GatewaySlot(#[expect(dead_code, reason = "it is kept to be dropped")] OwnedSemaphorePermit);

/// A running gateway.
struct RunningGateway {
    pump: Pump,
    /// The cell's program, for messages.
    program: String,
    /// Kept until the gateway has ended.
    _network: Arc<Network>,
    _place: GatewaySlot,
}

/// The uplink of a cell's network. Dropping it stops the gateway.
pub(super) struct CellUplink(Arc<Bell>);

impl Prepared {
    /// Starts the launcher if `count` is not 0. The calling process must still have a single thread.
    ///
    /// # Errors
    /// The host allows no more processes, or has too few descriptors for `count` gateways.
    pub(super) fn start(count: usize, descriptors: Descriptors) -> Result<Prepared, Failure> {
        if count == 0 {
            return Ok(Prepared { count, descriptors: 0, launcher: None });
        }
        let descriptors = descriptors.of_gateway(count)?;
        // The gateways' own rules limit the ports.
        let launcher = Launcher::start(None, Ports::All, descriptors, count)?;
        Ok(Prepared { count, descriptors, launcher: Some(Arc::new(launcher)) })
    }

    /// Starts a waiting thread for each gateway, because a confined process cannot start more.
    ///
    /// # Errors
    /// The host allows no more threads.
    pub(super) fn threads(self) -> Result<Gateways, Failure> {
        let Prepared { count, descriptors, launcher } = self;
        let (orders, told) = mpsc::channel();
        let told = Arc::new(Mutex::new(told));
        for _ in 0..count {
            let told = Arc::clone(&told);
            std::thread::Builder::new().name("gateway".into()).spawn(move || lead(&told)).map_err(Failure::Thread)?;
        }
        Ok(Gateways { count, free: Arc::new(Semaphore::new(count)), descriptors, launcher, orders })
    }
}

impl Gateways {
    /// The number of gateways.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Waits briefly for a free slot.
    ///
    /// # Errors
    /// All slots are in use.
    pub(super) async fn place(&self) -> Result<GatewaySlot, Problem> {
        let full = || Problem::no_gateway(self.count);
        if self.count == 0 {
            return Err(full());
        }
        let waited = tokio::time::timeout(PLACE_WAIT_MAX, Arc::clone(&self.free).acquire_owned()).await;
        waited.ok().and_then(Result::ok).map(GatewaySlot).ok_or_else(full)
    }

    /// Starts a gateway, with these rules, for a cell that is connected to a network of its own.
    ///
    /// # Errors
    /// Resources for another gateway are missing.
    pub(super) fn open(
        &self,
        kernel: &Arc<Kernel>,
        (cell, own, program): (CellId, &Addresses, String),
        network: &Arc<Network>,
        (rules, place): (Vec<Rule>, GatewaySlot),
    ) -> Result<CellUplink, Problem> {
        let Some(launcher) = &self.launcher else { return Err(Problem::no_gateway(self.count)) };
        let (router, mtu) = kernel.router(network.id())?;
        let order = order(rules, inside(own, &router, mtu)?, self.descriptors);
        let led = StartedGateway::start(launcher, order).map_err(Failure::Launcher)?;
        let bell = led.bell();
        let waker = Arc::clone(&bell);
        let host_port = Arc::new(kernel.host_port(network.id(), Link::default(), move || waker.wake())?);
        let whose = program.clone();
        let refused = move |refused: Refused| {
            if let Some(line) = advice(&whose, &router, &refused) {
                diagnostics::problem(&line);
            }
        };
        let pump = led.pump(Uplink::new(host_port, Arc::clone(kernel), cell), program.clone(), refused);
        let leading = RunningGateway { pump, program, _network: Arc::clone(network), _place: place };
        self.orders.send(leading).map_err(Problem::server)?;
        Ok(CellUplink(bell))
    }
}

impl Drop for CellUplink {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs the pump of one gateway after the other, until the pool is dropped.
fn lead(told: &Mutex<Receiver<RunningGateway>>) {
    loop {
        // One thread waits for the next gateway, the others for the lock.
        let order = lock(told).recv();
        let Ok(RunningGateway { pump, program, _network, _place }) = order else { return };
        // Even after a panic, the thread runs the next gateway, and the slot is freed.
        let run = catch_unwind(AssertUnwindSafe(|| pump.run()));
        if let Err(error) = run.unwrap_or_else(|_| Err(io::Error::other("it panicked"))) {
            diagnostics::problem(&format_args!("{program}: {}", Failure::Gateway(error)));
        }
    }
}
