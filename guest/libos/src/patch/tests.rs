// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoder against a library's, and the addresses of trampolines.

use std::collections::BTreeSet;
use std::vec::Vec;

use iced_x86::{ConditionCode, Decoder, DecoderOptions, FlowControl, Mnemonic, Register};
use proptest::prelude::*;

use super::code::{JUMP, ReplacedCode, TrappingInstruction, WINDOW, replaced};
use super::decode::{Flow, decode};
use super::trampoline::{self, ENTRY_CODE};
use super::trampoline_space::{ENTRIES, UNDEFINED};
use super::{JUMPS, MAX_SITES, Patches, Site, TRAPS};

/// The assumed address of the code.
const PLACE: u64 = 0x40_0000;

/// Compares the decoding of the first instruction of `code` with the library's. Returns whether the decoder knew it.
fn agrees(code: &[u8]) -> bool {
    let Some(decoded) = decode(code) else { return false };
    let mut decoder = Decoder::with_ip(64, code, PLACE, DecoderOptions::NONE);
    let instruction = decoder.decode();
    // Invalid instructions may be moved: they raise their exception there, too.
    if instruction.is_invalid() {
        return false;
    }
    assert_eq!(usize::from(decoded.length), instruction.len(), "{code:02x?}: {instruction:?}");
    let is_relative = matches!(instruction.memory_base(), Register::RIP | Register::EIP);
    assert_eq!(decoded.relative_operand.is_some(), is_relative, "{code:02x?}");
    if let Some(at) = decoded.relative_operand {
        assert_eq!(usize::from(at), decoder.get_constant_offsets(&instruction).displacement_offset(), "{code:02x?}");
    }
    let flow = instruction.flow_control();
    match decoded.flow {
        Flow::Next => {
            let goes_on = matches!(flow, FlowControl::Next | FlowControl::Interrupt);
            assert!(goes_on && instruction.mnemonic() != Mnemonic::Cpuid, "{code:02x?}: {flow:?}");
        }
        Flow::Padding => assert!(matches!(instruction.mnemonic(), Mnemonic::Nop | Mnemonic::Int3 | Mnemonic::Pause), "{code:02x?}"),
        Flow::Leaves => {
            let leaves = matches!(flow, FlowControl::Return | FlowControl::IndirectBranch | FlowControl::Exception);
            assert!(leaves || instruction.mnemonic() == Mnemonic::Hlt, "{code:02x?}: {flow:?}");
        }
        Flow::Jump { condition, distance } => {
            let target = (PLACE + u64::from(decoded.length)).wrapping_add_signed(distance.into());
            assert_eq!(target, instruction.near_branch_target(), "{code:02x?}");
            let code_of = instruction.condition_code();
            assert_eq!(condition.map(|condition| condition + 1), (code_of != ConditionCode::None).then_some(code_of as u8), "{code:02x?}");
        }
    }
    true
}

/// Every opcode with every ModRM byte, behind each of some prefixes.
#[test]
fn every_opcode_decodes_as_in_a_library() {
    let prefixes: [&[u8]; 12] = [
        &[],
        &[0x66],
        &[0x48],
        &[0x66, 0x48],
        &[0x41],
        &[0xf2],
        &[0xf3],
        &[0x67],
        &[0x2e],
        &[0x66, 0x2e, 0x4f],
        &[0x48, 0x66],
        &[0xf3, 0x45],
    ];
    let mut count = 0;
    for prefix in prefixes {
        for map in [&[][..], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]] {
            for opcode in 0..=255 {
                for modrm in 0..=255 {
                    for sib in [0x00, 0x25, 0xe5] {
                        let bytes = [opcode, modrm, sib, 0x78, 0x56, 0x34, 0x12, 0xf0, 0xde, 0xbc, 0x9a];
                        let code: Vec<u8> = prefix.iter().chain(map).chain(&bytes).copied().collect();
                        count += u32::from(agrees(&code));
                    }
                }
            }
        }
    }
    assert!(count > 1_000_000, "only {count} are known");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200_000))]
    #[test]
    fn random_bytes_decode_as_in_a_library(code in prop::collection::vec(any::<u8>(), 1..20)) {
        agrees(&code);
    }
}

/// The code that a jump replaces over a system call followed by these bytes.
fn behind(follows: &[u8]) -> Option<ReplacedCode> {
    let code: Vec<u8> = [0x0f, 0x05].iter().chain(follows).copied().collect();
    replaced(&code, TrappingInstruction::Syscall)
}

