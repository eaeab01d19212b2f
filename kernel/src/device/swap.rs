// SPDX-License-Identifier: MIT OR Apache-2.0
//! The interface of swap space, which keeps the records of sleeping cells. The host's side implements it.

/// A record in swap space.
#[derive(Debug, PartialEq, Eq)]
pub struct SwapSlot(pub u64);

/// Why swap space did not do its work, in words for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SwapError {
    /// There is no room for the record.
    #[error("the swap space is full")]
    Full,
    /// The host failed.
    #[error("{0}")]
    Host(String),
    /// The bytes that were read are not those that were written.
    #[error("its record in the swap space is damaged")]
    Damaged,
}

/// Use of swap space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwapUsage {
    /// Bytes that records take, as they are stored.
    pub used: u64,
    /// Bytes that they may take.
    pub size: u64,
    /// Number of records.
    pub records: u64,
}

/// Swap space: keeps records of any length.
///
/// It is called without the kernel's lock, except for [`Swap::discard`] and [`Swap::usage`], which must not wait for a device.
pub trait Swap: Send + Sync {
    /// Keeps a record.
    ///
    /// # Errors
    /// It is not kept: there is no room, or the host failed.
    fn put(&self, record: &[u8]) -> Result<SwapSlot, SwapError>;

    /// Reads a record, which stays in its slot. The bytes are those that were put, or there is an error.
    ///
    /// # Errors
    /// The record cannot be read.
    fn read(&self, slot: &SwapSlot) -> Result<Vec<u8>, SwapError>;

    /// Frees the slot of a record.
    fn discard(&self, slot: SwapSlot);

    /// Its use.
    fn usage(&self) -> SwapUsage;
}
