// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks at the command line: what is refused, and why; and that a cell runs with each.

use crate::case::{Case, PANDO, pando, text};
use pando_testing::lab::kvm_is_there;
use std::net::TcpListener;

/// What is said to these options, which no cell needs to run for.
fn refused(options: &[&str], wanted: &[&str]) {
    let words: Vec<&str> = ["run"].iter().chain(options).chain(&["busybox", "true"]).copied().collect();
    let outcome = pando(&words);
    assert_eq!((outcome.status, text(&outcome.output)), (125, ""), "{options:?}: {}", outcome.errors);
    assert!(wanted.iter().all(|word| outcome.errors.contains(word)), "{options:?}: {} lacks one of {wanted:?}", outcome.errors);
}

#[test]
fn what_cannot_be_opened_is_said_in_plain_words() {
    refused(&["-p", "80"], &["names one port", "8080:80"]);
    refused(&["-p", "80:http"], &["`http` is no port"]);
    refused(&["-p", "80:80/sctp"], &["`sctp`"]);
    refused(&["-p", "myhost:80:80"], &["`myhost` is no address", "0.0.0.0"]);
    refused(&["-p", "198.51.100.7:8080:80"], &["-p: this host has no address 198.51.100.7"]);
    refused(&["--allow", "http://example.org"], &["is no destination", "example.org"]);
    refused(&["--allow", "localhost:x"], &["ends in no port"]);
    refused(&["--allow", "127.0.0.1:5432"], &["the cell's own loopback", "`host`"]);
    refused(&["--net", "none", "-p", "8080:80"], &["need a gateway", "--net gateway"]);
    refused(&["--net", "bridge"], &["bridge", "gateway"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a port");
    let port = listener.local_addr().expect("it has an address").port();
    refused(&["-p", &format!("{port}:80")], &[&format!("-p: port {port} of 127.0.0.1 is taken")]);
}

#[test]
fn a_cell_runs_with_every_kind_of_network() {
    if !kvm_is_there() {
        return;
    }
    for options in [&["--net", "none"][..], &["--net=private"], &["--net", "gateway"], &["-p", "0:80"], &["--allow", "example.org:443"]] {
        let outcome = Case::new("busybox", &["echo", "here"]).options(options).cell();
        assert_eq!((outcome.status, text(&outcome.output), &outcome.errors[..]), (0, "here\n", ""), "{options:?}");
    }
}

#[test]
fn what_went_through_is_told() {
    if !kvm_is_there() {
        return;
    }
    let output = std::process::Command::new(PANDO).args(["run", "--net", "gateway", "--stats=json", "busybox", "true"]).output();
    let told: serde_json::Value = serde_json::from_slice(&output.expect("pando starts").stderr).expect("one object");
    assert_eq!((&told["network"]["connections_out"], &told["refused"]), (&0.into(), &serde_json::json!([])));
}
