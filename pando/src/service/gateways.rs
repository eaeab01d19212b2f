// SPDX-License-Identifier: MIT OR Apache-2.0
//! Ways out of cells' networks: gateways, each in one of the threads that are there from the start.

use super::lock;
use super::networks::Network;
use super::problem::Problem;
use crate::descriptors::Descriptors;
use crate::failure::Failure;
use crate::network::{Plug, advice, inside, way_out};
use crate::say;
use pando_gateway::{Gateway, Handle, Inside, Rule};
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Kernel};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long somebody waits for a gateway: a little longer than one may take that has nobody to lead any more.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(3);

/// All threads for gateways, and those that are free.
pub(super) struct Gateways {
    count: usize,
    /// What each may use.
    descriptors: usize,
    free: Arc<Semaphore>,
    orders: Sender<Leading>,
}

/// A gateway at work.
struct Leading {
    gateway: Gateway,
    inside: Inside,
    router: Addresses,
    plug: Plug,
    /// Who is led, for people.
    program: String,
    /// Stays until nobody is plugged in.
    _network: Arc<Network>,
    _place: OwnedSemaphorePermit,
}

/// A way out of a cell's network, which is closed when this is dropped.
pub(super) struct WayOut(Handle);

impl Gateways {
    /// So many threads that wait for something to do. A confined process starts no more.
    ///
    /// # Errors
    /// The host has none, or too few descriptors for so many.
    pub(super) fn start(count: usize, descriptors: Descriptors) -> Result<Gateways, Failure> {
        let descriptors = if count > 0 { descriptors.of_gateway(count)? } else { 0 };
        let (orders, told) = mpsc::channel();
        let told = Arc::new(Mutex::new(told));
        for _ in 0..count {
            let told = Arc::clone(&told);
            std::thread::Builder::new().name("gateway".into()).spawn(move || lead(&told)).map_err(Failure::Thread)?;
        }
        Ok(Gateways { count, descriptors, free: Arc::new(Semaphore::new(count)), orders })
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// A place for another, for which this waits a little.
    ///
    /// # Errors
    /// All are at work.
    pub(super) async fn place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let full = || Problem::no_gateway(self.count);
        if self.count == 0 {
            return Err(full());
        }
        let free = tokio::time::timeout(PLACE_WAIT_MAX, Arc::clone(&self.free).acquire_owned()).await.map_err(|_| full())?;
        free.map_err(Problem::server)
    }

    /// Leads a cell that is plugged into a network of its own to what these rules open.
    ///
    /// # Errors
    /// Something is missing for another.
    pub(super) fn open(
        &self,
        kernel: &Arc<Kernel>,
        (cell, own, program): (CellId, &Addresses, String),
        network: &Arc<Network>,
        (rules, place): (Vec<Rule>, OwnedSemaphorePermit),
    ) -> Result<WayOut, Problem> {
        let gateway = way_out(rules, self.descriptors)?;
        let handle = gateway.handle();
        let (router, mtu) = kernel.router(network.id())?;
        let waker = handle.clone();
        let station = Arc::new(kernel.station(network.id(), Link::default(), move || waker.wake())?);
        let leading = Leading {
            gateway,
            inside: inside(own, &router, mtu)?,
            router,
            plug: Plug::new(station, Arc::clone(kernel), cell),
            program,
            _network: Arc::clone(network),
            _place: place,
        };
        self.orders.send(leading).map_err(Problem::server)?;
        Ok(WayOut(handle))
    }
}

impl Drop for WayOut {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Leads one after the other, until nobody can order it any more.
fn lead(told: &Mutex<Receiver<Leading>>) {
    loop {
        // One waits for the next order, the others for that one.
        let order = lock(told).recv();
        let Ok(Leading { gateway, inside, router, plug, program, _network, _place }) = order else { return };
        let refused = |refused| {
            if let Some(line) = advice(&program, &router, &refused) {
                say::problem(&line);
            }
        };
        // Whatever ends one, its thread leads the next: its place is given back, too.
        let run = catch_unwind(AssertUnwindSafe(|| gateway.run(&inside, plug, refused)));
        if let Err(error) = run.unwrap_or_else(|_| Err(io::Error::other("it panicked"))) {
            say::problem(&format_args!("{program}: {}", Failure::Gateway(error)));
        }
    }
}
