// SPDX-License-Identifier: MIT OR Apache-2.0
//! `--net tap:NAME`: a cell behind a TAP device, in a separate network namespace for each test.

use crate::case::{Input, PANDO, finish, long_runs, text};
use crate::network::reach::refused;
use pando_testing::host_program;
use pando_testing::lab::is_kvm_available;
use serde_json::Value;
use std::process::Command;

/// Both ends of the transfers. The server answers a connection with the number of bytes received, their checksum, and as
/// many bytes of its own; the client verifies this. Datagrams likewise.
const ENDS: &str = r#"
import hashlib, random, socket, sys
role, bytes = sys.argv[1], int(sys.argv[2])
data = random.Random(role).randbytes(bytes)
def read(peer):
    return b"".join(iter(lambda: peer.recv(1 << 20), b""))
def listen(where):
    family = socket.AF_INET6 if ":" in where else socket.AF_INET
    datagrams = socket.socket(family, socket.SOCK_DGRAM)
    datagrams.bind((where, 7000))
    return socket.create_server((where, 7000), family=family), datagrams
def serve(listener, datagrams):
    peer, _ = listener.accept()
    got = read(peer)
    peer.sendall(hashlib.sha256(got).digest() + data)
    peer.close()
    datagram, sender = datagrams.recvfrom(1 << 16)
    datagrams.sendto(b"%d" % len(datagram), sender)
def ask(where, length):
    peer = socket.create_connection((where, 7000))
    peer.sendall(data)
    peer.shutdown(socket.SHUT_WR)
    got = read(peer)
    assert got[:32] == hashlib.sha256(data).digest(), where
    assert got[32:] == random.Random("serve").randbytes(bytes), where
    datagrams = socket.socket(peer.family, socket.SOCK_DGRAM)
    datagrams.connect((where, 7000))
    datagrams.settimeout(1)
    # A datagram may get lost; only the client repeats it.
    for _ in range(60):
        datagrams.send(bytes_of(length))
        try:
            assert datagrams.recv(100) == b"%d" % length, where
            break
        except TimeoutError:
            continue
    else:
        raise SystemExit("no answer to a datagram from " + where)
def bytes_of(length):
    return b"x" * length
if role == "serve":
    # At all of them, before anybody asks at one.
    listening = [listen(where) for where in sys.argv[3:]]
    print("ready", flush=True)
    for sockets in listening:
        serve(*sockets)
else:
    for where in sys.argv[3:]:
        address, length = where.rsplit("/", 1)
        ask(address, int(length))
"#;

/// Whether this test can have a network namespace of its own.
fn is_there() -> bool {
    let own = "ip tuntap add dev tap0 mode tap";
    let there = is_kvm_available()
        && Command::new(host_program("unshare")).args(["--net", "sh", "-c", own]).output().is_ok_and(|output| output.status.success());
    if !there {
        println!("left out: a network namespace with a TAP device needs root, /dev/net/tun and iproute2");
    }
    there
}

/// Runs a shell script on a host with only a TAP device. In it `$PANDO` runs a program behind the device, and `$DIR/ends`
/// is the transfer program. Returns standard output and standard error.
fn on_a_host(script: &str) -> (String, String) {
    let directory = tempfile::tempdir().expect("the host has room");
    std::fs::write(directory.path().join("ends"), ENDS).expect("it can be written");
    let before = "set -e
        trap 'kill $! 2> /dev/null || true' EXIT
        ip tuntap add dev tap0 mode tap
        ip addr add 10.77.0.1/16 dev tap0
        ip addr add fd70:616e:646f::1/64 dev tap0 nodad
        ip link set tap0 up
        ip link set lo up";
    let mut command = Command::new(host_program("unshare"));
    command.args(["--net", "sh", "-c", &format!("{before}\n{script}")]);
    command.env("DIR", directory.path()).env("PANDO", PANDO);
    let outcome = finish(command, Input::Nothing);
    assert_eq!(outcome.status, 0, "{}\n{}", text(&outcome.output), outcome.errors);
    (text(&outcome.output).to_owned(), outcome.errors)
}

