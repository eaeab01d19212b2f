// SPDX-License-Identifier: MIT OR Apache-2.0
//! Archives and layouts in all their forms, damaged and hostile ones among them, and the store.

mod archives;
mod pull;
mod server;

use crate::load::LoadProgress;
use crate::scratch::Scratch;
use crate::{ConfigChange, Digest, Error, ExposedPort, ImageName, ImageStore, LoadedImage, StopSignal, Users};
use archives::{Fixture, Layer, archive, docker_archive, gzip, layout, zstd};
use serde_json::json;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, symlink};
use tempfile::TempDir;

/// A store in a directory of its own.
struct Stage {
    directory: TempDir,
    store: ImageStore,
}

impl Stage {
    fn new() -> Stage {
        let directory = tempfile::tempdir().expect("there is room");
        let store = ImageStore::new(directory.path().join("store"));
        Stage { directory, store }
    }

    /// Loads an archive.
    fn load(&self, name: &str, archive: &[u8]) -> Result<Vec<LoadedImage>, Error> {
        let path = self.directory.path().join(name);
        fs::write(&path, archive).expect("there is room");
        self.store.load(&path, None, &mut |_| ())
    }

    #[track_caller]
    fn refused(&self, archive: &[u8], expected: &str) {
        let error = self.load("hostile.tar", archive).expect_err("it is hostile").to_string();
        assert!(error.contains(expected), "{error}");
        assert_eq!(self.files("layers"), 0, "nothing is left of it");
        assert!(self.store.all().expect("it can be read").is_empty());
    }

    fn files(&self, directory: &str) -> usize {
        fs::read_dir(self.store.directory().join(directory)).map_or(0, Iterator::count)
    }
}

/// The files of two layers.
fn two_layers() -> Vec<Layer> {
    vec![Layer::of(&[("bin/sh", "a shell"), ("etc/old", "x")]), Layer::of(&[("etc/.wh.old", ""), ("etc/new", "y")])]
}

#[test]
fn archives_of_docker_and_layouts_of_oci_give_the_same_image_in_every_compression() {
    let fixture = Fixture::new(two_layers());
    let docker = docker_archive(&fixture, &["app:v1"]);
    let oci = archive(&layout(&fixture, Some("example.org/team/app:v1")));
    let archives = [
        ("docker.tar", docker.clone(), "app:v1"),
        ("docker.tar.gz", gzip(&docker), "app:v1"),
        ("docker.tar.zst", zstd(&docker), "app:v1"),
        ("oci.tar", oci.clone(), "example.org/team/app:v1"),
        ("oci.tar.gz", gzip(&oci), "example.org/team/app:v1"),
        ("My App.v2.tar", archive(&layout(&fixture, Some("edge"))), "localhost/myapp:edge"),
        ("gzip.tar", archive(&layout(&fixture.compressed(gzip, "+gzip"), None)), ""),
        ("zstd.tar", archive(&layout(&fixture.compressed(zstd, "+zstd"), None)), ""),
    ];
    for (file, bytes, name) in archives {
        let stage = Stage::new();
        let loaded = stage.load(file, &bytes).unwrap_or_else(|error| panic!("{file}: {error}"));
        let names: Vec<String> = loaded[0].names.iter().map(ImageName::familiar).collect();
        assert_eq!((loaded[0].id, names.join(",")), (Digest::of(&fixture.config), name.to_string()), "{file}");
        let image = stage.store.open(&loaded[0].id.to_string()).expect("it was just loaded");
        assert_eq!(image.layers.len(), 2);
        assert!(image.layers.iter().all(|layer| layer.exists()));
    }
}

#[test]
fn a_layout_in_a_directory_is_loaded_and_its_links_are_not_followed() {
    let fixture = Fixture::new(two_layers());
    let stage = Stage::new();
    let place = stage.directory.path().join("app");
    for (name, content) in layout(&fixture, Some("app:v1")) {
        let path = place.join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("there is room");
        fs::write(path, content).expect("there is room");
    }
    assert_eq!(stage.store.load(&place, None, &mut |_| ()).expect("it is valid")[0].id, Digest::of(&fixture.config));
    let other = Stage::new();
    let (index, outside) = (place.join("index.json"), stage.directory.path().join("outside.json"));
    fs::rename(&index, &outside).expect("it can be moved");
    symlink(&outside, &index).expect("a link can be made");
    assert!(other.store.load(&place, None, &mut |_| ()).is_err());
}

