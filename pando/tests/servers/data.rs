// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data servers: redis, memcached and PostgreSQL, with their own clients.

use crate::server::{Served, Server, long_runs, noise};
use std::fs;
use std::path::Path;

#[test]
fn redis_keeps_values() {
    let needs = &["/usr/bin/redis-server", "/usr/bin/redis-cli", "/usr/bin/redis-benchmark"];
    let script = "exec redis-server /etc/redis/redis.conf --bind '* -::*' --protected-mode no --daemonize no --logfile '' --dir /tmp --supervised no";
    // Only the server can read its configuration file, so Debian's changes are repeated here.
    let script = script.replace("/etc/redis/redis.conf ", "");
    let (size, rounds) = if long_runs() { (100_000_000, 1_000_000) } else { (30_000_000, 50_000) };
    let value = |directory: &Path| fs::write(directory.join("value"), noise(size)).expect("there is room");
    let Some(server) = (Served { needs, script: &script, ports: &["{}:6379"], ready: "Ready to accept connections" }).start(value) else {
        return;
    };
    assert_eq!(server.client("redis-cli -p $P set a 41; redis-cli -p $P incr a; redis-cli -p $P get a"), "OK\n42\n42\n");
    assert_eq!(
        server.client("seq 1 20000 | sed 's/.*/set key& &/' | redis-cli -p $P --pipe | tail -1; redis-cli -p $P dbsize"),
        "errors: 0, replies: 20000\n20001\n"
    );
    // Its own benchmark, one request at a time and pipelined.
    let tested = server.client(&format!(
        "redis-benchmark -p $P -n 2000 -t set,get,lpush,lrange_100 --csv; redis-benchmark -p $P -n {rounds} -P 32 -t set,get,mset --csv"
    ));
    let tests = ["SET", "GET", "LPUSH", "LRANGE_100 (first 100 elements)", "MSET (10 keys)"];
    assert!(tests.iter().all(|test| tested.contains(&format!("\"{test}\","))), "{tested}");
    server.client(&format!(
        "redis-cli -p $P -x set large < value > /dev/null; redis-cli -p $P --raw get large | head -c {size} | cmp - value; redis-cli -p $P strlen large"
    ));
    // A subscriber receives the messages that another client publishes.
    let script = "coproc redis-cli -p $P subscribe news; for line in 1 2 3; do read -r -u ${COPROC[0]}; done; redis-cli -p $P publish news hello; \
                  for line in 1 2 3; do read -r -u ${COPROC[0]} word; echo $word; done; kill $COPROC_PID";
    assert_eq!(server.client(script), "1\nmessage\nnews\nhello\n");
    server.client("redis-cli -p $P save; redis-cli -p $P shutdown || true");
    let (status, said) = server.end();
    assert!(status == 0 && said.contains("Redis is now ready to exit"), "{status}: {said}");
}

#[test]
fn memcached_keeps_values() {
    let needs = &["/usr/bin/memcached", "/usr/bin/memccapable", "/usr/bin/memcslap", "/usr/bin/python3"];
    let script = "(until memcping --servers=127.0.0.1 2> /dev/null; do :; done; echo is open) & exec memcached -u memcache -U 11211 -I 8m";
    let ports = &["{}:11211", "{}:11211/udp"];
    let Some(server) = (Served { needs, script, ports, ready: "is open" }).start(|_| ()) else { return };
    let tested = server.client("memccapable -h 127.0.0.1 -p $P");
    assert!(tested.ends_with("All tests passed\n"), "{tested}");
    // It returns all stored data, of any size, to a client that requests many keys at once.
    server.client(
        "seq 1 500000 > one; seq 500000 900000 > two; memccp --servers=127.0.0.1:$P one two; memccat --servers=127.0.0.1:$P one | cmp - <(cat one; echo); \
        memccat --servers=127.0.0.1:$P two | cmp - <(cat two; echo); memcrm --servers=127.0.0.1:$P one; ! memcexist --servers=127.0.0.1:$P one",
    );
    let tested = server.client("memcslap --servers=127.0.0.1:$P --concurrency=4 --execute-number=500 --initial-load=1000 --test=mget 2>&1");
    assert!(tested.contains("Time total"), "{tested}");
    let told = server.client("memcstat --servers=127.0.0.1:$P");
    assert!(told.contains("curr_items: ") && told.contains("version: "), "{told}");
    // Over UDP each answer takes as many datagrams as needed.
    let script = r#"python3 - <<'END'
import os, socket
to = ("127.0.0.1", int(os.environ["P"]))
one = socket.create_connection(to)
value = bytes(range(256)) * 40
one.sendall(b"set large 0 0 %d\r\n%s\r\n" % (len(value), value))
assert one.recv(100) == b"STORED\r\n"
asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.settimeout(60)
asker.sendto(b"\0\7\0\0\0\1\0\0get large\r\n", to)
parts, count = {}, 1
while len(parts) < count:
    answer = asker.recv(65536)
    assert answer[:2] == b"\0\7", answer[:8]
    count = int.from_bytes(answer[4:6], "big")
    parts[int.from_bytes(answer[2:4], "big")] = answer[8:]
text = b"".join(part for _, part in sorted(parts.items()))
print(count > 1, text == b"VALUE large 0 %d\r\n%s\r\nEND\r\n" % (len(value), value))
END"#;
    assert_eq!(server.client(script), "True True\n");
}

