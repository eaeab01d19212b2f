// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks of cells: their uplinks to a gateway or a TAP device, and captures.

mod capture;
mod error;
mod gateway_process;
mod launcher;
mod messages;
mod named;
mod pump;
mod resolvers;
mod spec;
mod uplink;

use crate::descriptors::Descriptors;
use crate::report::{Reporter, Warning};
use capture::{Capture, RunningCapture};
use messages::{GatewayConfig, GatewayListeners};
use pando_confine::Ports;
use pando_gateway::{Gateway, GatewayAddresses, GatewayReport, Handle, PortForward, Rule, Tap, TapCounts, VirtualHosts};
use pando_kernel::cell::traffic::Traffic;
use pando_kernel::network::address::{Addresses, Mac};
use pando_kernel::network::link::Link;
use pando_kernel::{CellId, HostPort, Kernel, NetworkConfig, NetworkId};
use pando_machine::open_tap;
use pump::StartedGateway;
use rustix::rand::{GetRandomFlags, getrandom};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use uplink::Uplink;

pub use error::NetworkError;
pub use named::{NamedNetworks, SharedNetwork};
pub use spec::{NetworkSpec, UplinkSpec};

pub(crate) use launcher::Launcher;
pub(crate) use pump::{CellDirectory, Pump, PumpWaker};

/// The host's resources for a cell's network, opened before the process is confined.
#[derive(Debug)]
pub struct PreparedNetwork {
    uplink: PreparedUplink,
    link: Link,
    capture: Option<Capture>,
    /// The program's name, for warnings.
    program: String,
    reporter: Reporter,
}

/// How long the uplink may take to end: longer than the limit for a gateway that does not stop.
const END_MAX: Duration = Duration::from_secs(8);

/// An uplink that is not connected to a network yet.
#[derive(Debug)]
enum PreparedUplink {
    /// No network at all.
    None,
    /// A network without other hosts.
    Private,
    /// A gateway to the allowed destinations.
    Gateway(PreparedGateway),
    /// A TAP device of the host.
    Tap(Tap),
}

/// A gateway that is not started yet: its launcher and its port forwards.
#[derive(Debug)]
struct PreparedGateway {
    launcher: Arc<Launcher>,
    forwards: Vec<PortForward>,
}

/// A running network.
pub struct RunningNetwork {
    uplink: Option<RunningUplink>,
    capture: Option<RunningCapture>,
    forwards: Vec<PortForward>,
}

/// Forwards frames until it is stopped.
type UplinkTask = dyn FnOnce() -> io::Result<UplinkCounts> + Send;

/// A handle that wakes and stops the uplink.
#[derive(Clone)]
enum Waker {
    Gateway(Arc<PumpWaker>),
    Tap(Handle),
}

/// A running uplink.
struct RunningUplink {
    waker: Waker,
    counts: Receiver<io::Result<UplinkCounts>>,
    host_port: Arc<HostPort>,
}

/// Counts of forwarded traffic.
#[derive(Debug)]
pub enum UplinkCounts {
    /// By the gateway.
    Gateway(Box<GatewayReport>),
    /// By a device.
    Tap(TapCounts),
}

/// A network's report.
#[derive(Debug, Default)]
pub struct NetworkReport {
    /// The traffic through the uplink's port, and the uplink's own counts.
    pub uplink: Option<(Traffic, UplinkCounts)>,
    /// The published ports.
    pub forwards: Vec<PortForward>,
}

impl PreparedNetwork {
    /// Opens the host resources that the network of `program` needs. The process must have a single thread, and is confined later.
    ///
    /// # Errors
    /// A port, device or file of the host cannot be opened.
    pub fn open(spec: &NetworkSpec, program: String, reporter: Reporter) -> Result<PreparedNetwork, NetworkError> {
        let NetworkSpec { uplink, link, capture } = spec;
        let uplink = match uplink {
            UplinkSpec::None => PreparedUplink::None,
            UplinkSpec::Private => PreparedUplink::Private,
            UplinkSpec::Tap(name) => PreparedUplink::Tap(tap(name, &reporter)?),
            UplinkSpec::Gateway { rules, forwards } => {
                let descriptors = Descriptors::divide().per_gateway(1)?;
                let gateway = Gateway::bind(forwards, rules.clone(), resolvers::of_host(), descriptors)?;
                PreparedUplink::Gateway(PreparedGateway::start(gateway, descriptors)?)
            }
        };
        let capture = capture.as_deref().map(Capture::create).transpose()?;
        Ok(PreparedNetwork { uplink, link: *link, capture, program, reporter })
    }

    /// The port forwards, with the ports that the host chose.
    pub fn forwards(&self) -> &[PortForward] {
        match &self.uplink {
            PreparedUplink::Gateway(gateway) => &gateway.forwards,
            _ => &[],
        }
    }