#[test]
fn layers_are_stored_once_and_removed_with_their_last_image() {
    let common = Layer::of(&[("bin/sh", "a shell")]);
    let (one, other) = (Fixture::new(vec![common.clone()]), Fixture::new(vec![common, Layer::of(&[("b", "b")])]));
    let stage = Stage::new();
    let mut seen = 0;
    stage.load("one", &docker_archive(&one, &["one", "same:v1"])).expect("it is valid");
    let path = stage.directory.path().join("other");
    fs::write(&path, docker_archive(&other, &["other"])).expect("there is room");
    stage.store.load(&path, None, &mut |LoadProgress { layer, layers, .. }| seen = layer * 10 + layers).expect("it is valid");
    assert_eq!((stage.files("layers"), seen), (2, 22), "only the second layer is new");
    let none = Users::new();
    // The name, then the image with its last name.
    assert!(matches!(stage.store.remove(&one.id(), &none, false), Err(Error::SeveralNames { .. })));
    assert_eq!(stage.store.remove("same:v1", &none, false).expect("it is there").names, ["same:v1"]);
    let removed = stage.store.remove("one", &none, false).expect("it is there");
    assert_eq!((removed.images.len(), removed.layers.len(), stage.files("layers")), (1, 0, 2));
    // One that a template uses, one that a cell runs.
    let users = Users::from([(Digest::of(&other.config), "template `t`".into())]);
    assert!(matches!(stage.store.remove("other", &users, false), Err(Error::InUse { .. })));
    assert_eq!(stage.store.prune(&users, true).expect("it works").images, []);
    let open = stage.store.open("other").expect("it is there");
    assert!(matches!(stage.store.remove("other", &none, true), Err(Error::InUse { .. })));
    // The same image again changes neither the lock nor the layers that the cell has open.
    let inodes = || open.layers.iter().map(|layer| fs::metadata(layer).expect("it is there").ino()).collect::<Vec<_>>();
    let before = inodes();
    stage.store.load(&path, None, &mut |_| ()).expect("it is valid");
    assert!(matches!(stage.store.remove("other", &none, true), Err(Error::InUse { .. })));
    assert_eq!(inodes(), before);
    assert_eq!(stage.store.prune(&none, true).expect("it works").images, []);
    drop(open);
    assert_eq!(stage.store.remove("other", &users, true).expect("it is forced").layers.len(), 2);
    assert_eq!((stage.files("layers"), stage.files("images")), (0, 0));
    assert!(matches!(stage.store.find("other"), Err(Error::Missing(_))));
}

#[test]
fn a_name_moves_to_the_newest_image_and_prune_removes_the_one_without() {
    let (old, new) = (Fixture::new(vec![Layer::of(&[("a", "old")])]), Fixture::new(vec![Layer::of(&[("a", "new")])]));
    let stage = Stage::new();
    for fixture in [&old, &new] {
        stage.load("app", &docker_archive(fixture, &["app"])).expect("it is valid");
    }
    assert_eq!(stage.store.find("app").expect("it is there").id, Digest::of(&new.config));
    assert_eq!(stage.store.find(&old.id()[..12]).expect("it is there").names, []);
    fs::write(stage.store.directory().join("layers/.pando-left"), "by a killed process").expect("there is room");
    let removed = stage.store.prune(&Users::new(), false).expect("it works");
    assert_eq!((removed.images, removed.layers.len(), stage.files("layers")), (vec![Digest::of(&old.config)], 1, 1));
    stage.store.tag("app", &"example.org/app:v2".parse().expect("it is a name")).expect("it is there");
    assert_eq!(stage.store.find("example.org/app:v2").expect("it is there").names.len(), 2);
}

#[test]
fn other_files_are_refused_with_what_was_found() {
    let stage = Stage::new();
    let root = archive(&[("./etc/passwd".into(), b"root".to_vec()), ("./bin/sh".into(), Vec::new())]);
    let found: [(&[u8], &str); 9] = [
        (b"", "it is empty"),
        (b"\x7fELF and more", "a program (ELF)"),
        (b"PK\x03\x04 and more", "a zip archive"),
        (b"{\"schemaVersion\": 2}", "it is JSON"),
        (b"only a text, nothing more", "no tar archive"),
        (b"\xfd7zXZ\0 and more", "compressed with xz"),
        (b"BZh9 and more", "compressed with bzip2"),
        (&root, "neither manifest.json nor index.json, but bin, etc"),
        (&archive(&[("repositories".into(), b"{}".to_vec())]), "docker before 1.10"),
    ];
    for (bytes, expected) in found {
        stage.refused(bytes, expected);
    }
    let missing = stage.store.load(&stage.directory.path().join("missing"), None, &mut |_| ()).expect_err("it is missing");
    assert!(missing.to_string().contains("no such file"), "{missing}");
}

