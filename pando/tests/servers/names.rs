// SPDX-License-Identifier: MIT OR Apache-2.0
//! DNS servers: BIND and dnsmasq, queried by dig over UDP and TCP.

use crate::server::Served;
use std::fmt::Write;
use std::fs;
use std::path::Path;

const DIG: &str = "dig +time=20 +tries=2 @127.0.0.1 -p $P";

/// A zone with two thousand hosts, and a name whose answer fits into no datagram.
fn zone(directory: &Path) {
    let mut text =
        String::from("$TTL 60\n@ IN SOA ns root ( 1 60 60 60 60 )\n IN NS ns\nns IN A 10.1.1.1\nwww IN A 10.1.1.2\nwww IN AAAA fd00::2\n");
    for number in 0..2000 {
        let _ = writeln!(text, "h{number} IN A 10.2.{}.{}", number / 250, number % 250 + 1);
    }
    for number in 0..60 {
        let _ = writeln!(text, "big IN TXT \"{number:0200}\"");
    }
    fs::write(directory.join("zone"), text).expect("there is room");
    let options = "options { directory \"/tmp\"; recursion no; allow-transfer { any; }; listen-on-v6 { any; }; pid-file \"/tmp/pid\"; };\n\
                   zone \"example.test\" { type primary; file \"/srv/zone\"; };\n";
    fs::write(directory.join("named.conf"), options).expect("there is room");
}

#[test]
fn bind_answers() {
    let needs = &["/usr/sbin/named", "/usr/bin/dig"];
    let (script, ports) = ("exec named -g -u bind -c /srv/named.conf", &["{}:53", "{}:53/udp", "[::1]:{}:53/udp"]);
    let Some(server) = (Served { needs, script, ports, ready: "all zones loaded" }).start(zone) else { return };
    let dig = |words: &str| server.client(&format!("{DIG} {words}"));
    assert_eq!(dig("+short www.example.test"), "10.1.1.2\n");
    assert_eq!(dig("+short +tcp www.example.test AAAA"), "fd00::2\n");
    assert_eq!(server.client("dig +time=20 +tries=2 @::1 -p $P +short h1999.example.test"), "10.2.7.250\n");
    assert!(dig("none.example.test").contains("status: NXDOMAIN"));
    // An answer that exceeds a datagram is truncated, and then requested by TCP; with a large buffer it arrives in
    // fragments or not at all.
    assert!(dig("+ignore +bufsize=1232 big.example.test TXT").contains("flags: qr aa tc"));
    assert_eq!(dig("+noall +answer big.example.test TXT").lines().count(), 60);
    // The whole zone, with its first record once more at the end.
    assert_eq!(dig("+noall +answer example.test AXFR").lines().count(), 2066);
    // Many queries in one batch.
    let script = format!("seq 0 1999 | sed 's/.*/h&.example.test/' > hosts; {DIG} +short -f hosts");
    let wanted: Vec<String> = (0..2000).map(|number| format!("10.2.{}.{}", number / 250, number % 250 + 1)).collect();
    assert_eq!(server.client(&script).lines().collect::<Vec<_>>(), wanted);
    let (status, said) = server.end();
    assert!(status == 0 && said.contains("shutting down"), "{status}: {said}");
}

#[test]
fn dnsmasq_answers() {
    let needs = &["/usr/sbin/dnsmasq", "/usr/bin/dig"];
    let script = "mkdir -p /var/run; exec dnsmasq -k --log-facility=- --no-resolv --no-hosts --address=/example.test/10.9.8.7 \
                  --address=/example.test/fd00::7 --txt-record=text.example.test,hello --local=/test/";
    let Some(server) = (Served { needs, script, ports: &["{}:53", "{}:53/udp"], ready: "started, version" }).start(|_| ()) else { return };
    let dig = |words: &str| server.client(&format!("{DIG} {words}"));
    assert_eq!(dig("+short www.example.test"), "10.9.8.7\n");
    assert_eq!(dig("+short +tcp www.example.test AAAA"), "fd00::7\n");
    assert_eq!(dig("+short text.example.test TXT"), "\"hello\"\n");
    assert!(dig("none.test").contains("status: NXDOMAIN"));
    let (status, said) = server.end();
    assert!(status == 0 && said.contains("exiting on receipt of SIGTERM"), "{status}: {said}");
}
