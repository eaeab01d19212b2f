// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root images: read-only, uncompressed EROFS, made from trees of the host, archives, and bytes in memory.
//!
//! A [`Builder`] collects a tree; [`Builder::image`] decides where everything lies and gives an [`Image`], whose blocks
//! can be read. The image holds the metadata (superblock, inodes, directories); the content of host files stays where
//! it is until its blocks are read. So a tree of a million files costs a walk, and [`Image::write_to`] makes a file of
//! it that holds everything.
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
//! The same tree gives the same bytes, in whatever order it was added. Files' data begins at the start of a block and
//! is stored plainly, so that it can be mapped; directories and the targets of links, which are only looked at, end
//! right behind their inodes. The reader is the library OS's `erofs` module; Linux mounts the images too.

mod archive;
mod builder;
mod cache;
mod error;
mod escape;
mod format;
mod graft;
mod host;
mod image;
mod inspect;
mod layout;
mod open_files;
mod read_log;
mod replaced;
mod sign;
mod source;
mod store;
mod tables;
mod tree;
mod walk;

pub use builder::{Attributes, Builder, Time};
pub use cache::{Cache, Kept};
pub use error::{BlockError, Error};
pub use escape::{escaped, escaped_lines};
pub use format::BLOCK_SIZE;
pub use image::{Image, PIECE_SIZE, Sink, is_image};
pub use inspect::Kind;
pub use open_files::{limit_open_files, open_files};
pub use replaced::Replaced;
pub use sign::Sign;
pub use source::{HostFile, Source};
pub use walk::{Readable, Walk, shows_kernel};
