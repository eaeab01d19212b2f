// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando debug`: serves gdb's remote protocol for a program in a cell.

use crate::failure::Failure;
use crate::monitor::MonitoredProgram;
use crate::{diagnostics, nested};
use clap::Args;
use pando_launch::Program;
use pando_machine::CellsDevice;
use pando_nest::debugger::{GdbLink, serve};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::Arc;

/// The port of the debugger in its cell, if the host chooses its own.
const DEFAULT_PORT: u16 = 2159;

#[derive(Debug, Args)]
pub(crate) struct Debug {
    /// Wait for gdb at this port of 127.0.0.1 instead of standard input and output, which are then the program's: `target remote :PORT`
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,

    #[command(flatten)]
    program: MonitoredProgram,
}

/// Debugs a program, and returns its exit status; 0 if gdb has ended it.
///
/// # Errors
/// The cell cannot be made, or gdb breaks the protocol.
pub(crate) fn debug(options: &Debug) -> Result<u8, Failure> {
    if let Some(device) = nested::device()? {
        return run(options, &device);
    }
    let (mut around, mut inside) = (Vec::new(), Vec::new());
    if let Some(port) = options.port {
        let port_inside = if port == 0 { DEFAULT_PORT } else { port };
        around.extend(["-p".into(), format!("{port}:{port_inside}").into()]);
        inside.extend(["--port".into(), port_inside.to_string().into()]);
    }
    Err(Failure::Nested(options.program.start_in_cell("debug", &around, &inside)))
}

/// Makes the program's cell, and debugs it.
fn run(options: &Debug, device: &CellsDevice) -> Result<u8, Failure> {
    // gdb passes Ctrl-C on by the protocol.
    flag::register(SIGINT, Arc::default()).map_err(Failure::Signals)?;
    let program = Program { is_debugged: true, ..options.program.program()? };
    let child = options.program.create(device, &program)?;
    let link = options.port.map_or(Ok(GdbLink::Streams), accept).map_err(Failure::Nested)?;
    let ended = serve(device, child, program.path, link).map_err(Failure::Nested)?;
    let Some(state) = ended else { return Ok(0) };
    Ok(options.program.report(state))
}

/// Waits for gdb's connection.
fn accept(port: u16) -> std::io::Result<GdbLink> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
    diagnostics::note(&format_args!("waiting for gdb at port {}", listener.local_addr()?.port()));
    listener.accept().map(|(socket, _)| GdbLink::Socket(socket))
}
