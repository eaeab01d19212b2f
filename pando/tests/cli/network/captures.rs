// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--pcap`: tshark reads the capture completely and with correct checksums, also while it grows.

use crate::case::{Case, CaseOutcome, PANDO, text};
use crate::network::reach::{refused, serve};
use pando_testing::lab::is_kvm_available;
use pando_testing::{are_installed, host_program};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs tshark on a capture; prints one line for each selected frame.
fn tshark(file: &Path, more: &[&str]) -> String {
    let sums = ["ip", "tcp", "udp"].map(|protocol| format!("{protocol}.check_checksum:TRUE"));
    let mut command = Command::new(host_program("tshark"));
    command.arg("-r").arg(file).args(sums.iter().flat_map(|sum| ["-o", sum])).args(more).stderr(Stdio::null());
    text(&command.output().expect("tshark is there").stdout).to_owned()
}

fn is_there() -> bool {
    is_kvm_available() && are_installed(&["tshark"])
}

/// Runs busybox's wget in a cell that may reach a port of this host.
fn fetch(port: u16, options: &[&str]) -> CaseOutcome {
    let (url, allowed) = (format!("http://10.77.0.1:{port}/"), format!("host:{port}"));
    let options = [&["--allow", &allowed], options].concat();
    Case::new("busybox", &["wget", "-q", "-O", "-", &url]).options(&options).cell()
}

#[test]
fn tshark_reads_a_whole_conversation_with_right_sums() {
    if !is_there() {
        return;
    }
    let directory = tempfile::tempdir().expect("the host has room");
    let file = directory.path().join("frames");
    let page: &'static [u8] = vec![b'x'; 300_000].leak();
    let outcome = fetch(serve(page), &["--pcap", file.to_str().expect("it is text")]);
    assert_eq!((outcome.status, outcome.output.len(), &outcome.errors[..]), (0, page.len(), ""));
    let lengths = tshark(&file, &["-Y", "tcp.len > 0 && ip.src == 10.77.0.1", "-T", "fields", "-e", "tcp.len"]);
    let lengths: Vec<usize> = lengths.lines().map(|line| line.parse().expect("a number")).collect();
    assert!(lengths.iter().sum::<usize>() > page.len() && lengths.iter().max() > Some(&10_000), "{lengths:?}");
    assert_eq!(tshark(&file, &["-Y", "tcp.checksum.status == 0 || udp.checksum.status == 0 || ip.checksum.status == 0"]), "");
    assert_ne!(tshark(&file, &["-Y", "tcp.checksum.status == 1"]), "");
    assert_eq!(tshark(&file, &["-Y", "frame.cap_len < frame.len || _ws.malformed"]), "");
    // From the first segment to the last, in order.
    let flags = tshark(&file, &["-Y", "tcp.flags.syn == 1 || tcp.flags.fin == 1", "-T", "fields", "-e", "tcp.flags.syn"]);
    assert_eq!(flags.lines().collect::<Vec<_>>(), ["1", "1", "0", "0"]);
    let times = tshark(&file, &["-T", "fields", "-e", "frame.time_epoch"]);
    let times: Vec<f64> = times.lines().map(|line| line.parse().expect("a moment")).collect();
    assert!(times.is_sorted() && times.first() != times.last());
}

#[test]
fn a_capture_can_be_watched() {
    if !is_there() {
        return;
    }
    let directory = tempfile::tempdir().expect("the host has room");
    let file = directory.path().join("frames");
    let port = serve(b"from the host");
    let mut command = Command::new(PANDO);
    command.args(["run", "--allow", &format!("host:{port}"), "--pcap"]).arg(&file);
    command.args(["busybox", "sh", "-c", &format!("wget -q -O - http://10.77.0.1:{port}/; echo; cat")]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("pando starts");
    let mut output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("the cell writes");
    assert_eq!(line, "from the host\n");
    // The program is still running. A thread, which must be scheduled first, writes the received frames at once.
    let seen = std::iter::repeat_with(|| tshark(&file, &["-Y", "http.response"])).take(100).any(|seen| seen.contains("200 OK"));
    drop(child.stdin.take());
    output.read_to_string(&mut line).expect("it ends");
    assert!(child.wait().expect("it is ours").success() && seen);
}

#[test]
fn captures_that_cannot_be_written_are_refused() {
    refused(&["--pcap", "frames"], &["--pcap needs a network", "--net gateway"]);
    refused(&["--net", "none", "--pcap", "frames"], &["--pcap needs a network"]);
    refused(&["--net", "private", "--pcap", "/no/such/directory/frames"], &["--pcap /no/such/directory/frames: no such file"]);
    let directory = tempfile::tempdir().expect("the host has room");
    let fifo = directory.path().join("fifo");
    mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).expect("the directory is ours");
    refused(&["--net", "private", "--pcap", fifo.to_str().expect("it is text")], &["nobody reads this FIFO: start its reader first"]);
    if is_kvm_available() && Path::new("/dev/full").exists() {
        let outcome = Case::new("busybox", &["true"]).options(&["--net", "private", "--pcap", "/dev/full"]).cell();
        assert_eq!((outcome.status, outcome.errors.contains("--pcap /dev/full: no space left")), (125, true), "{}", outcome.errors);
    }
}

#[test]
fn a_full_disk_ends_the_capture_and_not_the_program() {
    if !is_there() {
        return;
    }
    if !Command::new(host_program("unshare")).args(["--mount", "true"]).output().is_ok_and(|output| output.status.success()) {
        println!("left out: mounting a file system needs root");
        return;
    }
    let directory = tempfile::tempdir().expect("the host has room");
    let page: &'static [u8] = vec![b'x'; 3_000_000].leak();
    let port = serve(page);
    let at = directory.path().display();
    // A file system of one megabyte in a private mount namespace.
    let script = format!(
        "mount -t tmpfs -o size=1M none {at} && \"$0\" run --allow host:{port} --pcap {at}/frames -- busybox wget -q -O - http://10.77.0.1:{port}/ | wc -c; tshark -r {at}/frames 2>&1 | grep -c 'cut short'"
    );
    let output = Command::new(host_program("unshare")).args(["--mount", "sh", "-c", &script, PANDO]).output().expect("it starts");
    let errors = text(&output.stderr);
    assert_eq!(text(&output.stdout), format!("{}\n0\n", page.len()), "{errors}");
    assert_eq!(errors.matches("no space left on device: the capture stops, the program continues").count(), 1, "{errors}");
}
