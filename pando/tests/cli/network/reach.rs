// SPDX-License-Identifier: MIT OR Apache-2.0
//! Networks at the command line: invalid options with their messages, and a run with each valid kind.

use crate::case::{Case, Input, PANDO, finish, text};
use crate::fixture::pando;
use pando_testing::lab::is_kvm_available;
use pando_testing::{host_program, needs_kvm};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};

/// Checks the message for these options, which are refused before a cell runs.
pub(crate) fn refused(options: &[&str], wanted: &[&str]) {
    let words: Vec<&str> = ["run"].iter().chain(options).chain(&["busybox", "true"]).copied().collect();
    let outcome = pando(&words);
    assert_eq!((outcome.status, text(&outcome.output)), (125, ""), "{options:?}: {}", outcome.errors);
    assert!(wanted.iter().all(|word| outcome.errors.contains(word)), "{options:?}: {} lacks one of {wanted:?}", outcome.errors);
}

#[test]
fn invalid_network_options_are_refused_with_reasons() {
    refused(&["-p", "80"], &["publishes the port by name", "add -d", "8080:80"]);
    refused(&["-p", "http"], &["`http` is not a port", "8080:80"]);
    refused(&["-p", "80:http"], &["`http` is not a port"]);
    refused(&["-p", "80:80/sctp"], &["`sctp`"]);
    refused(&["-p", "myhost:80:80"], &["`myhost` is not an address", "0.0.0.0"]);
    refused(&["-p", "198.51.100.7:8080:80"], &["-p: this host has no address 198.51.100.7"]);
    refused(&["--allow", "http://example.org"], &["is not a destination", "example.org"]);
    refused(&["--allow", "localhost:x"], &["has an invalid port"]);
    refused(&["--allow", "127.0.0.1:5432"], &["the cell's own loopback", "`host`"]);
    refused(&["--net", "none", "-p", "8080:80"], &["need a gateway", "--net gateway"]);
    refused(&["--net", "bridge"], &["bridge", "gateway"]);
    let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a port");
    let port = listener.local_addr().expect("it has an address").port();
    refused(&["-p", &format!("{port}:80")], &[&format!("-p: port {port} of 127.0.0.1 is taken")]);
    refused(&["-p", "8080:80", "-p", "0.0.0.0:8080:81"], &["-p: port 8080 of 0.0.0.0 is published twice"]);
    refused(&["--link", "delay=20ms"], &["--link needs a network", "--net gateway"]);
    refused(&["--net", "private", "--link", "delay"], &["`delay` is not an option", "rate=100M"]);
    refused(&["--net", "private", "--link", "delay=20"], &["`20` is not a time", "20ms"]);
    refused(&["--net", "private", "--link", "loss=2"], &["`2` is not a share", "1%"]);
}

#[test]
fn a_cell_runs_with_every_kind_of_network() {
    needs_kvm!();
    for options in [&["--net", "none"][..], &["--net=private"], &["--net", "gateway"], &["-p", "0:80"], &["--allow", "example.org:443"]] {
        let outcome = Case::new("busybox", &["echo", "here"]).options(options).cell();
        assert_eq!((outcome.status, text(&outcome.output)), (0, "here\n"), "{options:?}: {}", outcome.errors);
        let told = outcome.errors.lines().map(|line| line.ends_with(" is forwarded to port 80")).collect::<Vec<_>>();
        assert_eq!(told, vec![true; usize::from(options == ["-p", "0:80"])], "{}", outcome.errors);
    }
}

#[test]
fn statistics_count_network_traffic() {
    needs_kvm!();
    let output = std::process::Command::new(PANDO).args(["run", "--net", "gateway", "--stats=json", "busybox", "true"]).output();
    let told: serde_json::Value = serde_json::from_slice(&output.expect("pando starts").stderr).expect("one object");
    assert_eq!((&told["network"]["connections_out"], &told["refused"]), (&0.into(), &serde_json::json!([])));
    assert_eq!((&told["outside"]["kind"], &told["network"]["most_waiting"]), (&"gateway".into(), &0.into()));
}

