// SPDX-License-Identifier: MIT OR Apache-2.0
//! Web servers: nginx and Python's, with curl and wget as clients.

use crate::server::{Served, Server, noise};
use std::fmt::Write;
use std::fs;
use std::path::Path;

const CURL: &str = "/usr/bin/curl";
/// Bytes that are transferred in both directions at once.
const LARGE: usize = 50_000_000;

/// Pages: a hundred small ones, a text, and a large one with random bytes.
fn pages(directory: &Path) {
    let pages = directory.join("pages");
    fs::create_dir(&pages).expect("it is fresh");
    for number in 1..=100 {
        fs::write(pages.join(format!("{number}.html")), format!("page {number}\n")).expect("there is room");
    }
    let lines = (1..=50_000).fold(String::new(), |mut lines, number| {
        let _ = writeln!(lines, "{number}");
        lines
    });
    fs::write(pages.join("lines.txt"), lines).expect("there is room");
    fs::write(pages.join("large"), noise(LARGE)).expect("there is room");
}

/// Debian's configuration, with additions for this test: folders for uploads, and compressed texts.
const NGINX: &str = r#"
mkdir -p /var/lib/nginx /var/log/nginx
cat > /tmp/conf <<'END'
user www-data; worker_processes 2; daemon off; pid /run/nginx.pid; error_log stderr notice;
events { worker_connections 768; }
http {
    sendfile on; tcp_nopush on; types_hash_max_size 2048; include /etc/nginx/mime.types; default_type application/octet-stream;
    access_log off; gzip on; gzip_types text/plain; client_max_body_size 100m;
    server {
        listen 80 default_server; listen [::]:80 default_server; root /srv/pages;
        location /put/ { dav_methods PUT DELETE; create_full_put_path on; root /tmp/kept; }
    }
}
END
mkdir /tmp/kept && chown www-data /tmp/kept
exec nginx -c /tmp/conf
"#;

fn nginx() -> Option<Server> {
    let needs = &["/usr/sbin/nginx", CURL, "/usr/bin/wget"];
    Served { needs, script: NGINX, ports: &["{}:80", "[::1]:{}:80"], ready: "start worker process " }.start(pages)
}

#[test]
fn nginx_gives_pages() {
    let Some(server) = nginx() else { return };
    server.client("diff <(curl -sS http://127.0.0.1:$P/lines.txt) pages/lines.txt");
    server.client(
        "diff <(curl -sS 'http://[::1]:'$P/lines.txt) pages/lines.txt; diff <(wget -qO- http://127.0.0.1:$P/lines.txt) pages/lines.txt",
    );
    // Ranges: a middle part, the last bytes, and two ranges in one response.
    server.client("cmp <(curl -sS -r 1000-30000000 http://127.0.0.1:$P/large) <(tail -c +1001 pages/large | head -c 29999001)");
    server.client("cmp <(curl -sS -r -777 http://127.0.0.1:$P/large) <(tail -c 777 pages/large)");
    assert!(
        server
            .client("curl -sS -r 0-9,20-29 http://127.0.0.1:$P/large | tr -d '\\0' | strings")
            .contains("Content-Range: bytes 20-29/50000000")
    );
    // A hundred pages over one connection.
    let connections = server.client("curl -sS -o /dev/null -w '%{num_connects}' 'http://127.0.0.1:'$P'/[1-100].html' | tr -d '\\n'");
    assert_eq!(connections, format!("1{}", "0".repeat(99)));
    assert_eq!(
        server.client("curl -sS 'http://127.0.0.1:'$P'/[1-100].html' | sha256sum"),
        server.client("cat pages/{1..100}.html | sha256sum")
    );
    // Many requests in parallel.
    let script = "seq 1 100 | xargs -P 16 -I% curl -sS http://127.0.0.1:$P/%.html | sort -k 2n";
    assert_eq!(server.client(script), server.client("cat pages/{1..100}.html"));
    server.client("diff <(curl -sS --compressed http://127.0.0.1:$P/lines.txt) pages/lines.txt");
    let sizes = server.client("curl -sS -H 'Accept-Encoding: gzip' -o packed -w '%{http_code} ' http://127.0.0.1:$P/lines.txt; gzip -dc packed | cmp - pages/lines.txt; wc -c < packed");
    assert!(sizes.starts_with("200 ") && sizes[4..].trim().parse::<usize>().is_ok_and(|size| size < 200_000), "{sizes}");
    assert_eq!(server.client("curl -sS -o /dev/null -w '%{http_code}' http://127.0.0.1:$P/none"), "404");
    let (status, said) = server.end();
    assert!(status == 0 && said.contains("signal 15 (SIGTERM) received"), "{status}: {said}");
}

#[test]
fn nginx_receives_and_serves_large_files() {
    let Some(server) = nginx() else { return };
    assert_eq!(server.client("curl -sS -w '%{http_code}' -T pages/large http://127.0.0.1:$P/put/some/where"), "201");
    // Both directions at the same time.
    let script = "curl -sS -T pages/large http://127.0.0.1:$P/put/another & curl -sS http://127.0.0.1:$P/put/some/where | cmp - pages/large; wait $!";
    server.client(script);
    server.client("curl -sS http://127.0.0.1:$P/put/another | cmp - pages/large");
    let script =
        "for name in some/where another; do curl -sS -X DELETE -o /dev/null -w '%{http_code} ' http://127.0.0.1:$P/put/$name; done";
    assert_eq!(
        server.client(&format!("{script}; curl -sS -o /dev/null -w '%{{http_code}}' http://127.0.0.1:$P/put/another")),
        "204 204 404"
    );
}

#[test]
fn python_gives_a_directory() {
    let needs = &["/usr/bin/python3", CURL, "/usr/bin/wget"];
    let script = "cd /srv/pages; exec python3 -u -m http.server";
    let Some(server) = (Served { needs, script, ports: &["{}:8000"], ready: "Serving HTTP on" }).start(pages) else { return };
    let listed = server.client("curl -sS http://127.0.0.1:$P/");
    assert!((1..=100).all(|number| listed.contains(&format!("<a href=\"{number}.html\">{number}.html</a>"))), "{listed}");
    server
        .client("curl -sS http://127.0.0.1:$P/large | cmp - pages/large; wget -qO- http://127.0.0.1:$P/lines.txt | cmp - pages/lines.txt");
    server.client("wget -q -r -np -nH -P copy http://127.0.0.1:$P/; rm copy/index.html*; diff -r pages copy");
    assert_eq!(server.client("curl -sS -I -o /dev/null -w '%{http_code}' http://127.0.0.1:$P/none"), "404");
}
