// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the adversary remembers, rule by rule of the page-table discipline: a kernel that keeps the rule sees nothing, one that does not is caught.
