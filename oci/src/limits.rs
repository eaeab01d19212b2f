// SPDX-License-Identifier: MIT OR Apache-2.0
//! Bounds on what archives and registries may contain.

/// Bytes of a manifest, an index or a configuration: registries refuse larger ones.
pub(crate) const JSON_MAX: u64 = 4 << 20;
/// Layers of an image: twice as many as docker allows.
pub(crate) const LAYERS_MAX: usize = 256;
/// Images in one archive.
pub(crate) const IMAGES_MAX: usize = 1024;
/// Entries of an index.
pub(crate) const INDEX_MAX: usize = 4096;
/// Depth of indexes in indexes.
pub(crate) const INDEX_DEPTH_MAX: usize = 4;
/// Members of an archive of images: each layer takes up to four.
pub(crate) const MEMBERS_MAX: usize = 100_000;
/// Bytes of the name of a member, and of the target of a link: as long as a path of Linux.
pub(crate) const NAME_MAX: usize = 4096;
/// Links from member to member of an archive.
pub(crate) const LINKS_MAX: usize = 8;
/// Bytes of a decompressed layer or archive. Zeros among them take no room on the disk.
pub(crate) const DECOMPRESSED_MAX: u64 = 64 << 30;
/// Bytes that stay free on the store's file system.
pub(crate) const FREE_MIN: u64 = 256 << 20;
/// Strings of a configuration's lists: arguments, variables, ports, volumes, labels.
pub(crate) const STRINGS_MAX: usize = 10_000;
