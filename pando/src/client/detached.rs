// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando run -d`: a program in a cell of `pando serve`. The cell is a clone of a shell that executes the program.

use super::attach::detach;
use crate::api::NewCell;
use crate::arguments::{LimitOptions, Run, ViewOptions};
use crate::connection::Client;
use crate::environment;
use crate::failure::Failure;
use crate::size::Size;
use pando_manager::limits::Limits;
use pando_manager::template::PROGRAM;
use pando_manager::view::{Account, User, ViewSpec};
use std::ffi::OsString;

/// The advice about options of a view.
const VIEW: &str = "`pando serve` shows programs the host's software only: create a template with this option (`pando template create`), \
    restart the service, and clone the template with -d; or run the program without -d";
/// The advice about options of a network.
const NETWORK: &str =
    "`pando serve` has only networks of cells, `--allow` and `-p`: run the program without -d, in the background of your shell (`&`)";

/// Starts the program and prints the cell's number.
///
/// # Errors
/// The program does not exist, no server runs, or the service does not support the requested view or network.
pub(crate) fn run(options: &Run) -> Result<u8, Failure> {
    let view = ViewSpec::from(&options.view);
    if let Some((option, advice)) = unsupported(options) {
        return Err(Failure::NotDetached { option, advice });
    }
    let program = options.program();
    let caller = environment::caller();
    let found = caller.find_program(program)?;
    if !caller.is_in_software(program) {
        return Err(Failure::NotSoftware(found));
    }
    let client = Client::need()?;
    let account = Account::find(&caller.users, User::default());
    let environment = caller.of_program(account.variables(), &view.variables);
    let cell = new_cell(PROGRAM.into(), options.arguments(), environment, &options.limits).ok_or_else(|| no_text(options))?;
    let allow = options.network.allowed().ok_or(Failure::NotDetached { option: "this --net", advice: NETWORK })?;
    let memory = Some(Limits::from(&options.limits).memory().bytes().to_string());
    let publish = options.network.published();
    detach(
        &client,
        &NewCell { nest: options.nest, allow, publish, memory, name: options.name.clone(), host_name: options.host_name(), ..cell },
        1,
    )
}

/// The first option that the service does not support for programs without a template, and what to do instead.
fn unsupported(options: &Run) -> Option<(&'static str, &'static str)> {
    let ViewOptions { directory, user, image, entrypoint: _, temporary, root, bare, volumes, variables: _, variable_files: _ } =
        &options.view;
    let network = &options.network;
    let given = [
        (!volumes.is_empty(), "-v", VIEW),
        (directory.is_some(), "-w", "the program starts in `/`: run `sh -c 'cd DIR && exec PROGRAM'`"),
        (user.is_some(), "-u", VIEW),
        (image.is_some(), "--image", VIEW),
        (!temporary.is_empty(), "--tmpfs", VIEW),
        (root.is_some(), "--root", VIEW),
        (*bare, "--bare", VIEW),
        (network.publish_all, "-P", NETWORK),
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
        cpus: limits.cpus.map(|share| share.part()),
        timeout: limits.timeout.map(|time| time.as_secs_f64()),
        output_limit: limits.output_limit.map(Size::in_bytes),
        ..NewCell::default()
    })
}

/// The first word of a command line that is not valid UTF-8.
fn no_text(options: &Run) -> Failure {
    let word = options.arguments().iter().find(|word| word.to_str().is_none());
    Failure::NotUtf8(word.map_or(options.program(), OsString::as_os_str).to_owned())
}
