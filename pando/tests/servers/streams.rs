// SPDX-License-Identifier: MIT OR Apache-2.0
//! iperf3: streams and datagrams, each way, several at once.

use crate::server::{Served, Server, long_runs};

/// Bytes or seconds of each run.
fn size() -> &'static str {
    if long_runs() { "-t 10" } else { "-n 100M" }
}

/// Runs its client. Returns bytes that were sent and received, and packets that were sent and lost, as it counts them at the other end.
fn measure(server: &Server, words: &str) -> [u64; 2] {
    let told = server.client(&format!("iperf3 -J -p $P {words}"));
    let told: serde_json::Value = serde_json::from_str(&told).expect("it speaks JSON");
    let sum = |name: &str| told["end"][name]["bytes"].as_u64().unwrap_or_default();
    assert!(told.get("error").is_none(), "{told}");
    [sum("sum_sent"), sum("sum_received")]
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
        let [sent, received] = measure(&server, &format!("-c 127.0.0.1 {} {words}", size()));
        assert!(sent >= 100_000_000 && received > 0 && received <= sent, "{words}: {sent} {received}");
    }
    let [sent, received] = measure(&server, &format!("-c ::1 {}", size()));
    assert!(sent >= 100_000_000 && received > 0, "{sent} {received}");
    for words in ["-c 127.0.0.1", "-c 127.0.0.1 -R", "-c 127.0.0.1 -P 4", "-c ::1"] {
        // Little enough that a loaded machine carries it; some may be lost all the same.
        let told = server.client(&format!("iperf3 -J -p $P {words} -u -l 1400 -b 4M -n 1M"));
        let told: serde_json::Value = serde_json::from_str(&told).expect("it speaks JSON");
        let (packets, lost) = (told["end"]["sum"]["packets"].as_u64(), told["end"]["sum"]["lost_packets"].as_u64());
        assert!(packets.is_some_and(|packets| packets >= 700) && lost.is_some_and(|lost| lost < 350), "{words}: {packets:?} {lost:?}");
    }
}
