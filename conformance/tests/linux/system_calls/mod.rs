// SPDX-License-Identifier: MIT OR Apache-2.0
//! How system calls are served: patched, trapped and traced.

mod patched;
mod strace;
