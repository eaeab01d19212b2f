// SPDX-License-Identifier: MIT OR Apache-2.0
//! busybox: its shell and its applets.

mod applets;
mod busybox;
