// SPDX-License-Identifier: MIT OR Apache-2.0
//! Tests of the removal of kept images, and of the bound of what is recorded.

use super::{DIRECTORY, LOCK, add_files, images_to_search, lock_image, remove_unused};
use crate::environment::HostEnvironment;
use crate::template::TemplateStore;
use pando_store::format::{MAGIC, VERSION};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

fn name(number: u64) -> String {
    format!("{number:016x}-{number:016x}.image")
}

/// A directory of templates with three images, and their names.
fn images() -> (TempDir, BTreeSet<String>) {
    let templates = tempfile::tempdir().expect("there is room");
    let names = add_images(templates.path());
    (templates, names)
}

/// Adds three images to a directory of templates. Returns their names.
fn add_images(templates: &Path) -> BTreeSet<String> {
    let directory = templates.join(DIRECTORY);
    fs::create_dir_all(&directory).expect("there is room");
    let names: BTreeSet<String> = (0..3).map(name).collect();
    for name in &names {
        let image = directory.join(name);
        fs::write(&image, name).expect("there is room");
        // Images that others may write are not opened.
        fs::set_permissions(&image, Permissions::from_mode(0o600)).expect("it is ours");
    }
    names
}

/// The images that are there.
fn stored(templates: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(templates.join(DIRECTORY)).expect("it is there");
    let names = entries.map(|entry| entry.expect("it is there").file_name().into_string().expect("it is text"));
    names.filter(|name| name != LOCK).collect()
}

#[test]
fn images_stay_that_are_needed_or_used_or_of_which_that_is_unknown() {
    let (templates, names) = images();
    let templates = templates.path();
    remove_unused(templates, names.clone(), |_| false);
    assert_eq!(stored(templates), names);
    let used = lock_image(&templates.join(DIRECTORY).join(name(1))).expect("it is there");
    let is_needed = |unused: &mut BTreeSet<String>| {
        unused.remove(&name(0));
        true
    };
    remove_unused(templates, names.clone(), is_needed);
    assert_eq!(stored(templates), BTreeSet::from([name(0), name(1)]));
    drop(used);
    remove_unused(templates, names, is_needed);
    assert_eq!(stored(templates), BTreeSet::from([name(0)]));
}

#[test]
fn an_image_stays_if_a_template_that_needs_it_was_stored_meanwhile() {
    let (templates, names) = images();
    let calls = Cell::new(0);
    remove_unused(templates.path(), names.clone(), |unused| {
        calls.set(calls.get() + 1);
        if calls.get() > 1 {
            unused.clear();
        }
        true
    });
    assert_eq!((calls.get(), stored(templates.path())), (2, names));
}

#[test]
fn all_images_are_examined_from_time_to_time() {
    let (templates, names) = images();
    let templates = templates.path();
    assert!(images_to_search(templates).is_empty());
    let lock = File::create(templates.join(DIRECTORY).join(LOCK)).expect("there is room");
    assert!(images_to_search(templates).is_empty());
    lock.set_modified(SystemTime::now() - Duration::from_secs(7200)).expect("it is ours");
    assert!(images_to_search(templates).is_superset(&names));
    assert!(images_to_search(templates).is_empty());
}

#[test]
fn images_stay_as_long_as_a_template_cannot_be_used_only_at_present() {
    let data = tempfile::tempdir().expect("there is room");
    let environment = HostEnvironment { data: Some(data.path().into()), ..HostEnvironment::default() };
    let store = TemplateStore::of(&environment).expect("it has a directory");
    let names = add_images(store.directory());
    let lock = File::create(store.directory().join(DIRECTORY).join(LOCK)).expect("there is room");
    let search = || {
        lock.set_modified(SystemTime::now() - Duration::from_secs(7200)).expect("it is ours");
        store.remove_leftover_views();
        stored(store.directory())
    };
    let template = store.file(&"session".parse().expect("it is a name"));
    // A later Pando beside this one has paused it.
    let mut later = [0; 64];
    later[..16].copy_from_slice(MAGIC);
    later[16..20].copy_from_slice(&(VERSION + 1).to_le_bytes());
    fs::write(&template, later).expect("there is room");
    assert_eq!(search(), names);
    // No Pando can ever use a file that is damaged, or no template.
    later[16..20].copy_from_slice(&VERSION.to_le_bytes());
    fs::write(&template, later).expect("there is room");
    assert!(search().is_empty());
    add_images(store.directory());
    fs::write(&template, "no template").expect("there is room");
    assert!(search().is_empty());
}

#[test]
fn files_are_counted_once_and_those_without_room_are_reported() {
    let (mut used, mut room) = (BTreeSet::from([1, 2]), 3);
    assert!(add_files(&mut used, BTreeSet::from([1, 2, 3, 4]), &mut room));
    assert_eq!((&used, room), (&BTreeSet::from([1, 2, 3, 4]), 1));
    assert!(!add_files(&mut used, BTreeSet::from([5, 6]), &mut room));
    assert_eq!((used.len(), room), (5, 0));
    assert!(add_files(&mut used, BTreeSet::from([1, 5]), &mut room), "they need no more room");
}