#[test]
fn statistics_count_waiting_frames_per_port() {
    needs_kvm!();
    let port = serve(b"from the host");
    let mut command = std::process::Command::new(PANDO);
    command.args(["run", "--allow", &format!("host:{port}"), "-p", "0:80", "--stats=json"]);
    let output = command.args(["busybox", "wget", "-q", "-O", "-", &format!("http://10.77.0.1:{port}/")]).output().expect("pando starts");
    let errors = text(&output.stderr);
    let told: serde_json::Value = serde_json::from_str(errors.lines().last().expect("a line")).expect("one object");
    let [own, outside] = [&told["network"], &told["outside"]["port"]];
    let count = |port: &serde_json::Value, name: &str| port[name].as_u64().expect("a count");
    for port in [own, outside] {
        assert!(count(port, "most_waiting") >= 1 && count(port, "most_waiting_bytes") >= 54, "{told}");
        assert_eq!(count(port, "frames_lost") + count(port, "frames_overrun") + count(port, "frames_spoofed"), 0, "{told}");
    }
    assert_eq!(count(own, "frames_sent"), count(outside, "frames_received") + count(outside, "frames_waiting"), "{told}");
    assert!(
        told["published"][0]["host"].as_str().is_some_and(|host| errors.contains(&format!("{host} is forwarded to port 80"))),
        "{errors}"
    );
}

/// Starts a server on the host's loopback that answers one request with `answer`; returns its port.
pub(crate) fn serve(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a port");
    let port = listener.local_addr().expect("it has an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\n").and_then(|()| stream.write_all(answer));
        }
    });
    port
}

#[test]
fn a_client_in_a_cell_reaches_allowed_destinations_only() {
    needs_kvm!();
    let (open, closed) = (serve(b"from the host"), serve(b"never seen"));
    let fetch = |port: u16| {
        let url = format!("http://10.77.0.1:{port}/");
        let allowed = format!("host:{open}");
        Case::new("busybox", &["wget", "-q", "-O", "-", &url]).options(&["--allow", &allowed]).cell()
    };
    let outcome = fetch(open);
    assert_eq!((outcome.status, text(&outcome.output)), (0, "from the host"), "{}", outcome.errors);
    let outcome = fetch(closed);
    assert_eq!((outcome.status, text(&outcome.output)), (1, ""), "{}", outcome.errors);
    assert!(outcome.errors.contains("No route to host"), "{}", outcome.errors);
    let told = format!("pando: busybox: 10.77.0.1:{closed} is not allowed: add --allow host:{closed}\n");
    assert_eq!(outcome.errors.matches(&told).count(), 1, "{}", outcome.errors);
    let named = Case::new("busybox", &["wget", "-q", "-O", "-", "http://other.example/"]).options(&["--allow", "example.org"]).cell();
    let told = "pando: busybox: resolving other.example is not allowed: add --allow other.example\n";
    assert_eq!((named.status, named.errors.matches(told).count()), (1, 1), "{}", named.errors);
}

/// The port of the host that is forwarded to port 80 of a cell, from Pando's first line.
pub(crate) fn port_of(child: &mut std::process::Child) -> u16 {
    port_in(&mut BufReader::new(child.stderr.take().expect("a pipe")))
}

/// The same from Pando's messages, of which more are read later.
pub(crate) fn port_in(errors: &mut impl BufRead) -> u16 {
    let mut line = String::new();
    errors.read_line(&mut line).expect("pando says where");
    let port = line.strip_prefix("pando: 127.0.0.1:").and_then(|line| line.strip_suffix(" is forwarded to port 80\n"));
    port.unwrap_or_else(|| panic!("{line:?}")).parse().expect("a number")
}

