// SPDX-License-Identifier: MIT OR Apache-2.0
//! The model of a file tree, and generators of such trees.

use std::collections::BTreeMap;

use pando_image::{Attributes, Builder, Timestamp};
use proptest::{prelude::*, test_runner::FileFailurePersistence};

/// The file at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelNode {
    Directory,
    File(Vec<u8>),
    Symlink(Vec<u8>),
    /// A device, FIFO or socket: the upper four bits of its mode.
    Special(u16),
}

/// A whole tree by absolute path; the root is `/`.
pub(crate) type ModelTree = BTreeMap<Vec<u8>, (Attributes, ModelNode)>;

/// One call of the builder, which may fail.
pub(crate) type Addition = (Vec<Vec<u8>>, Attributes, ModelNode);

/// This many cases; failing seeds are stored beside the test.
pub(crate) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))), ..Default::default() }
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    // Few different names, so that paths collide; unusual ones, to test sorting and limits.
    let odd = [&b"!"[..], b"-x", b".hidden", b"...", b"with space", b"\xff\xfe", "größe".as_bytes(), b"line\nbreak", &[b'n'; 255]];
    prop_oneof![
        4 => "[a-d]{1,2}".prop_map(String::into_bytes),
        1 => prop::sample::select(odd.map(<[u8]>::to_vec).to_vec()),
        1 => prop::collection::vec(prop_oneof![1..b'/', b'/' + 1..=255], 200..=255),
    ]
    .prop_filter("'.' and '..' are no names", |name| !matches!(name.as_slice(), b"." | b".."))
}

fn attributes() -> impl Strategy<Value = Attributes> {
    // The last uid and gid mean "none" to Linux.
    (0..=0o7777u16, 0..u32::MAX, 0..u32::MAX, -(1i64 << 40)..1 << 40, 0..1_000_000_000u32).prop_map(
        |(permissions, uid, gid, seconds, nanoseconds)| Attributes { permissions, uid, gid, modified: Timestamp { seconds, nanoseconds } },
    )
}

fn node() -> impl Strategy<Value = ModelNode> {
    let size = prop_oneof![Just(0usize), 1..200usize, 4094..4099usize, 8190..20_000usize];
    let data =
        (size, any::<u8>()).prop_map(|(size, seed)| (0..size).map(|at| (at as u8).wrapping_mul(31) ^ (at >> 8) as u8 ^ seed).collect());
    let bytes = |size: std::ops::RangeInclusive<usize>| prop::collection::vec(1..=255u8, size);
    let target = prop_oneof![9 => bytes(1..=100), 1 => bytes(4090..=4095)];
    prop_oneof![Just(ModelNode::Directory), data.prop_map(ModelNode::File), target.prop_map(ModelNode::Symlink)]
}

/// Additions to a tree, some of which conflict.
pub(crate) fn additions() -> impl Strategy<Value = Vec<Addition>> {
    prop::collection::vec((prop::collection::vec(name(), 1..5), attributes(), node()), 0..60)
}

/// Adds all possible additions to a builder and to the model, which must agree on which are possible.
pub(crate) fn build(additions: &[Addition]) -> (Builder, ModelTree) {
    let mut builder = Builder::new();
    let implied = || (Attributes::root(0o755), ModelNode::Directory);
    let mut tree = ModelTree::from([(b"/".to_vec(), implied())]);
    let mut explicit = Vec::new();
    for (names, attributes, node) in additions {
        let path = [b"/", names.join(&b'/').as_slice()].concat();
        let parents: Vec<Vec<u8>> = (1..names.len()).map(|depth| [b"/", names[..depth].join(&b'/').as_slice()].concat()).collect();
        let ways_are_clear = parents.iter().all(|parent| tree.get(parent).is_none_or(|(_, node)| *node == ModelNode::Directory));
        let place_is_free = match tree.get(&path) {
            None => true,
            Some((_, ModelNode::Directory)) => *node == ModelNode::Directory && !explicit.contains(&path),
            Some(_) => false,
        };
        let outcome = add(&mut builder, &path, *attributes, node);
        assert_eq!(outcome.is_ok(), ways_are_clear && place_is_free, "{outcome:?}");
        if outcome.is_ok() {
            for parent in parents {
                tree.entry(parent).or_insert_with(implied);
            }
            tree.insert(path.clone(), (*attributes, node.clone()));
            explicit.push(path);
        }
    }
    (builder, tree)
}

/// Makes a builder from a whole tree.
pub(crate) fn builder<'a>(tree: impl Iterator<Item = (&'a Vec<u8>, &'a (Attributes, ModelNode))>) -> Builder {
    let mut builder = Builder::new();
    for (path, (attributes, node)) in tree {
        add(&mut builder, path, *attributes, node).unwrap();
    }
    builder
}

fn add(builder: &mut Builder, path: &[u8], attributes: Attributes, node: &ModelNode) -> Result<(), pando_image::Error> {
    match node {
        ModelNode::Directory => builder.directory(path, attributes),
        ModelNode::File(data) => builder.file(path, attributes, data.clone()),
        ModelNode::Symlink(target) => builder.symlink(path, attributes, target),
        ModelNode::Special(_) => unreachable!("the generator makes none"),
    }
}