/// Checks both directions, over both versions of IP, byte for byte, and that the host and the cell used the offloads of the device.
fn check(script: &str, bytes: usize) {
    let (_, errors) = on_a_host(&script.replace("BYTES", &bytes.to_string()));
    let told: Value = errors.lines().find_map(|line| serde_json::from_str(line).ok()).unwrap_or_else(|| panic!("{errors}"));
    let (network, port) = (&told["network"], &told["outside"]["port"]);
    let count = |port: &Value, name: &str| port[name].as_u64().expect("a count");
    assert_eq!(told["outside"]["kind"], "tap", "{told}");
    let carried = 2 * bytes as u64;
    for direction in ["sent", "received"] {
        let (frames, length) = (count(port, &format!("frames_{direction}")), count(port, &format!("frames_{direction}_bytes")));
        assert!(length >= carried, "{direction}: {told}");
        // Acknowledgements are small; packets of 1500 bytes would be far more.
        assert!(frames < carried / 5000, "{direction}: {told}");
    }
    assert!(count(network, "tap_segmented") > 0, "{told}");
    assert_eq!(count(network, "tap_damaged") + count(network, "tap_too_long"), 0, "{told}");
}

fn bytes() -> usize {
    if long_runs() { 100_000_000 } else { 3_000_000 }
}

#[test]
fn a_client_in_a_cell_is_served_by_the_host_whole_in_large_frames() {
    if !is_there() {
        return;
    }
    let script = r#"
        python3 "$DIR/ends" serve BYTES 10.77.0.1 fd70:616e:646f::1 > "$DIR/out" &
        until grep -q ready "$DIR/out"; do kill -0 $!; done
        "$PANDO" run --net tap:tap0 --stats=json -v "$DIR/ends" /usr/bin/python3 "$DIR/ends" ask BYTES 10.77.0.1/9000 fd70:616e:646f::1/1400
        wait
    "#;
    check(script, bytes());
}

#[test]
fn a_server_in_a_cell_serves_the_host_whole_in_large_frames() {
    if !is_there() {
        return;
    }
    let script = r#"
        "$PANDO" run --net tap:tap0 --stats=json -v "$DIR/ends" /usr/bin/python3 "$DIR/ends" serve BYTES 10.77.0.2 fd70:616e:646f::2 > "$DIR/out" &
        until grep -q ready "$DIR/out"; do kill -0 $!; done
        python3 "$DIR/ends" ask BYTES 10.77.0.2/1400
        python3 "$DIR/ends" ask BYTES fd70:616e:646f::2/1400
        wait
    "#;
    check(script, bytes());
}

#[test]
fn a_capture_shows_the_traffic_of_a_device() {
    if !is_there() {
        return;
    }
    let script = r#"
        "$PANDO" run --net tap:tap0 --pcap "$DIR/frames" -- busybox nc -w 1 10.77.0.1 7000 < /dev/null || true
        tshark -r "$DIR/frames" -Y 'arp.dst.proto_ipv4 == 10.77.0.1 || tcp.flags.reset == 1' -T fields -e _ws.col.Protocol 2> /dev/null
    "#;
    let (output, errors) = on_a_host(script);
    assert_eq!(output, "ARP\nTCP\n", "{errors}");
}

#[test]
fn unsuitable_devices_are_refused_with_reasons() {
    refused(&["--net", "tap"], &["TAP device is missing", "tap:tap0"]);
    refused(&["--net", "tap:"], &["is no name of a network device"]);
    refused(&["--net", "tap:a/b"], &["`a/b` is no name of a network device"]);
    refused(&["--net", "tap:sixteen-letters-"], &["one to fifteen characters"]);
    refused(&["--net", "tap:no-such-tap"], &["no network device `no-such-tap`", "ip tuntap add dev no-such-tap mode tap user $USER"]);
    refused(&["--net", "tap:no-such-tap", "-p", "80:80"], &["need a gateway"]);
    if !is_there() {
        return;
    }
    let script = r#"
        "$PANDO" run --net tap:lo true || echo $?
        ip tuntap add dev tun0 mode tun
        "$PANDO" run --net tap:tun0 true || echo $?
        ip link set tap0 down
        "$PANDO" run --net tap:tap0 busybox echo runs
        exec /usr/bin/python3 -c '
import fcntl, os, struct, subprocess
device = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(device, 0x400454ca, struct.pack("16sH22x", b"tap0", 0x1002))
print(subprocess.run([os.environ["PANDO"], "run", "--net", "tap:tap0", "true"]).returncode)
'
    "#;
    let (output, errors) = on_a_host(script);
    assert_eq!(output, "125\n125\nruns\n125\n", "{errors}");
    for wanted in [
        "`lo` is no TAP device",
        "`tun0` is no TAP device",
        "the device is down",
        "ip link set tap0 up",
        "`tap0` is in use: end the program",
    ] {
        assert!(errors.contains(wanted), "{errors} lacks {wanted}");
    }
}
