// SPDX-License-Identifier: MIT OR Apache-2.0
//! iperf3: TCP streams and UDP datagrams, in each direction, several at once.

use crate::server::{Served, Server, long_runs};

/// The amount of data or the time of each run.
fn size() -> &'static str {
    if long_runs() { "-t 10" } else { "-n 100M" }
}

/// Runs its client, then waits for the server: it closes its socket after each client, so the next client would be refused.
fn report(server: &Server, words: &str) -> serde_json::Value {
    let told = server.client(&format!("iperf3 -J -p $P {words}"));
    server.wait_until_it_listens_again();
    let told: serde_json::Value = serde_json::from_str(&told).expect("it speaks JSON");
    assert!(told.get("error").is_none(), "{told}");
    told
}

/// Runs its client. Returns the bytes sent and received, as counted at the other end, for each direction.
fn measure(server: &Server, words: &str) -> Vec<[u64; 2]> {
    let told = report(server, words);
    let sum = |name: String| told["end"][name]["bytes"].as_u64();
    let direction = |which: &str| Some([sum(format!("sum_sent{which}"))?, sum(format!("sum_received{which}"))?]);
    ["", "_bidir_reverse"].into_iter().filter_map(direction).collect()
}

#[test]
fn iperf3_measures() {
    let ports = &["{}:5201", "{}:5201/udp", "[::1]:{}:5201", "[::1]:{}:5201/udp"];
    let Some(server) =
        (Served { needs: &["/usr/bin/iperf3"], script: "exec iperf3 -s --forceflush", ports, ready: "Server listening on 5201" })
            .start(|_| ())
    else {
        return;
    };
    for words in ["", "-R", "-P 4", "-P 4 -R", "--bidir"] {
        let directions = measure(&server, &format!("-c 127.0.0.1 {} {words}", size()));
        assert_eq!(directions.len(), if words == "--bidir" { 2 } else { 1 }, "{words}: {directions:?}");
        // Of two directions, the first to finish ends the other.
        assert!(directions.iter().any(|[sent, _]| *sent >= 100_000_000), "{words}: {directions:?}");
        assert!(directions.iter().all(|[sent, received]| *received > 0 && received <= sent), "{words}: {directions:?}");
    }
    let directions = measure(&server, &format!("-c ::1 {}", size()));
    assert!(directions.iter().all(|[sent, received]| *sent >= 100_000_000 && *received > 0), "{directions:?}");
    for words in ["-c 127.0.0.1", "-c 127.0.0.1 -R", "-c 127.0.0.1 -P 4", "-c ::1"] {
        // A rate that a loaded machine can carry; some datagrams may still be lost.
        let told = report(&server, &format!("{words} -u -l 1400 -b 4M -n 1M"));
        let (packets, lost) = (told["end"]["sum"]["packets"].as_u64(), told["end"]["sum"]["lost_packets"].as_u64());
        assert!(packets.is_some_and(|packets| packets >= 700) && lost.is_some_and(|lost| lost < 350), "{words}: {packets:?} {lost:?}");
    }
}
