// SPDX-License-Identifier: MIT OR Apache-2.0
//! A child that is watched through `/dev/cells`.

use crate::watched_cell::WatchedCell;
use pando_abi::holding::ChildState;
use pando_abi::{Event, HoldingName};
use pando_machine::CellsDevice;
use std::io::Result;

/// A child that is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchedChild<'a> {
    pub(crate) device: &'a CellsDevice,
    pub(crate) name: HoldingName,
}

impl WatchedChild<'_> {
    /// The name of a space; `None`: the one in which it continues.
    fn space(&self, space: Option<u32>) -> u64 {
        space.map_or_else(|| self.name.current_space(), |space| self.name.space(space))
    }
}

impl WatchedCell for WatchedChild<'_> {
    fn state(&self) -> Result<ChildState> {
        self.device.state(self.name)
    }

    fn halt(&self) -> Result<()> {
        self.device.halt(self.name)
    }

    fn resume(&self, how: u64) -> Result<()> {
        self.device.resume(self.name, how)
    }

    fn unwatch(&self) -> Result<()> {
        self.device.watch(self.name, 0)
    }

    fn raise_debug_event(&self) -> Result<()> {
        self.device.raise(self.name, Event::Debug, 0)
    }

    fn end(&self) -> Result<()> {
        self.device.end(self.name)
    }

    fn read_state(&self, kind: u64, buffer: &mut [u8]) -> Result<usize> {
        self.device.read_state(self.name, kind, buffer)
    }

    fn write_state(&self, kind: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_state(self.name, kind, bytes)
    }

    fn read(&self, space: Option<u32>, address: u64, buffer: &mut [u8]) -> Result<usize> {
        self.device.read(self.space(space), address, buffer)
    }

    fn write(&self, space: Option<u32>, address: u64, bytes: &[u8]) -> Result<()> {
        self.device.write_space(self.space(space), address, bytes)
    }
}
