// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root images: read-only, uncompressed EROFS, made from trees of the host, archives, and bytes in memory.
//!
//! A [`Builder`] collects a tree; [`Builder::image`] lays it out as an [`Image`] with readable blocks. The image holds the metadata
//! (superblock, inodes, directories); the content of host files stays in them until its blocks are read. So a tree of a million files
//! costs a scan, and [`Image::write_to`] writes a file with everything.
//!
//! ```
//! use pando_image::{Attributes, Builder, Source};
//!
//! let mut builder = Builder::new();
//! builder.file("/etc/hostname", Attributes::root(0o644), Source::from("grove\n"))?;
//! builder.symlink("/bin", Attributes::root(0o777), "usr/bin")?;
//! let image = builder.image()?;
//! let mut block = [0; 4096];
//! image.read_blocks(0, &mut block)?;
//! # Ok::<(), pando_image::Error>(())
//! ```
//!
//! The same tree gives the same bytes, independent of the order of additions. Files' data starts at a block boundary and is uncompressed,
//! so that it can be mapped. The last part of directories and the targets of links are inline, directly after their inodes. The reader is
//! the library OS's `erofs` module; Linux mounts the images too.

mod archive;
mod attributes;
mod block;
mod bounded_headers;
mod builder;
mod cache;
mod cache_file;
mod encode;
mod error;
mod escape;
mod file_systems;
mod fingerprint;
mod host;
mod host_stat;
mod image;
mod inspect;
mod layers;
mod layout;
mod open_files;
mod overlay_entry;
mod path;
mod read_log;
mod replaced;
mod restore;
mod revision;
mod save;
mod scan;
mod source;
mod store;
mod tables;
mod tree;
mod update;
mod version;

pub use attributes::Attributes;
pub use bounded_headers::BoundedHeaders;
pub use builder::Builder;
pub use cache::{Cache, CachedImage};
pub use cache_file::{open_cache_file, replace_cache_file};
pub use error::{BlockError, Error};
pub use escape::{escaped, escaped_lines};
pub use file_systems::shows_kernel;
pub use fingerprint::Fingerprint;
pub use image::{Image, PIECE_SIZE, Sink, is_image};
pub use inspect::Kind;
pub use open_files::{limit_open_files, open_files};
pub use pando_erofs::{BLOCK_SIZE, Timestamp};
pub use replaced::Replaced;
pub use restore::{FileOnHost, LaterVersion, LaterVersions};
pub use scan::{Readable, Scan};
pub use source::{HostFile, Source};
pub use update::DirectoryChanges;