#[test]
fn only_code_that_is_reached_is_moved() {
    let ends = |follows: &[u8]| behind(follows).map(|replaced| replaced.end);
    assert_eq!(ends(&[0x48, 0x3d, 1, 0xf0, 0xff, 0xff]), Some(8));
    assert_eq!(ends(&[0x90, 0x90, 0x90]), Some(5));
    assert_eq!(ends(&[0xc3, 0x0f, 0x1f, 0x44, 0, 0]), Some(8), "behind a return there is padding");
    assert_eq!(ends(&[0xc3, 0xcc, 0xcc]), Some(5));
    assert_eq!(ends(&[0xc3, 0x55, 0x53]), None, "or something else, which may be data");
    assert_eq!(ends(&[0xeb, 0x10, 0x55]), None);
    assert_eq!(ends(&[0x0f, 0x0b, 0x00]), None);
    assert_eq!(ends(&[0x74, 0x10, 0x55]), Some(5), "a jump that may not be taken");
    for follows in
        [&[0xe8, 0, 0, 0, 0][..], &[0xff, 0xd0, 0x90], &[0x0f, 0x05, 0x90], &[0x0f, 0xa2, 0x90], &[0xe2, 0xfe, 0x90], &[0x90, 0x90]]
    {
        assert_eq!(ends(follows), None, "{follows:02x?}");
    }
    assert_eq!(replaced(&[0x0f, 0xa2, 0x90, 0x90, 0x90], TrappingInstruction::Syscall), None, "it is not what it was");
}

/// Patches `sites`, each followed by the same code, as long as there is space.
fn patch(patches: &mut Patches, sites: impl Iterator<Item = u64>) {
    let replaced = behind(&[0x48, 0x3d, 1, 0xf0, 0xff, 0xff]).expect("it can be patched");
    let length = u64::from(trampoline::length(&replaced));
    for site in sites {
        let (start, is_new) = patches.find_trampoline_space(site, length, |page| page >= 0x1000_0000).expect("there is room");
        if is_new {
            patches.add_page(start / 0x1000 * 0x1000);
        }
        patches
            .add(site, Site { original: [0; JUMP], trampoline: start..start + length, offsets: trampoline::offsets(&replaced), jumps: 0 });
    }
}

#[test]
fn jumps_hold_undefined_opcodes_only_and_trampolines_lie_apart() {
    for base in [0x40_1000, 0x3fff_0000, 0x7000_0000_0000] {
        let mut patches = Patches::new([0x100, 0x200]);
        let sites: Vec<u64> = (0..400).map(|index| base + index * 173).collect();
        patch(&mut patches, sites.iter().copied());
        let mut end = 0;
        for (&start, site) in &patches.trampolines {
            assert!(start >= end, "two at {start:#x}");
            end = patches.site(*site).expect("it was added").trampoline.end;
            assert!(start / 0x1000 == (end - 1 + ENTRIES) / 0x1000, "{start:#x} leaves its page no room for the entries");
            let displacement = trampoline::displacement(site + JUMP as u64, start).expect("it is near");
            assert!(displacement.iter().all(|byte| UNDEFINED.contains(byte)), "{displacement:02x?}");
        }
        let text = sites.iter().map(|site| site / 0x1000).collect::<BTreeSet<_>>().len();
        assert!(patches.pages.len() <= text, "{} pages for {text} of code", patches.pages.len());
    }
}

#[test]
fn addresses_lead_to_trampolines_and_back() {
    let mut patches = Patches::new([0x100, 0x200]);
    let site = 0x40_1000;
    patch(&mut patches, [site, site + 0x20].into_iter());
    let start = patches.site(site).expect("it was added").trampoline.start;
    let copy = start + u64::from(ENTRY_CODE);
    assert_eq!((patches.copy(site + 2), patches.original(copy)), (Some(copy), Some(site + 2)));
    assert_eq!(patches.original(copy + 6), Some(site + 8), "the way back stands for what it leads to");
    assert_eq!((patches.original(start), patches.original(start + 14)), (Some(site), Some(site)));
    assert_eq!((patches.entry_code(start + 14), patches.entry_code(copy)), (Some(site), None));
    for address in [site, site + 1, site + 3, site + 4, site + 5, site + 8] {
        assert_eq!(patches.copy(address), None, "no instruction starts at {address:#x}");
    }
    assert_eq!((patches.jumped_into(site), patches.jumped_into(site + 1), patches.jumped_into(site + 5)), (None, Some(site), None));
    assert_eq!(patches.site_of_entry(0x100, [site + 2, 0]), Some(site));
    assert_eq!((patches.site_of_entry(0x200, [site + 2, 0]), patches.site_of_entry(0x104, [site + 2, 0])), (None, None));
    assert!(patches.covers(site + 7..site + 9) && !patches.covers(site + 8..site + 0x20));
}

