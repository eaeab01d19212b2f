// SPDX-License-Identifier: MIT OR Apache-2.0
//! A service in a cgroup with little memory: idle cells sleep, and the host's OOM killer does not come.

use crate::case::{PANDO, long_runs};
use crate::fixture::{Fixture, wait_until};
use pando_testing::{host_program, needs_kvm};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A cgroup, which is removed when this is dropped.
struct Cgroup {
    directory: PathBuf,
    is_version_2: bool,
}

impl Cgroup {
    /// Creates a cgroup with a limit below that of this process. `None`: this host does not let it.
    fn new(limit: u64) -> Option<Cgroup> {
        let lines = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = |controllers: &str| {
            let line = lines.lines().find(|line| line.split(':').nth(1) == Some(controllers))?;
            line.splitn(3, ':').nth(2).map(|path| path.trim_start_matches('/').to_owned())
        };
        let name = format!("pando-test-{}-{}", std::process::id(), limit >> 20);
        let places = [(Path::new("/sys/fs/cgroup/memory"), own("memory"), false), (Path::new("/sys/fs/cgroup"), own(""), true)];
        places.into_iter().find_map(|(root, own, is_version_2)| {
            let directory = root.join(own?).join(&name);
            fs::create_dir(&directory).ok()?;
            let cgroup = Cgroup { directory, is_version_2 };
            let file = if is_version_2 { "memory.max" } else { "memory.limit_in_bytes" };
            fs::write(cgroup.directory.join(file), limit.to_string()).ok()?;
            Some(cgroup)
        })
    }

    /// How many processes the OOM killer has ended here.
    fn kills(&self) -> u64 {
        let file = if self.is_version_2 { "memory.events" } else { "memory.oom_control" };
        let text = fs::read_to_string(self.directory.join(file)).expect("it is there");
        text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.parse().ok()).expect("a number")
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Its processes were killed, and may still be ending.
        for _ in 0..10_000 {
            if fs::remove_dir(&self.directory).is_ok() || !self.directory.exists() {
                return;
            }
            std::thread::yield_now();
        }
    }
}

#[test]
fn idle_cells_sleep_before_the_oom_killer_comes() {
    needs_kvm!();
    fill(256, 34, 8);
}

#[test]
fn large_idle_cells_sleep_before_the_oom_killer_comes() {
    needs_kvm!();
    fill(512, if long_runs() { 24 } else { 18 }, 30);
}

#[test]
fn cells_that_wake_up_take_the_memory_of_idle_ones() {
    needs_kvm!();
    let fixture = Fixture::new();
    fixture.plant("sh", &keeper(8));
    let swap = tempfile::tempdir_in("/var/tmp").expect("there is room");
    let service = fixture.serve(&["--memory", "64M", "--swap", &format!("{}:1G", swap.path().display())]);
    let lines = |cell: &str| fixture.pando(&["logs", cell]).output.lines().count();
    let cells: Vec<String> = (0..12)
        .map(|_| {
            let cell = service.json("POST", "/v1/cells", json!({ "template": "sh" }))["id"].to_string();
            wait_until(|| lines(&cell) == 1);
            cell
        })
        .collect();
    for cell in &cells {
        assert_eq!(service.ask("POST", &format!("/v1/cells/{cell}/input"), "again\n").0, 204);
        wait_until(|| lines(cell) == 2);
    }
    // The memory of no more than seven is within the limit: each has its program besides its data.
    wait_until(|| {
        let all = service.json("GET", "/v1/cells", Value::Null);
        let of = |state: &str| all.as_array().expect("a list").iter().filter(|cell| cell["state"] == state).count();
        assert_eq!(of("ended"), 0, "{all}");
        of("asleep") >= 12 - 7
    });
}

/// A shell that prints the checksum of `size` MiB of random data, again for each line of input.
fn keeper(size: usize) -> String {
    format!(
        r#"eval "$(pando-ready -s)"; busybox dd if=/dev/urandom of=/tmp/data bs=1M count={size} 2> /dev/null
        while busybox md5sum /tmp/data; read line; do :; done"#
    )
}

/// Starts cells with `size` MiB of random data each in a service whose cgroup has `limit` MiB, less than they have together.
fn fill(limit: u64, count: usize, size: usize) {
    let limit = limit << 20;
    let Some(cgroup) = Cgroup::new(limit) else {
        println!("left out: this host allows no cgroup with a memory limit");
        return;
    };
    let fixture = Fixture::new();
    fixture.plant("sh", &keeper(size));
    let swap = tempfile::tempdir_in("/var/tmp").expect("there is room");
    let options = ["serve", "--memory", "4G", "--swap", &format!("{}:2G", swap.path().display())];
    let plain = fixture.command(&options);
    let mut command = Command::new(host_program("sh"));
    let enter = format!("echo $$ > {}/cgroup.procs && exec \"$@\"", cgroup.directory.display());
    command.args(["-c", &enter, "sh", PANDO]).args(options).current_dir(fixture.path("")).stdin(std::process::Stdio::null());
    for (name, value) in plain.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    let mut service = fixture.service(command);
    let memory = |service: &crate::fixture::Service| service.json("GET", "/v1", Value::Null)["memory_bytes"].as_u64().expect("a number");
    wait_until(|| memory(&service) < limit);
    let lines = |cell: &str| fixture.pando(&["logs", cell]).output.lines().map(str::to_owned).collect::<Vec<_>>();
    let cells: Vec<String> = (0..count)
        .map(|_| {
            let new = json!({ "template": "sh", "memory": "256M" });
            // The service may have no memory for another cell until idle ones sleep.
            let mut cell = None;
            wait_until(|| {
                let (status, answer) = service.ask("POST", "/v1/cells", &new.to_string());
                assert!(status == 201 || status == 503, "{status} {answer}");
                cell = (status == 201).then(|| serde_json::from_str::<Value>(&answer).expect("it is JSON")["id"].to_string());
                cell.is_some()
            });
            let cell = cell.expect("it was started");
            wait_until(|| {
                let now = service.json("GET", &format!("/v1/cells/{cell}"), Value::Null);
                assert_ne!(now["state"], "ended", "{now}");
                lines(&cell).len() == 1
            });
            cell
        })
        .collect();
    assert!(count * size > (limit >> 20) as usize, "they do not fit");
    // Some of them wake up, find their data, and let others sleep.
    for cell in cells.iter().step_by(4) {
        assert_eq!(service.ask("POST", &format!("/v1/cells/{cell}/input"), "again\n").0, 204);
        wait_until(|| lines(cell).len() == 2);
        let found = lines(cell);
        assert_eq!(found[0], found[1], "cell {cell} has its data");
    }
    let (_, metrics) = service.ask("GET", "/v1/metrics", "");
    let swapped: u64 = metrics.lines().find_map(|line| line.strip_prefix("pando_pressure_sleeps_total ")?.parse().ok()).expect("a number");
    assert!(swapped > 0, "{metrics}");
    let all = service.json("GET", "/v1/cells", Value::Null);
    let ended: Vec<&Value> = all.as_array().expect("a list").iter().filter(|cell| cell["state"] == "ended").collect();
    assert!(ended.is_empty(), "{ended:?}");
    assert_eq!(cgroup.kills(), 0);
    assert!(service.child.try_wait().expect("it is ours").is_none());
    drop(service);
}
