// SPDX-License-Identifier: MIT OR Apache-2.0
//! Pulling from a registry that behaves, and from ones that do not.

use super::archives::{self, Files, Fixture, Layer, gzip};
use super::server::{Server, ServerFaults};
use super::{Stage, two_layers};
use crate::{Credentials, Digest, Error, ImageName, PulledImage};

/// `user:secret` in base64.
const LOGIN: &str = "dXNlcjpzZWNyZXQ=";

/// The paths of a registry with an image for two platforms.
fn served(fixture: &Fixture) -> Files {
    let other = Fixture::for_platform(two_layers(), "linux", "arm64");
    let layout = archives::index(&[("arm64", &other), ("amd64", fixture)]);
    let mut files = Files::new();
    for (name, content) in &layout {
        if let Some(digest) = name.strip_prefix("blobs/sha256/") {
            files.push((format!("/v2/app/blobs/sha256:{digest}"), content.clone()));
            files.push((format!("/v2/app/manifests/sha256:{digest}"), content.clone()));
        }
    }
    // The layout's index leads to the image's.
    let index: serde_json::Value = serde_json::from_slice(&layout[layout.len() - 2].1).expect("it is JSON");
    let digest = index["manifests"][0]["digest"].as_str().expect("it is text");
    let content = files.iter().find(|(path, _)| path.ends_with(&format!("manifests/{digest}"))).expect("it is there").1.clone();
    files.push(("/v2/app/manifests/v1".into(), content));
    files
}

fn name(server: &Server) -> ImageName {
    format!("127.0.0.1:{}/app:v1", server.port).parse().expect("it is a name")
}

fn login() -> Option<Credentials> {
    Some(Credentials { user: "user".into(), password: "secret".into() })
}

