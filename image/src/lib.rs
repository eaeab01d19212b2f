// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root images: read-only, uncompressed EROFS, made from files of the host and bytes in memory.
//!
//! A [`Builder`] collects a tree; [`Builder::layout`] decides where everything lies. The [`Layout`] holds the metadata
//! (superblock, inodes, directories) and, as a list of extents, where each file's data comes from. So an image can be
//! streamed to where it is wanted, piece by piece, and no file is ever whole in memory.
//!
//! ```
//! use pando_image::{Attributes, Builder, Source};
//!
//! let mut builder = Builder::new();
//! builder.file("/etc/hostname", Attributes::root(0o644), Source::from("grove\n"))?;
//! builder.symlink("/bin", Attributes::root(0o777), "usr/bin")?;
//! let layout = builder.layout()?;
//! let mut image = vec![0; layout.size() as usize];
//! layout.write_to(&mut |offset, piece| {
//!     image[offset as usize..][..piece.len()].copy_from_slice(piece);
//!     Ok::<(), pando_image::Error>(())
//! })?;
//! # Ok::<(), pando_image::Error>(())
//! ```
//!
//! The same tree gives the same bytes, in whatever order it was added. All data begins at the start of a block and is
//! stored plainly, so that it can be mapped; inodes are of the extended form. The reader is the library OS's `erofs`
//! module; Linux mounts the images too.

mod builder;
mod error;
mod format;
mod layout;
mod source;

pub use builder::{Attributes, Builder, Time};
pub use error::Error;
pub use format::BLOCK_SIZE;
pub use layout::{Extent, Layout, PIECE_SIZE, Sink};
pub use source::{HostFile, Source};
