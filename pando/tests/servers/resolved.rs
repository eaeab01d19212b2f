// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clients in cells that resolve names: through `/etc/resolv.conf` and the gateway to the host's resolver, which is dnsmasq
//! on the loopback of a host created for this test.

use pando_testing::lab::is_kvm_available;
use pando_testing::{are_installed, host_program};
use std::path::Path;
use std::process::{Command, Stdio};

/// A separate host: a network with a web server behind a link, a resolver on its loopback, and `cell`, which runs a script in a cell.
const HOST: &str = r#"
set -euo pipefail
ip link set lo up
mkdir pages
echo a page > pages/page
unshare --net python3 -m http.server --bind :: --directory pages 80 2> /dev/null &
far=$!
until [ "$(readlink /proc/$far/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do :; done
ip link add near type veth peer name far netns $far
ip addr add 198.51.100.1/24 dev near; ip addr add 2001:db8::1/64 dev near nodad; ip link set near up
nsenter -t $far -n sh -c 'ip addr add 198.51.100.2/24 dev far; ip addr add 2001:db8::2/64 dev far nodad; ip link set far up'
echo nameserver 127.0.0.1 > resolvers
mount --bind resolvers /etc/resolv.conf
strings=$(for n in 1 2 3 4 5 6 7 8 9 10; do printf ',%0200d' $n; done)
dnsmasq --keep-in-foreground --pid-file --user=root --no-resolv --no-hosts --listen-address=127.0.0.1 --bind-interfaces \
    --host-record=web.test,198.51.100.2,2001:db8::2 --host-record=other.test,198.51.100.2 --txt-record=big.test$strings &
until curl -s -o /dev/null http://web.test/ && curl -s -o /dev/null http://[2001:db8::2]/; do kill -0 $far; done
cell() { rules=$1; shift; "$PANDO" run $rules -- bash -c "$*" 2>&1; }
"#;

/// Runs a script on such a host and returns its output. If this machine lacks something, prints that and returns `None`.
fn on_host(script: &str) -> Option<String> {
    if !is_kvm_available() || !are_installed(&["dnsmasq", "dig", "curl", "wget", "python3", "nsenter", "ip"]) {
        return None;
    }
    let namespaces = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let may =
        Command::new(host_program("unshare")).args(namespaces).args(["sh", "-c", "ip link add near type veth peer name far"]).output();
    if !may.is_ok_and(|output| output.status.success()) {
        println!("left out: a network namespace needs root, and a kernel with veth");
        return None;
    }
    let directory = tempfile::tempdir().expect("the host has room");
    let mut command = Command::new(host_program("timeout"));
    command.args(["--kill-after=5", "120", "unshare"]).args(namespaces).args(["bash", "-c", &format!("{HOST}{script}")]);
    command.env_clear().envs([("LC_ALL", "C.UTF-8"), ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"), ("TZ", "UTC0")]);
    command.env("PANDO", env!("CARGO_BIN_EXE_pando")).env("XDG_CACHE_HOME", Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli/cache"));
    let said = command.current_dir(directory.path()).stdin(Stdio::null()).output().expect("it starts");
    let (output, errors) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{script}\nended with {}: {output}\n{errors}", said.status);
    Some(output.into_owned())
}

#[test]
fn clients_go_by_names_as_far_as_rules_allow() {
    let script = "
cell '--allow web.test/private' 'grep nameserver /etc/resolv.conf | head -n 1; curl -sS http://web.test/page; curl -sS -6 http://web.test/page
    wget -qO- http://web.test/page; wget -6 -qO- http://web.test/page'
# Another name that has the same address, and an address that no name led to.
cell '--allow web.test/private' 'curl -sS http://other.test/page || echo $?; curl -s http://198.51.100.2/page || echo $?'
cell '--allow *.test/private' 'curl -sS http://other.test/page http://web.test/page'
# Names alone.
cell '--allow dns' 'dig +short web.test; dig +short web.test AAAA; dig +short +tcp web.test; dig none.example | grep -o REFUSED
    dig +short big.test TXT | wc -c; getent ahosts web.test | grep -c STREAM; curl -s http://web.test/page || echo $?'";
    let Some(said) = on_host(script) else { return };
    let wanted = [
        "nameserver 10.77.0.1\na page\na page\na page\na page\n",
        "curl: (6) Could not resolve host: other.test\n6\n7\n",
        "a page\na page\n",
        "198.51.100.2\n2001:db8::2\n198.51.100.2\nREFUSED\n2030\n2\n7\n",
    ];
    // The gateway's refusals are printed in between.
    let (refusals, said): (Vec<&str>, Vec<&str>) = said.lines().partition(|line| line.starts_with("pando: "));
    assert_eq!(said, wanted.concat().lines().collect::<Vec<_>>());
    for refused in ["resolving other.test is", "198.51.100.2:80 is"] {
        assert!(refusals.iter().any(|line| line.starts_with(&format!("pando: bash: {refused} not allowed: add --allow "))), "{refusals:?}");
    }
}
