// SPDX-License-Identifier: MIT OR Apache-2.0
//! Data servers: redis, memcached and PostgreSQL, with their own clients.

use crate::world::CellNetwork;

#[test]
fn redis_is_asked_by_its_client_and_its_benchmark() {
    let Some(world) = CellNetwork::new(&["/usr/bin/redis-server", "/usr/bin/redis-cli", "/usr/bin/redis-benchmark"]) else { return };
    let server = world.serve("exec redis-server --protected-mode no --save ''", "Ready to accept connections");
    let (four, six) = (server.addresses.v4, server.addresses.v6);
    assert_eq!(world.run(&format!("redis-cli -h {four} set a 41; redis-cli -h {six} incr a")), "OK\n42\n");
    let script = format!(
        "redis-benchmark -h {four} -n 20000 -t set,get,lrange_100 --csv; redis-benchmark -h {six} -n 50000 -P 32 -t set,get,mset --csv"
    );
    let tested = world.run(&script);
    assert!(["\"SET\",", "\"GET\",", "\"MSET (10 keys)\","].iter().all(|test| tested.contains(test)), "{tested}");
    let script = format!(
        "seq 1 4000000 > value; redis-cli -h {four} -x set large < value; redis-cli -h {four} --raw get large | head -c -1 | cmp - value"
    );
    assert_eq!(world.run(&script), "OK\n");
    // One cell receives the messages that another publishes.
    let listener = world.serve(&format!("redis-cli -h {four} subscribe news"), "subscribe");
    assert_eq!(world.run(&format!("redis-cli -h {four} publish news hello")), "1\n");
    world.run(&format!("until redis-cli -h {four} ping | grep -q PONG; do :; done"));
    assert!(listener.output_so_far().contains("news"));
}

#[test]
fn memcached_is_asked_by_its_clients() {
    let Some(world) = CellNetwork::new(&["/usr/bin/memcached", "/usr/bin/memccapable", "/usr/bin/memcslap"]) else { return };
    let server =
        world.serve("(until memcping --servers=127.0.0.1 2> /dev/null; do :; done; echo is open) & exec memcached -u memcache", "is open");
    let four = server.addresses.v4;
    let tested = world.run(&format!("memccapable -h {four} -p 11211"));
    assert!(tested.ends_with("All tests passed\n"), "{tested}");
    world.run(&format!("seq 1 100000 > one; memccp --servers={four} one; memccat --servers={four} one | cmp - <(cat one; echo)"));
    let tested = world.run(&format!("memcslap --servers={four} --concurrency=4 --execute-number=200 --initial-load=500 --test=get 2>&1"));
    assert!(tested.contains("Time total"), "{tested}");
}

/// A database cluster that trusts all addresses of the network.
const POSTGRESQL: &str =
    "mkdir -p /var/lib/postgresql /var/run/postgresql; chown postgres /var/lib/postgresql /var/run/postgresql; cd /var/lib/postgresql
as() { setpriv --reuid postgres --regid postgres --init-groups \"$@\"; }
as initdb -D data -A trust --no-locale -E UTF8 -N > /tmp/made
echo 'host all all all trust' >> data/pg_hba.conf
exec setpriv --reuid postgres --regid postgres --init-groups postgres -D data -c listen_addresses='*'";

#[test]
fn postgresql_is_asked_by_its_clients() {
    let Some(world) = CellNetwork::new(&["/usr/lib/postgresql/15/bin/postgres", "/usr/bin/setpriv"]) else { return };
    let server = world.serve(POSTGRESQL, "ready to accept connections");
    let (four, six) = (server.addresses.v4, server.addresses.v6);
    let script = format!(
        "export PGUSER=postgres PGHOST={four}; createdb bench; pgbench -i -q bench 2>&1; pgbench -c 8 -t 25 bench 2>&1
        psql -At bench -c 'select count(*), sum(delta) = (select sum(abalance) from pgbench_accounts) from pgbench_history'"
    );
    let told = world.run(&script);
    assert!(told.contains("processed: 200/200") && told.ends_with("200|t\n"), "{told}");
    let script = format!(
        "export PGUSER=postgres PGHOST={six}; seq 1 200000 > rows
        psql -q bench -c 'create table t (a int)' -c '\\copy t from rows' -c '\\copy t to back'; cmp rows back; psql -At bench -c 'select sum(a::bigint) from t'"
    );
    assert_eq!(world.run(&script), "20000100000\n");
}
