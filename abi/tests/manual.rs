// SPDX-License-Identifier: MIT OR Apache-2.0
//! Keeps `docs/virtual-architecture.md` in step with the declarations.
//!
//! [`pando_abi::manual`] prints the part between the markers; `UPDATE=1 cargo test -p pando-abi --test manual` updates it. The
//! handwritten part contains layouts and numbers too: this test makes the lines of these tables from the declarations and looks for them.

use pando_abi::boot_info::{ArgumentsHeader, VolumesHeader};
use pando_abi::hypercall::TABLE;
use pando_abi::ring::{ConsoleRings, ControlRings, Descriptor, ERRORS, FAULTED, NO_READER, NetworkRings, OUTPUT, Ring, Rings};
use pando_abi::{MapFlags, Permissions, Refusal, SavedContext, VERSION, boot_info, cpuid, layout, limits, manual, registers};
use std::mem::offset_of;
use std::path::PathBuf;

const START: &str = "<!-- reference: printed from crate abi -->\n";
const END: &str = "<!-- end of the reference -->\n";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../docs/virtual-architecture.md")
}

fn manual_text() -> String {
    std::fs::read_to_string(path()).expect("the manual is there")
}

/// Checks that every one of these lines or phrases is in the manual; names the missing ones.
fn check(phrases: &[String]) {
    // Line breaks do not matter.
    let text = manual_text().split_whitespace().collect::<Vec<_>>().join(" ");
    let missing: Vec<&String> = phrases.iter().filter(|phrase| !text.contains(phrase.as_str())).collect();
    assert!(missing.is_empty(), "docs/virtual-architecture.md does not say any more what the declarations say; look for {missing:#?}");
}

#[test]
fn the_reference_matches_the_declarations() {
    let mut reference = String::new();
    manual::reference(&mut reference).expect("a string takes everything");
    let text = manual_text();
    let (before, rest) = text.split_once(START).expect("the manual has a marker where the reference starts");
    let (printed, after) = rest.split_once(END).expect("the manual has a marker where the reference ends");
    let wanted = format!("\n{reference}\n");
    if printed == wanted {
        return;
    }
    if std::env::var_os("UPDATE").is_some_and(|value| value == "1") {
        std::fs::write(path(), [before, START, &wanted, END, after].concat()).expect("the manual can be written");
        return;
    }
    let differing = printed.lines().zip(wanted.lines()).find(|(old, new)| old != new);
    let (old, new) = differing.unwrap_or(("(another number of lines)", ""));
    panic!(
        "the manual's reference is out of step; print it anew: UPDATE=1 cargo test -p pando-abi --test manual\n  is: {old}\n  should be: {new}"
    );
}

