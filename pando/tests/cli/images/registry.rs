// SPDX-License-Identifier: MIT OR Apache-2.0
//! `pando pull` from Debian's registry on the loopback.

use super::{assert_printed, busybox, refused, shell, upper};
use crate::archives::{Fixture as Image, gzip, layout};
use crate::fixture::{Fixture, wait_until};
use pando_testing::{host_program, needs_kvm};
use serde_json::Value;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

/// A registry, which ends when this is dropped.
pub(super) struct Registry {
    child: Child,
    port: u16,
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Registry {
    /// Starts a registry whose files are in the fixture's directory; `None` if the host has none.
    pub(super) fn start(fixture: &Fixture) -> Option<Registry> {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("there is a port").port();
        let root = fixture.path("registry").display().to_string();
        let config = format!(
            "version: 0.1\nlog: {{ level: error, accesslog: {{ disabled: true }} }}\nstorage: {{ filesystem: {{ rootdirectory: \"{root}\" }} }}\n\
             http: {{ addr: \"127.0.0.1:{port}\" }}\n"
        );
        fs::write(fixture.path("registry.yml"), config).expect("there is room");
        let mut command = Command::new(host_program("docker-registry"));
        command.arg("serve").arg(fixture.path("registry.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        let Ok(child) = command.spawn() else {
            println!("left out: docker-registry is not installed");
            return None;
        };
        let registry = Registry { child, port };
        wait_until(|| TcpStream::connect(("127.0.0.1", port)).is_ok());
        Some(registry)
    }

    /// Its port on the loopback.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Sends a request with a body; returns the head of the answer.
    fn ask(&self, method: &str, path: &str, media_type: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {media_type}\r\ncontent-length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).expect("it reads");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("it answers");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Pushes the image of a layout with one image.
    pub(super) fn push(&self, image: &Image, repository: &str, tag: &str) {
        let files = layout(image, None);
        let index: Value = serde_json::from_slice(&files[files.len() - 2].1).expect("it is JSON");
        let manifest = index["manifests"][0]["digest"].as_str().expect("it is text").to_string();
        for (name, content) in &files {
            let Some(hex) = name.strip_prefix("blobs/sha256/") else { continue };
            if manifest.ends_with(hex) {
                continue;
            }
            let begun = self.ask("POST", &format!("/v2/{repository}/blobs/uploads/"), "text/plain", b"");
            let place = begun.lines().find_map(|line| line.strip_prefix("Location: ")).expect("it names a place").trim().to_string();
            let path = &place[place.find("/v2/").expect("it has a path")..];
            let done = self.ask("PUT", &format!("{path}&digest=sha256:{hex}"), "application/octet-stream", content);
            assert!(done.starts_with("HTTP/1.1 201"), "{done}");
        }
        let content = &files.iter().find(|(name, _)| name.ends_with(&manifest[7..])).expect("it is there").1;
        let done = self.ask("PUT", &format!("/v2/{repository}/manifests/{tag}"), "application/vnd.oci.image.manifest.v1+json", content);
        assert!(done.starts_with("HTTP/1.1 201"), "{done}");
    }
}

#[test]
fn an_image_is_pulled_from_a_registry_and_runs() {
    needs_kvm!();
    let fixture = Fixture::new();
    let Some(registry) = Registry::start(&fixture) else { return };
    let image = Image::with_config(vec![busybox(), upper()], shell("cat /data/new")).compressed(gzip, "+gzip");
    registry.push(&image, "team/app", "v1");
    let name = format!("127.0.0.1:{}/team/app:v1", registry.port);
    let pulled = fixture.pando(&["pull", &name]);
    assert_eq!((pulled.status, &pulled.errors[..]), (0, ""));
    assert!(
        pulled.output.starts_with("Digest: sha256:") && pulled.output.ends_with(&format!("\nStatus: Downloaded newer image for {name}\n"))
    );
    assert_printed(&fixture.pando(&["run", "--image", &name]), "new");
    // By its digest, and again.
    let digest = pulled.output.lines().next().and_then(|line| line.strip_prefix("Digest: ")).expect("it has one").to_string();
    assert_printed(
        &fixture.image(&["pull", "-q", &format!("{}@{digest}", &name[..name.len() - 3])]),
        &format!("{}@{digest}\n", &name[..name.len() - 3]),
    );
    let again = fixture.image(&["pull", &name]);
    assert!(again.output.contains("Image is up to date"), "{}", again.output);
    refused(&fixture.pando(&["pull", &format!("{name}2")]), 125, &["cannot pull", "the registry does not have it"]);
    refused(&fixture.pando(&["pull", "--platform", "linux/arm64", &name]), 125, &["linux/arm64", "linux/amd64"]);
    drop(registry);
    refused(&fixture.pando(&["pull", "UPPER"]), 125, &["not a valid image name"]);
}
