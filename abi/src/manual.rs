// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prints the reference part of the manual from the declarations; a test keeps `docs/virtual-architecture.md` in step.

use crate::hypercall::{ARGUMENT_REGISTERS, TABLE};
use crate::virtual_registers::{Card, Control, Identity, Memory, Report, Time, VirtualRegisters, Window};
use crate::{Event, Refusal, SavedContext, layout, limits};
use core::fmt::{Result, Write};
use core::mem::offset_of;

/// Writes the reference part as Markdown.
///
/// # Errors
/// Those of `out`.
pub fn reference(out: &mut dyn Write) -> Result {
    hypercalls(out)?;
    writeln!(out, "### Refusals\n\n| number | name | cause |\n|---|---|---|")?;
    for refusal in Refusal::ALL {
        writeln!(out, "| {} | `{}` | {} |", *refusal as u16, refusal.name(), refusal.cause().trim())?;
    }
    writeln!(out, "\n### Events\n\n| bit | name | meaning |\n|---|---|---|")?;
    for event in Event::ALL {
        writeln!(out, "| {} | `{}` | {} |", *event as u8, event.name(), event.meaning().trim())?;
    }
    virtual_registers(out)?;
    addresses(out)?;
    bounds(out)
}

fn hypercalls(out: &mut dyn Write) -> Result {
    writeln!(out, "### Hypercalls\n\n| number | call | what it does |\n|---|---|---|")?;
    for call in TABLE {
        write!(out, "| {} | `{}(", call.number, call.name)?;
        for (position, (argument, register)) in call.arguments.iter().zip(ARGUMENT_REGISTERS).enumerate() {
            write!(out, "{}{argument}: {register}", if position == 0 { "" } else { ", " })?;
        }
        writeln!(out, ")` | {} |", call.text.trim())?;
    }
    writeln!(out)
}

fn virtual_registers(out: &mut dyn Write) -> Result {
    let control = offset_of!(VirtualRegisters, control);
    let time = offset_of!(VirtualRegisters, time);
    let memory = offset_of!(VirtualRegisters, memory);
    let identity = offset_of!(VirtualRegisters, identity);
    let report = offset_of!(VirtualRegisters, report);
    let window = offset_of!(VirtualRegisters, window);
    let card = offset_of!(VirtualRegisters, card);
    writeln!(out, "\n### Virtual registers\n\n| offset | name |\n|---|---|")?;
    for (offset, name) in [
        (control + offset_of!(Control, pending), "pending events"),
        (control + offset_of!(Control, mask), "masked events"),
        (control + offset_of!(Control, critical), "critical section"),
        (control + offset_of!(Control, level), "level"),
        (control + offset_of!(Control, exit_path_start), "exit path: first instruction"),
        (control + offset_of!(Control, exit_path_end), "exit path: end"),
        (control + offset_of!(Control, exception_entry), "exception entry"),
        (control + offset_of!(Control, event_entry), "event entry"),
        (control + offset_of!(Control, stacks), "stack pointers of the two levels"),
        (control + offset_of!(Control, timer), "timer deadline (ns)"),
        (time + offset_of!(Time, scale), "clock: ns per TSC cycle, times 2^32"),
        (time + offset_of!(Time, tsc_base), "clock: TSC base"),
        (time + offset_of!(Time, base), "clock: ns at the TSC base"),
        (time + offset_of!(Time, wall_base), "clock: ns since 1970 at clock 0"),
        (time + offset_of!(Time, frequency), "clock: TSC cycles per second"),
        (memory + offset_of!(Memory, quota), "memory: quota (pages)"),
        (memory + offset_of!(Memory, used), "memory: used (pages)"),
        (identity + offset_of!(Identity, generation), "identity: generation"),
        (identity + offset_of!(Identity, clone_index), "identity: clone index"),
        (identity + offset_of!(Identity, entropy), "identity: entropy"),
        (identity + offset_of!(Identity, host_name_length), "identity: length of the host name"),
        (identity + offset_of!(Identity, host_name), "identity: host name"),
        (offset_of!(VirtualRegisters, saves), "save level 0"),
        (offset_of!(VirtualRegisters, saves) + size_of::<SavedContext>(), "save level 1"),
        (report + offset_of!(Report, calls), "report: system calls"),
        (report + offset_of!(Report, missing_calls), "report: calls not implemented"),
        (report + offset_of!(Report, missing), "report: their numbers and how often each was made"),
        (window + offset_of!(Window, rows), "window: rows"),
        (window + offset_of!(Window, columns), "window: columns"),
        (card + offset_of!(Card, mtu), "network card: largest packet (bytes)"),
        (card + offset_of!(Card, mac), "network card: Ethernet address"),
        (card + offset_of!(Card, address4), "network card: IPv4 address and bits of its prefix"),
        (card + offset_of!(Card, router4), "network card: IPv4 router"),
        (card + offset_of!(Card, address6), "network card: IPv6 address"),
        (card + offset_of!(Card, prefix6), "network card: bits of its prefix"),
        (card + offset_of!(Card, router6), "network card: IPv6 router"),
        (card + offset_of!(Card, resolver4), "network card: IPv4 resolver of names"),
        (offset_of!(VirtualRegisters, source_frozen_at), "identity: the clock when the source was frozen (ns)"),
        (offset_of!(VirtualRegisters, steal), "steal time: how long the cell waited for a vCPU (ns)"),
    ] {
        writeln!(out, "| {offset:#05x} | {name} |")?;
    }
    writeln!(out, "\n### Words of a saved context\n\n| offset | word |\n|---|---|")?;
    for (index, name) in SavedContext::NAMES.iter().enumerate() {
        writeln!(out, "| {:#04x} | `{name}` |", index * 8)?;
    }
    Ok(())
}