#[test]
fn content_must_have_its_digest() {
    let fixture = Fixture::new(two_layers());
    let stage = Stage::new();
    // A layer whose archive is another one.
    let mut other = Fixture::new(two_layers());
    other.layers[1] = Layer::of(&[("etc/new", "evil")]);
    stage.refused(&docker_archive(&other, &["app"])[..], "has the digest");
    // A blob of a layout that is not what its name says, at every level.
    let files = layout(&fixture, Some("app:v1"));
    for (number, (name, content)) in files.iter().enumerate().filter(|(_, (name, _))| name.starts_with("blobs/")) {
        let mut files = files.clone();
        files[number].1 = [content, &b" "[..]].concat();
        let error = stage.load("evil.tar", &archive(&files)).expect_err(name).to_string();
        assert!(error.contains("has the digest") || error.contains("bytes instead of"), "{name}: {error}");
        assert_eq!(stage.store.all().expect("it can be read").len(), 0);
    }
    // The configuration of docker's archive is named by its digest.
    let mut files = archives::docker_files(&fixture, &["app"]);
    files[0].1.push(b' ');
    assert!(matches!(stage.load("evil.tar", &archive(&files)), Err(Error::Mismatch { .. })));
}

#[test]
fn truncated_archives_are_refused() {
    let fixture = Fixture::new(two_layers());
    for whole in [docker_archive(&fixture, &["app"]), gzip(&docker_archive(&fixture, &["app"])), zstd(&docker_archive(&fixture, &["app"]))]
    {
        for part in 1..16 {
            let stage = Stage::new();
            // The last two records, which are zero, have no content.
            let length = (whole.len() - 1024.min(whole.len() / 4)) * part / 17;
            if let Ok(loaded) = stage.load("cut.tar", &whole[..length]) {
                panic!("{length} of {} bytes gave {loaded:?}", whole.len());
            }
            assert!(stage.store.all().expect("it can be read").is_empty());
        }
    }
    // A layer that is cut within its compressed stream.
    let cut = fixture.compressed(|bytes| gzip(bytes)[..40].to_vec(), "+gzip");
    Stage::new().refused(&archive(&layout(&cut, None)), "");
}

#[test]
fn bombs_are_stopped_and_zeros_take_no_room() {
    let stage = Stage::new();
    let mut scratch = stage.store.scratch().expect("there is room");
    let zeros = |length: u64| std::io::repeat(0).take(length);
    let file = scratch.copy("zeros", &mut zeros(1 << 30), &mut |_| ()).expect("there is room");
    let metadata = file.metadata().expect("it is open");
    assert_eq!(metadata.len(), 1 << 30);
    assert!(std::os::unix::fs::MetadataExt::blocks(&metadata) < 1000, "zeros are holes");
    scratch.max = 1 << 20;
    let bomb = gzip(&vec![0; 1 << 22]);
    assert!(bomb.len() < 100_000);
    let mut stream = crate::compression::decompressed(&bomb[..]).expect("it is gzip");
    let error = scratch.copy("bomb", &mut stream, &mut |_| ()).expect_err("it is a bomb").to_string();
    assert!(error.contains("more than 1048576 bytes"), "{error}");
    assert_eq!(stage.files("layers"), 0);
}

#[test]
fn names_in_archives_lead_nowhere_else() {
    let fixture = Fixture::new(two_layers());
    let stage = Stage::new();
    fs::write(stage.directory.path().join("secret"), "secret").expect("there is room");
    let manifest = |config: &str, layer: &str| json!([{ "Config": config, "RepoTags": null, "Layers": [layer] }]).to_string().into_bytes();
    for name in ["../secret", "/etc/passwd", "x/../../secret", ""] {
        stage.refused(&archive(&[("manifest.json".into(), manifest(name, "l"))]), "is missing");
    }
    // A link that leads to itself, as docker's links between layers could.
    let mut links = archives::Archive::new();
    links.file("manifest.json", &manifest("a", "l"));
    links.symlink("a", "b");
    links.symlink("b", "../../a");
    stage.refused(&links.bytes(), "too many");
    // A layer that would write outside of the root is refused whole.
    stage.refused(&docker_archive(&Fixture::new(vec![Layer::of(&[("../../etc/cron.d/x", "evil")])]), &["app"]), "outside");
    let mut linked = archives::Archive::new();
    linked.symlink("etc", "/");
    linked.file("etc/passwd", b"evil");
    stage.refused(&docker_archive(&Fixture::new(vec![Layer(linked.bytes())]), &["app"]), "not a directory");
    // In a directory, too.
    let place = stage.directory.path().join("layout");
    fs::create_dir(&place).expect("there is room");
    fs::write(place.join("manifest.json"), manifest("../secret", "l")).expect("there is room");
    let error = stage.store.load(&place, None, &mut |_| ()).expect_err("it is hostile").to_string();
    assert!(error.contains("../secret: "), "{error}");
    let good = docker_archive(&fixture, &["../evil"]);
    assert!(matches!(stage.load("evil.tar", &good), Err(Error::Name { .. })));
}

