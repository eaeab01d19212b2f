// SPDX-License-Identifier: MIT OR Apache-2.0
//! DNS servers: BIND and dnsmasq, queried by dig over UDP and TCP, IPv4 and IPv6.

use crate::world::CellNetwork;

/// A query with a generous timeout.
const DIG: &str = "dig +time=20 +tries=2";
/// A zone with a thousand hosts, and a name whose answer is large.
const ZONE: &str = "{ echo '$TTL 60
@ IN SOA ns root ( 1 60 60 60 60 )
  IN NS ns
ns IN A 10.1.1.1
www IN A 10.1.1.2
www IN AAAA fd00::2'; seq 1 1000 | sed 's/.*/h& IN A 10.2.3.4/'; seq 1 60 | sed 's/.*/big IN TXT \"& xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"/'; } > /tmp/zone
echo 'options { directory \"/tmp\"; recursion no; allow-transfer { any; }; listen-on-v6 { any; }; };
zone \"example.test\" { type primary; file \"/tmp/zone\"; };' > /tmp/named.conf; mkdir -p /run/named; chown bind /run/named";

#[test]
fn bind_is_asked_by_dig() {
    let Some(world) = CellNetwork::new(&["/usr/sbin/named", "/usr/bin/dig"]) else { return };
    let server = world.serve(&format!("{ZONE}; exec named -g -u bind -c /tmp/named.conf"), "all zones loaded");
    let (four, six) = (server.addresses.v4, server.addresses.v6);
    for host in [four.to_string(), six.to_string()] {
        let script = format!(
            "{DIG} @{host} +short www.example.test; {DIG} @{host} +short +tcp www.example.test AAAA; {DIG} @{host} +short h1000.example.test"
        );
        assert_eq!(world.run(&script), "10.1.1.2\nfd00::2\n10.2.3.4\n");
        // Answers above one packet of the network: a datagram that still arrives in one frame, or TCP after truncation.
        let script = format!(
            "{DIG} @{host} +noall +answer +bufsize=4096 big.example.test TXT | wc -l; {DIG} @{host} +noall +answer example.test AXFR | wc -l"
        );
        assert_eq!(world.run(&script), "60\n1066\n");
    }
    let script = format!("seq 1 1000 | sed 's/.*/h&.example.test/' > hosts; {DIG} @{four} +short -f hosts | uniq -c | tr -s ' '");
    assert_eq!(world.run(&script), " 1000 10.2.3.4\n");
}

#[test]
fn dnsmasq_is_asked_by_dig_and_resolves_for_others() {
    let Some(world) = CellNetwork::new(&["/usr/sbin/dnsmasq", "/usr/bin/dig", "/usr/bin/curl", "/usr/bin/wget", "/usr/bin/python3"]) else {
        return;
    };
    let web = world.serve("echo a page > index.html; exec python3 -u -m http.server 80", "Serving HTTP on");
    let (web4, web6) = (web.addresses.v4, web.addresses.v6);
    let script = format!(
        "mkdir -p /var/run; exec dnsmasq -k --log-facility=- --no-resolv --no-hosts --interface=eth0 --host-record=web.test,{web4},{web6} --local=/test/"
    );
    let server = world.serve(&script, "started, version");
    let (four, six) = (server.addresses.v4, server.addresses.v6);
    let script =
        format!("{DIG} @{four} +short web.test; {DIG} @{six} +short +tcp web.test AAAA; {DIG} @{four} none.test | grep -o NXDOMAIN");
    assert_eq!(world.run(&script), format!("{web4}\n{web6}\nNXDOMAIN\n"));
    // Programs that resolve names through the resolver of `/etc/resolv.conf`.
    for resolver in [four.to_string(), six.to_string()] {
        let script = format!(
            "echo nameserver {resolver} > /etc/resolv.conf; curl -sS http://web.test/; wget -4 -qO- http://web.test/; getent ahosts web.test | grep -c STREAM"
        );
        assert_eq!(world.run(&script), "a page\na page\n2\n");
    }
}
