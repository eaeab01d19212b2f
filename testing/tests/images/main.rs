// SPDX-License-Identifier: MIT OR Apache-2.0
//! Root images: the library OS, Linux and its tools all read the writer's output. The library OS reads the output of
//! `mkfs.erofs` and refuses damaged images.

mod archives;
mod cache;
mod graft;
mod host;
mod hostile;
mod linux;
mod model;
mod reading;
mod revisions;
mod sources;
mod updates;

use model::{ModelTree, additions, build};
use pando_image::{Attributes, BLOCK_SIZE, Builder};
use pando_libos::erofs::{Error, Image, LastLink};
use proptest::prelude::*;

/// Writes the image of a builder's files.
fn image_bytes(builder: Builder) -> Vec<u8> {
    all_bytes(&builder.image().unwrap())
}

/// The whole image in memory. Also checks the guarantees of [`pando_image::Image::write_to`] about its pieces.
fn all_bytes(image: &pando_image::Image) -> Vec<u8> {
    assert_eq!(image.size(), image.blocks() * BLOCK_SIZE);
    let mut bytes = Vec::new();
    image
        .write_to(&mut |offset, piece| {
            assert!(offset == bytes.len() as u64 && piece.len() <= pando_image::PIECE_SIZE);
            bytes.extend(piece);
            Ok::<(), pando_image::Error>(())
        })
        .unwrap();
    assert_eq!(bytes.len() as u64, image.size());
    bytes
}

proptest! {
    #![proptest_config(model::config(256))]

    #[test]
    fn read_images_equal_the_written_tree(additions in additions()) {
        let (builder, tree) = build(&additions);
        let bytes = image_bytes(builder);
        let image = Image::new(&bytes).unwrap();
        prop_assert_eq!(reading::tree(&image), tree);
    }

    #[test]
    fn every_path_resolves_and_no_other(additions in additions()) {
        let (builder, tree) = build(&additions);
        let bytes = image_bytes(builder);
        let image = Image::new(&bytes).unwrap();
        for path in tree.keys() {
            let inode = image.resolve(image.root(), path, LastLink::Keep).unwrap();
            prop_assert_eq!(reading::attributes(&inode), tree[path].0);
            // Names just before and just after an existing one.
            for end in [&b"\x01"[..], b"~"] {
                let other = [path, end].concat();
                if !tree.contains_key(&other) && other.rsplit(|&byte| byte == b'/').next().unwrap().len() <= 255 {
                    prop_assert_eq!(image.resolve(image.root(), &other, LastLink::Keep), Err(Error::NotFound));
                }
            }
        }
    }

    #[test]
    fn the_order_of_additions_does_not_show(additions in additions()) {
        let (_, tree) = build(&additions);
        let backwards = model::builder(tree.iter().rev());
        let forwards = model::builder(tree.iter());
        prop_assert!(image_bytes(forwards) == image_bytes(backwards));
    }
}

#[test]
fn an_empty_image_has_a_root() {
    let bytes = image_bytes(Builder::new());
    let tree = reading::tree(&Image::new(&bytes).unwrap());
    assert_eq!(tree, ModelTree::from([(b"/".to_vec(), (Attributes::root(0o755), model::ModelNode::Directory))]));
}

#[test]
fn large_directories_are_searched_across_blocks() {
    let mut builder = Builder::new();
    for number in 0..20_000 {
        builder.file(format!("/many/{number:x}"), Attributes::root(0o644), format!("{number}")).unwrap();
    }
    let bytes = image_bytes(builder);
    let image = Image::new(&bytes).unwrap();
    for number in 0..20_000 {
        let inode = image.resolve(image.root(), format!("many/{number:x}").as_bytes(), LastLink::Follow).unwrap();
        assert_eq!(reading::data(&image, &inode), format!("{number}").as_bytes());
    }
    assert_eq!(image.resolve(image.root(), b"many/4e20", LastLink::Follow), Err(Error::NotFound));
}

#[test]
fn deep_trees_need_no_deep_stack() {
    let mut builder = Builder::new();
    let path = "d/".repeat(100_000) + "file";
    builder.file(&path, Attributes::root(0o644), "deep").unwrap();
    let bytes = image_bytes(builder);
    let image = Image::new(&bytes).unwrap();
    let mut here = image.root();
    for _ in 0..100_000 {
        here = image.resolve(here, b"d", LastLink::Follow).unwrap().nid;
    }
    assert_eq!(reading::data(&image, &image.resolve(here, b"file", LastLink::Follow).unwrap()), b"deep");
}

#[test]
fn names_that_cannot_be_are_refused() {
    let attributes = Attributes::root(0o644);
    let mut builder = Builder::new();
    builder.file("/file", attributes, "").unwrap();
    let long = "n".repeat(256);
    for (path, message) in [
        ("", "cannot add '' to the image: the path is empty"),
        ("/", "cannot add '/' to the image: the root must be a directory"),
        ("//a", "cannot add '//a' to the image: a name is empty"),
        ("a/", "cannot add 'a/' to the image: a name is empty"),
        ("a/../b", "cannot add 'a/../b' to the image: '.' and '..' cannot be names"),
        ("./a", "cannot add './a' to the image: '.' and '..' cannot be names"),
        ("a\0b", "cannot add 'a\\x00b' to the image: a name has a NUL"),
        (&long, &format!("cannot add '{long}' to the image: a name has more than 255 bytes")),
        ("file", "cannot add 'file' to the image: it exists already"),
        ("/file/x", "cannot add '/file/x' to the image: 'file' is not a directory"),
        ("/file/x/y", "cannot add '/file/x/y' to the image: 'file' is not a directory"),
    ] {
        assert_eq!(builder.file(path, attributes, "").unwrap_err().to_string(), message);
    }
    assert!(builder.directory("file", attributes).is_err());
    for target in ["", "a\0b", &"t".repeat(4096)] {
        let message = "cannot add the link 'link' to the image: its target must have 1 to 4095 bytes and no NUL";
        assert_eq!(builder.symlink("link", attributes, target).unwrap_err().to_string(), message);
    }
    // None of them left anything behind.
    let bytes = image_bytes(builder);
    assert_eq!(reading::tree(&Image::new(&bytes).unwrap()).len(), 2);
}
