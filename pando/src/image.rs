// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando image build`: writes a root image, with all its content, to one file.

use crate::diagnostics;
use crate::failure::Failure;
use crate::progress::ProgressLine;
use clap::Args;
use indicatif::HumanBytes;
use pando_image::{Builder, Error, Image, Readable};
use pando_manager::report::Progress;
use pando_manager::{output_file, view};
use std::fs::Permissions;
use std::io::{self, IsTerminal};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Bytes of an image from which its size is announced even without a terminal.
const ANNOUNCED_FROM: u64 = 1 << 30;

/// Options of `pando image build`.
#[derive(Debug, Args)]
pub(crate) struct BuildImage {
    /// The content: a directory, a tar archive, or `-` for an archive on standard input
    #[arg(value_name = "DIR|TAR", required_unless_present = "host", conflicts_with = "host")]
    pub(crate) source: Option<PathBuf>,

    /// Use the host's software, as a cell without --root sees it
    #[arg(long)]
    pub(crate) host: bool,

    /// The file to write
    #[arg(short = 'o', long, value_name = "FILE")]
    pub(crate) output: PathBuf,
}

/// Writes the requested image.
pub(crate) fn build(options: &BuildImage) -> Result<u8, Failure> {
    output_file::refuse_special(&options.output)?;
    let progress = ProgressLine::files("looking");
    let image = match &options.source {
        None => view::host_software(&|count| progress.set(count))?,
        Some(source) => collect(source, &progress)?.image()?,
    };
    progress.end();
    write(&image, &options.output)?;
    Ok(0)
}

/// The tree of a directory or an archive.
fn collect(source: &Path, progress: &ProgressLine) -> Result<Builder, Error> {
    let mut builder = Builder::new();
    if source == Path::new("-") {
        builder.archive_stream(Path::new("standard input"), io::stdin().lock())?;
    } else if source.is_dir() {
        let source = source.canonicalize().map_err(|error| Error::Host { path: source.into(), source: error })?;
        view::refuse_kernel(&source)?;
        builder.host("/", &source, &view::walk(Readable::All, u64::MAX, &|count| progress.set(count)))?;
    } else {
        builder.archive(source)?;
    }
    view::add_parts(&mut builder)?;
    Ok(builder)
}

/// Writes an image to a file, which is there whole or not at all. Blocks of zeros become holes.
fn write(image: &Image, output: &Path) -> Result<(), Error> {
    let failed = |source: io::Error| Error::Write { path: output.into(), source };
    // A name without a directory is relative to the current one.
    let directory = output.parent().filter(|parent| !parent.as_os_str().is_empty()).map_or(PathBuf::from("."), Path::to_path_buf);
    let mut options = tempfile::Builder::new();
    // The permissions of a file that `open` creates; the umask applies.
    let file = options.prefix(".pando-").permissions(Permissions::from_mode(0o666)).tempfile_in(directory).map_err(failed)?;
    if image.size() >= ANNOUNCED_FROM || io::stderr().is_terminal() {
        diagnostics::print_notice(&format_args!("writing {}: {}", output.display(), HumanBytes(image.size())));
    }
    let progress = ProgressLine::bytes("writing", image.size());
    image.save(
        file.as_file(),
        &|offset| {
            progress.set(offset);
            Ok(())
        },
        &failed,
    )?;
    progress.end();
    file.persist(output).map(|_| ()).map_err(|error| failed(error.error))
}
