// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando pull`: container images from registries.

use crate::environment;
use crate::failure::Failure;
use crate::observer;
use crate::progress::ProgressLine;
use crate::registry_login;
use clap::Args;
use pando_manager::report::Progress;
use pando_manager::view::{image_store, prepare_image};
use pando_oci::{ImageName, PullProgress, PulledImage};
use std::io::{self, Write};
use std::sync::OnceLock;

/// Options of `pando pull`.
#[derive(Clone, Debug, Args)]
pub(crate) struct PullOptions {
    /// The platform of the image: Pando runs no other
    #[arg(long, value_name = "PLATFORM", default_value = "linux/amd64", value_parser = ["linux/amd64"])]
    platform: String,

    /// Print only the image's name
    #[arg(short = 'q', long)]
    quiet: bool,

    /// The image's name. Without a registry it is docker's, without a tag `latest`
    #[arg(value_name = "NAME[:TAG|@DIGEST]")]
    name: ImageName,
}

/// Pulls an image.
///
/// # Errors
/// The registry cannot be reached or refuses, or the image is damaged or for other platforms.
pub(crate) fn pull(options: &PullOptions) -> Result<u8, Failure> {
    let PullOptions { name, quiet, .. } = options;
    let PulledImage { digest, is_known, .. } = pull_image(name)?;
    let mut out = io::stdout().lock();
    if *quiet {
        writeln!(out, "{}", name.whole())?;
        return Ok(0);
    }
    let status = if is_known { "Image is up to date" } else { "Downloaded newer image" };
    writeln!(out, "Digest: {digest}\nStatus: {status} for {name}")?;
    Ok(0)
}

/// Pulls an image, and prepares it for cells.
///
/// # Errors
/// The same.
pub(crate) fn pull_image(name: &ImageName) -> Result<PulledImage, Failure> {
    let store = image_store(&environment::caller())?;
    let line = OnceLock::new();
    let progress = |PullProgress { bytes, all }: PullProgress| {
        line.get_or_init(|| ProgressLine::bytes("pulling", all)).set(bytes);
    };
    let pulled = store.pull(name, registry_login::find(name), &progress)?;
    drop(line);
    prepare_image(&store, &pulled.id.to_string(), &observer::reporter())?;
    Ok(pulled)
}
