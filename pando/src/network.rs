// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's network: what the command line asks for, and the gateway that leads out of it.

mod resolvers;
mod station;

use crate::cli::Run;
use crate::failure::Failure;
use pando_confine::Ports;
use pando_gateway::{Gateway, Handle, Inside, Report, Rule};
use pando_kernel::network::address::Addresses;
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Kernel, NetworkConfig};
use pando_launch::LaunchError;
use rustix::rand::{GetRandomFlags, getrandom};
use station::Plug;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

/// What a cell is connected with. (Comments on the variants would become part of the help, and spread it over pages.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Net {
    None,
    Private,
    Gateway,
}

/// What a cell is to be connected with.
#[derive(Debug)]
pub(crate) enum Network {
    /// Itself alone.
    None,
    /// A network of its own, with nobody else on it.
    Private,
    /// The world outside, as far as it is opened.
    Gateway(Gateway),
}

/// A gateway at work.
pub(crate) struct Running {
    handle: Handle,
    thread: JoinHandle<io::Result<Report>>,
}

impl Network {
    /// Takes from the host what the network needs of it, before the process is confined.
    ///
    /// # Errors
    /// Options that contradict each other, or a port of the host's that cannot be had.
    pub(crate) fn prepare(options: &Run) -> Result<Network, Failure> {
        let Run { net, publish, allow, .. } = options;
        match (net, publish.is_empty() && allow.is_empty()) {
            (Some(Net::None), true) | (None, true) => Ok(Network::None),
            (Some(Net::Private), true) => Ok(Network::Private),
            (Some(Net::None | Net::Private), false) => Err(Failure::NoGateway),
            (Some(Net::Gateway) | None, _) => {
                // Who asks for the gateway asks for the world; who only lets others in has not asked to get out.
                let rules = if allow.is_empty() && net.is_some() { vec![Rule::PUBLIC] } else { allow.clone() };
                Ok(Network::Gateway(Gateway::bind(publish, rules, resolvers::of_host())?))
            }
        }
    }

    /// The ports that connections may lead to.
    pub(crate) fn ports(&self) -> Ports {
        match self {
            Network::Gateway(gateway) => gateway.ports().map_or(Ports::All, Ports::Only),
            Network::None | Network::Private => Ports::default(),
        }
    }

    /// Plugs a cell in that has not started, and starts the gateway, on a thread of its own.
    ///
    /// # Errors
    /// There is no room for a network, or for a thread.
    pub(crate) fn connect(self, kernel: &Arc<Kernel>, cell: CellId) -> Result<Option<Running>, Failure> {
        let plug = || {
            let network = kernel.add_network(NetworkConfig::default())?;
            Ok::<_, LaunchError>((network, kernel.plug(cell, network, Link::default())?, kernel.router(network)?))
        };
        let gateway = match self {
            Network::None => return Ok(None),
            Network::Private => return plug().map(|_| None).map_err(Failure::Launch),
            Network::Gateway(gateway) => gateway,
        };
        let (network, own, (router, mtu)) = plug()?;
        let inside = inside(&own, &router, mtu).map_err(|errno| Failure::Thread(errno.into()))?;
        let (handle, waker) = (gateway.handle(), gateway.handle());
        let station = kernel.station(network, Link::default(), move || waker.wake()).map_err(LaunchError::from)?;
        let plug = Plug::new(station, Arc::clone(kernel), cell);
        let body = move || gateway.run(&inside, plug);
        let thread = std::thread::Builder::new().name("gateway".into()).spawn(body).map_err(Failure::Thread)?;
        Ok(Some(Running { handle, thread }))
    }
}

impl Running {
    /// Lets the gateway deliver what it has, and asks it what it did.
    ///
    /// # Errors
    /// The host did not let it go on.
    pub(crate) fn finish(self) -> io::Result<Report> {
        self.handle.stop();
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("it broke off")))
    }
}

/// The gateway's place, with a number in it that nobody knows.
fn inside(own: &Addresses, router: &Addresses, mtu: u16) -> rustix::io::Result<Inside> {
    let mut seed = [0; 8];
    getrandom(&mut seed, GetRandomFlags::empty())?;
    let Addresses { mac, v4, prefix4, v6, prefix6 } = *router;
    Ok(Inside { mac: mac.0, address4: v4, prefix4, address6: v6, prefix6, mtu, cell: own.v4, seed: u64::from_ne_bytes(seed) })
}
