// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run -d`: a program in a cell of `pando serve`.

use super::run_in_service::run_detached;
use crate::api::NewCell;
use crate::arguments::{LimitOptions, RunOptions};
use crate::connection::Client;
use crate::environment;
use crate::failure::Failure;
use crate::size::Size;
use pando_kernel::Weight;
use pando_manager::environment::{HostEnvironment, lines};
use pando_manager::limits::Limits;
use pando_manager::view::{self, ViewError, ViewSpec, VolumeSpec};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The advice about volumes that a cell of the service cannot have.
const VOLUME: &str = "cells of `pando serve` cannot write to the host: add `:ro` or `:snapshot`, or run the program without -d, in the \
    background of your shell (`&`)";
/// The advice about named volumes.
const NAMED_VOLUME: &str = "named volumes are live, and cells of `pando serve` cannot write to the host: run the program without -d, in the \
    background of your shell (`&`); if NAME is a file or a directory, write ./NAME";
/// The advice about options of a network.
const NETWORK: &str =
    "`pando serve` has only networks of cells, `--allow` and `-p`: run the program without -d, in the background of your shell (`&`)";

/// Starts the program and prints the cell's number.
///
/// # Errors
/// The program does not exist, no server runs, or the service does not support the requested view or network.
pub(crate) fn run(options: &RunOptions) -> Result<u8, Failure> {
    if let Some((option, advice)) = unsupported(options) {
        return Err(Failure::NotDetached { option, advice });
    }
    let view = ViewSpec::from(&options.view);
    let caller = environment::caller();
    let mut network = options.network.clone();
    let inherited = match &view.image {
        Some(image) => {
            let found = view::image_store(&caller)?.find(&image.name).map_err(ViewError::from)?;
            network = network.with_exposed(&found.config.ports);
            // As docker does: nothing of the caller's.
            Vec::new()
        }
        None => caller.inherited.clone(),
    };
    if view.is_of_software() {
        let found = caller.find_program(options.program())?;
        if !caller.is_in_software(options.program()) {
            return Err(Failure::NotSoftware(found));
        }
    }
    let client = Client::find_or_fail()?;
    let environment = lines(inherited.into_iter().chain(view.variables.iter().cloned()));
    let cell = new_cell(String::new(), options.arguments(), environment, &options.limits).ok_or_else(|| no_text(options))?;
    let allow = network.allowed().ok_or(Failure::NotDetached { option: "this --net", advice: NETWORK })?;
    let request = NewCell {
        labels: options.labels.iter().cloned().collect(),
        nest: options.nest,
        restart: options.restart.clone(),
        allow,
        publish: network.published(),
        memory: Some(Limits::from(&options.limits).memory().bytes().to_string()),
        name: options.name.clone(),
        host_name: options.host_name(),
        ..with_view(cell, &view, &caller)?
    };
    run_detached(&client, &request, 1, options.interactive)
}

/// A request for a cell in this view. Paths of the host become absolute.
fn with_view(cell: NewCell, view: &ViewSpec, caller: &HostEnvironment) -> Result<NewCell, Failure> {
    let ViewSpec { variables: _, directory, user, root, image, temporary, read_only, bare, volumes } = view;
    let here = caller.directory.as_deref().unwrap_or(Path::new("/"));
    let text = |text: &OsStr| text.to_owned().into_string().map_err(Failure::NotUtf8);
    let path = |path: &Path| text(path.as_os_str());
    let of_host = |host: &Path| path(&here.join(host));
    let volume = |VolumeSpec { host, cell, read_only, .. }: &VolumeSpec| {
        let mode = if *read_only { "ro" } else { "snapshot" };
        Ok(format!("{}:{}:{mode}", of_host(host)?, path(cell)?))
    };
    Ok(NewCell {
        image: image.as_ref().map(|image| image.name.clone()),
        entrypoint: image.as_ref().and_then(|image| image.entrypoint.as_deref()).map(text).transpose()?,
        root: root.as_deref().map(of_host).transpose()?,
        bare: *bare,
        read_only: *read_only,
        volumes: volumes.iter().map(volume).collect::<Result<_, Failure>>()?,
        tmpfs: temporary
            .iter()
            .map(|(directory, permissions)| Ok(format!("{}:mode={permissions:o}", path(directory)?)))
            .collect::<Result<_, Failure>>()?,
        directory: directory.as_deref().map(path).transpose()?,
        user: user.as_ref().map(ToString::to_string),
        ..cell
    })
}

/// The first option that the service does not support for programs, and what to do instead.
fn unsupported(options: &RunOptions) -> Option<(&'static str, &'static str)> {
    let network = &options.network;
    let given = [
        (options.view.volumes.iter().any(|volume| volume.name.is_some()), "a named volume in -v", NAMED_VOLUME),
        (options.view.volumes.iter().any(|volume| volume.writable || volume.live), "this -v", VOLUME),
        (network.publish_all && options.view.image.is_none(), "-P", NETWORK),
        (network.link.is_some(), "--link", NETWORK),
        (network.pcap.is_some(), "--pcap", NETWORK),
    ];
    given.into_iter().find(|(is_given, ..)| *is_given).map(|(_, option, advice)| (option, advice))
}

/// A request for a clone of a template. Each variable is NAME=VALUE. `None` if a value is not UTF-8.
pub(crate) fn new_cell(template: String, arguments: &[OsString], environment: Vec<Vec<u8>>, limits: &LimitOptions) -> Option<NewCell> {
    let text = |word: &OsString| word.clone().into_string().ok();
    let pair = |variable: Vec<u8>| {
        let line = String::from_utf8(variable).ok()?;
        line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()))
    };
    Some(NewCell {
        template,
        arguments: arguments.iter().map(text).collect::<Option<_>>()?,
        environment: environment.into_iter().map(pair).collect::<Option<_>>()?,
        memory: limits.memory.map(|size| size.in_bytes().to_string()),
        cpus: limits.cpus.map(|share| share.fraction()),
        cpu_weight: limits.cpu_weight.map(Weight::get),
        timeout: limits.timeout.map(|time| time.as_secs_f64()),
        output_limit: limits.output_limit.map(Size::in_bytes),
        ..NewCell::default()
    })
}

/// The first word of a command line that is not valid UTF-8.
fn no_text(options: &RunOptions) -> Failure {
    let word = options.arguments().iter().find(|word| word.to_str().is_none());
    Failure::NotUtf8(word.map_or(options.program(), OsString::as_os_str).to_owned())
}
