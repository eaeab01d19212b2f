// SPDX-License-Identifier: MIT OR Apache-2.0
//! Kept images whose files changed in place: what is seen is what the host has when it is first looked at.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use pando_image::{BlockError, Builder, Cache, Error, Image, LaterVersions, Readable};

use crate::host::walk;

/// The image of a directory, as a cell of this host is to see it.
fn builder(directory: &Path) -> Builder {
    let mut builder = Builder::new();
    builder.keep_identities();
    builder.allow_revisions();
    builder.host("/", directory, &walk(Readable::ByCaller)).unwrap();
    builder
}

fn text(image: &Image, name: &str) -> Result<String, Error> {
    Ok(image.file_text(name.as_bytes())?.expect("it is there, and text"))
}

#[test]
fn files_that_changed_in_place_are_shown_as_they_are() {
    let above = tempfile::tempdir().unwrap();
    let tree = above.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let write = |name: &str, content: &str| fs::write(tree.join(name), content).unwrap();
    (0..300).for_each(|number| write(&format!("f{number}"), &number.to_string()));
    write("empty", "");
    fs::hard_link(tree.join("f9"), tree.join("also")).unwrap();
    let cache = Cache::new(above.path().join("kept"));
    let fresh = builder(&tree).image().unwrap();
    cache.store(&fresh, 0).unwrap();
    assert_eq!(cache.open().unwrap().image.fingerprint(), fresh.fingerprint(), "a template is known again by that");

    let long = "long\n".repeat(2000);
    write("f7", &long);
    write("f8", "");
    write("f9", "both names");
    write("empty", "not any more");
    fs::set_permissions(tree.join("f10"), Permissions::from_mode(0o600)).unwrap();
    let kept = cache.open().unwrap();
    assert!(!kept.is_outdated(), "no name came or went");
    for (name, content) in [("f7", &long[..]), ("f8", ""), ("f9", "both names"), ("also", "both names"), ("empty", "not any more")] {
        assert_eq!(text(&kept.image, name).unwrap(), content, "{name}");
    }
    for name in ["f0", "f10", "f299"] {
        assert_eq!(text(&kept.image, name).unwrap(), name[1..], "{name}");
    }
    // A file that was read keeps its version, or is an error if it changes. The next start sees the new version.
    write("f7", "once more");
    assert!(matches!(text(&kept.image, "f7"), Err(Error::Changed(_))));
    assert_eq!(text(&cache.open().unwrap().image, "f7").unwrap(), "once more");
}

#[test]
fn a_tree_that_just_changed_is_not_lasting() {
    let above = tempfile::tempdir().unwrap();
    fs::write(above.path().join("new"), "").unwrap();
    assert!(!builder(above.path()).is_lasting(), "another name could come in the same tick of the clock");
    assert!(builder(Path::new("/usr/share")).count() > 1);
}

#[test]
fn a_directory_that_got_other_permissions_makes_a_kept_image_outdated() {
    let above = tempfile::tempdir().unwrap();
    let tree = above.path().join("tree");
    fs::create_dir_all(tree.join("inner")).unwrap();
    let cache = Cache::new(above.path().join("kept"));
    cache.store(&builder(&tree).image().unwrap(), 0).unwrap();
    assert!(!cache.open().unwrap().is_outdated());
    // The change time moves with the clock's tick.
    let is_noticed = || {
        fs::set_permissions(tree.join("inner"), Permissions::from_mode(0o711)).unwrap();
        cache.open().unwrap().is_outdated()
    };
    assert!((0..1_000_000).any(|_| is_noticed()));
}

#[test]
fn a_link_in_the_place_of_a_directory_leads_nowhere() {
    let above = tempfile::tempdir().unwrap();
    let (tree, elsewhere) = (above.path().join("tree"), above.path().join("elsewhere"));
    for (directory, content) in [(tree.join("inner"), "shown"), (elsewhere.clone(), "a secret of the host")] {
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join("file"), content).unwrap();
    }
    let cache = Cache::new(above.path().join("kept"));
    cache.store(&builder(&tree).image().unwrap(), 0).unwrap();
    let kept = cache.open().unwrap();
    // After the start, and before the cell looks at the file.
    fs::rename(tree.join("inner"), tree.join("moved")).unwrap();
    symlink(&elsewhere, tree.join("inner")).unwrap();
    assert!(matches!(text(&kept.image, "inner/file"), Err(Error::Changed(_))));
}

