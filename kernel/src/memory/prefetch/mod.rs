// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefetching: the pages that clones of templates and of spaces are expected to access.

pub(in crate::memory) mod fork_prefetch;
pub(crate) mod prefetch_set;
pub(crate) mod training_trace;
