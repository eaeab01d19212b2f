// SPDX-License-Identifier: MIT OR Apache-2.0
//! Attacks through I/O ports (line 1).

use crate::bare::pair::{Attack, BareOutcome, Pair};
use crate::bare::{CODE, DATA, size};
use BareOutcome::{AnyFault, Calls, Ends, Fault};
use pando_abi::hypercall::PORT;
use pando_machine::SUPERVISOR_BASE;

/// `in` and `out` with the port in the instruction: name, and the bytes before the port.
const IMMEDIATE: [(&str, &[u8]); 6] =
    [("in al", b"\xe4"), ("in ax", b"\x66\xe5"), ("in eax", b"\xe5"), ("out al", b"\xe6"), ("out ax", b"\x66\xe7"), ("out eax", b"\xe7")];

/// Instructions that take the port from DX.
const IN_DX: [(&str, &[u8]); 12] = [
    ("in al, dx", b"\xec"),
    ("in ax, dx", b"\x66\xed"),
    ("in eax, dx", b"\xed"),
    ("out dx, al", b"\xee"),
    ("out dx, ax", b"\x66\xef"),
    ("out dx, eax", b"\xef"),
    ("insb", b"\x6c"),
    ("insw", b"\x66\x6d"),
    ("insd", b"\x6d"),
    ("outsb", b"\x6e"),
    ("outsw", b"\x66\x6f"),
    ("outsd", b"\x6f"),
];

#[test]
fn every_port_but_one_is_closed_to_every_width() {
    let mut pair = Pair::new();
    let near = usize::from(PORT) - 8..usize::from(PORT) + 8;
    for port in size::choose(near, 0..256, 0..256) {
        for (name, before) in IMMEDIATE {
            let allowed: &[BareOutcome] = match (port == usize::from(PORT), name) {
                (false, _) => &[Fault(13)],
                (true, "out al") => &[Calls],
                (true, _) => &[Fault(13), Ends],
            };
            pair.attack(&Attack::new(&format!("{name}, port {port:#x}"), &[before, &[port as u8]].concat(), allowed));
        }
    }
}

#[test]
fn ports_in_dx_are_closed_or_end_the_cell() {
    let mut pair = Pair::new();
    let near: Vec<u64> = vec![0, 0x77, 0x7b, 0x7c, 0x7d, 0x7e, 0x7f, 0x80, 0xff, 0x100, 0x17e, 0x7e00, 0x7fff, 0xffff, 0x1_007e];
    let all = (0..0x1_0000).collect();
    for port in size::choose(near.clone(), near, all) {
        for (name, code) in IN_DX {
            let allowed: &[BareOutcome] = if port & 0xffff == u64::from(PORT) { &[AnyFault, Ends, Calls] } else { &[Fault(13)] };
            let mut context = pair.start(code);
            context.registers.rdx = port;
            (context.registers.rsi, context.registers.rdi) = (DATA, DATA + 0x100);
            pair.attack_from(&Attack::new(&format!("{name} with dx {port:#x}"), code, allowed), context);
        }
    }
}

#[test]
fn string_instructions_on_the_hypercall_port_reach_no_other_cell() {
    let mut pair = Pair::new();
    let places = [DATA, DATA + 0xfff, DATA + 0x1000, CODE + 0x200, 0, 1 << 47, SUPERVISOR_BASE + 0x9800];
    let places = size::choose(&places[..3], &places[..], &places[..]);
    for (name, code) in &IN_DX[6..] {
        for prefix in [&b""[..], b"\xf3", b"\xf2", b"\xf3\x67", b"\x64"] {
            for count in
                size::choose(vec![3, 0x1800, u64::MAX], vec![0, 1, 3, 0x1800, u64::MAX], vec![0, 1, 2, 3, 7, 0x1800, 1 << 32, u64::MAX])
            {
                for (place, flags) in places.iter().flat_map(|place| [(*place, 0), (*place, 0x400), (*place, 0x100)]) {
                    let code = [prefix, code].concat();
                    let mut context = pair.start(&code);
                    (context.registers.rdx, context.registers.rcx, context.registers.rflags) = (u64::from(PORT), count, flags);
                    (context.registers.rsi, context.registers.rdi) = (place, place);
                    let name = format!("{name} with prefix {prefix:x?}, count {count:#x}, at {place:#x}, flags {flags:#x}");
                    pair.attack_from(&Attack::new(&name, &code, &[AnyFault, Ends, Calls]), context);
                }
            }
        }
    }
}
