// SPDX-License-Identifier: MIT OR Apache-2.0
//! Prefetching: the pages that clones of templates and of spaces are expected to access. Pure data: `spaces` records the
//! accesses and copies the pages.
//!
//! - [`page`]: pages and accesses
//! - [`training_trace`]: the pages that one clone of a template has accessed
//! - [`prefetch_set`]: the pages that later clones are expected to access, in batches
//! - [`training_traces`]: the traces of a template, and the set computed from them
//! - [`copy_clusters`]: how many pages around a written one are copied with it
//! - [`start_trace`]: which blocks of its disks a cell accesses at its start
//! - [`fork_prefetch`]: the pages that parent or child write after a clone of a space

mod copy_clusters;
mod fork_prefetch;
mod page;
mod prefetch_set;
mod start_trace;
mod training_trace;
mod training_traces;

pub(in crate::memory) use copy_clusters::CopyClusters;
pub(in crate::memory) use fork_prefetch::ForkPrefetch;
pub(crate) use page::PageAccess;
pub(in crate::memory) use page::{CellPage, VirtualPage};
pub(crate) use prefetch_set::{PrefetchBatch, PrefetchSet, PrefetchState};
pub use start_trace::{StartMode, StartTrace};
pub(crate) use training_trace::TrainingTrace;
pub(crate) use training_traces::TrainingTraces;
