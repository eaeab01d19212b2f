// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando page`: runs a program in a cell with less memory than it needs, and keeps the rest in a swap file.

use crate::failure::Failure;
use crate::monitor::{ProgramOptions, check_directory};
use crate::size::Size;
use crate::{diagnostics, nested, options};
use clap::{Args, ValueHint};
use pando_launch::Program;
use pando_manager::host;
use pando_nest::pager::{Pager, PagerCounters, SwapSettings, swap_file_error};
use signal_hook::consts::SIGINT;
use signal_hook::flag;
use std::ffi::OsString;
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// The directory of the swap file in the cell around the program.
const SWAP_DIRECTORY: &str = "/run/pando-swap";
/// The size of the swap file unless it is given, as a multiple of the memory.
const SIZE_FACTOR: u64 = 8;

#[derive(Debug, Args)]
pub(crate) struct PageOptions {
    /// Memory of the program: bytes, or with K, M, G or T
    #[arg(short = 'm', long, value_name = "SIZE", allow_hyphen_values = true, value_parser = options::memory)]
    memory: Size,

    /// The file for pages that do not fit into the memory. It must not exist yet, and is removed at the end
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    swap: PathBuf,

    /// Limit the size of the swap file [default: 8 times the memory]
    #[arg(long, value_name = "SIZE")]
    swap_size: Option<Size>,

    /// Print how many pages were moved, on standard error at the end
    #[arg(long)]
    stats: bool,

    #[command(flatten)]
    program: ProgramOptions,
}

impl PageOptions {
    /// The most pages in the swap file.
    fn swap_pages(&self) -> u32 {
        let bytes = self.swap_size.map_or(self.memory.in_bytes().saturating_mul(SIZE_FACTOR), Size::in_bytes);
        u32::try_from(bytes / pando_abi::PAGE_SIZE).unwrap_or(u32::MAX).max(1)
    }
}

/// Runs a program with a pager, and returns its exit status.
///
/// # Errors
/// The cell cannot be made, a stream or the swap file failed, or the program cannot go on with this memory and this swap file.
pub(crate) fn page(options: &PageOptions) -> std::result::Result<u8, Failure> {
    let Some(device) = nested::device()? else {
        return Err(Failure::Nested(start_in_cell(options).unwrap_or_else(|error| error)));
    };
    let interrupted = Arc::<AtomicBool>::default();
    flag::register(SIGINT, Arc::clone(&interrupted)).map_err(Failure::Signals)?;
    let program = Program { is_paged: true, ..options.program.program()? };
    let memory = options.memory.pages();
    let child = options.program.create(&device, &program, memory)?;
    let name = options.swap.strip_prefix(SWAP_DIRECTORY).unwrap_or(&options.swap).display().to_string();
    let swap = SwapSettings { path: options.swap.clone(), name, pages: options.swap_pages() };
    let mut pager = Pager::new(&device, child, memory.0, swap).map_err(Failure::Nested)?;
    let ended = pager.run(&interrupted);
    if options.stats {
        report(pager.counters());
    }
    Ok(options.program.report(ended.map_err(Failure::Nested)?))
}

/// Replaces this process by the same command in a cell. Returns the error if that fails.
fn start_in_cell(options: &PageOptions) -> Result<Error> {
    let cannot_create = |kind: ErrorKind| swap_file_error("create", &options.swap.display().to_string(), &kind.into());
    let path = host::absolute(&options.swap).map_err(|error| cannot_create(error.kind()))?;
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(cannot_create(ErrorKind::IsADirectory));
    };
    check_directory(directory)?;
    // The pager creates it. Here the error comes early.
    if path.symlink_metadata().is_ok() {
        return Err(cannot_create(ErrorKind::AlreadyExists));
    }
    directory.metadata().map_err(|error| cannot_create(error.kind()))?;
    let mut volume = OsString::from(directory);
    volume.push(format!(":{SWAP_DIRECTORY}:live"));
    let around = ["-v".into(), volume];
    let mut inside: Vec<OsString> = vec!["--memory".into(), options.memory.in_bytes().to_string().into()];
    inside.extend(["--swap".into(), Path::new(SWAP_DIRECTORY).join(name).into()]);
    if let Some(size) = options.swap_size {
        inside.extend(["--swap-size".into(), size.in_bytes().to_string().into()]);
    }
    inside.extend(options.stats.then(|| "--stats".into()));
    Ok(options.program.start_in_cell("page", &around, &inside))
}

fn report(counters: PagerCounters) {
    let PagerCounters { pages_out, pages_in, faults, shortages } = counters;
    diagnostics::print_notice(&format_args!("{pages_out} pages out, {pages_in} in; {faults} faults, {shortages} shortages"));
}