/// A database cluster made by Debian's tools, opened for the network as documented, without synchronous writes: they would measure the
/// disk.
const POSTGRESQL: &str = r#"
export PATH=/usr/lib/postgresql/15/bin:$PATH
mkdir -p /var/lib/postgresql /var/run/postgresql && chown postgres /var/lib/postgresql /var/run/postgresql
cd /var/lib/postgresql
runuser -u postgres -- initdb -D data -A trust --no-locale -E UTF8 -N > /tmp/made || cat /tmp/made
echo "host all all all scram-sha-256" >> data/pg_hba.conf
echo "listen_addresses = '*'" >> data/postgresql.conf
(until psql -U postgres -qc "alter user postgres password 'secret'" 2> /dev/null; do :; done; echo is open) &
exec setpriv --reuid postgres --regid postgres --init-groups postgres -D data
"#;

fn postgresql() -> Option<Server> {
    let needs = &["/usr/lib/postgresql/15/bin/postgres", "/usr/sbin/runuser", "/usr/bin/setpriv"];
    let server = Served { needs, script: POSTGRESQL, ports: &["{}:5432"], ready: "is open" }.start(|_| ())?;
    Some(server)
}

/// The clients' connection settings for PostgreSQL.
const PG: &str = "export PGHOST=127.0.0.1 PGPORT=$P PGUSER=postgres PGPASSWORD=secret";

#[test]
fn postgresql_keeps_tables() {
    let Some(server) = postgresql() else { return };
    let psql = |script: &str| server.client(&format!("{PG}; {script}"));
    psql("createdb bench");
    // Many clients change the same rows concurrently; then the totals are balanced.
    let transactions = if long_runs() { 1000 } else { 25 };
    let told = psql(&format!("pgbench -i -q -s 1 bench 2>&1; pgbench -c 8 -j 2 -t {transactions} bench 2>&1"));
    assert!(told.contains(&format!("processed: {0}/{0}", 8 * transactions)), "{told}");
    let sums = psql("psql -At bench -c 'select count(*), sum(delta) = (select sum(abalance) from pgbench_accounts) from pgbench_history'");
    assert_eq!(sums, format!("{}|t\n", 8 * transactions));
    // Exported data equals imported data.
    psql(
        "seq 1 1000000 | awk '{ print $1 \"\\t\" $1 * 7 % 1000003 }' > rows; psql -q bench -c 'create table t (a int, b int)' -c '\\copy t from rows' \
        -c '\\copy t to back'; cmp rows back",
    );
    assert_eq!(psql("psql -At bench -c 'select count(*), sum(a::bigint), max(b) from t'"), "1000000|500000500000|1000002\n");
    psql("psql -AtF '\t' bench -c 'select a, b from t order by b' | cmp - <(sort -n -k 2 rows)");
    assert_eq!(psql("psql -At bench -c 'select 1 / 0' 2>&1 || true"), "ERROR:  division by zero\n");
    assert!(psql("PGPASSWORD=wrong psql bench -c 'select 1' 2>&1 || true").contains("password authentication failed"));
    let (status, said) = server.end();
    assert!(status == 0 && said.contains("database system is shut down"), "{status}: {said}");
}