#[test]
fn a_published_port_accepts_clients_before_the_server_listens() {
    needs_kvm!();
    let mut command = std::process::Command::new(PANDO);
    let script = "read go; echo from the cell > /tmp/page; exec busybox httpd -f -p 80 -h /tmp";
    command.args(["run", "-p", "0:80", "busybox", "sh", "-c", script]).stdin(std::process::Stdio::piped());
    let mut child = command.stderr(std::process::Stdio::piped()).spawn().expect("pando starts");
    let port = port_of(&mut child);
    // No server listens in the cell before this connection was accepted.
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it is forwarded");
    stream.write_all(b"GET /page HTTP/1.0\r\n\r\n").expect("it is taken");
    child.stdin.take().expect("a pipe").write_all(b"\n").expect("the cell reads");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("it is answered");
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).expect("it is ours");
    child.wait().expect("it is ours");
    assert!(page.contains(" 200 OK") && page.ends_with("from the cell\n"), "{page:?}");
}

#[test]
fn streams_arrive_over_a_link_with_delay_and_loss() {
    const BYTES: usize = 2_000_000;
    needs_kvm!();
    let page: &'static [u8] = (0..BYTES).map(|at| (at % 251) as u8).collect::<Vec<_>>().leak();
    let port = serve(page);
    // The program measures the time itself, so that a slow start of its cell does not count.
    let script = format!(
        "import socket, sys, time\nbegan = time.monotonic()\ns = socket.create_connection(('10.77.0.1', {port})); s.sendall(b'GET / HTTP/1.0\\r\\n\\r\\n')\npage = b''.join(iter(lambda: s.recv(1 << 20), b''))\nprint(time.monotonic() - began, file=sys.stderr)\nsys.stdout.buffer.write(page)"
    );
    let fetch = |link: &str| {
        let options = ["--allow", &format!("host:{port}"), "--link", link];
        let case = Case::new("/usr/bin/python3", &["-c", &script]).options(&options).cell();
        assert_eq!(case.status, 0, "{link}: {}", case.errors);
        assert!(case.output.ends_with(page), "{link}: {} bytes", case.output.len());
        case.errors.trim().parse::<f64>().unwrap_or_else(|_| panic!("{link}: {}", case.errors))
    };
    fetch("loss=5%,duplication=2%,jitter=1ms");
    // Twice there and back: for the connection, and for the page.
    let (delayed, limited) = (fetch("delay=50ms"), fetch("rate=32M"));
    assert!(delayed >= 0.2 && limited >= 0.5, "{delayed} s and {limited} s");
}

#[test]
fn datagrams_that_are_sent_at_once_all_arrive() {
    const MANY: usize = 100;
    needs_kvm!();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("the host has a port");
    // Reports a lost datagram instead of waiting for it.
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).expect("it is no zero");
    let port = socket.local_addr().expect("it has an address").port();
    let script = format!(
        "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('10.77.0.1', {port})); s.send(b'x'); s.recv(1)\nfor i in range({MANY}): s.send(b'more')\ns.send(b'last'); s.recv(1)"
    );
    let cell =
        std::thread::spawn(move || Case::new("/usr/bin/python3", &["-c", &script]).options(&["--allow", &format!("host:{port}")]).cell());
    let mut room = [0; 8];
    // The first one is answered, so that both sides know the path; of the following ones only the last.
    let (_, cells) = socket.recv_from(&mut room).expect("the first arrives");
    socket.send_to(b"y", cells).expect("the way back is open");
    let more = (0..).take_while(|_| socket.recv(&mut room).is_ok_and(|length| &room[..length] == b"more")).count();
    socket.send_to(b"y", cells).expect("the way back is open");
    let outcome = cell.join().expect("it does not panic");
    assert_eq!((outcome.status, more), (0, MANY), "{}", outcome.errors);
}

