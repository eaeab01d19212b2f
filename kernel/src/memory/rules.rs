// SPDX-License-Identifier: MIT OR Apache-2.0
//! Rules of the [page-table discipline](super) to leave out, for canaries: tests that must fail without a rule.

/// Rules of the page-table discipline to leave out: for canaries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules(u8);

impl Rules {
    /// Leave out no rule.
    pub const ALL_KEPT: Rules = Rules(0);
    /// Leave out rule 1: a page's entry may change to anything in place.
    pub const WITHOUT_LIMITS: Rules = Rules(1 << 1);
    /// Leave out the end of rule 1: a private copy is not confirmed.
    pub const WITHOUT_CONFIRMATION: Rules = Rules(1 << 7);
    /// Leave out rule 2: every change is made in place.
    pub const WITHOUT_FRESH_PATHS: Rules = Rules(1 << 2);
    /// Leave out the end of rule 2: tables stay fresh when a CPU may know them.
    pub const WITHOUT_ENTRIES: Rules = Rules(1);
    /// Leave out rule 3: a retired table is free at once.
    pub const WITHOUT_QUARANTINE: Rules = Rules(1 << 3);
    /// Leave out rule 4: an edit leaves the running root as it is.
    pub const WITHOUT_NEW_ROOT: Rules = Rules(1 << 4);
    /// Leave out rule 5: the kernel writes into pages that are shared.
    pub const WITHOUT_BREAKING: Rules = Rules(1 << 5);
    /// Leave out rule 6: a root keeps its first stamp.
    pub const WITHOUT_STAMPS: Rules = Rules(1 << 6);

    pub(crate) fn contains_rule(self, rule: Rules) -> bool {
        self.0 & rule.0 != 0
    }
}
