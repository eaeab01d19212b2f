// SPDX-License-Identifier: MIT OR Apache-2.0
//! A cell's network: its options, and its uplink to the gateway or a TAP device.

mod capture;
mod gateway_process;
mod launcher;
mod messages;
mod options;
mod pump;
mod resolvers;
mod uplink;

use crate::cli::Connection;
use crate::descriptors::Descriptors;
use crate::diagnostics;
use crate::failure::Failure;
use capture::Capture;
pub(crate) use launcher::Launcher;
use messages::Order;
pub(crate) use options::{AllowRule, Net, NetParser, link};
use pando_confine::Ports;
use pando_gateway::{Gateway, GatewayAddresses, GatewayReport, Handle, PortForward, Refused, Rule, Tap, TapCounts};
use pando_kernel::cell::traffic::Traffic;
use pando_kernel::network::address::{Addresses, Mac};
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, HostPort, Kernel, NetworkConfig};
use pando_launch::LaunchError;
use pando_machine::open_tap;
pub(crate) use pump::{Bell, Pump, StartedGateway};
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
pub(crate) use uplink::Uplink;

/// The configuration of a cell's network.
#[derive(Debug)]
pub(crate) struct Network {
    way: UplinkKind,
    /// Link emulation between the cell and its network, in each direction.
    link: Link,
    capture: Option<Capture>,
    /// The program's name, for messages about refused connections.
    program: String,
    /// Messages that wait until the program has ended, because it owns the terminal.
    late: Option<DeferredMessages>,
}

/// How long the uplink may take to end: longer than the limit for a gateway that does not stop.
const END_MAX: Duration = Duration::from_secs(8);

/// Messages that are printed later.
type DeferredMessages = Arc<Mutex<Vec<String>>>;

/// The uplink.
#[derive(Debug)]
enum UplinkKind {
    /// No network at all.
    None,
    /// A network without other hosts.
    Private,
    /// A gateway to the allowed destinations.
    Gateway(Outside),
    /// A TAP device of the host.
    Tap(Tap),
}

/// A gateway that is not started yet: its launcher and its port forwards.
#[derive(Debug)]
struct Outside {
    launcher: Arc<Launcher>,
    forwards: Vec<PortForward>,
}

/// A running network.
pub(crate) struct Running {
    out: Option<RunningUplink>,
    capture: Option<capture::RunningCapture>,
    forwards: Vec<PortForward>,
    late: Option<DeferredMessages>,
}

/// Forwards frames until it is stopped.
type UplinkTask = dyn FnOnce() -> io::Result<UplinkCounts> + Send;

/// A handle that wakes and stops the uplink.
#[derive(Clone)]
enum Waker {
    Gateway(Arc<Bell>),
    Tap(Handle),
}

/// A running uplink.
struct RunningUplink {
    waker: Waker,
    carried: Receiver<io::Result<UplinkCounts>>,
    host_port: Arc<HostPort>,
}

/// Counts of forwarded traffic.
#[derive(Debug)]
pub(crate) enum UplinkCounts {
    /// By the gateway.
    Gateway(Box<GatewayReport>),
    /// By a device.
    Tap(TapCounts),
}

/// A network's report.
#[derive(Debug, Default)]
pub(crate) struct NetworkReport {
    /// The traffic through the uplink's port, and the uplink's own counts.
    pub(crate) out: Option<(Traffic, UplinkCounts)>,
    /// The published ports.
    pub(crate) forwards: Vec<PortForward>,
}

