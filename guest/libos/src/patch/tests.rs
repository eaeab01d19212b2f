// SPDX-License-Identifier: MIT OR Apache-2.0
//! The decoder against a library's, and where trampolines come to lie.

use std::vec::Vec;

use iced_x86::{ConditionCode, Decoder, DecoderOptions, FlowControl, Mnemonic, Register};
use proptest::prelude::*;

use super::decode::{Flow, decode};

/// Where the code is thought to lie.
const PLACE: u64 = 0x40_0000;

/// Holds what is known of the first instruction of `code` against what the library knows. Says whether it was known at all.
fn agrees(code: &[u8]) -> bool {
    let Some(known) = decode(code) else { return false };
    let mut decoder = Decoder::with_ip(64, code, PLACE, DecoderOptions::NONE);
    let instruction = decoder.decode();
    // What no CPU executes may be moved: it raises its exception there, too.
    if instruction.is_invalid() {
        return false;
    }
    assert_eq!(usize::from(known.length), instruction.len(), "{code:02x?}: {instruction:?}");
    let is_relative = matches!(instruction.memory_base(), Register::RIP | Register::EIP);
    assert_eq!(known.relative_operand.is_some(), is_relative, "{code:02x?}");
    if let Some(at) = known.relative_operand {
        assert_eq!(usize::from(at), decoder.get_constant_offsets(&instruction).displacement_offset(), "{code:02x?}");
    }
    let flow = instruction.flow_control();
    match known.flow {
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
            let target = (PLACE + u64::from(known.length)).wrapping_add_signed(distance.into());
            assert_eq!(target, instruction.near_branch_target(), "{code:02x?}");
            let code_of = instruction.condition_code();
            assert_eq!(condition.map(|condition| condition + 1), (code_of != ConditionCode::None).then_some(code_of as u8), "{code:02x?}");
        }
    }
    true
}

/// Every opcode with every ModRM byte, behind each of some prefixes.
#[test]
fn every_opcode_is_what_a_library_says_it_is() {
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
    let mut known = 0;
    for prefix in prefixes {
        for map in [&[][..], &[0x0f], &[0x0f, 0x38], &[0x0f, 0x3a]] {
            for opcode in 0..=255 {
                for modrm in 0..=255 {
                    for sib in [0x00, 0x25, 0xe5] {
                        let bytes = [opcode, modrm, sib, 0x78, 0x56, 0x34, 0x12, 0xf0, 0xde, 0xbc, 0x9a];
                        let code: Vec<u8> = prefix.iter().chain(map).chain(&bytes).copied().collect();
                        known += u32::from(agrees(&code));
                    }
                }
            }
        }
    }
    assert!(known > 1_000_000, "only {known} are known");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200_000))]
    #[test]
    fn random_bytes_are_what_a_library_says_they_are(code in prop::collection::vec(any::<u8>(), 1..20)) {
        agrees(&code);
    }
}
