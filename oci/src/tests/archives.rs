// SPDX-License-Identifier: MIT OR Apache-2.0
//! Archives for tests.

use crate::Digest;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::Write;
use tar::{EntryType, Header};

/// Names and contents.
pub(crate) type Files = Vec<(String, Vec<u8>)>;

/// A tar archive.
pub(crate) struct Archive(tar::Builder<Vec<u8>>);

impl Archive {
    pub(crate) fn new() -> Archive {
        Archive(tar::Builder::new(Vec::new()))
    }

    pub(crate) fn file(&mut self, name: &str, content: &[u8]) {
        self.add(name, EntryType::Regular, "", content);
    }

    pub(crate) fn symlink(&mut self, name: &str, target: &str) {
        self.add(name, EntryType::Symlink, target, b"");
    }

    /// Adds a member; names are not checked.
    fn add(&mut self, name: &str, kind: EntryType, target: &str, content: &[u8]) {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.as_mut_bytes()[157..157 + target.len()].copy_from_slice(target.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        header.set_cksum();
        self.0.append(&header, content).expect("memory can be written");
    }

    pub(crate) fn bytes(self) -> Vec<u8> {
        self.0.into_inner().expect("memory can be written")
    }
}

pub(crate) fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut archive = Archive::new();
    files.iter().for_each(|(name, content)| archive.file(name, content));
    archive.bytes()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).and_then(|()| encoder.finish()).expect("memory can be written")
}

pub(crate) fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 1).expect("memory can be written")
}

/// The archive of a layer.
#[derive(Clone)]
pub(crate) struct Layer(pub(crate) Vec<u8>);

impl Layer {
    pub(crate) fn of(files: &[(&str, &str)]) -> Layer {
        Layer(archive(&files.iter().map(|(name, content)| (name.to_string(), content.as_bytes().to_vec())).collect::<Vec<_>>()))
    }
}

/// An image: its configuration and layers.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub(crate) config: Vec<u8>,
    /// As they are stored.
    pub(crate) layers: Vec<Layer>,
    /// The end of the layers' media type.
    suffix: &'static str,
}

impl Fixture {
    pub(crate) fn new(layers: Vec<Layer>) -> Fixture {
        Fixture::with_config(layers, json!({ "Cmd": ["/bin/sh"] }))
    }

    pub(crate) fn with_config(layers: Vec<Layer>, config: Value) -> Fixture {
        Fixture::of(layers, config, "linux", "amd64")
    }

    pub(crate) fn for_platform(layers: Vec<Layer>, os: &str, architecture: &str) -> Fixture {
        Fixture::of(layers, json!({}), os, architecture)
    }

    fn of(layers: Vec<Layer>, config: Value, os: &str, architecture: &str) -> Fixture {
        let digests: Vec<String> = layers.iter().map(|layer| Digest::of(&layer.0).to_string()).collect();
        let config = json!({
            "architecture": architecture, "os": os, "config": config, "created": null,
            "rootfs": { "type": "layers", "diff_ids": digests },
        });
        Fixture { config: config.to_string().into_bytes(), layers, suffix: "" }
    }

    /// The same with compressed layers.
    pub(crate) fn compressed(&self, compress: impl Fn(&[u8]) -> Vec<u8>, suffix: &'static str) -> Fixture {
        let layers = self.layers.iter().map(|layer| Layer(compress(&layer.0))).collect();
        Fixture { layers, suffix, ..self.clone() }
    }

    /// Its ID without the algorithm.
    pub(crate) fn id(&self) -> String {
        Digest::of(&self.config).hex()
    }
}

