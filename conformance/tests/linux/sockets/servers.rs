// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers and their clients in one cell, over its own loopback and over Unix sockets: the same as on the host.

use crate::comparison::compare_if;

/// Runs a shell script in a new directory, natively and in a cell, if the needed programs are installed.
fn check(needs: &[&str], script: &str) {
    compare_if(needs, "/bin/sh", &["-c", script]);
}

/// A server with requests from clients and, through another process, from itself; large responses, and one that the client abandons.
const PYTHON: &str = r#"
exec /usr/bin/python3 - <<'END'
import http.server, os, socket, socketserver, threading, urllib.request

one, other = socket.socketpair()
child = os.fork()
if child == 0:
    one.close()
    other.sendall(other.recv(100).upper())
    os._exit(3)
other.close()
one.sendall(b"through a pair")
print(one.recv(100), os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), one.recv(100))

class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        page = (self.path * 20000).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)
    def log_message(self, *words):
        pass

with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for page in range(5):
        got = urllib.request.urlopen("http://127.0.0.1:%d/%d" % (server.server_port, page)).read()
        print(len(got), got[:6])
    server.shutdown()
    thread.join()

class Backwards(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line[::-1])

with socketserver.ThreadingUnixStreamServer("door", Backwards) as server:
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    client = socket.socket(socket.AF_UNIX)
    client.connect("door")
    client.sendall(b"some\nlines\n")
    client.shutdown(socket.SHUT_WR)
    print(b"".join(iter(lambda: client.recv(3), b"")))
    server.shutdown()
    thread.join()

listener = socket.create_server(("", 0))
def count():
    peer, _ = listener.accept()
    with peer:
        total = sum(map(len, iter(lambda: peer.recv(65536), b"")))
        peer.sendall(str(total).encode())
thread = threading.Thread(target=count)
thread.start()
client = socket.create_connection(listener.getsockname())
client.sendall(bytes(3_000_000))
client.shutdown(socket.SHUT_WR)
print(client.recv(100))
thread.join()
END
"#;

#[test]
fn python_serves_and_asks() {
    check(&["/usr/bin/python3"], PYTHON);
}

/// Polls until the server answers.
const REDIS: &str = r#"
port=$((20000 + $$ % 10000))
redis-server --port $port --unixsocket "$PWD/door" --save "" --logfile log > /dev/null &
server=$!
until redis-cli -s door ping 2> /dev/null; do kill -0 $server || exit 1; done
redis-cli -p $port set a 1
redis-cli -p $port incr a
redis-cli -s door lpush list x y z
redis-cli -p $port lrange list 0 -1
seq 1 2000 | sed 's/.*/set key& &/' | redis-cli -p $port --pipe | tail -1
redis-cli -s door eval 'return redis.call("dbsize")' 0
redis-cli -p $port save
redis-cli -p $port shutdown nosave
wait $server
echo "ended with $?"
ls
"#;

#[test]
fn redis_answers() {
    check(&["/usr/bin/redis-server", "/usr/bin/redis-cli"], REDIS);
}

/// It listens once its first process has exited, and has ended once its PID file is gone.
const NGINX: &str = r#"
port=$((30000 + $$ % 10000))
mkdir pages
echo "a page" > pages/index.html
seq 1 100000 > pages/long
cat > conf <<END
worker_processes 2; pid $PWD/pid; error_log $PWD/errors crit; user root;
events { worker_connections 64; }
http {
    access_log off; sendfile on;
    client_body_temp_path $PWD/1; proxy_temp_path $PWD/2; fastcgi_temp_path $PWD/3; uwsgi_temp_path $PWD/4; scgi_temp_path $PWD/5;
    server { listen 127.0.0.1:$port; listen unix:$PWD/door; root $PWD/pages; }
}
END
nginx -e errors -c "$PWD/conf" || exit
curl -s http://127.0.0.1:$port/ http://127.0.0.1:$port/index.html
curl -s http://127.0.0.1:$port/long | sha256sum
curl -s --unix-socket door http://name/long | sha256sum
curl -s -r 1000-1020 http://127.0.0.1:$port/long
curl -s -o /dev/null -w '%{http_code}\n' http://127.0.0.1:$port/none
nginx -e errors -c "$PWD/conf" -s quit
while test -e pid; do :; done
cat errors
ls
"#;

#[test]
fn nginx_serves() {
    check(&["/usr/sbin/nginx", "/usr/bin/curl"], NGINX);
}

/// A database cluster is created, serves over its Unix socket and over loopback, and many clients change the same rows
/// concurrently. It refuses to run as root.
const POSTGRESQL: &str = r#"
cd "$(mktemp -d)" && chown postgres . || exit
export PATH=/usr/lib/postgresql/15/bin:$PATH LC_ALL=C PGHOST=$PWD PGPORT=$((40000 + $$ % 10000)) PGUSER=postgres
as() { runuser -u postgres -- "$@"; }
as initdb -D data -A trust -N --no-locale -E UTF8 > made || { cat made; exit; }
as pg_ctl -D data -w -l log -o "-k $PWD -p $PGPORT -c listen_addresses=127.0.0.1 -c fsync=off" start > started || { cat log; exit; }
psql -Atc "create table t (a int primary key, b text)" -c "insert into t select n, md5(n::text) from generate_series(1, 3000) n"
psql -Ath 127.0.0.1 -c "select sum(a), min(b), max(b) from t" -c "select b from t where a = 77" -c "select 1 / 0" 2>&1
psql -Atc "begin" -c "delete from t" -c "rollback" -c "select count(*) from t"
pgbench -i -q -s 1 2> /dev/null
pgbench -n -c 4 -t 25 -h 127.0.0.1 2>&1 | grep processed
psql -Atc "select count(*), sum(delta) = (select sum(abalance) from pgbench_accounts) from pgbench_history"
as pg_ctl -D data -w stop > stopped || cat stopped
grep -c "database system is shut down" log
ls data/postmaster.pid 2>&1
rm -rf "$PWD"
"#;

#[test]
fn postgresql_keeps_tables() {
    check(&["/usr/lib/postgresql/15/bin/postgres", "/usr/sbin/runuser"], POSTGRESQL);
}