impl Network {
    /// Opens the host resources that a program's network needs, before the process is confined.
    ///
    /// # Errors
    /// The options contradict each other, or a port, device or file of the host cannot be opened.
    pub(crate) fn prepare(options: &Connection, program: &OsStr, on_terminal: bool) -> Result<Network, Failure> {
        let Connection { net, publish, allow, link, pcap } = options;
        let way = match (net, publish.is_empty() && allow.is_empty()) {
            (Some(Net::None), true) | (None, true) => UplinkKind::None,
            (Some(Net::Private), true) => UplinkKind::Private,
            (Some(Net::Tap(name)), true) => UplinkKind::Tap(tap(name)?),
            (Some(Net::None | Net::Private | Net::Tap(_)), false) => return Err(Failure::NoGateway),
            (Some(Net::Gateway) | None, _) => {
                // `--net gateway` alone allows public addresses; `-p` alone allows no outgoing connections.
                let rules =
                    if allow.is_empty() && net.is_some() { vec![Rule::PUBLIC] } else { allow.iter().map(AllowRule::rule).collect() };
                let descriptors = Descriptors::divide().of_gateway(1)?;
                UplinkKind::Gateway(Outside::start(Gateway::bind(publish, rules, resolvers::of_host(), descriptors)?, descriptors)?)
            }
        };
        let without = match (&way, link, pcap) {
            (UplinkKind::None, Some(_), _) => Some("--link"),
            (UplinkKind::None, None, Some(_)) => Some("--pcap"),
            _ => None,
        };
        if let Some(option) = without {
            return Err(Failure::NoNetwork(option));
        }
        let capture = pcap.as_deref().map(Capture::create).transpose()?;
        let program = program.display().to_string();
        Ok(Network { way, link: link.unwrap_or_default(), capture, program, late: on_terminal.then(DeferredMessages::default) })
    }

    /// Prints the addresses of forwards whose port the host chose.
    pub(crate) fn announce(&self, asked: &[PortForward]) {
        let UplinkKind::Gateway(outside) = &self.way else { return };
        for (PortForward { host, cell, .. }, _) in outside.forwards.iter().zip(asked).filter(|(_, asked)| asked.host.port() == 0) {
            diagnostics::problem(&format_args!("{host} is forwarded to port {cell}"));
        }
    }

    /// Whether the uplink is a gateway, whose process may have to be replaced.
    pub(crate) fn has_gateway(&self) -> bool {
        matches!(self.way, UplinkKind::Gateway(_))
    }

    /// Connects a cell that has not started. Starts the uplink and the capture on threads of their own.
    ///
    /// # Errors
    /// There is not enough memory for a network, or no thread.
    pub(crate) fn connect(self, kernel: &Arc<Kernel>, cell: CellId) -> Result<Running, Failure> {
        let Network { way, link, capture, program, late } = self;
        if let UplinkKind::None = way {
            return Ok(Running { out: None, capture: None, forwards: Vec::new(), late: None });
        }
        let network = kernel.add_network(NetworkConfig::default()).map_err(LaunchError::from)?;
        let own = kernel.plug(cell, network, link).map_err(LaunchError::from)?;
        let (router, mtu) = kernel.router(network).map_err(LaunchError::from)?;
        let capture = capture.map(|capture| capture.start(kernel, network)).transpose()?;
        let plug = |waker: Waker| -> Result<_, Failure> {
            let host_port = Arc::new(kernel.host_port(network, link, move || waker.wake()).map_err(LaunchError::from)?);
            Ok((Arc::clone(&host_port), Uplink::new(host_port, Arc::clone(kernel), cell)))
        };
        let mut forwards = Vec::new();
        let (name, waker, host_port, carry): (_, Waker, _, Box<UplinkTask>) = match way {
            UplinkKind::None | UplinkKind::Private => return Ok(Running { out: None, capture, forwards: Vec::new(), late: None }),
            UplinkKind::Gateway(outside) => {
                let (late, whose) = (late.clone(), program.clone());
                let told = move |refused| {
                    if let Some(line) = advice(&program, &router, &refused) {
                        match &late {
                            Some(late) => late.lock().unwrap_or_else(PoisonError::into_inner).push(line),
                            None => diagnostics::problem(&line),
                        }
                    }
                };
                forwards = outside.forwards;
                // Its process has the rest already.
                let order = Order { inside: inside(&own, &router, mtu)?, rules: Vec::new(), resolvers: Vec::new(), descriptors: 0 };
                let led = StartedGateway::start(&outside.launcher, order).map_err(Failure::Launcher)?;
                let waker = Waker::Gateway(led.bell());
                let (host_port, plug) = plug(waker.clone())?;
                let pump = led.pump(plug, whose, told);
                ("gateway", waker, host_port, Box::new(move || pump.run().map(|report| UplinkCounts::Gateway(Box::new(report)))))
            }
            UplinkKind::Tap(tap) => {
                let waker = Waker::Tap(tap.handle());
                let (host_port, plug) = plug(waker.clone())?;
                ("tap", waker, host_port, Box::new(move || tap.run(mtu, plug).map(UplinkCounts::Tap)))
            }
        };
        let (carries, carried) = mpsc::channel();
        // If nobody waits any more, the process is about to end.
        let body = move || drop(carries.send(carry()));
        std::thread::Builder::new().name(name.into()).spawn(body).map_err(Failure::Thread)?;
        Ok(Running { out: Some(RunningUplink { waker, carried, host_port }), capture, forwards, late })
    }
}