#[test]
fn the_last_bytes_of_a_program_arrive_after_its_cell_has_ended() {
    const BYTES: usize = 8_000_000;
    needs_kvm!();
    let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a port");
    let port = listener.local_addr().expect("it has an address").port();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the cell connects");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).map(|_| bytes.len())
    });
    let script = format!("import socket; s = socket.create_connection(('10.77.0.1', {port})); s.sendall(b'x' * {BYTES})");
    let outcome = Case::new("/usr/bin/python3", &["-c", &script]).options(&["--allow", &format!("host:{port}")]).cell();
    assert_eq!(outcome.status, 0, "{}", outcome.errors);
    assert_eq!(reader.join().expect("it does not panic").expect("the stream ends well"), BYTES);
}

/// The output of one echo request of Debian's ping in a cell with a gateway, and its status.
fn ping(options: &[&str], words: &[&str]) -> (i32, String) {
    let words: Vec<&str> = ["-c", "1"].iter().chain(words).copied().collect();
    let outcome = Case::new("/usr/bin/ping", &words).options(&[&["--net", "gateway"], options].concat()).cell();
    assert_eq!(outcome.errors, "", "{words:?}");
    (outcome.status, text(&outcome.output).to_owned())
}

#[test]
fn ping_is_answered_by_the_cell_and_by_its_gateway() {
    needs_kvm!();
    for host in ["127.0.0.1", "::1", "10.77.0.1", "fd70:616e:646f::1"] {
        let (status, told) = ping(&[], &[host]);
        assert!(status == 0 && told.contains("icmp_seq=1 ttl=64 time=") && told.contains(" 0% packet loss"), "{host}: {told}");
    }
    // Unprivileged users may ping too.
    let (status, told) = ping(&["-u", "1000"], &["10.77.0.1"]);
    assert!(status == 0 && told.contains("icmp_seq=1 ttl=64 time="), "{told}");
}

#[test]
fn ping_reports_an_unreachable_address() {
    needs_kvm!();
    for (host, told) in
        [("10.77.9.9", "Destination Host Unreachable"), ("fd70:616e:646f::9999", "Destination unreachable: Address unreachable")]
    {
        for user in ["0", "1000"] {
            let (status, said) = ping(&["-u", user], &[host]);
            assert!(status == 1 && said.contains(&format!("icmp_seq=1 {told}")) && said.contains("+1 errors"), "{host}: {said}");
        }
    }
}

/// Runs a script on a host with documentation addresses in place of the Internet. `groups` sets which of its users may send
/// echo requests.
fn pings_of_a_host(groups: &str, script: &str) -> Option<(String, String)> {
    let before = format!(
        "set -e; ip link set lo up; ip addr add 198.51.100.7/32 dev lo; ip addr add 2001:db8::7/128 dev lo nodad; echo {groups} > /proc/sys/net/ipv4/ping_group_range"
    );
    let unshared = |script: &str| {
        let mut command = std::process::Command::new(host_program("unshare"));
        command.args(["--net", "sh", "-c", script]).env("PANDO", PANDO);
        finish(command, Input::Nothing)
    };
    if !is_kvm_available() || unshared(&before).status != 0 {
        println!("left out: a network namespace needs root and iproute2");
        return None;
    }
    let outcome = unshared(&format!("{before}; {script}"));
    Some((text(&outcome.output).to_owned(), outcome.errors))
}