    /// Whether the uplink is a gateway, whose process may have to be replaced.
    pub fn has_gateway(&self) -> bool {
        matches!(self.uplink, PreparedUplink::Gateway(_))
    }

    /// Connects a cell that has not started. Starts the uplink and the capture on threads of their own.
    ///
    /// # Errors
    /// There is not enough memory for a network, or no thread.
    pub fn connect(self, kernel: &Arc<Kernel>, cell: CellId) -> Result<RunningNetwork, NetworkError> {
        let PreparedNetwork { uplink, link, capture, program, reporter } = self;
        if let PreparedUplink::None = uplink {
            return Ok(RunningNetwork { uplink: None, capture: None, forwards: Vec::new() });
        }
        let network = kernel.add_network(NetworkConfig::default())?;
        let own = kernel.plug(cell, network, link)?;
        let (router, mtu) = kernel.router(network)?;
        let capture = capture.map(|capture| capture.start(kernel, network, reporter.clone())).transpose()?;
        let connect = |waker: Waker| -> Result<_, NetworkError> {
            let host_port = Arc::new(kernel.host_port(network, link, move || waker.wake())?);
            Ok((Arc::clone(&host_port), Uplink::new(host_port, Arc::clone(kernel), Some(cell))))
        };
        let mut forwards = Vec::new();
        let (name, waker, host_port, task): (_, Waker, _, Box<UplinkTask>) = match uplink {
            PreparedUplink::None | PreparedUplink::Private => return Ok(RunningNetwork { uplink: None, capture, forwards }),
            PreparedUplink::Gateway(gateway) => {
                forwards = gateway.forwards;
                // Its process has the rest already.
                let addresses = gateway_addresses(own.v4, &router, mtu)?;
                let config = GatewayConfig { addresses, rules: Vec::new(), resolvers: Vec::new(), descriptors: 0, listeners: None };
                let started = StartedGateway::start(&gateway.launcher, config)?;
                let waker = Waker::Gateway(started.waker());
                let (host_port, uplink) = connect(waker.clone())?;
                let pump = started.pump(uplink, program, router, reporter);
                ("gateway", waker, host_port, Box::new(move || pump.run().map(|report| UplinkCounts::Gateway(Box::new(report)))))
            }
            PreparedUplink::Tap(tap) => {
                let waker = Waker::Tap(tap.handle());
                let (host_port, uplink) = connect(waker.clone())?;
                ("tap", waker, host_port, Box::new(move || tap.run(mtu, uplink).map(UplinkCounts::Tap)))
            }
        };
        let (sender, counts) = mpsc::channel();
        // If the receiver is gone, the process is about to end.
        let body = move || drop(sender.send(task()));
        std::thread::Builder::new().name(name.into()).spawn(body).map_err(NetworkError::Thread)?;
        Ok(RunningNetwork { uplink: Some(RunningUplink { waker, counts, host_port }), capture, forwards })
    }
}

impl RunningNetwork {
    /// Stops the uplink after it has delivered its queues, finishes the capture, and returns the counts.
    ///
    /// # Errors
    /// The uplink failed.
    pub fn finish(self) -> io::Result<NetworkReport> {
        let RunningNetwork { uplink, capture, forwards } = self;
        let uplink = uplink.map(RunningUplink::finish).transpose();
        if let Some(capture) = capture {
            capture.finish();
        }
        Ok(NetworkReport { uplink: uplink?, forwards })
    }
}

impl PreparedGateway {
    /// Starts the process that starts a gateway. The calling process must have a single thread.
    fn start(bound: Gateway, descriptors: usize) -> Result<PreparedGateway, NetworkError> {
        let forwards = bound.forwards().collect();
        let ports = bound.ports().map_or(Ports::All, Ports::Only);
        Ok(PreparedGateway { launcher: Arc::new(Launcher::start(Some(bound), ports, descriptors, 1)?), forwards })
    }
}

impl Waker {
    fn wake(&self) {
        match self {
            Waker::Gateway(waker) => waker.wake(),
            Waker::Tap(handle) => handle.wake(),
        }
    }

    fn stop(&self) {
        match self {
            Waker::Gateway(waker) => waker.stop(),
            Waker::Tap(handle) => handle.stop(),
        }
    }
}

impl RunningUplink {
    fn finish(self) -> io::Result<(Traffic, UplinkCounts)> {
        self.waker.stop();
        let counts = end(&self.counts, END_MAX)?;
        Ok((self.host_port.traffic(), counts))
    }
}

/// Waits until the stopped uplink has ended, at most `limit`: a hostile cell may keep it busy, and the process must end.
fn end<T>(counts: &Receiver<io::Result<T>>, limit: Duration) -> io::Result<T> {
    counts.recv_timeout(limit).unwrap_or_else(|error| {
        Err(io::Error::other(match error {
            RecvTimeoutError::Timeout => "it did not stop in time",
            RecvTimeoutError::Disconnected => "its thread panicked",
        }))
    })
}

