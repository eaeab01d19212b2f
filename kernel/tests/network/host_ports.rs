// SPDX-License-Identifier: MIT OR Apache-2.0
//! Host ports: the host's own ports on a network.

use pando_kernel::limits::MAX_NETWORKS;
use pando_kernel::network::address::{Addresses, Mac};
use pando_kernel::network::link::Link;
use pando_kernel::{End, NetworkConfig, OperatorError, RunState};
use pando_testing::network_lab::{NetworkLab, packet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Addresses of a host that is no cell.
fn external_host(bench: &NetworkLab) -> Addresses {
    Addresses { mac: Mac([2, 9, 9, 9, 9, 9]), v4: [192, 0, 2, 1].into(), ..bench.addresses(0) }
}

#[test]
fn frames_for_no_cell_go_to_the_host_port_which_may_answer_from_any_address() {
    for mut bench in NetworkLab::both(2).into_iter().chain(NetworkLab::sleep_when_idle(2)) {
        let wakes = Arc::new(AtomicUsize::new(0));
        let woken = Arc::clone(&wakes);
        let host_port = bench.lab.kernel.host_port(bench.network, Link::default(), move || {
            woken.fetch_add(1, Ordering::Relaxed);
        });
        let host_port = host_port.expect("there is room");
        let (a, outside) = (bench.addresses(0), external_host(&bench));
        let frames = [packet(&a, &outside, 100, 1), packet(&a, &outside, 200, 2), packet(&a, &bench.addresses(1), 300, 3)];
        bench.send(0, &frames);
        assert_eq!(wakes.load(Ordering::Relaxed), 1, "once for all that waits");
        assert_eq!(host_port.receive(1), frames[..1]);
        assert_eq!(host_port.receive(9), frames[1..2]);
        bench.listen(0, 1);
        let answer = packet(&outside, &a, 99, 4);
        host_port.send([answer.clone().into()]);
        bench.lab.run_all();
        assert_eq!(bench.received(0), [[answer]]);
        assert_eq!((host_port.traffic().sent.frames, host_port.traffic().received.frames), (1, 2));
        drop(host_port);
        bench.close();
    }
}

#[test]
fn cells_of_an_isolated_network_reach_host_ports_only() {
    let config = NetworkConfig { is_isolated: true, ..NetworkConfig::default() };
    for mut bench in NetworkLab::with(2, config, Link::default()) {
        let host_port = bench.lab.kernel.host_port(bench.network, Link::default(), || {}).expect("there is room");
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        let outside = external_host(&bench);
        bench.listen(1, 1);
        let mut broadcast = packet(&a, &b, 100, 2);
        broadcast[..6].fill(0xff);
        // Alone, a frame for another cell would be copied from memory to memory.
        bench.send(0, &[packet(&a, &b, 100, 1)]);
        bench.send(0, &[packet(&a, &b, 100, 1), broadcast.clone(), packet(&a, &outside, 100, 3)]);
        assert_eq!(host_port.receive(9), [broadcast, packet(&a, &outside, 100, 3)]);
        assert_eq!(bench.traffic(1).received.frames + bench.traffic(1).waiting.frames, 0, "no frame of a cell reaches another one");
        let answer = packet(&outside, &b, 99, 4);
        host_port.send([answer.clone().into()]);
        bench.lab.run_all();
        assert_eq!(bench.received(1), [[answer]]);
        drop(host_port);
        bench.close();
    }
}

#[test]
fn a_switch_learns_the_host_port_of_an_address() {
    for mut bench in NetworkLab::both(1) {
        let host_ports = [0, 1].map(|_| bench.lab.kernel.host_port(bench.network, Link::default(), || {}).expect("there is room"));
        let (a, outside) = (bench.addresses(0), external_host(&bench));
        bench.send(0, &[packet(&a, &outside, 100, 1)]);
        assert_eq!(host_ports.each_ref().map(|host_port| host_port.receive(9).len()), [1, 1], "it may be behind either");
        host_ports[1].send([packet(&outside, &a, 100, 2).into()]);
        bench.lab.run_all();
        bench.send(0, &[packet(&a, &outside, 100, 3)]);
        assert_eq!(host_ports.each_ref().map(|host_port| host_port.receive(9).len()), [0, 1]);
        // The port of a cell's address cannot be changed.
        host_ports[0].send([packet(&a, &outside, 100, 4).into()]);
        host_ports[1].receive(9);
        bench.lab.run_all();
        bench.listen(0, 1);
        host_ports[1].send([packet(&outside, &a, 100, 5).into()]);
        bench.kick(0);
        assert_eq!(bench.received(0).concat().len(), 2);
        drop(host_ports);
        bench.close();
    }
}

#[test]
fn a_host_ports_link_delays_its_frames() {
    let link = Link { delay: Duration::from_millis(20), ..Link::default() };
    for mut bench in NetworkLab::both(1) {
        let host_port = bench.lab.kernel.host_port(bench.network, link, || {}).expect("there is room");
        let frame = packet(&external_host(&bench), &bench.addresses(0), 100, 1);
        bench.listen(0, 1);
        let sent = bench.lab.kernel.now();
        host_port.send([frame.clone().into()]);
        assert_eq!(host_port.traffic().in_transit, frame.len() as u64);
        bench.lab.run_all();
        assert!(bench.lab.kernel.now() >= sent + link.delay);
        assert_eq!(bench.received(0), [[frame]]);
        drop(host_port);
        bench.close();
    }
}

#[test]
fn a_packet_capture_gets_all_frames_in_order_and_changes_nothing() {
    for mut bench in NetworkLab::both(2) {
        let wakes = Arc::new(AtomicUsize::new(0));
        let woken = Arc::clone(&wakes);
        let capture = bench.lab.kernel.capture_packets(bench.network, move || {
            woken.fetch_add(1, Ordering::Relaxed);
        });
        let capture = capture.expect("there is a network");
        let host_port = bench.lab.kernel.host_port(bench.network, Link::default(), || {}).expect("there is room");
        let [a, b] = [0, 1].map(|cell| bench.addresses(cell));
        let frames = [packet(&a, &b, 100, 1), packet(&a, &external_host(&bench), 100, 2), packet(&b, &a, 100, 3)];
        bench.send(0, &frames[..2]);
        bench.send(1, &frames[2..]);
        let received = capture.receive(9);
        assert!(received.iter().map(|(_, frame)| &frame[..]).eq(frames.iter().map(|frame| &frame[..])));
        assert!(received.is_sorted_by_key(|(moment, _)| *moment));
        assert_eq!((wakes.load(Ordering::Relaxed), capture.lost()), (1, 0));
        assert_eq!(host_port.receive(9), frames[1..2], "what is for a cell is for nobody else");
        assert_eq!(bench.traffic(1).max_waiting.frames, 1);
        drop((capture, host_port));
        bench.send(0, &frames[..1]);
        bench.close();
    }
}

#[test]
fn a_network_is_found_by_its_name_which_it_has_alone() {
    for bench in NetworkLab::both(1) {
        let kernel = &bench.lab.kernel;
        let named = |name: &str| NetworkConfig { name: name.into(), ..NetworkConfig::default() };
        let [web, other] = ["web", "other"].map(|name| kernel.add_network(named(name)).expect("there are few"));
        assert_eq!((kernel.network("web"), kernel.network("other"), kernel.network("none")), (Some(web), Some(other), None));
        assert_eq!(kernel.add_network(named("web")), Err(OperatorError::NameTaken("web".into())));
        // Networks without a name are not limited to one.
        assert!(kernel.add_network(named("")).is_ok() && kernel.add_network(named("")).is_ok() && kernel.network("").is_none());
        bench.close();
    }
}

#[test]
fn an_unused_network_makes_room_for_another() {
    for mut bench in NetworkLab::both(1) {
        let named = |name: &str| NetworkConfig { name: name.into(), ..NetworkConfig::default() };
        let kernel = &bench.lab.kernel;
        assert_eq!(kernel.remove_network(bench.network), Err(OperatorError::NetworkInUse), "a cell is plugged in");
        let first = kernel.add_network(named("web")).expect("there are few");
        let host_port = kernel.host_port(first, Link::default(), || {}).expect("there is room");
        assert_eq!(kernel.remove_network(first), Err(OperatorError::NetworkInUse));
        drop(host_port);
        for _ in 0..MAX_NETWORKS {
            let last = kernel.add_network(named("web2")).expect("the one before has gone");
            assert_eq!(kernel.remove_network(last), Ok(()));
        }
        assert_eq!((kernel.remove_network(first), kernel.network("web")), (Ok(()), None));
        let second = kernel.add_network(named("web")).expect("its name is free");
        assert!(second != first && kernel.router(first).is_err(), "a name of the kernel's is never another's");
        let (id, _) = bench.remove(0);
        bench.lab.kernel.end(id, End::Killed).expect("it idles");
        assert_eq!(bench.lab.kernel.remove_network(bench.network), Ok(()));
        bench.close();
    }
}

/// A broadcast is not for sleeping cells. A request for the address of one wakes it, and no other.
#[test]
fn only_frames_for_a_sleeping_cell_wake_it_up() {
    for mut bench in NetworkLab::sleep_when_idle(2) {
        let host_port = bench.lab.kernel.host_port(bench.network, Link::default(), || {}).expect("there is room");
        let outside = external_host(&bench);
        let group = Addresses { mac: Mac([0xff; 6]), ..bench.addresses(0) };
        (0..2).for_each(|cell| bench.listen(cell, 2));
        bench.lab.run_all();
        let states = |bench: &NetworkLab| {
            for cell in [0, 1] {
                let asleep = matches!(bench.lab.kernel.inspect(bench.cells[cell].0).expect("it lives").0, RunState::Asleep { .. });
                assert!(asleep, "each idle sleeps");
            }
            bench.lab.kernel.sleep_counters().wakes
        };
        // The test's writes have woken them up, so they sleep again only now.
        (0..2).for_each(|cell| bench.kick(cell));
        let before = states(&bench);
        host_port.send([packet(&outside, &group, 100, 1).into()]);
        bench.lab.run_all();
        assert_eq!(states(&bench), before);
        host_port.send([packet(&outside, &bench.addresses(1), 100, 2).into(), packet(&outside, &bench.addresses(1), 100, 3).into()]);
        bench.lab.run_all();
        assert_eq!(states(&bench), before + 1);
        let mut request = packet(&outside, &group, 60, 0);
        request[12..14].copy_from_slice(&[8, 6]);
        request[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
        request[38..42].copy_from_slice(&bench.addresses(0).v4.octets());
        host_port.send([request.clone().into()]);
        bench.lab.run_all();
        assert_eq!(states(&bench), before + 2);
        assert_eq!(bench.received(0), [[request]]);
        assert_eq!(bench.received(1).concat().len(), 2);
        drop(host_port);
        bench.close();
    }
}