impl Running {
    /// Stops the uplink after it has delivered its queues, finishes the capture, and returns the counts.
    ///
    /// # Errors
    /// The uplink failed.
    pub(crate) fn finish(self) -> io::Result<NetworkReport> {
        let Running { out, capture, forwards, late } = self;
        let out = out.map(RunningUplink::finish).transpose();
        if let Some(capture) = capture {
            capture.finish();
        }
        for line in late.iter().flat_map(|late| std::mem::take(&mut *late.lock().unwrap_or_else(PoisonError::into_inner))) {
            diagnostics::problem(&line);
        }
        Ok(NetworkReport { out: out?, forwards })
    }
}

impl Outside {
    /// Starts the process that starts a gateway. This one must have a single thread yet.
    fn start(bound: Gateway, descriptors: usize) -> Result<Outside, Failure> {
        let forwards = bound.forwards().collect();
        let ports = bound.ports().map_or(Ports::All, Ports::Only);
        Ok(Outside { launcher: Arc::new(Launcher::start(Some(bound), ports, descriptors, 1)?), forwards })
    }
}

impl Waker {
    fn wake(&self) {
        match self {
            Waker::Gateway(bell) => bell.wake(),
            Waker::Tap(handle) => handle.wake(),
        }
    }

    fn stop(&self) {
        match self {
            Waker::Gateway(bell) => bell.stop(),
            Waker::Tap(handle) => handle.stop(),
        }
    }
}

impl RunningUplink {
    fn finish(self) -> io::Result<(Traffic, UplinkCounts)> {
        self.waker.stop();
        let carried = end(&self.carried, END_MAX)?;
        Ok((self.host_port.traffic(), carried))
    }
}

/// Waits until the stopped uplink has ended, but not longer than `most`: a cell may know how to keep it busy, and the process
/// must end.
fn end<T>(carried: &Receiver<io::Result<T>>, most: Duration) -> io::Result<T> {
    carried.recv_timeout(most).unwrap_or_else(|error| {
        Err(io::Error::other(match error {
            RecvTimeoutError::Timeout => "it did not stop in time",
            RecvTimeoutError::Disconnected => "its thread panicked",
        }))
    })
}

/// Opens a TAP device.
fn tap(name: &str) -> Result<Tap, Failure> {
    let device = open_tap(name)?;
    if !device.is_up {
        diagnostics::problem(&format_args!("--net tap:{name}: the device is down: bring it up as root with `ip link set {name} up`"));
    }
    Tap::new(device.descriptor, device.mtu).map_err(Failure::Thread)
}

/// The order of a gateway that nobody comes in by, with the host's resolvers and so many descriptors.
pub(crate) fn order(rules: Vec<Rule>, inside: GatewayAddresses, descriptors: usize) -> Order {
    Order { inside, rules, resolvers: resolvers::of_host(), descriptors }
}

/// Advice about a refused destination, if it can be allowed.
pub(crate) fn advice(program: &str, router: &Addresses, refused: &Refused) -> Option<String> {
    let (address, to, port) = match refused {
        Refused::Name(name) => return Some(format!("{program}: resolving {name} is not allowed: add --allow {name}")),
        Refused::Echoes => {
            return Some(format!(
                "{program}: this host does not allow you to ping: allow it as root with `sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"`"
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

/// The gateway's addresses, with a secret random seed.
pub(crate) fn inside(own: &Addresses, router: &Addresses, mtu: u16) -> Result<GatewayAddresses, Failure> {
    let Addresses { mac, v4, prefix4, v6, prefix6 } = *router;
    Ok(GatewayAddresses {
        mac: mac.0,
        address4: v4,
        prefix4,
        address6: v6,
        prefix6,
        mtu,
        cell: own.v4,
        leases: |mac| Mac(mac).address4(),
        seed: random().map_err(Failure::Thread)?,
    })
}

/// A number that nobody knows.
fn random() -> io::Result<u64> {
    let mut number = [0; 8];
    getrandom(&mut number, GetRandomFlags::empty())?;
    Ok(u64::from_ne_bytes(number))
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
        assert!(end(&carried, Duration::MAX).is_err_and(|error| error.to_string().contains("panicked")));
    }
}
