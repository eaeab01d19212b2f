// SPDX-License-Identifier: MIT OR Apache-2.0
//! Errors of networks.

use crate::descriptors::TooFewDescriptors;
use crate::host;
use pando_gateway::BindError;
use pando_image::escaped;
use pando_kernel::OperatorError;
use pando_launch::LaunchError;
use pando_machine::TapError;
use rustix::io::Errno;
use std::io;
use std::path::PathBuf;

/// Why a cell cannot be connected to a network.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A TAP device cannot be opened.
    #[error(transparent)]
    Tap(#[from] TapError),
    /// A port forward cannot listen, or the gateway's resources cannot be created.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The launcher cannot listen for a port forward.
    #[error("{0}")]
    NotListening(String),
    /// The process's limit of descriptors is too low.
    #[error(transparent)]
    Descriptors(#[from] TooFewDescriptors),
    /// A capture file cannot be written.
    #[error("cannot capture frames into {}: {}", escaped(file), host::plain(source))]
    Capture {
        /// The file.
        file: PathBuf,
        /// The host's error.
        source: io::Error,
    },
    /// The process of gateways, or a gateway's, cannot be started.
    #[error("the gateway's process cannot be started: {}", host::plain(.0))]
    Launcher(#[source] io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread for a network: {0}")]
    Thread(io::Error),
    /// A resource of the host cannot be created.
    #[error("cannot create {0} for the network: {1}")]
    Resource(&'static str, io::Error),
    /// The kernel has no network for it.
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

/// A gateway cannot be started.
#[derive(Debug)]
pub(super) enum StartError {
    /// A port forward cannot listen.
    NotListening(String),
    /// The host has no process or descriptor for it, or the launcher has ended.
    Host(io::Error),
}

impl From<io::Error> for StartError {
    fn from(error: io::Error) -> StartError {
        StartError::Host(error)
    }
}

impl From<Errno> for StartError {
    fn from(error: Errno) -> StartError {
        StartError::Host(error.into())
    }
}

impl From<StartError> for NetworkError {
    fn from(error: StartError) -> NetworkError {
        match error {
            StartError::NotListening(reason) => NetworkError::NotListening(reason),
            StartError::Host(error) => NetworkError::Launcher(error),
        }
    }
}

impl From<OperatorError> for NetworkError {
    fn from(error: OperatorError) -> NetworkError {
        LaunchError::from(error).into()
    }
}
