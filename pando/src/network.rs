// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's network: what the command line asks for, and what leads out of it.

mod capture;
mod options;
mod resolvers;
mod station;

use crate::cli::Connection;
use crate::descriptors::Descriptors;
use crate::failure::Failure;
use crate::say;
use capture::Capture;
pub(crate) use options::{Allowed, Net, NetParser, link};
use pando_confine::Ports;
use pando_gateway::{Forward, Gateway, Handle, Inside, Refused, Report, Rule, Tap, TapCounts};
use pando_kernel::cell::traffic::Traffic;
use pando_kernel::network::address::{Addresses, Mac};
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, Kernel, NetworkConfig, Station};
use pando_launch::LaunchError;
use pando_machine::open_tap;
use rustix::rand::{GetRandomFlags, getrandom};
pub(crate) use station::Plug;
use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What a cell is to be connected with.
#[derive(Debug)]
pub(crate) struct Network {
    way: Way,
    /// What lies between it and the cell, each way.
    link: Link,
    capture: Option<Capture>,
    /// The program's name, by which it is told what is refused.
    program: String,
    /// Told once the program has ended, because the terminal is its own until then.
    late: Option<Late>,
}

/// How long what leads out may take to end: more than twice the two seconds in which it delivers what it has.
const END_MAX: Duration = Duration::from_secs(5);

/// What is to be told later.
type Late = Arc<Mutex<Vec<String>>>;

/// The way out.
#[derive(Debug)]
enum Way {
    /// No network at all.
    None,
    /// A network with nobody else on it.
    Private,
    /// The world outside, as far as it is opened.
    Gateway(Gateway),
    /// A device of the host.
    Tap(Tap),
}

/// A network at work.
pub(crate) struct Running {
    out: Option<Out>,
    capture: Option<capture::Running>,
    forwards: Vec<Forward>,
    late: Option<Late>,
}

/// What carries, until it is told to stop.
type Carry = dyn FnOnce(&Inside, Plug) -> io::Result<Carried> + Send;

/// What leads out, at work.
struct Out {
    handle: Handle,
    carried: Receiver<io::Result<Carried>>,
    station: Arc<Station>,
}

/// What was carried out and in.
#[derive(Debug)]
pub(crate) enum Carried {
    /// By the gateway.
    Gateway(Box<Report>),
    /// By a device.
    Tap(TapCounts),
}

/// What a network did.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// What went through the port of what leads out, and what that did.
    pub(crate) out: Option<(Traffic, Carried)>,
    /// Which ports of the host led to the cell.
    pub(crate) forwards: Vec<Forward>,
}

impl Network {
    /// Takes from the host what the network of a program needs of it, before the process is confined.
    ///
    /// # Errors
    /// Options that contradict each other; a port, a device or a file of the host's that cannot be had.
    pub(crate) fn prepare(options: &Connection, program: &OsStr, on_terminal: bool) -> Result<Network, Failure> {
        let Connection { net, publish, allow, link, pcap } = options;
        let way = match (net, publish.is_empty() && allow.is_empty()) {
            (Some(Net::None), true) | (None, true) => Way::None,
            (Some(Net::Private), true) => Way::Private,
            (Some(Net::Tap(name)), true) => Way::Tap(tap(name)?),
            (Some(Net::None | Net::Private | Net::Tap(_)), false) => return Err(Failure::NoGateway),
            (Some(Net::Gateway) | None, _) => {
                // Who asks for the gateway asks for the world; who only lets others in has not asked to get out.
                let rules = if allow.is_empty() && net.is_some() { vec![Rule::PUBLIC] } else { allow.iter().map(Allowed::rule).collect() };
                Way::Gateway(Gateway::bind(publish, rules, resolvers::of_host(), Descriptors::share_out().of_gateway(1)?)?)
            }
        };
        let without = match (&way, link, pcap) {
            (Way::None, Some(_), _) => Some("--link"),
            (Way::None, None, Some(_)) => Some("--pcap"),
            _ => None,
        };
        if let Some(option) = without {
            return Err(Failure::NoNetwork(option));
        }
        let capture = pcap.as_deref().map(Capture::create).transpose()?;
        let program = program.display().to_string();
        Ok(Network { way, link: link.unwrap_or_default(), capture, program, late: on_terminal.then(Late::default) })
    }

