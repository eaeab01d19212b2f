// SPDX-License-Identifier: MIT OR Apache-2.0
//! Clones of warmed-up servers answer requests at their own addresses.

use crate::fixture::{CloneFixture, Running, SHELL, given, program};
use pando_kernel::network::link::Link;
use pando_machine::PageCount;
use pando_testing::lab::repetitions;

/// 2 GiB.
const ARENA: PageCount = PageCount(1 << 19);

/// Clones of a server.
struct Clones {
    fixture: CloneFixture,
    clones: Vec<Running>,
}

impl Clones {
    /// Starts a server by a script, which freezes once the server is ready, and two clones of it. If this machine lacks
    /// something, prints that and returns `None`.
    fn of(needs: &[&str], script: &str) -> Option<Clones> {
        let mut fixture = CloneFixture::new(ARENA, needs)?;
        let root = fixture.root.clone();
        let template = fixture.freeze(&root, &program(SHELL, &["-c", script]));
        let clones = [(); 2].map(|()| fixture.start(&template, &given(&[]), Some(Link::default()))).into();
        Some(Clones { fixture, clones })
    }

    /// Returns the output of a client, which gets the address of a clone as `$A`.
    fn client(&mut self, clone: usize, script: &str) -> String {
        let address = self.clones[clone].addresses.expect("it has a card").v4;
        let root = self.fixture.root.clone();
        self.fixture.run(&root, &program(SHELL, &["-ec", &format!("A={address}\n{script}")]), Some(Link::default()))
    }
}

#[test]
fn clones_of_nginx_serve_at_addresses_of_their_own() {
    // Its cache is warm: each page was requested through a caching proxy before the pages were removed.
    const SCRIPT: &str = "
mkdir -p /run /tmp/site /tmp/cache /var/lib/nginx /var/log/nginx; cd /tmp
for page in 1 2 3 4 5 6 7 8; do seq $page 5000 > site/$page.html; done
cat > conf <<'END'
user root; worker_processes 1; pid /tmp/nginx.pid; error_log stderr; daemon on;
events { worker_connections 64; }
http {
    access_log off; open_file_cache max=100; proxy_cache_path /tmp/cache keys_zone=kept:1m;
    server { listen 127.0.0.1:81; root /tmp/site; }
    server { listen 80; location / { proxy_pass http://127.0.0.1:81; proxy_cache kept; proxy_cache_valid 200 1h; add_header X-Cache $upstream_cache_status; } }
}
END
nginx -c /tmp/conf
for page in 1 2 3 4 5 6 7 8; do curl -sSf http://127.0.0.1/$page.html > /dev/null; done
rm -r site
echo ready > /dev/pando
exec sleep 1000
";
    let Some(mut clones) = Clones::of(&["/usr/sbin/nginx", "/usr/bin/curl"], SCRIPT) else { return };
    for clone in [0, 1, 0] {
        let said = clones.client(
            clone,
            "curl -sSf http://$A/3.html | sha256sum; seq 3 5000 | sha256sum; curl -sSi http://$A/8.html | grep -c 'X-Cache: HIT'",
        );
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() == 3 && lines[0] == lines[1] && lines[2] == "1", "{said}");
    }
}

#[test]
fn clones_of_redis_hold_the_loaded_data_and_their_own_changes() {
    // Megabytes.
    let size = repetitions(1, 10, 100);
    let script = format!(
        "
cd /tmp; redis-server --bind 0.0.0.0 --protected-mode no --save '' --appendonly no --enable-debug-command local --daemonize yes --logfile /tmp/log
until redis-cli ping > /dev/null 2>&1; do sleep 0.1; done
redis-cli debug populate {size}000 key 1000 > /dev/null
redis-cli set counter 41 > /dev/null
echo ready > /dev/pando
exec sleep 1000
"
    );
    let Some(mut clones) = Clones::of(&["/usr/bin/redis-server", "/usr/bin/redis-cli"], &script) else { return };
    for (clone, counter) in [(0, 42_u64), (1, 42), (0, 43)] {
        let said = clones.client(
            clone,
            "redis-cli -h $A incr counter; redis-cli -h $A dbsize; redis-cli -h $A strlen key:999; redis-cli -h $A set own$A 1",
        );
        // The loaded value, the counter, and from the second time on the value that this client itself had set.
        assert_eq!(said, format!("{counter}\n{}\n1000\nOK\n", u64::from(size) * 1000 + 1 + (counter - 42)));
    }
}

#[test]
fn clones_of_node_serve_with_its_compiled_code() {
    const SCRIPT: &str = r#"
cat > /tmp/server.js <<'END'
const http = require('http'), fs = require('fs');
const fibonacci = (n) => n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
let asked = 0;
const server = http.createServer((request, response) => response.end(`${++asked} ${fibonacci(Number(request.url.slice(1)))}\n`));
const ask = (left) => left == 0 ? fs.writeFileSync('/dev/pando', 'ready')
    : http.get('http://127.0.0.1:80/15', (answer) => { answer.resume(); answer.on('end', () => ask(left - 1)); });
server.listen(80, '0.0.0.0', () => ask(50));
END
exec node /tmp/server.js
"#;
    let Some(mut clones) = Clones::of(&["/usr/bin/node", "/usr/bin/curl"], SCRIPT) else { return };
    for (clone, asked) in [(0, 51), (1, 51), (1, 52)] {
        assert_eq!(clones.client(clone, "curl -sSf http://$A/20"), format!("{asked} 6765\n"));
    }
}