fn addresses(out: &mut dyn Write) -> Result {
    writeln!(out, "\n### Addresses\n\n| address | what lies there |\n|---|---|")?;
    for (address, what) in [
        (layout::ROOT_IMAGE, "volumes, read-only, one a slot; the first is the root"),
        (layout::VIRTUAL_REGISTERS, "virtual registers"),
        (layout::CONSOLE_RINGS, "rings of the console"),
        (layout::NETWORK_RINGS, "rings of the network card"),
        (layout::CONTROL_RINGS, "rings of the control channel"),
        (layout::CPUID_TABLE, "CPUID table"),
        (layout::VOLUMES, "table of volumes"),
        (layout::LIBOS, "libOS"),
        (layout::ARGUMENTS, "arguments"),
        (layout::LIBOS_CODE, "the libOS's code"),
        (layout::SYSTEM_FREE, "free for the libOS"),
        (layout::USER_END, "end of what a cell can map"),
    ] {
        writeln!(out, "| `{address:#x}` | {what} |")?;
    }
    Ok(())
}

fn bounds(out: &mut dyn Write) -> Result {
    writeln!(out, "\n### Limits\n\n| limit | value |\n|---|---|")?;
    for (name, value) in [
        ("spaces of a cell", u64::from(limits::MAX_SPACES)),
        ("segments of a cell", u64::from(limits::MAX_SEGMENTS)),
        ("mounts of all spaces of a cell", u64::from(limits::MAX_MOUNTS)),
        ("disks of a cell", u64::from(limits::MAX_DISKS)),
        ("pages of one call", limits::MAX_PAGES),
        ("bytes of one `write`", limits::MAX_WRITE_BYTES),
        ("calls of one `batch`", limits::MAX_BATCH_CALLS),
        ("descriptors of the console's transmit ring", limits::TRANSMIT_DESCRIPTORS as u64),
        ("descriptors of the console's receive ring", limits::RECEIVE_DESCRIPTORS as u64),
        ("descriptors of each ring of the channel", limits::CHANNEL_DESCRIPTORS as u64),
        ("descriptors of each ring of the network card", limits::NETWORK_DESCRIPTORS as u64),
        ("bytes of the largest frame", crate::frame::FRAME_MAX as u64),
        ("bytes of one descriptor", u64::from(limits::MAX_DESCRIPTOR_BYTES)),
        ("largest CPU weight", limits::MAX_CPU_WEIGHT),
        ("bytes of a host name", limits::HOST_NAME_BYTES as u64),
        ("bytes of entropy per generation", limits::ENTROPY_BYTES as u64),
    ] {
        writeln!(out, "| {name} | {value} |")?;
    }
    Ok(())
}