/// The files of an archive of `docker save`, the configuration first.
pub(crate) fn docker_files(fixture: &Fixture, names: &[&str]) -> Files {
    let config = format!("{}.json", fixture.id());
    let layer = |number: usize| format!("{number}/layer.tar");
    let layers: Vec<String> = (0..fixture.layers.len()).map(layer).collect();
    let manifest = json!([{ "Config": config, "RepoTags": names, "Layers": layers }]);
    let mut files = vec![(config, fixture.config.clone())];
    files.extend(fixture.layers.iter().enumerate().map(|(number, content)| (layer(number), content.0.clone())));
    files.push(("manifest.json".into(), manifest.to_string().into_bytes()));
    files
}

pub(crate) fn docker_archive(fixture: &Fixture, names: &[&str]) -> Vec<u8> {
    archive(&docker_files(fixture, names))
}

/// The files of an OCI layout.
pub(crate) fn layout(fixture: &Fixture, name: Option<&str>) -> Files {
    layout_changed(fixture, name, &|_| ())
}

/// The same with a changed manifest.
pub(crate) fn layout_changed(fixture: &Fixture, name: Option<&str>, change: &dyn Fn(&mut Value)) -> Files {
    let mut files = Files::new();
    let mut entry = manifest(fixture, change, &mut files);
    if let Some(name) = name {
        entry["annotations"] = json!({ "org.opencontainers.image.ref.name": name });
    }
    finish(files, &[entry])
}

/// The files of a layout with one image for several platforms.
pub(crate) fn index(images: &[(&str, &Fixture)]) -> Files {
    let mut files = Files::new();
    let mut entries = Vec::new();
    for (architecture, fixture) in images {
        let mut entry = manifest(fixture, &|_| (), &mut files);
        entry["platform"] = json!({ "os": "linux", "architecture": architecture });
        entries.push(entry);
    }
    // As buildkit adds it.
    let mut attestation = entries[0].clone();
    attestation["platform"] = json!({ "os": "unknown", "architecture": "unknown" });
    attestation["annotations"] = json!({ "vnd.docker.reference.type": "attestation-manifest" });
    entries.push(attestation);
    let mut entry = wrapped(&entries, &mut files);
    entry["annotations"] = json!({ "io.containerd.image.name": "docker.io/library/app:v1" });
    finish(files, &[entry])
}

/// The files of a layout in which an index leads to an index, this often.
pub(crate) fn nested_index(fixture: &Fixture, depth: usize) -> Files {
    let mut files = Files::new();
    let mut entry = manifest(fixture, &|_| (), &mut files);
    for _ in 0..depth {
        entry = wrapped(&[entry], &mut files);
    }
    finish(files, &[entry])
}

fn finish(mut files: Files, entries: &[Value]) -> Files {
    let index = json!({ "schemaVersion": 2, "manifests": entries });
    files.push(("index.json".into(), index.to_string().into_bytes()));
    files.push(("oci-layout".into(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()));
    files
}

/// Adds an index of these entries, and returns its descriptor.
fn wrapped(entries: &[Value], files: &mut Files) -> Value {
    let index = json!({ "schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": entries });
    blob(index.to_string().as_bytes(), "application/vnd.oci.image.index.v1+json", files)
}

/// Adds an image, and returns the descriptor of its manifest.
fn manifest(fixture: &Fixture, change: &dyn Fn(&mut Value), files: &mut Files) -> Value {
    let config = blob(&fixture.config, "application/vnd.oci.image.config.v1+json", files);
    let media_type = format!("application/vnd.oci.image.layer.v1.tar{}", fixture.suffix);
    let layers: Vec<Value> = fixture.layers.iter().map(|layer| blob(&layer.0, &media_type, files)).collect();
    let mut manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": layers,
    });
    change(&mut manifest);
    blob(manifest.to_string().as_bytes(), "application/vnd.oci.image.manifest.v1+json", files)
}

fn blob(content: &[u8], media_type: &str, files: &mut Files) -> Value {
    let digest = Digest::of(content);
    files.push((format!("blobs/sha256/{}", digest.hex()), content.to_vec()));
    json!({ "mediaType": media_type, "digest": digest.to_string(), "size": content.len() })
}