/// Opens a TAP device.
fn tap(name: &str, reporter: &Reporter) -> Result<Tap, NetworkError> {
    let device = open_tap(name)?;
    if !device.is_up {
        reporter.warn(Warning::DeviceDown(name.into()));
    }
    Tap::new(device.descriptor, device.mtu).map_err(|error| NetworkError::Resource("the TAP device", error))
}

/// Rules and port forwards for a gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct GatewaySpec {
    /// The destinations that it allows.
    pub(crate) rules: Vec<Rule>,
    /// The ports of the host that lead to the cell.
    pub(crate) forwards: Vec<PortForward>,
    /// Descriptors that it may use.
    pub(crate) descriptors: usize,
}

/// Starts a gateway for a cell that is connected to a network. Returns its pump and its port forwards.
///
/// # Errors
/// A port forward cannot listen, or resources for another gateway are missing.
pub(crate) fn connect_gateway(
    kernel: &Arc<Kernel>,
    (cell, own): (CellId, &Addresses),
    network: NetworkId,
    launcher: &Arc<Launcher>,
    spec: GatewaySpec,
    program: &str,
    reporter: &Reporter,
) -> Result<(Pump, Vec<PortForward>), NetworkError> {
    let GatewaySpec { rules, forwards, descriptors } = spec;
    let (router, mtu) = kernel.router(network)?;
    let addresses = gateway_addresses(own.v4, &router, mtu)?;
    let listen = |forwards| GatewayListeners { id: launcher.new_listeners(), forwards, virtual_hosts: None };
    let listeners = if forwards.is_empty() { None } else { Some(listen(forwards)) };
    let config = GatewayConfig { addresses, rules, resolvers: resolvers::of_host(), descriptors, listeners };
    let started = StartedGateway::start(launcher, config)?;
    let forwards = started.forwards().to_vec();
    let waker = started.waker();
    let host_port = Arc::new(kernel.host_port(network, Link::default(), move || waker.wake())?);
    Ok((started.pump(Uplink::new(host_port, Arc::clone(kernel), Some(cell)), program.into(), router, reporter.clone()), forwards))
}

/// Starts a gateway that leads clients to the cells of a network by name. Returns its pump and the address at which the host listens.
///
/// # Errors
/// The host does not listen there, or resources for another gateway are missing.
pub(crate) fn connect_virtual_hosts(
    kernel: &Arc<Kernel>,
    network: NetworkId,
    launcher: &Arc<Launcher>,
    (config, descriptors): (VirtualHosts, usize),
    directory: Arc<dyn CellDirectory>,
    reporter: &Reporter,
) -> Result<(Pump, SocketAddr), NetworkError> {
    let (router, mtu) = kernel.router(network)?;
    let (program, requested) = (format!("the service at {}", config.address), config.address);
    // No port forward leads to a cell of its own.
    let addresses = gateway_addresses(Ipv4Addr::UNSPECIFIED, &router, mtu)?;
    let listeners = Some(GatewayListeners { id: launcher.new_listeners(), forwards: Vec::new(), virtual_hosts: Some(config) });
    let config = GatewayConfig { addresses, rules: Vec::new(), resolvers: Vec::new(), descriptors, listeners };
    let started = StartedGateway::start(launcher, config)?;
    let address = started.virtual_hosts().unwrap_or(requested);
    let waker = started.waker();
    let host_port = Arc::new(kernel.host_port(network, Link::default(), move || waker.wake())?);
    let uplink = Uplink::new(host_port, Arc::clone(kernel), None);
    Ok((started.pump(uplink, program, router, reporter.clone()).with_directory(directory), address))
}

/// The gateway's addresses, with a secret random seed.
fn gateway_addresses(cell: Ipv4Addr, router: &Addresses, mtu: u16) -> Result<GatewayAddresses, NetworkError> {
    let Addresses { mac, v4, prefix4, v6, prefix6 } = *router;
    Ok(GatewayAddresses {
        mac: mac.0,
        address4: v4,
        prefix4,
        address6: v6,
        prefix6,
        mtu,
        cell,
        dhcp_address: |mac| Mac(mac).address4(),
        seed: random().map_err(|error| NetworkError::Resource("random numbers", error))?,
    })
}

/// A random number from the host's kernel.
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
    fn an_uplink_that_never_ends_is_not_waited_for() {
        let (sender, counts) = mpsc::channel::<io::Result<u8>>();
        assert!(end(&counts, Duration::ZERO).is_err_and(|error| error.to_string().contains("in time")));
        sender.send(Ok(7)).expect("the receiver exists");
        assert_eq!(end(&counts, Duration::ZERO).ok(), Some(7));
        drop(sender);
        assert!(end(&counts, Duration::MAX).is_err_and(|error| error.to_string().contains("panicked")));
    }
}