#[test]
fn docker_links_from_layer_to_layer_are_followed_inside_the_archive() {
    let layer = Layer::of(&[("a", "a")]);
    let fixture = Fixture::new(vec![layer.clone(), layer.clone()]);
    let mut linked = archives::Archive::new();
    linked.file(&format!("{}.json", fixture.id()), &fixture.config);
    linked.file("one/layer.tar", &layer.0);
    linked.symlink("two/layer.tar", "../one/layer.tar");
    let manifest =
        json!([{ "Config": format!("{}.json", fixture.id()), "RepoTags": ["app:v1"], "Layers": ["one/layer.tar", "two/layer.tar"] }]);
    linked.file("manifest.json", manifest.to_string().as_bytes());
    let stage = Stage::new();
    assert_eq!(stage.load("app.tar", &linked.bytes()).expect("it is valid")[0].id, Digest::of(&fixture.config));
    assert_eq!(stage.files("layers"), 1);
}

#[test]
fn an_index_is_resolved_for_this_platform() {
    let (ours, theirs) = (Fixture::new(two_layers()), Fixture::for_platform(two_layers(), "linux", "arm64"));
    let stage = Stage::new();
    let loaded = stage.load("both.tar", &archive(&archives::index(&[("arm64", &theirs), ("amd64", &ours)]))).expect("it is valid");
    assert_eq!((loaded[0].id, &loaded[0].names[0].familiar()[..]), (Digest::of(&ours.config), "app:v1"));
    let other = Stage::new();
    other.refused(&archive(&archives::index(&[("arm64", &theirs), ("s390x", &theirs)])), "it is for linux/arm64, linux/s390x, and Pando");
    other.refused(&docker_archive(&theirs, &["app"]), "it is for linux/arm64");
    other.refused(&docker_archive(&Fixture::for_platform(vec![], "windows", "amd64"), &["app"]), "it is for windows/amd64");
    // An index that contains itself cannot exist; one that is nested deeply can.
    other.refused(&archive(&archives::nested_index(&ours, 40)), "nested too deeply");
}

