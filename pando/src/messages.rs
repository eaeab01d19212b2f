// SPDX-License-Identifier: MIT OR Apache-2.0
//! The manager's errors and reports as messages of the command line: they name options and commands.

use pando_gateway::RefusedDestination;
use pando_image::escaped;
use pando_kernel::network::address::Addresses;
use pando_launch::FailureReason;
use pando_manager::cells::ManagerError;
use pando_manager::host;
use pando_manager::network::NetworkError;
use pando_manager::report::Warning;
use pando_manager::template::TemplateError;
use pando_manager::view::ViewError;
use pando_manager::write_back::{VolumeFailure, VolumeReport};
use pando_oci::Error as ImageError;
use rustix::io::Errno;
use std::net::IpAddr;

/// The message about files that cannot be shown.
pub(crate) fn view(error: &ViewError) -> String {
    match error {
        ViewError::ContainerImage(error) => container_image(error),
        ViewError::Volume { volume, reason } => format!("-v {}: {reason}", escaped(volume)),
        error => error.to_string(),
    }
}

/// The message about a container image.
pub(crate) fn container_image(error: &ImageError) -> String {
    match error {
        ImageError::Missing(_) => {
            format!("{error}: `pando image ls` lists them, `pando pull NAME` gets it from its registry, `pando image load` from an archive")
        }
        ImageError::SeveralNames { .. } => format!("{error}: name the one to remove, or remove the image with --force"),
        ImageError::InUse { .. } => format!("{error}: end the cell or remove the template first"),
        ImageError::NotAnImage { .. } => {
            format!(
                "{error}\n       a root file system needs no loading: `pando run --root FILE`, or `pando image import FILE NAME` makes an image of it"
            )
        }
        error => error.to_string(),
    }
}

/// The message about a template.
pub(crate) fn template(error: &TemplateError) -> String {
    match error {
        TemplateError::View(error) => view(error),
        TemplateError::Missing(name) => {
            format!("{error}: `pando template ls` lists them, `pando template create {name} PROGRAM` creates one")
        }
        TemplateError::Exists(_) => format!("{error}: replace it with --replace"),
        TemplateError::NoRecipe(_) => format!("{error}: create the template again with `pando template create`"),
        TemplateError::Changed(_) | TemplateError::ChangedFile { .. } => {
            format!("{error}: create it again with `pando template create --replace`")
        }
        TemplateError::NotReady { .. } => format!("{error}: see `pando template create --help`"),
        error => error.to_string(),
    }
}

/// The message about a network.
pub(crate) fn network(error: &NetworkError) -> String {
    match error {
        NetworkError::Tap(error) => format!("--net tap: {error}"),
        NetworkError::Bind(error) => format!("-p: {error}"),
        NetworkError::Capture { file, source } => format!("--pcap {}: {}", escaped(file), host::plain(source)),
        error => error.to_string(),
    }
}

/// The message about a request that the manager refuses.
pub(crate) fn manager(error: &ManagerError) -> String {
    match error {
        ManagerError::MemoryFull(_) => format!("{error}: end some, or start it with more (--memory)"),
        ManagerError::NoVirtualHosts => {
            format!("{error}: start it with --listen 127.0.0.1:8080, or publish the port at one of the host (--publish 8080:80)")
        }
        ManagerError::NoGateway(0) => "this service has no gateways: start it with --gateways N, for N clones at a time".into(),
        ManagerError::NoGateway(_) => format!("{error}: end some clones, or start it with more (--gateways)"),
        ManagerError::TooManyFiles => {
            format!("{error}: end some clones, or start the service with a higher limit of open files (`ulimit -Hn`)")
        }
        ManagerError::NoSuchCell(_) => format!("{error}: `pando ps -a` lists the cells"),
        ManagerError::NameInUse { .. } => format!("{error}: end that cell (`pando kill`), or give another name"),
        ManagerError::NotFrozen { .. } => format!("{error}: retry with --force, but then its clones' random numbers may not be distinct"),
        ManagerError::Creation { error, output } => format!("{}; its output:\n{output}", template(error)),
        ManagerError::Template(error) => template(error),
        ManagerError::Network(error) => network(error),
        error => error.to_string(),
    }
}

/// The message about a warning; `None`: no message.
pub(crate) fn warning(warning: &Warning) -> Option<String> {
    match warning {
        Warning::Refused { program, router, refused } => advice(program, router, refused),
        Warning::DeviceDown(name) => {
            Some(format!("--net tap:{name}: the device is down: bring it up as root with `ip link set {name} up`"))
        }
        Warning::Capture { file, problem } => Some(format!("--pcap {}: {problem}", file.display())),
        warning => Some(warning.to_string()),
    }
}

/// Advice about a refused destination, if it can be allowed.
fn advice(program: &str, router: &Addresses, refused: &RefusedDestination) -> Option<String> {
    let (address, to, port) = match refused {
        RefusedDestination::Name(name) => return Some(format!("{program}: resolving {name} is not allowed: add --allow {name}")),
        RefusedDestination::Echoes => {
            return Some(format!(
                "{program}: this host does not allow you to ping: allow it as root with `sysctl -w net.ipv4.ping_group_range=\"0 2147483647\"`"
            ));
        }
        RefusedDestination::Destination(to) => (to.ip(), to.to_string(), Some(to.port())),
        RefusedDestination::Echo(to) => (*to, to.to_string(), None),
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

/// The messages about a write-back that is not complete.
pub(crate) fn write_back(report: &VolumeReport) -> Vec<String> {
    let mut messages: Vec<String> = report.failures.iter().map(volume_failure).collect();
    let more = report.failed - report.failures.len() as u64;
    if more > 0 {
        messages.push(format!("{more} more files were not written back unchanged"));
    }
    messages.extend(report.stopped.map(Into::into));
    messages
}

fn volume_failure(VolumeFailure { volume, path, reason }: &VolumeFailure) -> String {
    let result = match reason {
        FailureReason::Refused(Errno::DQUOT) => {
            "not written back: the volumes would grow by more than --write-limit (sizes as `ls` shows them, and 4 KiB for each name)".into()
        }
        FailureReason::Refused(errno) => format!("not written back: {}", host::plain(&(*errno).into())),
        FailureReason::WithoutSetId => "written back without its set-user-ID and set-group-ID: a cell may not set them".into(),
    };
    format!("-v {}: `{path}` was {result}", escaped(volume))
}