#[test]
fn the_layouts_of_shared_memory_are_the_declared_ones() {
    let transmit = offset_of!(ConsoleRings, transmit);
    let receive = offset_of!(ConsoleRings, receive);
    let descriptors = offset_of!(Ring<1>, descriptors);
    let row = |offset: usize, what: &str| format!("| {offset:#05x} | {what} |");
    let network = offset_of!(Rings, network);
    let (network_transmit, network_receive) = (network + offset_of!(NetworkRings, transmit), network + offset_of!(NetworkRings, receive));
    let control = offset_of!(Rings, control);
    let (reports, orders) = (control + offset_of!(ControlRings, reports), control + offset_of!(ControlRings, orders));
    check(&[
        row(reports + offset_of!(Ring<1>, posted), "reports: posted"),
        row(reports + offset_of!(Ring<1>, taken), "reports: taken"),
        row(reports + descriptors, "reports: descriptors"),
        row(orders + offset_of!(Ring<1>, posted), "orders: posted"),
        row(orders + offset_of!(Ring<1>, taken), "orders: taken"),
        row(orders + descriptors, "orders: descriptors"),
        row(network_transmit + offset_of!(Ring<1>, posted), "network transmit: posted"),
        row(network_transmit + offset_of!(Ring<1>, taken), "network transmit: taken"),
        row(network_transmit + descriptors, "network transmit: descriptors"),
        row(network_receive + offset_of!(Ring<1>, posted), "network receive: posted"),
        row(network_receive + offset_of!(Ring<1>, taken), "network receive: taken"),
        row(network_receive + descriptors, "network receive: descriptors"),
        row(transmit + offset_of!(Ring<1>, posted), "transmit: posted"),
        row(transmit + offset_of!(Ring<1>, taken), "transmit: taken"),
        row(transmit + descriptors, "transmit: descriptors"),
        row(receive + offset_of!(Ring<1>, posted), "receive: posted"),
        row(receive + offset_of!(Ring<1>, taken), "receive: taken"),
        row(receive + descriptors, "receive: descriptors"),
        row(offset_of!(Descriptor, address), "descriptor: address"),
        row(offset_of!(Descriptor, length), "descriptor: length"),
        row(offset_of!(Descriptor, tag), "descriptor: tag"),
        row(offset_of!(cpuid::Entry, leaf), "entry: leaf"),
        row(offset_of!(cpuid::Entry, subleaf), "entry: subleaf"),
        row(offset_of!(cpuid::Entry, indexed), "entry: indexed"),
        row(offset_of!(cpuid::Entry, answer), "entry: answer"),
        row(offset_of!(ArgumentsHeader, arguments), "header: arguments"),
        row(offset_of!(ArgumentsHeader, environment), "header: environment"),
        row(offset_of!(ArgumentsHeader, bytes), "header: bytes"),
        row(offset_of!(ArgumentsHeader, terminals), "header: terminals"),
        row(offset_of!(ArgumentsHeader, options), "header: options"),
        row(offset_of!(ArgumentsHeader, user), "header: user"),
        row(offset_of!(ArgumentsHeader, group), "header: group"),
        row(offset_of!(ArgumentsHeader, rows), "header: rows"),
        row(offset_of!(ArgumentsHeader, columns), "header: columns"),
        row(offset_of!(ArgumentsHeader, exports), "header: exports"),
        row(offset_of!(ArgumentsHeader, stop_signal), "header: stop_signal"),
        row(offset_of!(ArgumentsHeader, read_only), "header: read-only"),
        row(offset_of!(ArgumentsHeader, groups), "header: groups"),
        row(offset_of!(ArgumentsHeader, mounts), "header: mounts"),
        row(offset_of!(ArgumentsHeader, temporary), "header: temporary"),
        row(ArgumentsHeader::SIZE, "strings"),
        row(offset_of!(VolumesHeader, volumes), "table: volumes"),
        row(offset_of!(VolumesHeader, bytes), "table: bytes"),
        row(offset_of!(VolumesHeader, volume_bytes), "table: bytes of each volume"),
        row(VolumesHeader::SIZE, "mount points"),
        format!("a descriptor has {} bytes", Descriptor::SIZE),
        format!("An entry has {} bytes", cpuid::Entry::SIZE),
        format!("length is `{FAULTED:#x}`"),
        format!("length is `{NO_READER:#x}`"),
        format!("tag {OUTPUT} is standard output, tag {ERRORS} standard error"),
    ]);
}

#[test]
fn the_numbers_in_the_text_are_the_declared_ones() {
    let flags = |eager, large| MapFlags { permissions: Permissions::NONE, eager, large }.bits();
    check(&[
        format!("type {}, name `{}`", boot_info::TYPE, boot_info::NAME),
        format!("interface is version {VERSION}"),
        format!("{} hypercalls", TABLE.len()),
        format!("bits {} read, {} write, {} execute", Permissions::READ.bits(), 2, 4),
        format!("{} eager, {} large", flags(true, false), flags(false, true)),
        format!("`{:#x}`: the selector of 64-bit user code", registers::USER_CODE),
        format!("`{:#x}`: the selector of user data", registers::USER_DATA),
        format!("`{:#x}`: the flags that a cell may set", registers::USER_FLAGS),
        format!("`{:#x}`: the flags that are always set", registers::FIXED_FLAGS),
        format!("`{:#x}`, a system call", registers::cause::SYSCALL),
        format!("`{:#x}`, events", registers::cause::EVENTS),
        format!("`{:#x}` in the error code", registers::UNREADABLE),
        format!("{} slots of 512 GiB", layout::SLOTS),
        format!("At most {} bytes of a descriptor count", limits::MAX_DESCRIPTOR_BYTES),
        format!("`{:#x}` for `Quota`", Refusal::Quota.to_result()),
        format!("{} words", SavedContext::WORDS),
    ]);
}
