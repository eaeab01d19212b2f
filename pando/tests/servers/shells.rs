// SPDX-License-Identifier: MIT OR Apache-2.0
//! Remote shells: OpenSSH's server and dropbear, with OpenSSH's clients.

use crate::server::{Served, Server, noise};
use pando_testing::host_program;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The clients' options for keys and known hosts.
const OPTIONS: &str = "-i key -o UserKnownHostsFile=hosts -o StrictHostKeyChecking=accept-new -o BatchMode=yes -o LogLevel=ERROR -F none";
/// Creates a user beside root, and installs the authorised keys. The cell cannot use the host's private host keys, so it
/// creates its own.
const USERS: &str = "mkdir -p /run/sshd /var/log /etc/dropbear; : > /var/log/lastlog; : > /var/log/wtmp; : > /run/utmp
groupadd -g 4321 guest && useradd -u 4321 -g 4321 -m -s /bin/bash guest || exit
for user in root guest; do
    home=$(getent passwd $user | cut -d: -f6); mkdir -p $home/.ssh; cp /srv/key.pub $home/.ssh/authorized_keys
    chmod 700 $home/.ssh; chmod 600 $home/.ssh/authorized_keys; chown -R $user: $home
done";

fn key(directory: &Path) {
    let made = Command::new(host_program("ssh-keygen")).args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(directory.join("key")).status();
    assert!(made.expect("ssh-keygen is there").success());
    fs::write(directory.join("large"), noise(50_000_000)).expect("there is room");
}

/// Typical use: commands, file transfers in both directions, a session at a terminal.
fn use_it(server: &Server) {
    let ssh = format!("ssh {OPTIONS} -p $P");
    let scp = format!("scp -q {OPTIONS} -P $P");
    assert_eq!(server.client(&format!("{ssh} root@127.0.0.1 'id -un; hostname; pwd'")), "root\npando\n/root\n");
    assert_eq!(
        server.client(&format!("{ssh} guest@127.0.0.1 'id; ! cat /root/.ssh/authorized_keys 2> /dev/null'")),
        "uid=4321(guest) gid=4321(guest) groups=4321(guest)\n"
    );
    assert_eq!(
        server.client(&format!("{ssh} root@127.0.0.1 'echo $SSH_CONNECTION; exit 7' || echo $?")).split(' ').nth(2),
        Some("10.77.0.2")
    );
    assert!(
        server
            .client(
                &format!("ssh-keygen -q -t ed25519 -N '' -f other; {ssh} -i other -o IdentitiesOnly=yes root@127.0.0.1 true 2>&1 || true")
                    .replace("-i key ", "")
            )
            .contains("Permission denied")
    );
    // File transfers by the new protocol and by the old, in both directions.
    server.client(&format!("{scp} large guest@127.0.0.1:new; {scp} guest@127.0.0.1:new back; cmp large back"));
    server.client(&format!("{scp} -O large guest@127.0.0.1:old; {ssh} guest@127.0.0.1 cmp new old"));
    let sftp = format!(
        "printf 'mkdir some\\nput key.pub some/thing\\nrename some/thing some/other\\nls -l some\\n' | sftp -q -b - {OPTIONS} -P $P guest@127.0.0.1"
    );
    let listed = server.client(&sftp);
    assert!(listed.contains("some/other"), "{listed}");
    // Through the pipes of a shell, in both directions at once.
    server.client(&format!("{ssh} root@127.0.0.1 'tr a-y b-z | tr b-z a-y' < <(seq 1 200000) | cmp - <(seq 1 200000)"));
    // A session at a terminal that the server allocates.
    let script = format!(
        "printf 'tty; stty size cols 90 rows 30; stty size; sh -c \"kill -INT 0\"; echo went on\\nexit 3\\n' | {ssh} -tt guest@127.0.0.1 || echo status $?"
    );
    let said = server.client(&script);
    assert!(["/dev/pts/", "30 90", "status 3"].iter().all(|word| said.contains(word)), "{said}");
    // A port of the cell, forwarded through the connection to a socket of the client.
    let script = format!(
        "{ssh} -f -N -M -S control -L $PWD/through:127.0.0.1:22 root@127.0.0.1; \
        curl -sS --http0.9 -m 20 --unix-socket through http://x/ | head -c 4 || true; {ssh} -S control -O exit root@127.0.0.1 2> /dev/null"
    );
    assert_eq!(server.client(&script), "SSH-");
}

#[test]
fn openssh_lets_users_in() {
    let needs = &["/usr/sbin/sshd", "/usr/bin/ssh", "/usr/bin/scp", "/usr/sbin/useradd"];
    let script = &format!("{USERS}; ssh-keygen -A > /dev/null; exec /usr/sbin/sshd -D -e");
    let Some(server) = (Served { needs, script, ports: &["{}:22"], ready: "Server listening on 0.0.0.0" }).start(key) else { return };
    use_it(&server);
    let (status, said) = server.end();
    assert!(status == 0 && said.contains("Received signal 15; terminating"), "{status}: {said}");
    let complaints = ["PAM: ", "error: ", "fatal: ", "sys_get_rdomain"];
    assert!(!complaints.iter().any(|word| said.contains(word)), "{said}");
}

#[test]
fn dropbear_lets_users_in() {
    let needs = &["/usr/sbin/dropbear", "/usr/lib/openssh/sftp-server", "/usr/bin/ssh", "/usr/bin/scp", "/usr/sbin/useradd"];
    let script = &format!("{USERS}; exec dropbear -F -E -R -p 22");
    let Some(server) = (Served { needs, script, ports: &["{}:22"], ready: "Not backgrounding" }).start(key) else { return };
    use_it(&server);
}