#[test]
fn an_image_that_is_opened_again_knows_later_versions_by_the_same_blocks() {
    let above = tempfile::tempdir().unwrap();
    let tree = above.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let write = |name: &str, content: &str| fs::write(tree.join(name), content).unwrap();
    (0..300).for_each(|number| write(&format!("f{number}"), &number.to_string()));
    let cache = Cache::new(above.path().join("kept"));
    cache.store(&builder(&tree).image().unwrap(), 0).unwrap();
    let first = cache.open().unwrap().image;
    for name in ["f7", "f299"] {
        write(name, name);
    }
    // The order in which the inodes are read decides.
    assert_eq!((text(&first, "f299").unwrap(), text(&first, "f7").unwrap()), ("f299".into(), "f7".into()));
    let used = first.read_files();
    let later = first.later_versions(&used).unwrap();
    assert_eq!(later.readable.len(), 2);
    let mut again = cache.open().unwrap().image;
    again.restore(&used, &later).unwrap();
    for (block, ..) in &later.readable {
        let (mut before, mut after) = (vec![0; 4096], vec![1; 4096]);
        first.read_blocks((*block).into(), &mut before).unwrap();
        again.read_blocks((*block).into(), &mut after).unwrap();
        assert!(before == after && before[0] == b'f');
    }
    assert_eq!(again.later_versions(&used).unwrap(), later);
    // A file that changes once more gets other blocks, and one that the memory depends on is not accepted.
    assert!(again.changed_files(&used).unwrap().is_empty());
    write("f7", "once more");
    let changed: Vec<_> = again.changed_files(&used).unwrap().into_values().collect();
    assert_eq!(changed, [tree.join("f7")]);
    assert!(matches!(text(&again, "f7"), Err(Error::Changed(_))), "the memory may know the version before");
    assert!(matches!(cache.open().unwrap().image.restore(&used, &later), Err(BlockError::Changed(_))));
    let none = BTreeSet::new();
    let mut third = cache.open().unwrap().image;
    third.restore(&none, &later).unwrap();
    assert_eq!(text(&third, "f7").unwrap(), "once more");
    // The version that is gone is not recorded any more, and its block never becomes another file's.
    let rest = third.later_versions(&none).unwrap();
    assert_eq!((rest.readable.len(), rest.allocated_blocks), (2, 3));
    assert_eq!(third.later_versions(&used).unwrap().readable.len(), 3);
    write("f9", "f9");
    let mut fourth = cache.open().unwrap().image;
    fourth.restore(&none, &rest).unwrap();
    assert_eq!((text(&fourth, "f9").unwrap(), text(&fourth, "f7").unwrap()), ("f9".into(), "once more".into()));
    let firsts = |versions: &LaterVersions| versions.readable.iter().map(|version| version.0).collect::<BTreeSet<_>>();
    let gone: Vec<u32> = firsts(&later).difference(&firsts(&rest)).copied().collect();
    assert_eq!(gone.len(), 1);
    assert!(matches!(fourth.read_blocks(gone[0].into(), &mut [0; 4096]), Err(BlockError::NoFile { .. })));
    // Without the records none of their blocks is there, and none is zero.
    let fresh = cache.open().unwrap().image;
    for (block, ..) in &later.readable {
        assert!(matches!(fresh.read_blocks((*block).into(), &mut [0; 4096]), Err(BlockError::NoFile { .. })));
    }
    // Records that no image has made.
    let mut crafted = later.clone();
    crafted.readable.reverse();
    for crafted in [crafted, LaterVersions { allocated_blocks: 1, ..later.clone() }, LaterVersions { allocated_blocks: u32::MAX, ..later }]
    {
        assert!(cache.open().unwrap().image.restore(&none, &crafted).is_err());
    }
    assert!(cache.open().unwrap().image.restore(&BTreeSet::from([u32::MAX]), &LaterVersions::default()).is_err());
}

#[test]
fn an_image_is_stale_only_if_it_would_show_something_else() {
    let above = tempfile::tempdir().unwrap();
    let tree = above.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let write = |name: &str, content: &str| fs::write(tree.join(name), content).unwrap();
    (0..300).for_each(|number| write(&format!("f{number}"), &number.to_string()));
    let cache = Cache::new(above.path().join("kept"));
    cache.store(&builder(&tree).image().unwrap(), 0).unwrap();
    let mut image = cache.open().unwrap().image;
    image.restore(&BTreeSet::new(), &LaterVersions::default()).unwrap();
    fs::remove_file(tree.join("f7")).unwrap();
    // However often it is opened, the name is there, and the content is gone.
    assert!(text(&image, "f7").is_err() && !image.is_stale());
    assert_eq!(text(&image, "f8").unwrap(), "8");
    write("f8", "later");
    assert!(text(&image, "f8").is_err() && image.is_stale());
}