    /// Says where forwards listen whose port was left to the host.
    pub(crate) fn announce(&self, asked: &[Forward]) {
        let Way::Gateway(gateway) = &self.way else { return };
        for (Forward { host, cell, .. }, _) in gateway.forwards().zip(asked).filter(|(_, asked)| asked.host.port() == 0) {
            say::problem(&format_args!("{host} leads to port {cell}"));
        }
    }

    /// The ports that connections may lead to.
    pub(crate) fn ports(&self) -> Ports {
        match &self.way {
            Way::Gateway(gateway) => gateway.ports().map_or(Ports::All, Ports::Only),
            Way::None | Way::Private | Way::Tap(_) => Ports::default(),
        }
    }

    /// Whether the process will go on making connections.
    pub(crate) fn connects(&self) -> bool {
        matches!(self.way, Way::Gateway(_))
    }

    /// Plugs a cell in that has not started, and starts what leads out and who listens, on threads of their own.
    ///
    /// # Errors
    /// There is no room for a network, or for a thread.
    pub(crate) fn connect(self, kernel: &Arc<Kernel>, cell: CellId) -> Result<Running, Failure> {
        let Network { way, link, capture, program, late } = self;
        if let Way::None = way {
            return Ok(Running { out: None, capture: None, forwards: Vec::new(), late: None });
        }
        let network = kernel.add_network(NetworkConfig::default()).map_err(LaunchError::from)?;
        let own = kernel.plug(cell, network, link).map_err(LaunchError::from)?;
        let (router, mtu) = kernel.router(network).map_err(LaunchError::from)?;
        let capture = capture.map(|capture| capture.start(kernel, network)).transpose()?;
        let mut forwards = Vec::new();
        let (name, handle, carry): (_, Handle, Box<Carry>) = match way {
            Way::None | Way::Private => return Ok(Running { out: None, capture, forwards: Vec::new(), late: None }),
            Way::Gateway(gateway) => {
                let late = late.clone();
                let told = move |refused| {
                    if let Some(line) = advice(&program, &router, &refused) {
                        match &late {
                            Some(late) => late.lock().unwrap_or_else(PoisonError::into_inner).push(line),
                            None => say::problem(&line),
                        }
                    }
                };
                let handle = gateway.handle();
                forwards.extend(gateway.forwards());
                let run = move |inside: &Inside, plug| Ok(Carried::Gateway(Box::new(gateway.run(inside, plug, told)?)));
                ("gateway", handle, Box::new(run))
            }
            Way::Tap(tap) => ("tap", tap.handle(), Box::new(move |inside, plug| tap.run(inside.mtu, plug).map(Carried::Tap))),
        };
        let waker = handle.clone();
        let station = Arc::new(kernel.station(network, link, move || waker.wake()).map_err(LaunchError::from)?);
        let plug = Plug::new(Arc::clone(&station), Arc::clone(kernel), cell);
        let inside = inside(&own, &router, mtu)?;
        let (carries, carried) = mpsc::channel();
        // If nobody waits any more, the process is about to end.
        let body = move || drop(carries.send(carry(&inside, plug)));
        std::thread::Builder::new().name(name.into()).spawn(body).map_err(Failure::Thread)?;
        Ok(Running { out: Some(Out { handle, carried, station }), capture, forwards, late })
    }
}

impl Running {
    /// Lets what leads out deliver what it has, and who listens write it, and asks what was done.
    ///
    /// # Errors
    /// The host did not let it go on.
    pub(crate) fn finish(self) -> io::Result<Story> {
        let Running { out, capture, forwards, late } = self;
        let out = out.map(Out::finish).transpose();
        if let Some(capture) = capture {
            capture.finish();
        }
        for line in late.iter().flat_map(|late| std::mem::take(&mut *late.lock().unwrap_or_else(PoisonError::into_inner))) {
            say::problem(&line);
        }
        Ok(Story { out: out?, forwards })
    }
}