#[test]
fn ping_reaches_the_world_as_far_as_it_is_opened() {
    let script = r#"ip route add prohibit 198.51.100.10
        run() { "$PANDO" run --allow 198.51.100.7 --allow 2001:db8::7 --allow 198.51.100.8 --allow 198.51.100.9:80 --allow 198.51.100.10 "$@" || true; }
        run -u 1000 /usr/bin/ping -c 2 -i 0.01 -s 9000 198.51.100.7
        run /usr/bin/ping -c 1 2001:db8::7
        run /usr/bin/ping -c 1 198.51.100.8
        run /usr/bin/ping -c 1 198.51.100.9
        run /usr/bin/ping -c 1 198.51.100.10"#;
    let Some((told, errors)) = pings_of_a_host("0 2147483647", script) else { return };
    let parts: Vec<&str> = told.split("PING ").skip(1).collect();
    assert!(
        parts[0].contains("9008 bytes from 198.51.100.7: icmp_seq=1 ttl=64") && parts[0].contains("2 received, 0% packet loss"),
        "{told}"
    );
    assert!(parts[1].contains("64 bytes from 2001:db8::7: icmp_seq=1 ttl=64") && parts[1].contains("1 received, 0% packet loss"), "{told}");
    assert!(parts[2].contains("icmp_seq=1 Destination Net Unreachable"), "{told}");
    assert!(parts[3].contains("icmp_seq=1 Packet filtered"), "{told}");
    // A prohibited route for one address does not disable ping for others.
    assert!(parts[4].contains("icmp_seq=1 Packet filtered"), "{told}");
    assert_eq!(errors, "pando: /usr/bin/ping: ping 198.51.100.9 is not allowed: add --allow 198.51.100.9\n");
}

#[test]
fn a_host_that_forbids_ping_is_reported_with_the_remedy() {
    let script = r#""$PANDO" run --allow 198.51.100.7 /usr/bin/ping -c 1 198.51.100.7"#;
    let Some((told, errors)) = pings_of_a_host("1 0", script) else { return };
    assert!(told.contains("icmp_seq=1 Packet filtered"), "{told}");
    assert!(errors.contains("this host does not allow you to ping") && errors.contains("net.ipv4.ping_group_range="), "{errors}");
}

#[test]
fn raw_sockets_need_a_permission() {
    needs_kvm!();
    let script = "import socket\nfor kind, protocol in ((3, 1), (3, 17), (2, 1)):\n try: print(socket.socket(socket.AF_INET, kind, protocol).getsockname())\n except OSError as error: print(error.strerror)";
    for (user, first) in [("0", "('0.0.0.0', 1)"), ("1000", "Operation not permitted")] {
        let outcome = Case::new("/usr/bin/python3", &["-c", script]).options(&["-u", user]).cell();
        assert_eq!(text(&outcome.output), format!("{first}\nProtocol not supported\n('0.0.0.0', 0)\n"), "{}", outcome.errors);
    }
}

#[test]
fn an_arriving_frame_wakes_a_packet_sockets_reader() {
    needs_kvm!();
    // An ARP request for the gateway, which answers it.
    let script = r#"import os, socket
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x806)); s.bind(('eth0', 0x806))
own = s.getsockname()[4]
ip = socket.inet_aton(socket.gethostbyname(socket.gethostname()))
s.send(b'\xff' * 6 + own + bytes.fromhex('08060001080006040001') + own + ip + bytes(6) + bytes([10, 77, 0, 1]))
while True:
 frame = s.recv(1514)
 if frame[20:22] == b'\0\2': break
print(*frame[28:32], sep='.')"#;
    let outcome = Case::new("/usr/bin/python3", &["-c", script]).options(&["--net", "gateway"]).cell();
    assert_eq!((outcome.status, text(&outcome.output)), (0, "10.77.0.1\n"), "{}", outcome.errors);
}

