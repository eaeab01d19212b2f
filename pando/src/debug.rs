// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando debug`: serves gdb's remote protocol for a program that it starts in a cell, or for a running cell of `pando serve`.

use crate::connection::{Client, wait_for};
use crate::failure::Failure;
use crate::monitor::MonitoredProgram;
use crate::{api, completion, diagnostics, nested, options};
use axum::body::Bytes;
use clap::Args;
use clap_complete::ArgValueCandidates;
use http_body_util::BodyExt;
use http_body_util::channel::Sender;
use pando_launch::Program;
use pando_machine::CellsDevice;
use pando_nest::debugger::{GdbLink, serve};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fs::File;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, stdin, stdout};

/// The port of the debugger in its cell, if the host chooses its own.
const DEFAULT_PORT: u16 = 2159;
/// Bytes of gdb per piece.
const PIECE: usize = 16 << 10;

#[derive(Debug, Args)]
#[command(mut_arg("words", |words| words.value_name("CELL | PROGRAM [ARGS]").help(TARGET).add(ArgValueCandidates::new(completion::cells))))]
pub(crate) struct DebugOptions {
    /// Wait for gdb at this port of 127.0.0.1 instead of standard input and output, which are then the program's: `target remote :PORT`
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,

    /// Debug this process of a running cell [default: the first one]
    #[arg(long, value_name = "NUMBER")]
    process: Option<u64>,

    #[command(flatten)]
    program: MonitoredProgram,
}

/// The help of the positional argument.
const TARGET: &str = "A running cell of `pando serve`, by its number or name as in `pando ps`: it goes on when gdb detaches or ends. \
Otherwise the program (a path, or a name to find in PATH) and its arguments. `--` before a program prevents that it is taken for a cell";

/// Debugs a running cell, or a program that it starts. Returns the program's exit status; 0 if gdb has ended it, or of a running cell.
///
/// # Errors
/// The cell cannot be made or debugged, or gdb breaks the protocol.
pub(crate) fn debug(options: &DebugOptions) -> Result<u8, Failure> {
    if let Some((client, cell)) = running_cell(options)? {
        return attach(options, &client, cell);
    }
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

/// The service and the running cell that the only word names. `None`: it names a program.
fn running_cell(options: &DebugOptions) -> Result<Option<(Client, &str)>, Failure> {
    let word = options.program.only_word().and_then(OsStr::to_str);
    let Some(cell) = word.filter(|word| options::cell(word).is_ok()) else {
        return if options.process.is_some() { Err(Failure::NoCellToDebug) } else { Ok(None) };
    };
    if options.process.is_some() || cell.bytes().all(|byte| byte.is_ascii_digit()) {
        return Ok(Some((Client::find_or_fail()?, cell)));
    }
    let Some(client) = Client::find()? else { return Ok(None) };
    match wait_for(client.get::<api::Cell>(&format!("/v1/cells/{cell}"))) {
        Ok(_) => Ok(Some((client, cell))),
        Err(Failure::Refused { problem, .. }) if problem == "no-such-cell" => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Connects gdb with a running cell until one of them ends the connection.
fn attach(options: &DebugOptions, client: &Client, cell: &str) -> Result<u8, Failure> {
    // gdb passes Ctrl-C on by the protocol.
    flag::register(SIGINT, Arc::default()).map_err(Failure::Signals)?;
    let process = options.process.map_or_else(String::new, |process| format!("?process={process}"));
    let path = format!("/v1/cells/{cell}/debug{process}");
    let socket = options.port.map(|port| accept(Ipv4Addr::LOCALHOST, port)).transpose().map_err(Failure::Nested)?;
    wait_for(async {
        let Some(socket) = socket else { return connect(client, &path, stdin(), stdout()).await };
        socket.set_nonblocking(true).map_err(Failure::Nested)?;
        let (reader, writer) = tokio::net::TcpStream::from_std(socket).map_err(Failure::Nested)?.into_split();
        connect(client, &path, reader, writer).await
    })?;
    Ok(0)
}

/// Passes bytes between gdb and the service until the service ends the answer.
async fn connect(
    client: &Client,
    path: &str,
    input: impl AsyncRead + Unpin + Send + 'static,
    mut output: impl AsyncWrite + Unpin,
) -> Result<(), Failure> {
    let (sender, answer) = client.post_bytes(path).await?;
    tokio::spawn(send(sender, input));
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Failure::ConnectionLost(std::io::Error::other(error)))?;
        let Some(bytes) = frame.data_ref() else { continue };
        // If gdb is gone, its input has ended, too, and the service ends the answer.
        if output.write_all(bytes).await.is_ok() {
            let _ = output.flush().await;
        }
    }
    Ok(())
}

/// Sends the bytes of gdb. Their end ends the request.
async fn send(mut sender: Sender<Bytes, Infallible>, mut input: impl AsyncRead + Unpin) {
    let mut piece = vec![0; PIECE];
    while let Ok(count @ 1..) = input.read(&mut piece).await
        && sender.send_data(Bytes::copy_from_slice(&piece[..count])).await.is_ok()
    {}
}

/// Makes the program's cell, and debugs it.
fn run(options: &DebugOptions, device: &CellsDevice) -> Result<u8, Failure> {
    // gdb passes Ctrl-C on by the protocol.
    flag::register(SIGINT, Arc::default()).map_err(Failure::Signals)?;
    let program = Program { is_debugged: true, ..options.program.program()? };
    let child = options.program.create(device, &program)?;
    let link = match options.port {
        Some(port) => GdbLink::Socket(File::from(OwnedFd::from(accept(Ipv4Addr::UNSPECIFIED, port).map_err(Failure::Nested)?))),
        None => GdbLink::Streams,
    };
    let ended = serve(device, child, program.path, link).map_err(Failure::Nested)?;
    let Some(state) = ended else { return Ok(0) };
    Ok(options.program.report(state))
}

/// Waits for gdb's connection.
fn accept(address: Ipv4Addr, port: u16) -> std::io::Result<TcpStream> {
    let listener = TcpListener::bind((address, port))?;
    diagnostics::print_notice(&format_args!("waiting for gdb at port {}", listener.local_addr()?.port()));
    let (socket, _) = listener.accept()?;
    socket.set_nodelay(true)?;
    Ok(socket)
}
