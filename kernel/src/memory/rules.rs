// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules of the [page-table discipline](super) to leave out, for canaries: tests that must fail without a rule.

/// Rules of the page-table discipline to leave out: for canaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OmittedRules(u8);

impl OmittedRules {
    /// Leave out no rule.
    pub const NONE: OmittedRules = OmittedRules(0);
    /// Leave out rule 1: a page's entry may change to anything in place.
    pub const WITHOUT_IN_PLACE_LIMITS: OmittedRules = OmittedRules(1 << 1);
    /// Leave out the end of rule 1: a private copy is not confirmed.
    pub const WITHOUT_CONFIRMATION: OmittedRules = OmittedRules(1 << 7);
    /// Leave out rule 2: every change is made in place.
    pub const WITHOUT_FRESH_PATHS: OmittedRules = OmittedRules(1 << 2);
    /// Leave out the end of rule 2: tables stay fresh when a CPU may know them.
    pub const WITHOUT_ENTRIES: OmittedRules = OmittedRules(1);
    /// Leave out rule 3: a retired table is free at once.
    pub const WITHOUT_QUARANTINE: OmittedRules = OmittedRules(1 << 3);
    /// Leave out rule 4: an edit leaves the running root as it is.
    pub const WITHOUT_NEW_ROOT: OmittedRules = OmittedRules(1 << 4);
    /// Leave out rule 5: the kernel writes into pages that are shared.
    pub const WITHOUT_UNSHARE: OmittedRules = OmittedRules(1 << 5);
    /// Leave out rule 6: a root keeps its first stamp.
    pub const WITHOUT_STAMPS: OmittedRules = OmittedRules(1 << 6);

    pub(crate) fn omits(self, rule: OmittedRules) -> bool {
        self.0 & rule.0 != 0
    }
}
