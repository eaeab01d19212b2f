// SPDX-License-Identifier: MIT OR Apache-2.0
//! The service in which a recipe's steps run: the user's, or one for this command alone.

use crate::connection::{Client, wait_for};
use crate::failure::Failure;
use crate::nested;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The first words of the line with which a service reports that it accepts connections.
const SERVING: &str = "serving at";
/// Cells of an own service that have a gateway at a time.
const GATEWAYS: &str = "1";

/// A service.
pub(super) struct BuildService {
    /// The connection to it.
    pub(super) client: Client,
    _own: Option<OwnService>,
}

/// A service that ends with this value.
struct OwnService {
    child: Child,
    _directory: TempDir,
}

impl BuildService {
    /// Finds the user's service, or starts one if none runs or it has no gateways and one is needed.
    ///
    /// # Errors
    /// The user's service has other directories, or none can be started.
    pub(super) fn find(needs_gateway: bool) -> Result<BuildService, Failure> {
        if let Some(client) = Client::find()? {
            // A cell's service has no gateways, and none can be started.
            if client.server()?.gateways > 0 || !needs_gateway || nested::device()?.is_some() {
                return Ok(BuildService { client, _own: None });
            }
        }
        let (client, own) = OwnService::start()?;
        Ok(BuildService { client, _own: Some(own) })
    }
}

impl OwnService {
    fn start() -> Result<(Client, OwnService), Failure> {
        let failed = |reason: String| Failure::OwnService(reason);
        let directory = tempfile::Builder::new().prefix("pando-").tempdir().map_err(|error| failed(error.to_string()))?;
        let socket = directory.path().join("socket");
        let mut command = Command::new(std::env::current_exe().map_err(|error| failed(error.to_string()))?);
        command.args(["serve", "--end-with-parent", &std::process::id().to_string(), "--socket"]).arg(&socket);
        if nested::device()?.is_none() {
            command.args(["--gateways", GATEWAYS]);
        }
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let errors = child.stderr.take().map(BufReader::new);
        let own = OwnService { child, _directory: directory };
        let mut errors = errors.ok_or_else(|| failed("it has no output".into()))?;
        let mut output = String::new();
        loop {
            let start = output.len();
            // The service is ended with `own`.
            if errors.read_line(&mut output).map_err(|error| failed(error.to_string()))? == 0 {
                return Err(failed(output.trim().to_owned()));
            }
            if output[start..].contains(SERVING) {
                // It can still print, but nothing about the steps.
                std::thread::spawn(move || std::io::copy(&mut errors, &mut std::io::sink()));
                let client = Client::at(socket);
                wait_for(client.get::<serde_json::Value>("/v1"))?;
                return Ok((client, own));
            }
        }
    }
}

impl Drop for OwnService {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // It may have ended by itself.
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