/// An image whose second layer is large and cannot be compressed.
fn large() -> Fixture {
    let noise: String = (0..20_000_u64).map(|number| format!("{:x}", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    Fixture::new(vec![Layer::of(&[("a", "a")]), Layer::of(&[("noise", &noise)])]).compressed(gzip, "+gzip")
}

/// Pulls an image from a server of these manners into a fresh store.
fn pull(fixture: &Fixture, manners: ServerFaults, login: Option<Credentials>) -> (Result<PulledImage, Error>, Stage, Server) {
    let (stage, server) = (Stage::new(), Server::start(served(fixture), manners));
    (stage.store.pull_at_once(&name(&server), login), stage, server)
}

#[track_caller]
fn refused(manners: ServerFaults, expected: &str) {
    let (pulled, stage, _server) = pull(&large(), manners, None);
    let error = pulled.expect_err("it is refused").to_string();
    assert!(error.contains(expected), "{error}");
    assert_eq!(stage.store.all().expect("it can be read").len(), 0);
}

#[test]
fn an_image_is_pulled_once_with_a_token_and_for_this_platform() {
    let fixture = Fixture::new(two_layers()).compressed(gzip, "+gzip");
    for (manners, login) in [
        (ServerFaults::default(), None),
        (ServerFaults { token_for: Some(String::new()), ..ServerFaults::default() }, None),
        (ServerFaults { token_for: Some(LOGIN.into()), ..ServerFaults::default() }, login()),
        (ServerFaults { token_for: Some(String::new()), token_lasts: Some(2), ..ServerFaults::default() }, None),
        (ServerFaults { basic_for: Some(LOGIN.into()), ..ServerFaults::default() }, login()),
        (ServerFaults { busy: 3, ..ServerFaults::default() }, None),
    ] {
        let (pulled, stage, server) = pull(&fixture, manners.clone(), login.clone());
        let pulled = pulled.unwrap_or_else(|error| panic!("{manners:?}: {error}"));
        assert_eq!((pulled.id, pulled.is_known), (Digest::of(&fixture.config), false));
        assert_eq!(stage.store.find(&name(&server).whole()).expect("it is there").id, pulled.id);
        assert_eq!(stage.files("layers"), 2, "no download is left");
        let blobs = |server: &Server| server.asked().iter().filter(|request| request.path.contains("/blobs/")).count();
        let before = blobs(&server);
        assert!(stage.store.pull_at_once(&name(&server), login).expect("it is still there").is_known);
        assert_eq!(blobs(&server), before, "nothing is downloaded again");
    }
}

#[test]
fn layers_that_are_there_are_not_downloaded() {
    let fixture = Fixture::new(two_layers());
    let (stage, server) = (Stage::new(), Server::start(served(&fixture), ServerFaults::default()));
    stage.load("app.tar", &archives::docker_archive(&Fixture::new(two_layers()[..1].to_vec()), &["other"])).expect("it is valid");
    stage.store.pull_at_once(&name(&server), None).expect("it is served");
    // The configuration and the second layer.
    assert_eq!(server.asked().iter().filter(|request| request.path.contains("/blobs/")).count(), 2);
}

#[test]
fn broken_downloads_continue_where_they_broke() {
    let fixture = large();
    let (pulled, _, server) = pull(&fixture, ServerFaults { breaks_after: Some(20_000), ..ServerFaults::default() }, None);
    assert_eq!(pulled.expect("it goes on").id, Digest::of(&fixture.config));
    let ranges: Vec<usize> = server.asked().iter().filter_map(|request| request.range).collect();
    assert!(ranges.len() > 3 && ranges.windows(2).all(|pair| pair[0] < pair[1]), "{ranges:?}");
}

#[test]
fn another_run_continues_a_download_and_a_registry_without_ranges_begins_again() {
    let fixture = large();
    // It sends the same start over and over, and so never completes.
    let manners = ServerFaults { breaks_after: Some(20_000), ignores_ranges: true, ..ServerFaults::default() };
    let (pulled, stage, server) = pull(&fixture, manners, None);
    assert!(matches!(pulled, Err(Error::Registry { .. })), "{pulled:?}");
    drop(server);
    assert_eq!(stage.files("layers"), 2, "the small layer, and a part of the large one");
    let server = Server::start(served(&fixture), ServerFaults::default());
    stage.store.pull_at_once(&name(&server), None).expect("it is served");
    assert_eq!(server.asked().iter().filter_map(|request| request.range).collect::<Vec<_>>(), [20_000]);
    assert_eq!(stage.files("layers"), 2);
    let (pulled, ..) = pull(&fixture, ServerFaults { ignores_ranges: true, ..ServerFaults::default() }, None);
    assert!(pulled.is_ok());
}

#[test]
fn content_that_is_not_what_was_asked_for_is_refused_and_not_kept() {
    let fixture = large();
    for kind in ["blobs", "manifests"] {
        for (number, (path, _)) in
            served(&fixture).iter().enumerate().filter(|(_, (path, _))| path.contains(kind) && path.contains("sha256:"))
        {
            let mut files = served(&fixture);
            let last = files[number].1.len() - 1;
            files[number].1[last] ^= 1;
            let (stage, server) = (Stage::new(), Server::start(files, ServerFaults::default()));
            if let Err(error) = stage.store.pull_at_once(&name(&server), None) {
                assert!(matches!(error, Error::Mismatch { .. } | Error::Damaged { .. }), "{path}: {error}");
                assert_eq!(stage.store.all().expect("it can be read").len(), 0);
                assert!(stage.files("layers") <= 1, "at most the other layer is left");
            } else {
                // It is not part of the image for this platform.
                let asked = server.asked();
                assert!(!asked.iter().any(|request| request.path == *path), "{path}");
            }
        }
    }
    // The configuration shows it first, so it is named.
    refused(ServerFaults { adds: b"more".to_vec(), ..ServerFaults::default() }, "has the digest");
}

#[test]
fn a_layer_that_does_not_end_is_cut() {
    let fixture = large();
    let mut files = served(&fixture);
    let layer = Digest::of(&fixture.layers[1].0).to_string();
    let file = files.iter_mut().find(|(path, _)| path.contains("/blobs/") && path.ends_with(&layer)).expect("it is there");
    file.1.extend(vec![0; 1 << 20]);
    let (stage, server) = (Stage::new(), Server::start(files, ServerFaults::default()));
    let error = stage.store.pull_at_once(&name(&server), None).expect_err("it is too long").to_string();
    assert!(error.contains("more than") && stage.files("layers") == 1, "{error}");
}

#[test]
fn refusals_of_registries_are_reported() {
    refused(ServerFaults { token_for: Some(LOGIN.into()), ..ServerFaults::default() }, "cannot get a token");
    refused(ServerFaults { basic_for: Some(LOGIN.into()), ..ServerFaults::default() }, "asks for a login");
    refused(ServerFaults { busy: 1000, ..ServerFaults::default() }, "503");
    let server = Server::start(Files::new(), ServerFaults::default());
    let error = Stage::new().store.pull_at_once(&name(&server), None).expect_err("it is missing").to_string();
    assert!(error.contains("does not have it (manifest v1)"), "{error}");
    let port = server.port;
    drop(server);
    let gone = format!("127.0.0.1:{port}/app").parse().expect("it is a name");
    assert!(matches!(Stage::new().store.pull_at_once(&gone, None), Err(Error::Registry { .. })));
    let mut files = served(&large());
    files.retain(|(path, _)| !path.ends_with("/v1"));
    files.push(("/v2/app/manifests/v1".into(), vec![b' '; 5 << 20]));
    let server = Server::start(files, ServerFaults::default());
    let error = Stage::new().store.pull_at_once(&name(&server), None).expect_err("it is too long").to_string();
    assert!(error.contains("more than 4194304 bytes"), "{error}");
}

#[test]
fn redirects_do_not_carry_the_token_to_another_host() {
    let fixture = Fixture::new(two_layers());
    let other = Server::start(served(&fixture), ServerFaults::default());
    let manners = ServerFaults { token_for: Some(String::new()), redirects_to: Some(other.port), ..ServerFaults::default() };
    let (pulled, _, server) = pull(&fixture, manners, None);
    pulled.expect("it is served elsewhere");
    assert!(server.asked().iter().any(|request| request.authorization.is_some()));
    assert!(!other.asked().is_empty() && other.asked().iter().all(|request| request.authorization.is_none()), "{:?}", other.asked());
}

#[test]
fn a_digest_that_cannot_be_checked_is_refused() {
    let fixture = Fixture::new(two_layers());
    let served = served(&fixture);
    let digest = Digest::of(&served.last().expect("there is a manifest").1).hex();
    let repository = "127.0.0.1:1/app";
    let names = [format!("{repository}@sha512:{}", "0".repeat(128)), format!("{repository}@sha256:{}", digest.to_uppercase())];
    for name in names.into_iter().chain([format!("{repository}:v1@sha384:{}", "0".repeat(96))]) {
        let parsed = name.parse::<ImageName>();
        assert!(matches!(parsed, Err(Error::Name { .. })), "{name}: {parsed:?}");
    }
    let server = Server::start(served, ServerFaults::default());
    let good = format!("127.0.0.1:{}/app@sha256:{digest}", server.port).parse().expect("it is a name");
    assert_eq!(Stage::new().store.pull_at_once(&good, None).expect("it is served").id, Digest::of(&fixture.config));
}

#[test]
fn pulling_again_repairs_an_image() {
    let fixture = Fixture::new(two_layers());
    let (pulled, stage, server) = pull(&fixture, ServerFaults::default(), None);
    let id = pulled.expect("it is served").id;
    std::fs::write(stage.store.image_path(id), "{}").expect("it can be written");
    assert!(!stage.store.pull_at_once(&name(&server), None).expect("it is served").is_known);
    let layers = stage.store.open(&name(&server).whole()).expect("it was repaired").layers;
    std::fs::remove_file(&layers[0]).expect("it is there");
    assert!(!stage.store.pull_at_once(&name(&server), None).expect("it is served").is_known);
    assert!(layers[0].exists());
    assert!(stage.store.pull_at_once(&name(&server), None).expect("it is served").is_known);
}