#[test]
fn patches_with_too_many_jumps_are_removed() {
    let mut patches = Patches::new([0x100, 0x200]);
    let site = 0x40_1000;
    let traps = |patches: &mut Patches| (1..1000).find(|_| patches.record_trap(site, TrappingInstruction::Syscall));
    assert_eq!(traps(&mut patches), Some(TRAPS.get()));
    patch(&mut patches, [site].into_iter());
    assert!(!patches.allows_jump(site, site + 3), "no instruction starts there");
    assert!((1..JUMPS).all(|_| patches.allows_jump(site, site + 2)));
    assert!(!patches.allows_jump(site, site + 2));
    patches.give_up(site, false);
    assert!(patches.site(site).is_none() && patches.removed_count() == 1);
    assert!(traps(&mut patches) > Some(TRAPS.get()), "it waits longer the next time");
    patches.give_up(site, true);
    assert_eq!(traps(&mut patches), None);
    assert_eq!(
        (1..1000).find(|_| Patches::default().record_trap(site, TrappingInstruction::Syscall)),
        None,
        "without entries nothing is patched"
    );
}

#[test]
fn sites_that_trapped_since_their_code_changed_are_patched_together() {
    let mut patches = Patches::new([0x100, 0x200]);
    let sites = [0x40_1000, 0x40_2000, 0x40_3000, 0x40_4000, 0x40_5000];
    assert!(sites.iter().all(|site| !patches.record_trap(*site, TrappingInstruction::Syscall)), "one trap is not enough");
    patches.refuse(sites[1]);
    patches.expect_changes(sites[2]..sites[2] + 0x1000);
    patch(&mut patches, [sites[3]].into_iter());
    let pending = |patches: &Patches| patches.pending().map(|(site, _)| site).collect::<Vec<_>>();
    assert_eq!(pending(&patches), [sites[0], sites[4]]);
    assert!(patches.record_trap(sites[2], TrappingInstruction::Syscall));
    assert_eq!(pending(&patches), [sites[0], sites[2], sites[4]]);
    // In a clone, other sites wait longer.
    let mut clone = patches.clone();
    clone.note_clone();
    let traps = (1..1000).find(|_| clone.record_trap(sites[3] + 0x100, TrappingInstruction::Syscall));
    assert!(traps > Some(TRAPS.get()) && pending(&clone).contains(&(sites[3] + 0x100)));
    // A child counts its own traps.
    let mut child = patches.clone();
    child.reset_counts();
    assert!(
        pending(&child).is_empty()
            && !child.record_trap(sites[0], TrappingInstruction::Syscall)
            && child.record_trap(sites[0], TrappingInstruction::Syscall)
    );
    // Another run of the program may have other code there.
    let mut next = patches.fresh();
    next.import_counts(&patches);
    assert_eq!(pending(&next), []);
    assert!(next.record_trap(sites[4], TrappingInstruction::Syscall), "but its counts stay");
    (0..1000).for_each(|number| _ = next.record_trap(0x50_0000 + number * 0x100, TrappingInstruction::Cpuid));
    assert_eq!(pending(&next).len(), MAX_SITES);
}

#[test]
fn changes_of_memory_affect_code_and_trampolines() {
    let mut patches = Patches::new([0x100, 0x200]);
    let (first, second) = (0x40_1ffd, 0x40_3000);
    patch(&mut patches, [first, second].into_iter());
    assert_eq!(patches.sites_in(0x40_1000..0x40_2000), [first]);
    assert_eq!(patches.sites_in(0x40_2000..0x40_3000), [first], "its end lies there");
    assert_eq!(patches.sites_in(0x40_2000..0x40_4000), [first, second]);
    assert!(patches.sites_in(0x40_4000..0x100_0000).is_empty());
    let room = patches.site(second).expect("it was added").trampoline.start / 0x1000 * 0x1000;
    assert!(patches.sites_in(room..room + 0x1000).contains(&second));
    assert!(usize::from(behind(&[0x90; 3]).expect("it can be patched").end) <= WINDOW);
}
