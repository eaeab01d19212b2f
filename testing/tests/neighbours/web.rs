// SPDX-License-Identifier: MIT OR Apache-2.0
//! Web servers: nginx and Python's, with curl and wget as clients.

use crate::world::CellNetwork;

/// A directory with small pages and a large one.
const PAGES: &str = "mkdir -p /srv/pages; cd /srv/pages; for n in {1..50}; do echo page $n > $n.html; done; seq 1 3000000 > large";
/// Prints the checksum of the large page.
const SUM: &str = "sha256sum | cut -c 1-64";

#[test]
fn nginx_is_asked_by_curl_and_wget() {
    let Some(world) = CellNetwork::new(&["/usr/sbin/nginx", "/usr/bin/curl", "/usr/bin/wget"]) else { return };
    let script = format!(
        "{PAGES}; mkdir -p /var/lib/nginx /var/log/nginx /tmp/kept; chmod 777 /tmp/kept
        cat > /tmp/conf <<'END'
user www-data; worker_processes 2; daemon off; pid /run/nginx.pid; error_log stderr notice;
events {{ worker_connections 768; }}
http {{
    sendfile on; tcp_nopush on; include /etc/nginx/mime.types; access_log off; gzip on; client_max_body_size 100m;
    server {{ listen 80; listen [::]:80; root /srv/pages; location /put/ {{ dav_methods PUT; create_full_put_path on; root /tmp/kept; }} }}
}}
END
        exec nginx -c /tmp/conf"
    );
    let server = world.serve(&script, "start worker process ");
    let (four, six) = (server.addresses.v4, server.addresses.v6);
    let large = world.run(&format!("seq 1 3000000 | {SUM}"));
    assert_eq!(world.run(&format!("curl -sS http://{four}/large | {SUM}")), large);
    assert_eq!(world.run(&format!("curl -sS 'http://[{six}]/large' | {SUM}")), large);
    assert_eq!(world.run(&format!("wget -qO- http://{four}/large | {SUM}; wget -qO- 'http://[{six}]/7.html'")), format!("{large}page 7\n"));
    assert_eq!(world.run(&format!("curl -sS -r 6888881-6888896 http://{four}/large")), "999999\n1000000\n1");
    let script =
        format!("curl -sS -w ' %{{num_connects}}\\n' 'http://{four}/[1-50].html' | cut -d ' ' -f 2 | sort -n | uniq -c | tr -s ' '");
    assert!(world.run(&script).contains(" 49 0\n"), "one connection carries all pages");
    let script = format!(
        "seq 1 6000000 > file; curl -sS -w '%{{http_code}}' -T file http://{four}/put/it; curl -sS http://{four}/put/it | cmp - file"
    );
    assert_eq!(world.run(&script), "201");
    let script = format!("seq 1 50 | xargs -P 8 -I% curl -sS 'http://[{six}]/%.html' | sort -k 2n | {SUM}");
    assert_eq!(world.run(&script), world.run(&format!("for n in {{1..50}}; do echo page $n; done | {SUM}")));
}

#[test]
fn python_is_asked_by_wget() {
    let Some(world) = CellNetwork::new(&["/usr/bin/python3", "/usr/bin/wget"]) else { return };
    let server = world.serve(&format!("{PAGES}; exec python3 -u -m http.server --bind :: 80"), "Serving HTTP on");
    let (four, six) = (server.addresses.v4, server.addresses.v6);
    world.run(&format!(
        "{PAGES}; mkdir /tmp/got; cd /tmp/got; wget -q -r -np -nH http://{four}/; rm index.html*; diff -r /srv/pages /tmp/got"
    ));
    assert_eq!(world.run(&format!("wget -qO- 'http://[{six}]/9.html'")), "page 9\n");
}
