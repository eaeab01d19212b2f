// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote shells: OpenSSH's server and dropbear, with OpenSSH's client.

use crate::world::CellNetwork;
use pando_testing::host_program;
use std::fs;
use std::process::Command;

/// A pair of keys: the client's private key and the server's public key.
fn keys() -> (String, String) {
    let directory = tempfile::tempdir().expect("the host has room");
    let path = directory.path().join("key");
    let made = Command::new(host_program("ssh-keygen")).args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&path).status();
    assert!(made.expect("ssh-keygen is there").success());
    let read = |path| fs::read_to_string(path).expect("it was made");
    (read(path.clone()), read(path.with_extension("pub")))
}

fn is_used(world: &CellNetwork, server: &str, ready: &str) {
    let (secret, public) = keys();
    let places = format!("mkdir -p /run/sshd /root/.ssh /etc/dropbear; chmod 700 /root/.ssh; echo '{public}' > /root/.ssh/authorized_keys");
    let server = world.serve(&format!("{places}; {server}"), ready);
    let (four, six) = (server.addresses.v4, server.addresses.v6);
    let client = format!(
        "umask 077; echo '{secret}' > key; echo 'Host *
IdentityFile /tmp/key
StrictHostKeyChecking accept-new
BatchMode yes
LogLevel ERROR' > conf"
    );
    assert_eq!(world.run(&format!("{client}; ssh -F conf {four} 'id -un; exit 0'; ssh -F conf {six} 'exit 7' || echo $?")), "root\n7\n");
    let script = format!(
        "{client}; seq 1 3000000 > file; scp -q -F conf file '[{six}]:/tmp/new'; scp -q -F conf {four}:/tmp/new back; cmp file back
        ssh -F conf {four} cat /tmp/new | cmp - file; echo 'tty; exit 3' | ssh -F conf -tt {four} || echo status $?"
    );
    let said = world.run(&script);
    assert!(said.contains("/dev/pts/") && said.contains("status 3"), "{said}");
}

#[test]
fn openssh_is_used_by_ssh() {
    let Some(world) = CellNetwork::new(&["/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/scp"]) else { return };
    is_used(&world, "ssh-keygen -A > /dev/null; exec /usr/sbin/sshd -D -e", "Server listening on 0.0.0.0");
}

#[test]
fn dropbear_is_used_by_ssh() {
    let Some(world) = CellNetwork::new(&["/usr/sbin/dropbear", "/usr/bin/ssh", "/usr/bin/scp"]) else { return };
    is_used(&world, "exec dropbear -F -E -R -p 22", "Not backgrounding");
}