#[test]
fn names_of_one_file_do_not_show_anothers_content() {
    let above = tempfile::tempdir().unwrap();
    let tree = above.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "both names").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    fs::write(tree.join("single"), "single").unwrap();
    let cache = Cache::new(above.path().join("kept"));
    cache.store(&builder(&tree).image().unwrap(), 0).unwrap();
    // As editors and `git` do it.
    for name in ["a", "b", "single"] {
        fs::write(tree.join("new"), format!("another file for {name}")).unwrap();
        fs::rename(tree.join("new"), tree.join(name)).unwrap();
    }
    let kept = cache.open().unwrap().image;
    assert_eq!(text(&kept, "single").unwrap(), "another file for single");
    for name in ["a", "b"] {
        assert!(matches!(text(&kept, name), Err(Error::Changed(_))), "{name}: one name says nothing about the other");
    }
    assert_eq!(kept.later_versions(&BTreeSet::new()).unwrap().readable.len(), 1);
    // An image that is opened again would not show it either.
    let mut restored = cache.open().unwrap().image;
    restored.restore(&BTreeSet::new(), &LaterVersions::default()).unwrap();
    assert!(matches!(text(&restored, "b"), Err(Error::Changed(_))) && !restored.is_stale());
}

#[test]
fn other_attributes_need_no_blocks() {
    let above = tempfile::tempdir().unwrap();
    let tree = above.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    let cache = Cache::new(above.path().join("kept"));
    cache.store(&builder(&tree).image().unwrap(), 0).unwrap();
    fs::set_permissions(tree.join("file"), Permissions::from_mode(0o755)).unwrap();
    fs::hard_link(tree.join("file"), above.path().join("outside")).unwrap();
    let kept = cache.open().unwrap().image;
    assert_eq!(text(&kept, "file").unwrap(), "content");
    assert_eq!(kept.later_versions(&BTreeSet::new()).unwrap(), LaterVersions::default());
}

#[test]
fn added_files_do_not_depend_on_changes_beside_them() {
    let above = tempfile::tempdir().unwrap();
    let tree = above.path().join("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "content").unwrap();
    let cache = Cache::new(above.path().join("kept"));
    let mut fresh = builder(&tree).image().unwrap();
    cache.store(&fresh, 0).unwrap();
    fresh.add_directory(b"/mount", pando_image::Attributes::root(0o755)).unwrap();
    fs::write(tree.join("file"), "a newer text").unwrap();
    let mut kept = cache.open().unwrap().image;
    kept.add_directory(b"/mount", pando_image::Attributes::root(0o755)).unwrap();
    assert_eq!(kept.fingerprint(), fresh.fingerprint());
    assert_eq!(text(&kept, "file").unwrap(), "a newer text");
}

#[test]
fn content_that_is_stored_elsewhere_does_not_depend_on_the_host() {
    let above = tempfile::tempdir().unwrap();
    let tree = above.path().join("tree");
    fs::create_dir(&tree).unwrap();
    let content = "stored\n".repeat(1000);
    fs::write(tree.join("file"), &content).unwrap();
    let cache = Cache::new(above.path().join("kept"));
    cache.store(&builder(&tree).image().unwrap(), 0).unwrap();
    let first = cache.open().unwrap().image;
    assert_eq!(text(&first, "file").unwrap(), content);
    let used = first.read_files();
    let block = *used.first().unwrap();
    let file = first.file_of(block).unwrap().expect("the image has it");
    assert_eq!((file.path, file.size, file.permissions & 0o400), (tree.join("file"), content.len() as u64, 0o400));
    for change in ["a newer text", ""] {
        fs::write(tree.join("file"), change).unwrap();
        let mut again = cache.open().unwrap().image;
        again.set_contents([(block, content.clone().into_bytes().into())].into());
        again.restore(&used, &LaterVersions::default()).unwrap();
        assert_eq!(text(&again, "file").unwrap(), content);
        assert!(again.changed_files(&used).unwrap().is_empty());
    }
    // Of another size, or of no file.
    let mut crafted = cache.open().unwrap().image;
    crafted.set_contents([(block, content.as_bytes()[1..].into()), (u32::MAX, content.as_bytes().into())].into());
    assert!(matches!(crafted.restore(&used, &LaterVersions::default()), Err(BlockError::Changed(_))));
}
