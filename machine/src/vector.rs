// SPDX-License-Identifier: MIT OR Apache-2.0
//! Vector state: x87, MXCSR, SSE, AVX and AVX-512 registers in the XSAVE layout.

/// Bytes of the XSAVE area without AMX, as KVM exchanges it.
const SIZE: usize = 4096;

/// A saved vector state. Large, so it lies on the heap; only preempted and faulting cells have one.
#[derive(Clone, PartialEq, Eq)]
pub struct VectorState(Box<[u32; SIZE / 4]>);

impl VectorState {
    /// The state in these words of an XSAVE area.
    #[must_use]
    pub fn from_words(words: [u32; SIZE / 4]) -> VectorState {
        VectorState(Box::new(words))
    }

    /// The words of the XSAVE area.
    #[must_use]
    pub fn words(&self) -> &[u32; SIZE / 4] {
        &self.0
    }

    /// Decodes untrusted words. `None`: their number is wrong, or no CPU without AMX loads them. (Intel SDM volume 1, 13.4.2 and 10.2.3)
    #[must_use]
    pub fn from_untrusted(words: &[u32]) -> Option<VectorState> {
        let words: &[u32; SIZE / 4] = words.try_into().ok()?;
        // The rest of the header is reserved, or for the compacted form.
        let is_sound = words[6] & !0xffff == 0 && words[130..144].iter().all(|word| *word == 0);
        is_sound.then(|| VectorState::from_words(*words))
    }

    /// The state after reset: x87 control word 0x37f, MXCSR 0x1f80, every register zero.
    #[must_use]
    pub fn initial() -> VectorState {
        let mut words = [0; SIZE / 4];
        words[0] = 0x37f;
        words[6] = 0x1f80;
        // The header's bit map includes x87 and SSE; the rest takes its initial value.
        words[128] = 0b11;
        VectorState::from_words(words)
    }
}

impl std::fmt::Debug for VectorState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VectorState(mxcsr {:#x})", self.0[6])
    }
}

#[cfg(test)]
mod tests {
    use super::VectorState;

    #[test]
    fn vector_state_that_no_cpu_loads_is_refused() {
        let good = *VectorState::initial().words();
        assert_eq!(VectorState::from_untrusted(&good), Some(VectorState::initial()));
        // MXCSR's reserved half, the compacted form, the header's reserved rest.
        for index in [6, 130, 131, 143] {
            let mut words = good;
            words[index] |= 1 << 31;
            assert_eq!(VectorState::from_untrusted(&words), None, "word {index}");
        }
        assert_eq!(VectorState::from_untrusted(&good[1..]), None);
    }
}
