// SPDX-License-Identifier: MIT OR Apache-2.0
//! Container images: reads archives and layouts of OCI and docker, and keeps images and their layers in a [store](ImageStore).
//!
//! Each layer becomes an uncompressed EROFS image once, named by the digest of its archive, and all images that have it share it. An image
//! is its configuration, which lists its layers in order. `docs/decisions/0038-layers-are-stacked-by-metadata.md` has the reasons.
//!
//! Everything that is read is hostile until its digest is checked, and its content stays hostile afterwards: [`limits`] bounds sizes and
//! counts, names are never used as paths of the host, and `pando-image` checks the members of layers.
#![forbid(unsafe_code)]

mod blobs;
mod commit;
mod compression;
mod config;
mod digest;
mod docker;
mod error;
mod garbage;
mod image_parts;
mod import;
mod layer;
mod layout;
mod limits;
mod load;
mod names;
mod pull;
mod registry;
mod scratch;
mod store;
#[cfg(test)]
mod tests;

pub use commit::Commit;
pub use config::{ExposedPort, ImageConfig, StopSignal};
pub use digest::Digest;
pub use error::Error;
pub use garbage::{Removal, Users};
pub use import::ConfigChange;
pub use load::{LoadProgress, LoadedImage};
pub use names::ImageName;
pub use pull::{PullProgress, PulledImage};
pub use registry::Credentials;
pub use store::{DamagedImage, ImageStore, OpenImage, StoredImage};