#[test]
fn data_for_a_shut_down_socket_is_answered_with_a_reset() {
    needs_kvm!();
    let listener = TcpListener::bind("127.0.0.1:0").expect("the host has a port");
    let port = listener.local_addr().expect("it has an address").port();
    let writer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the cell connects");
        let mut end = Vec::new();
        stream.read_to_end(&mut end).expect("the cell says nothing more");
        // More than all buffers hold, so that only an error ends the loop.
        std::iter::repeat_with(|| stream.write_all(&[0; 4096])).find_map(Result::err).map(|error| error.kind())
    });
    let script = format!(
        "import select, socket\ns = socket.create_connection(('10.77.0.1', {port})); s.shutdown(2)\np = select.poll(); p.register(s, 0); p.poll()\nwhile not p.poll()[0][1] & select.POLLERR: pass\ntry: s.recv(1)\nexcept OSError as error: print(error.strerror)"
    );
    let outcome = Case::new("/usr/bin/python3", &["-c", &script]).options(&["--allow", &format!("host:{port}")]).cell();
    assert_eq!((outcome.status, text(&outcome.output)), (0, "Connection reset by peer\n"), "{}", outcome.errors);
    let error = writer.join().expect("it does not panic").expect("it ends");
    assert!(matches!(error, std::io::ErrorKind::ConnectionReset | std::io::ErrorKind::BrokenPipe), "{error}");
}

#[test]
fn processes_that_share_a_port_share_its_connections() {
    const WORKERS: usize = 4;
    needs_kvm!();
    let script = format!(
        "import os, socket\ndef serve(number):\n s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1); s.bind(('', 80)); s.listen()\n print('ready', flush=True)\n while True: s.accept()[0].sendall(b'%d' % number)\nfor number in range({WORKERS}):\n if os.fork() == 0: serve(number)\nos.wait()"
    );
    let mut command = std::process::Command::new(PANDO);
    command.args(["run", "-p", "0:80", "/usr/bin/python3", "-c", &script]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().expect("pando starts");
    let port = port_of(&mut child);
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.take(WORKERS).filter_map(Result::ok).filter(|line| line == "ready").count(), WORKERS);
    let mut parts = [0; WORKERS];
    for _ in 0..64 {
        let mut answer = String::new();
        let read = TcpStream::connect(("127.0.0.1", port)).and_then(|mut stream| stream.read_to_string(&mut answer));
        assert!(read.is_ok(), "{read:?}");
        parts[answer.parse::<usize>().expect("a worker's number")] += 1;
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).expect("it is ours");
    child.wait().expect("it is ours");
    assert!(parts.iter().all(|part| *part > 0), "{parts:?}");
}

#[test]
fn a_dhcp_client_gets_the_addresses_of_the_cell() {
    needs_kvm!();
    // The actions of Debian's own script for a lease.
    let script = r#"cat > /tmp/told <<'EOF'
#!/bin/sh
echo "$1 $subnet $router $dns"
case $1 in
    bound)
        busybox ifconfig $interface $ip netmask $subnet
        test "$(busybox ip -4 route show dev $interface)" || busybox ip -4 route add default via $router dev $interface ;;
    deconfig)
        busybox ip link set $interface up
        busybox ip -4 addr flush dev $interface
        busybox ip -4 route flush dev $interface
        busybox ip -4 addr show dev $interface | grep -c inet ;;
esac
EOF
chmod 755 /tmp/told
own=$(busybox ip -4 addr show dev eth0 | grep inet)
busybox udhcpc -f -n -q -i eth0 -s /tmp/told 2>/tmp/log || cat /tmp/log
test "$own" = "$(busybox ip -4 addr show dev eth0 | grep inet)" && echo same
busybox ip -4 route
busybox ping -c 1 10.77.0.1 | grep -c ttl=64
busybox ifconfig eth0 10.77.9.9 || busybox ip addr add 10.77.9.9/16 dev eth0"#;
    let outcome = Case::new("/bin/sh", &["-c", script]).options(&["--net", "gateway"]).cell();
    let told = "deconfig   \n0\nbound 255.255.0.0 10.77.0.1 10.77.0.1\nsame\ndefault via 10.77.0.1 dev eth0 \n1\n";
    assert_eq!(text(&outcome.output), told, "{}", outcome.errors);
    assert!(
        outcome.errors.contains("SIOCSIFADDR: Operation not permitted")
            && outcome.errors.contains("RTNETLINK answers: Operation not permitted")
    );
    assert!(!outcome.errors.contains("File exists"), "{}", outcome.errors);
}
