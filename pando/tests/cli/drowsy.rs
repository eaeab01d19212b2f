// SPDX-License-Identifier: MIT OR Apache-2.0
//! Other tests again, while each cell falls asleep whenever it idles (`PANDO_DROWSY`): nobody notices.

use crate::case::long_runs;
use pando_testing::needs_kvm;
use std::process::Command;

/// Tests of the ordinary run.
const SOME: [&str; 2] = ["network::published::", "network::by_name::"];
/// Tests of the long run.
const ALL: [&str; 3] = ["network::", "service::", "templates::"];
/// Tests that observe which cells sleep, or how much memory they have.
const OTHERS: [&str; 4] =
    ["service::sleep::", "service::memory_control::", "network::by_name::a_request_reaches", "service::host_limits::"];

#[test]
fn tests_succeed_while_cells_sleep_at_each_idle() {
    needs_kvm!();
    if std::env::var_os("PANDO_DROWSY").is_some() {
        return;
    }
    let filters: &[&str] = if long_runs() { &ALL } else { &SOME };
    let skipped = OTHERS.iter().flat_map(|name| ["--skip", name]);
    let program = std::env::current_exe().expect("it has a path");
    let mut command = Command::new(program);
    let output = command.args(filters).args(skipped).env("PANDO_DROWSY", "1").output().expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    // Not at the start of lines, where the counts of this program are looked for.
    let quoted = text.replace('\n', "\n| ");
    assert!(output.status.success(), "{quoted}{}", String::from_utf8_lossy(&output.stderr));
    assert!(!text.contains("running 0 tests"), "the filters are outdated: {text}");
}
