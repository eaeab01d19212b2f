// SPDX-License-Identifier: MIT OR Apache-2.0
//! Servers of Debian's packages in container images, with real clients outside: ports, volumes, and clones of a server that has started.
//! `PANDO_TESTS=all` adds images that mmdebstrap makes, and compares them with podman.

use super::registry::Registry;
use crate::archives::{Archive, Fixture as Image, Layer};
use crate::fixture::{Fixture, wait_until};
use pando_testing::{are_installed, host_program, needs_kvm};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The programs of redis's images.
const REDIS: [&str; 2] = ["redis-server", "redis-cli"];

/// A program in a cell that runs until it is stopped; killed when dropped.
pub(super) struct Running(Child);

impl Running {
    pub(super) fn start(fixture: &Fixture, words: &[&str]) -> Running {
        let mut command = fixture.command(words);
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("pando starts"))
    }

    /// Asks it to end, as `kill` does, and waits for that.
    pub(super) fn stop(mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).expect("it has a number");
        kill_process(pid, Signal::TERM).expect("it runs");
        self.0.wait().expect("it ends");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port of this host that is free.
pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("there is a port").port()
}

/// The output of a program of this host; empty if it fails.
pub(super) fn ask(words: &[&str]) -> String {
    let output = Command::new(host_program(words[0])).args(&words[1..]).stdin(Stdio::null()).output().expect("it starts");
    if output.status.success() { String::from_utf8_lossy(&output.stdout).into_owned() } else { String::new() }
}

/// The file of a program in PATH.
fn found(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("it is set");
    std::env::split_paths(&path).map(|place| place.join(program)).find(|file| file.exists()).expect("it is installed")
}

/// A layer with programs of this host, and the libraries that they need.
fn programs(names: &[&str]) -> Layer {
    let mut layer = Archive::new();
    let mut files: Vec<PathBuf> = names.iter().map(|name| found(name)).collect();
    for name in names {
        let listed = ask(&["ldd", &found(name).display().to_string()]);
        files.extend(listed.split_whitespace().filter(|word| word.starts_with('/') && !word.ends_with(':')).map(PathBuf::from));
    }
    files.sort();
    files.dedup();
    for file in files {
        let content = fs::read(&file).expect("it can be read");
        layer.file(&file.display().to_string()[1..], &content);
    }
    Layer(layer.bytes())
}

#[test]
fn redis_of_a_registry_serves_clients_keeps_its_data_and_is_cloned() {
    needs_kvm!();
    if !are_installed(&[REDIS[0], REDIS[1], "ldd"]) {
        return;
    }
    let fixture = Fixture::new();
    let Some(registry) = Registry::start(&fixture) else { return };
    let config = json!({
        "Entrypoint": [found(REDIS[0]).display().to_string(), "--protected-mode", "no"], "Cmd": ["--dir", "/data"],
        "ExposedPorts": { "6379/tcp": {} }, "Volumes": { "/data": {} },
    });
    registry.push(&Image::with_config(vec![super::busybox(), programs(&REDIS)], config), "team/redis", "7");
    let name = format!("127.0.0.1:{}/team/redis:7", registry.port());
    assert_eq!(fixture.pando(&["pull", "-q", &name]).status, 0);
    // A client outside, and a volume that outlives the cell.
    let client = |port: u16, words: &[&str]| ask(&[&[REDIS[1], "-p", &port.to_string()], words].concat());
    let serve = || {
        let port = free_port();
        let run = Running::start(&fixture, &["run", "--image", &name, "-p", &format!("{port}:6379"), "-v", "kept:/data"]);
        wait_until(|| client(port, &["ping"]) == "PONG\n");
        (port, run)
    };
    let (port, run) = serve();
    assert_eq!([client(port, &["incr", "x"]), client(port, &["incr", "x"])], ["1\n", "2\n"]);
    run.stop();
    let (port, run) = serve();
    assert_eq!(client(port, &["get", "x"]), "2\n");
    run.stop();
    // Clones of a server that has started, each with its own data from then on.
    let script = format!(
        "{} --protected-mode no --save '' & until {} set made before; do sleep 0.1; done; pando-ready; wait",
        found(REDIS[0]).display(),
        found(REDIS[1]).display()
    );
    let made = fixture.pando(&["template", "create", "--image", &name, "--entrypoint", "/bin/sh", "warm", "--", "-c", &script]);
    assert_eq!(made.status, 0, "{}", made.errors);
    let clones = [free_port(), free_port()].map(|port| (port, Running::start(&fixture, &["clone", "-p", &format!("{port}:6379"), "warm"])));
    for (port, _) in &clones {
        wait_until(|| client(*port, &["get", "made"]) == "before\n");
        assert_eq!(client(*port, &["incr", "own"]), "1\n");
    }
    clones.into_iter().for_each(|(_, clone)| clone.stop());
}