impl Out {
    fn finish(self) -> io::Result<(Traffic, Carried)> {
        self.handle.stop();
        let carried = end(&self.carried, END_MAX)?;
        Ok((self.station.traffic(), carried))
    }
}

/// Waits for the end of what leads out, which was told to stop; but not longer than this: a cell may have found how to keep it busy, and the process must end.
fn end<T>(carried: &Receiver<io::Result<T>>, most: Duration) -> io::Result<T> {
    carried.recv_timeout(most).unwrap_or_else(|error| {
        Err(io::Error::other(match error {
            RecvTimeoutError::Timeout => "it did not stop in time",
            RecvTimeoutError::Disconnected => "it broke off",
        }))
    })
}

/// Takes a TAP device.
fn tap(name: &str) -> Result<Tap, Failure> {
    let device = open_tap(name)?;
    if !device.is_up {
        say::problem(&format_args!("--net tap:{name}: the device is down, and carries nothing until root says `ip link set {name} up`"));
    }
    Tap::new(device.descriptor, device.mtu).map_err(Failure::Thread)
}

/// A gateway that nobody comes in by, with the host's resolvers and so many descriptors.
///
/// # Errors
/// There is nothing to make one with.
pub(crate) fn way_out(rules: Vec<Rule>, descriptors: usize) -> Result<Gateway, Failure> {
    Ok(Gateway::bind(&[], rules, resolvers::of_host(), descriptors)?)
}

/// What to do about what was refused, if it can be opened.
pub(crate) fn advice(program: &str, router: &Addresses, refused: &Refused) -> Option<String> {
    let (address, to, port) = match refused {
        Refused::Name(name) => return Some(format!("{program}: asking for {name} is not allowed: add --allow {name}")),
        Refused::Echoes => {
            return Some(format!(
                "{program}: this host does not let you ping: root allows everybody to with `sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"`"
            ));
        }
        Refused::Destination(to) => (to.ip(), to.to_string(), Some(to.port())),
        Refused::Echo(to) => (*to, to.to_string(), None),
    };
    let (is_router, is_neighbour) = match address {
        IpAddr::V4(address) => (address == router.v4, address.octets()[..2] == router.v4.octets()[..2]),
        IpAddr::V6(address) => (address == router.v6, address.segments()[..4] == router.v6.segments()[..4]),
    };
    match port {
        Some(port) if is_router => Some(format!("{program}: {to} is not allowed: add --allow host:{port}")),
        _ if is_neighbour || address.is_multicast() => None,
        Some(_) => Some(format!("{program}: {to} is not allowed: add --allow {to}")),
        None => Some(format!("{program}: ping {to} is not allowed: add --allow {to}")),
    }
}

/// The gateway's place, with a number in it that nobody knows.
pub(crate) fn inside(own: &Addresses, router: &Addresses, mtu: u16) -> Result<Inside, Failure> {
    let mut seed = [0; 8];
    getrandom(&mut seed, GetRandomFlags::empty()).map_err(|errno| Failure::Thread(errno.into()))?;
    let Addresses { mac, v4, prefix4, v6, prefix6 } = *router;
    Ok(Inside {
        mac: mac.0,
        address4: v4,
        prefix4,
        address6: v6,
        prefix6,
        mtu,
        cell: own.v4,
        leases: |mac| Mac(mac).address4(),
        seed: u64::from_ne_bytes(seed),
    })
}

#[cfg(test)]
mod tests {
    use super::end;
    use std::io;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn what_never_ends_is_not_waited_for() {
        let (carries, carried) = mpsc::channel::<io::Result<u8>>();
        assert!(end(&carried, Duration::ZERO).is_err_and(|error| error.to_string().contains("in time")));
        carries.send(Ok(7)).expect("somebody waits");
        assert_eq!(end(&carried, Duration::ZERO).ok(), Some(7));
        drop(carries);
        assert!(end(&carried, Duration::MAX).is_err_and(|error| error.to_string().contains("broke off")));
    }
}
