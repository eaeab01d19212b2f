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
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long somebody waits for a gateway: a little longer than one may take that has nobody to lead any more.
const PLACE_WAIT_MAX: Duration = Duration::from_secs(3);
/// Threads beyond those that are offered, for gateways that do not end: a confined process starts none, and no thread can be ended by another.
const SPARES: usize = 4;

/// All threads for gateways, and those that are free.
pub(super) struct Gateways {
    places: Places,
    /// What each may use.
    descriptors: usize,
    orders: Sender<Leading>,
}

/// The places for gateways.
struct Places {
    count: usize,
    free: Arc<Semaphore>,
    ending: Mutex<Ending>,
}

/// Gateways that were told to stop, and when.
struct Ending {
    list: Vec<(Instant, Weak<Place>)>,
    /// Threads that are left for the place of one that does not.
    spares: usize,
}

/// A gateway's place, until its thread gives it back or somebody takes it away.
pub(super) struct Place(Mutex<Option<OwnedSemaphorePermit>>);

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
    _place: Arc<Place>,
}

/// A way out of a cell's network, which is closed when this is dropped.
pub(super) struct WayOut {
    handle: Handle,
    place: Weak<Place>,
    gateways: Arc<Gateways>,
}

impl Places {
    fn new(count: usize, spares: usize) -> Places {
        Places { count, free: Arc::new(Semaphore::new(count)), ending: Mutex::new(Ending { list: Vec::new(), spares }) }
    }

    /// A gateway was told to stop.
    fn ends(&self, place: Weak<Place>) {
        let mut ending = lock(&self.ending);
        ending.list.retain(|(_, place)| place.strong_count() > 0);
        ending.list.push((Instant::now(), place));
    }

    /// Takes the places of gateways that were told to stop so long ago and have not, as long as there are threads to go on with.
    fn sweep(&self, most: Duration) {
        let mut ending = lock(&self.ending);
        let Ending { list, spares } = &mut *ending;
        list.retain(|(since, place)| {
            let Some(place) = place.upgrade() else { return false };
            if *spares == 0 || since.elapsed() < most {
                return true;
            }
            *spares -= usize::from(lock(&place.0).take().is_some());
            say::problem(&"a gateway does not stop: another thread takes its place");
            false
        });
    }

    /// A place, for which this waits so long; then it takes that of a gateway that does not stop.
    async fn get(&self, most: Duration) -> Option<Arc<Place>> {
        let waited = tokio::time::timeout(most, Arc::clone(&self.free).acquire_owned()).await;
        let permit = match waited {
            Ok(permit) => permit.ok()?,
            Err(_) => {
                self.sweep(most);
                Arc::clone(&self.free).try_acquire_owned().ok()?
            }
        };
        Some(Arc::new(Place(Mutex::new(Some(permit)))))
    }
}

impl Gateways {
    /// So many threads that wait for something to do. A confined process starts no more.
    ///
    /// # Errors
    /// The host has none, or too few descriptors for so many.
    pub(super) fn start(count: usize, descriptors: Descriptors) -> Result<Gateways, Failure> {
        let descriptors = if count > 0 { descriptors.of_gateway(count)? } else { 0 };
        let (orders, told) = mpsc::channel();
        let told = Arc::new(Mutex::new(told));
        for _ in 0..if count > 0 { count + SPARES } else { 0 } {
            let told = Arc::clone(&told);
            std::thread::Builder::new().name("gateway".into()).spawn(move || lead(&told)).map_err(Failure::Thread)?;
        }
        Ok(Gateways { places: Places::new(count, SPARES), descriptors, orders })
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.places.count
    }

    /// A place for another, for which this waits a little.
    ///
    /// # Errors
    /// All are at work.
    pub(super) async fn place(&self) -> Result<Arc<Place>, Problem> {
        let full = || Problem::no_gateway(self.count());
        if self.count() == 0 {
            return Err(full());
        }
        self.places.get(PLACE_WAIT_MAX).await.ok_or_else(full)
    }

    /// Leads a cell that is plugged into a network of its own to what these rules open.
    ///
    /// # Errors
    /// Something is missing for another.
    pub(super) fn open(
        self: &Arc<Self>,
        kernel: &Arc<Kernel>,
        (cell, own, program): (CellId, &Addresses, String),
        network: &Arc<Network>,
        (rules, place): (Vec<Rule>, Arc<Place>),
    ) -> Result<WayOut, Problem> {
        let gateway = way_out(rules, self.descriptors)?;
        let handle = gateway.handle();
        let (router, mtu) = kernel.router(network.id())?;
        let waker = handle.clone();
        let station = Arc::new(kernel.station(network.id(), Link::default(), move || waker.wake())?);
        let way_out = WayOut { handle, place: Arc::downgrade(&place), gateways: Arc::clone(self) };
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
        Ok(way_out)
    }
}

impl Drop for WayOut {
    fn drop(&mut self) {
        self.handle.stop();
        self.gateways.places.ends(Weak::clone(&self.place));
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

#[cfg(test)]
mod tests {
    use super::{Arc, Duration, Places};

    #[test]
    fn a_gateway_that_does_not_stop_loses_its_place() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("the host has room");
        let places = Places::new(1, 1);
        let get = || runtime.block_on(places.get(Duration::ZERO));
        let stuck = get().expect("it is free");
        assert!(get().is_none(), "it works and was not told to stop");
        places.ends(Arc::downgrade(&stuck));
        let next = get().expect("a spare thread takes over");
        places.ends(Arc::downgrade(&next));
        assert!(get().is_none(), "no thread is left for another");
        drop(next);
        assert!(get().is_some(), "its thread has ended");
    }
}