/// Makes a root file system with a package of Debian; `None` if this host cannot.
fn debian(directory: &Path, package: &str) -> Option<PathBuf> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let archive = directory.join(format!("{package}.tar"));
    let mut command = Command::new(host_program("mmdebstrap"));
    command.args(["--quiet", "--variant=essential", &format!("--include={package}"), codename]).arg(&archive);
    let made = command.stdin(Stdio::null()).output().expect("mmdebstrap starts");
    if !made.status.success() {
        println!("left out: mmdebstrap fails: {}", String::from_utf8_lossy(&made.stderr));
    }
    made.status.success().then_some(archive)
}

/// The files of an image: types, permissions, owners, sizes, and targets of links. Those that each container gets are left out, and the
/// sizes of directories.
const LIST: &str = "find / -xdev \\( -path /proc -o -path /sys -o -path /dev -o -path /run -o -name '*pando*' -o -path /etc/hosts \
                    -o -path /etc/hostname -o -path /etc/resolv.conf -o -path /usr/lib/node -o -path /usr/share/nodejs \\) -prune -o -type d \
                    ! -path / -printf '%p %m %U %G\\n' -o ! -type d -printf '%p %y %m %U %G %s %T@ %l\\n' | sort";

/// Compares an image with what podman shows of the same archive, if podman starts containers here.
fn compare_with_podman(fixture: &Fixture, archive: &Path, image: &str) {
    let (store, state) = (fixture.path("podman").display().to_string(), fixture.path("podman-state").display().to_string());
    // crun refuses mixed hierarchies of control groups.
    let unified = "[ -e /sys/fs/cgroup/cgroup.controllers ] || mount -t cgroup2 none /sys/fs/cgroup; exec podman \"$@\"";
    let podman = |words: &[&str]| {
        let mut command = Command::new(host_program("unshare"));
        command.args([
            "--mount",
            "sh",
            "-c",
            unified,
            "sh",
            "--runtime=crun",
            "--cgroup-manager=cgroupfs",
            "--root",
            &store,
            "--runroot",
            &state,
        ]);
        let output = command.args(words).stdin(Stdio::null()).output().expect("unshare starts");
        (
            output.status.success(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        )
    };
    let run = ["run", "--rm", "--network=none", "--cgroups=disabled", "--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024", image];
    let (is_imported, _, errors) = podman(&["import", &archive.display().to_string(), image]);
    let (is_run, listed, more) = podman(&[&run[..], &["sh", "-c", LIST]].concat());
    if !is_imported || !is_run {
        println!("left out: podman does not run here: {errors}{more}");
        return;
    }
    let ours = fixture.pando(&["run", "--image", image, "--", "sh", "-c", LIST]);
    assert_eq!(ours.status, 0, "{}", ours.errors);
    let differences: Vec<&str> = ours.output.lines().filter(|line| !listed.contains(line)).take(5).collect();
    assert!(differences.is_empty(), "podman does not show {differences:?}");
    assert_eq!(ours.output.lines().count(), listed.lines().count());
}

/// The number of packages of mmdebstrap: none but in long runs.
fn is_long() -> bool {
    pando_testing::lab::repetitions(0, 0, 1) == 1
}

#[test]
fn node_of_debian_serves_a_page_and_is_cloned() {
    needs_kvm!();
    if !is_long() || !are_installed(&["mmdebstrap", "curl"]) {
        println!("left out: images of mmdebstrap belong to the long runs");
        return;
    }
    let fixture = Fixture::new();
    let Some(archive) = debian(&fixture.path(""), "nodejs") else { return };
    let archive_name = archive.display().to_string();
    let serve = "require('http').createServer((_, answer) => answer.end('page')).listen(80)";
    let command = format!("CMD [\"node\", \"-e\", \"{serve}\"]");
    assert_eq!(fixture.image(&["import", "-c", &command, &archive_name, "localhost/node:18"]).status, 0);
    let port = free_port();
    let run = Running::start(&fixture, &["run", "--image", "localhost/node:18", "-p", &format!("{port}:80")]);
    wait_until(|| ask(&["curl", "-s", &format!("http://127.0.0.1:{port}/")]) == "page");
    run.stop();
    let ready = "require('pando').ready(); console.log(process.argv.slice(1).join(' '))";
    let made = fixture.pando(&["template", "create", "--image", "localhost/node:18", "warm", "--", "node", "-e", ready]);
    assert_eq!(made.status, 0, "{}", made.errors);
    assert_eq!(fixture.pando(&["clone", "warm", "a", "b"]).output, "a b\n");
    compare_with_podman(&fixture, &archive, "localhost/node:18");
}

#[test]
fn postgres_of_debian_keeps_its_tables_in_a_volume() {
    needs_kvm!();
    if !is_long() || !are_installed(&["mmdebstrap", "psql"]) {
        println!("left out: images of mmdebstrap belong to the long runs");
        return;
    }
    let fixture = Fixture::new();
    let Some(archive) = debian(&fixture.path(""), "postgresql") else { return };
    let script = "set -e; d=/data/pg; b=$(echo /usr/lib/postgresql/*/bin); mkdir -p /run/postgresql; chown postgres /run/postgresql\n\
                  if ! [ -d $d ]; then mkdir $d; chown postgres $d; su postgres -c \"$b/initdb -A trust $d\"; echo 'host all all 0/0 trust' >> $d/pg_hba.conf; fi\n\
                  chown -R postgres /data; exec su postgres -c \"exec $b/postgres -D $d -c listen_addresses='*'\"\n";
    fs::write(fixture.path("start.sh"), script).expect("there is room");
    assert_eq!(fixture.image(&["import", "-c", "VOLUME /data", &archive.display().to_string(), "localhost/postgres:15"]).status, 0);
    let serve = || {
        let port = free_port();
        let words = ["-p", &format!("{port}:5432"), "-v", "./start.sh:/start.sh:ro", "-v", "tables:/data", "--", "sh", "/start.sh"];
        let run = Running::start(&fixture, &[&["run", "--image", "localhost/postgres:15"], &words[..]].concat());
        let query = move |text: &str| ask(&["psql", "-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-Atc", text]);
        wait_until(|| query("select 1") == "1\n");
        (run, query)
    };
    let (run, query) = serve();
    query("create table numbers as select generate_series(1, 1000) n");
    run.stop();
    let (run, query) = serve();
    assert_eq!(query("select sum(n) from numbers"), "500500\n");
    run.stop();
    compare_with_podman(&fixture, &archive, "localhost/postgres:15");
}

#[test]
fn redis_of_debian_is_the_same_under_podman() {
    needs_kvm!();
    if !is_long() || !are_installed(&["mmdebstrap"]) {
        println!("left out: images of mmdebstrap belong to the long runs");
        return;
    }
    let fixture = Fixture::new();
    let Some(archive) = debian(&fixture.path(""), "redis-server") else { return };
    assert_eq!(fixture.image(&["import", &archive.display().to_string(), "localhost/redis:7"]).status, 0);
    let version = fixture.pando(&["run", "--image", "localhost/redis:7", "--", "redis-server", "--version"]);
    assert!(version.output.starts_with("Redis server v="), "{}{}", version.output, version.errors);
    compare_with_podman(&fixture, &archive, "localhost/redis:7");
}