#[test]
fn documents_of_other_types_and_sizes_are_refused() {
    let fixture = Fixture::new(two_layers());
    let stage = Stage::new();
    let layout_with = |change: &dyn Fn(&mut serde_json::Value)| archive(&archives::layout_changed(&fixture, None, change));
    stage.refused(
        &layout_with(&|manifest| manifest["layers"][0]["mediaType"] = json!("application/x-squashfs")),
        "layer of type application/x-squashfs",
    );
    let encrypted = "application/vnd.oci.image.layer.v1.tar+gzip+encrypted";
    stage.refused(&layout_with(&|manifest| manifest["layers"][0]["mediaType"] = json!(encrypted)), "encrypted");
    let foreign = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip";
    stage.refused(&layout_with(&|manifest| manifest["layers"][0]["mediaType"] = json!(foreign)), "foreign");
    stage.refused(
        &layout_with(&|manifest| manifest["config"]["mediaType"] = json!("application/vnd.wasm.config.v1+json")),
        "no container image",
    );
    stage.refused(&layout_with(&|manifest| manifest["layers"][0]["digest"] = json!("sha512:".to_string() + &"0".repeat(128))), "SHA-256");
    stage
        .refused(&layout_with(&|manifest| _ = manifest["layers"].as_array_mut().expect("it is one").pop()), "lists 2 layers, and it has 1");
    let many =
        vec![json!({ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": Digest::of(b"").to_string(), "size": 1 }); 300];
    stage.refused(&layout_with(&|manifest| manifest["layers"] = json!(many)), "300 layers");
    stage.refused(&archive(&[("manifest.json".into(), vec![b' '; 5 << 20])]), "more than 4194304 bytes");
    stage.refused(&archive(&[("manifest.json".into(), b"[".repeat(100_000))]), "not valid");
    stage.refused(&archive(&[("manifest.json".into(), b"[]".to_vec())]), "no images");
    let zero = Fixture::with_config(two_layers(), json!({ "Env": ["A=\u{0}"] }));
    stage.refused(&docker_archive(&zero, &["app"]), "zero byte");
}

#[test]
fn a_configuration_may_have_nulls_as_docker_writes_them() {
    let config = json!({
        "User": "web:www", "Env": ["A=b"], "Entrypoint": null, "Cmd": ["/bin/sh"], "WorkingDir": "srv", "OnBuild": null, "ArgsEscaped": true,
        "ExposedPorts": { "80/tcp": {}, "53/udp": {}, "9999999/tcp": {} }, "Volumes": { "/data": {} }, "StopSignal": "SIGQUIT", "Labels": null,
    });
    let stage = Stage::new();
    stage.load("app.tar", &docker_archive(&Fixture::with_config(vec![], config), &["app"])).expect("it is valid");
    let config = stage.store.find("app").expect("it is there").config;
    assert_eq!((&config.user[..], &config.command[..], &config.entrypoint[..]), ("web:www", &["/bin/sh".to_string()][..], &[][..]));
    assert_eq!((config.directory, config.volumes), (Some("/srv".into()), vec!["/data".into()]));
    assert_eq!(config.ports, [ExposedPort { number: 53, is_udp: true }, ExposedPort { number: 80, is_udp: false }]);
    assert_eq!(config.stop_signal, Some(StopSignal(3)));
    for (text, number) in
        [("TERM", Some(15)), ("sigint", Some(2)), ("9", Some(9)), ("SIGRTMIN+3", Some(37)), ("RTMAX", Some(64)), ("65", None)]
    {
        assert_eq!(text.parse::<StopSignal>().ok().map(|signal| signal.0), number, "{text}");
    }
}

#[test]
fn root_file_systems_become_images_with_the_given_configuration() {
    let stage = Stage::new();
    let root = Layer::of(&[("bin/sh", "a shell")]).0;
    let change = |text: &str| text.parse::<ConfigChange>();
    let changes: Result<Vec<ConfigChange>, String> =
        ["CMD [\"/bin/sh\", \"-c\"]", "env A=\"b c\"", "ENV B d", "USER web", "EXPOSE 80 53/udp", "LABEL a=b", "STOPSIGNAL SIGINT"]
            .into_iter()
            .map(change)
            .collect();
    let name = "app:v1".parse().expect("it is a name");
    let import = |bytes: &[u8]| stage.store.import("root", bytes, &name, changes.as_ref().expect("they are valid"), &mut |_| ());
    let image = import(&root).expect("it is valid");
    assert_eq!(import(&gzip(&root)).expect("it is valid"), image, "the compression does not matter");
    let config = stage.store.find("app:v1").expect("it is there").config;
    assert_eq!((config.command, config.environment), (vec!["/bin/sh".into(), "-c".into()], vec!["A=b c".to_string(), "B=d".into()]));
    assert_eq!((&config.user[..], config.ports.len(), config.stop_signal), ("web", 2, Some(StopSignal(2))));
    for text in ["CMD", "RUN x", "ENV A", "CMD [1]", ""] {
        assert!(change(text).is_err(), "{text}");
    }
}

#[test]
fn names_are_those_of_docker() {
    let familiar = |name: &str| name.parse::<ImageName>().map(|name| (name.whole(), name.familiar())).ok();
    let pair = |whole: &str, short: &str| Some((whole.to_string(), short.to_string()));
    assert_eq!(familiar("python"), pair("docker.io/library/python:latest", "python:latest"));
    assert_eq!(familiar("docker.io/team/app:v1"), pair("docker.io/team/app:v1", "team/app:v1"));
    assert_eq!(familiar("localhost:5000/app"), pair("localhost:5000/app:latest", "localhost:5000/app:latest"));
    for name in ["", "UPPER", "a b", "../x", "a:", "-a", &"a".repeat(300)] {
        assert_eq!(familiar(name), None, "{name}");
    }
}

#[test]
fn a_scratch_file_leaves_room_on_the_disk() {
    let directory = tempfile::tempdir().expect("there is room");
    let file = tempfile::tempfile_in(directory.path()).expect("there is room");
    assert!(Scratch::new(directory.path()).check_room(&file).is_ok());
}

#[test]
fn a_damaged_configuration_stops_no_other_image() {
    let stage = Stage::new();
    let kept = Fixture::new(two_layers());
    let damaged = Fixture::new(vec![Layer::of(&[("bin/sh", "another shell")])]);
    stage.load("kept.tar", &docker_archive(&kept, &["kept"])).expect("it is valid");
    stage.load("damaged.tar", &docker_archive(&damaged, &["damaged"])).expect("it is valid");
    fs::write(stage.store.directory().join("images").join(format!("{}.json", damaged.id())), "{}").expect("it can be written");
    let listed = |stage: &Stage| stage.store.all().expect("it can be read").into_iter().map(|image| image.id.hex()).collect::<Vec<_>>();
    assert_eq!(listed(&stage), [kept.id()]);
    assert_eq!(stage.store.damaged().expect("it can be read").len(), 1);
    assert!(matches!(stage.store.open("damaged"), Err(Error::Damaged { .. })));
    let removed = stage.store.prune(&Users::new(), false).expect("it can be written");
    assert_eq!((removed.images.len(), removed.layers.len(), &removed.names[..]), (1, 1, &["damaged:latest".to_string()][..]));
    assert_eq!((listed(&stage), stage.files("layers")), (vec![kept.id()], 2));
}

#[test]
fn a_name_cannot_stand_for_the_id_of_another_image() {
    let (good, evil) = (Fixture::new(two_layers()), Fixture::new(vec![Layer::of(&[("bin/sh", "evil")])]));
    let stage = Stage::new();
    stage.load("good.tar", &docker_archive(&good, &["good"])).expect("it is valid");
    let id = good.id();
    for name in [format!("sha256:{id}"), format!("docker.io/library/sha256:{id}"), id.clone(), format!("library/{id}:v1"), "sha256".into()]
    {
        assert!(matches!(stage.load("evil.tar", &docker_archive(&evil, &[&name])), Err(Error::Name { .. })), "{name}");
    }
    // A store may have such a name from before.
    stage.load("evil.tar", &docker_archive(&evil, &["evil"])).expect("it is valid");
    let evil = Digest::of(&evil.config);
    stage.store.change_names(|names| _ = names.insert(format!("docker.io/library/sha256:{id}"), evil)).expect("it can be written");
    for text in [format!("sha256:{id}"), id.clone(), format!("sha256:{}", &id[..12])] {
        assert_eq!(stage.store.find(&text).expect("it is there").id, Digest::of(&good.config), "{text}");
    }
    stage.store.remove("good", &Users::new(), false).expect("it is there");
    assert!(matches!(stage.store.find(&format!("sha256:{id}")), Err(Error::Missing(_))));
}

#[test]
fn an_image_that_is_being_loaded_is_not_pruned() {
    let stage = Stage::new();
    // Its configuration is recorded, and its name is not yet.
    stage.load("app.tar", &docker_archive(&Fixture::new(two_layers()), &[])).expect("it is valid");
    let loading = stage.store.lock_layers().expect("it can be locked");
    assert!(matches!(stage.store.prune(&Users::new(), false), Err(Error::Busy)));
    assert_eq!(stage.files("images"), 1);
    drop(loading);
    assert_eq!(stage.store.prune(&Users::new(), false).expect("it works").images.len(), 1);
    assert_eq!((stage.files("images"), stage.files("layers")), (0, 0));
}

#[test]
fn a_configuration_that_could_not_be_read_again_is_not_written() {
    let stage = Stage::new();
    let length = (4 << 20) - Fixture::with_config(two_layers(), json!({ "Labels": { "a": "" } })).config.len();
    let fixture = Fixture::with_config(two_layers(), json!({ "Labels": { "a": "x".repeat(length) } }));
    stage.load("app.tar", &docker_archive(&fixture, &["app"])).expect("it has just the maximal length");
    let name = "more".parse().expect("it is a name");
    let layer = Layer::of(&[("a", "a")]).0;
    let commit = crate::Commit { created: "2026-01-01T00:00:00Z".into(), ..crate::Commit::default() };
    let error = stage.store.commit("cell 1", "app", &layer[..], &name, &commit, &mut |_| ()).expect_err("it would be longer").to_string();
    assert!(error.contains("more than 4194304 bytes"), "{error}");
    assert!(stage.store.damaged().expect("it can be read").is_empty());
}
